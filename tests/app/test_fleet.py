"""`mycroft fleet` over a store that a collector really made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mycroft.analysis.fleet import LocalExecutor, Window, digest, run
from mycroft.analysis.fleet.reductions import REDUCTIONS
from mycroft.app import fleet
from mycroft.app.cli import main
from mycroft.app.live.state import LiveState
from mycroft.app.state import State
from mycroft.loaders.collector import Collector, CollectorSettings
from mycroft.loaders.fleet import FleetStore, PlaceError, open_fleet, open_place, ship
from mycroft.tracer.agent.batch import encode
from tests.app.live.simulated import Job

NOW_NS = 1_790_000_000_000_000_000
HOUR_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a collector that was told ten seconds of a simulated job, in several segments a table."""
    folder = tmp_path_factory.mktemp("fleet")
    collector = Collector(CollectorSettings(folder=folder / "live" / "store"))
    job = Job("nic_down", rank=5, until_ns=NOW_NS, after_s=6.0)
    collector.start()
    for _, batches in job.batches(first_ns=4_000_000_000, step_ns=3_000_000_000):
        for batch in batches:
            collector.take(encode(batch))
        collector.flush()
    collector.close()
    yield folder


WINDOW = Window(NOW_NS - HOUR_NS, NOW_NS + HOUR_NS)


def test_every_reduction_over_the_store_is_the_same_in_pieces_and_as_a_whole(data: Path) -> None:
    reader = open_fleet(str(data))
    for reduction in REDUCTIONS:
        segments = reader.manifest.of(reduction.table)
        assert len(segments) > 1
        whole = run(reduction, reader.pieces_of(segments), WINDOW, LocalExecutor())
        single = [piece for segment in segments for piece in reader.pieces_of([segment])]
        assert whole.num_rows > 0
        assert digest(run(reduction, single, WINDOW, LocalExecutor())) == digest(whole)


def test_heat_map_has_every_host_and_is_the_same_when_it_is_asked_again(data: Path) -> None:
    reader = open_fleet(str(data))
    first = fleet.heat_map(reader, "idle_max_ms", WINDOW)
    assert list(first.hosts) == ["sim0", "sim1", "sim2", "sim3"]
    assert first.grid.max() > 1000
    again = fleet.heat_map(reader, "idle_max_ms", WINDOW)
    assert (again.hosts, again.first_ns, again.grid.tolist()) == (first.hosts, first.first_ns, first.grid.tolist())


def test_what_was_pushed_says_the_same_and_is_pushed_once(data: Path, tmp_path: Path) -> None:
    store = FleetStore(open_place(str(tmp_path / "shared")))
    root = data / "live" / "store"
    with pytest.raises(PlaceError, match="no store there"):
        open_fleet(str(tmp_path / "shared"))
    waits = ship(root, store, origin="c1", now=NOW_NS / 1e9 - 10**9)
    assert (waits.segments, waits.waiting) == (0, len(open_fleet(str(data)).manifest.segments))
    shipped = ship(root, store, origin="c1", everything=True)
    assert shipped.segments == waits.waiting
    assert ship(root, store, origin="c1", everything=True).segments == 0
    here, there = open_fleet(str(data)), open_fleet(str(tmp_path / "shared"))
    for reduction in REDUCTIONS:
        digests = {
            digest(run(reduction, r.pieces(reduction.table, since_ns=0, until_ns=1 << 62), WINDOW, LocalExecutor()))
            for r in (here, there)
        }
        assert len(digests) == 1


def test_segment_that_may_still_be_put_together_with_others_is_not_pushed(data: Path, tmp_path: Path) -> None:
    """It would be there twice: as it is, and in what it becomes a part of."""
    root = data / "live" / "store"
    made = [segment.made for segment in open_fleet(str(data)).manifest.segments]
    store = FleetStore(open_place(str(tmp_path / "shared")))
    assert ship(root, store, origin="c1", now=max(made) + 3600).segments == 0
    assert ship(root, store, origin="c1", now=max(made) + 3 * 3600 + 1).segments == len(made)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["fleet", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_sql_answers_over_rows_roll_ups_and_incidents_and_reaches_nothing_else(
    data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    counts = "(SELECT count(*) > 0 FROM state), (SELECT count(DISTINCT host) FROM host_minute)"
    query = f"SELECT {counts}, count(*) FROM incidents"
    status, out, _ = asked(capsys, "sql", query, "--data", str(data), "--last", "366d", "--format", "csv")
    assert (status, out.splitlines()[1]) == (0, "True,4,0")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for refused in (f"SELECT * FROM read_text('{secret}')", f"COPY (SELECT 1) TO '{secret}'", "SELECT 1; SELECT 2"):
        status, out, err = asked(capsys, "sql", refused, "--data", str(data))
        assert status != 0
        assert err.startswith("mycroft: ")
        assert "secret\n" not in out
    assert secret.read_text() == "secret"


def test_report_tells_incidents_and_says_when_nobody_watched(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = asked(capsys, "report", "--data", str(data))
    assert (status, "0 incidents" in out) == (0, True)
    assert "no watch has looked" in err
    state = LiveState(State(data))
    state.set_numbers({"tick": {}})
    for job in ("a", "b"):
        state.see_job(job, title=f"job {job}", processes=[], facts={"world_size": 64})
        state.open_incident(job, finding(), why="test")
    status, out, err = asked(capsys, "report", "--data", str(data), "--json")
    report = json.loads(out)
    assert (status, err, report["jobs"]) == (0, "", 2)
    assert [(o["kind"], o["name"], o["jobs"]) for o in report["offenders"]] == [
        ("device", "gpu-7 mlx5_3", 2),
        ("host", "gpu-7", 2),
    ]
    assert {one["gpus"] for one in report["incidents"]} == {64}
    _, out, _ = asked(capsys, "report", "--data", str(data))
    assert "host gpu-7: 2 incidents in 2 jobs" in out
    assert "\x1b" not in out


def finding() -> dict[str, Any]:
    return {
        "id": "f",
        "status": "hang",
        "category": "proxy_stall",
        "component": "nic",
        "confidence": "high",
        "summary": "rank 5 does not send\x1b[31m",
        "root_cause": {"ranks": [5], "hosts": ["gpu-7"], "devices": ["mlx5_3"], "flow": None, "one_of": False},
    }


@pytest.mark.parametrize("span", ["24", "h", "-1h", "nanh", "infd", "1y", "367d", ""])
def test_span_that_is_none_is_refused(span: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "report", f"--last={span}"]) == 2
    assert "24h" in capsys.readouterr().err
