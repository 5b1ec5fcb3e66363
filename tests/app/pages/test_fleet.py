"""The page of a fleet: from a folder that was pushed to, with incidents, and where there is nothing yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flask
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mycroft.analysis.fleet.hosts import Grid, bands, between, worst
from mycroft.analysis.fleet.report import Happened
from mycroft.app import urls
from mycroft.app.config import AppConfig
from mycroft.app.figures import host_heat
from mycroft.app.fleet_history import FleetHistory
from mycroft.app.live.state import LiveState
from mycroft.app.pages import fleet
from mycroft.app.state import State
from mycroft.loaders.collector.rollups import SCHEMAS
from mycroft.loaders.fleet import FleetSegment, FleetStore, open_place
from tests.app.components import by_type, links_of, pictures_of, text_of
from tests.app.test_fleet import finding

END_S = 1_790_002_800
HOSTS = 100
AT_S = END_S - 1800


def view(query: str = "") -> fleet.View:
    return fleet.view_of(urls.parse(f"/fleet?until={END_S}&last=1h{query}"))


def minutes() -> pa.Table:
    """An hour of many hosts: one of them stood for 300 s in one minute."""
    given = {
        "host": np.repeat([f"gpu-{n:03}" for n in range(HOSTS)], 60),
        "job": np.full(HOSTS * 60, "job"),
        "minute": (END_S - 3600 + np.tile(np.arange(60), HOSTS) * 60) * 10**9,
    }
    idle = np.full(HOSTS * 60, 5)
    idle[77 * 60 + 30] = 300_000
    given["idle_max_ms"] = idle
    schema = SCHEMAS["host_minute"]
    return pa.table(
        [pa.array(given[f.name] if f.name in given else np.zeros(HOSTS * 60, dtype=int)).cast(f.type) for f in schema],
        schema=schema,
    )


def incident(number: int, **changes: Any) -> Happened:
    told: dict[str, Any] = {
        "incident": f"i{number}",
        "job": "far",
        "title": "job far away",
        "opened": AT_S + number,
        "closed": AT_S + number + 60.0,
        "status": "hang",
        "category": "proxy_stall",
        "confidence": "high",
        "summary": f"rank {number} <b>does not</b> send",
        "hosts": ("gpu-077",),
        "gpus": 64,
    }
    return Happened(**told | changes)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pushed")
    place = open_place(str(folder))
    rows = minutes()
    pq.write_table(rows, folder / "rows.parquet")
    name = "facts/host_minute/hour=1/group=c1/1-a.parquet"
    place.put(name, folder / "rows.parquet")
    FleetStore(place).add(
        [
            FleetSegment(
                table="host_minute",
                path=name,
                first_ns=(END_S - 3600) * 10**9,
                last_ns=(END_S - 60) * 10**9,
                rows=len(rows),
                size_bytes=1,
                made=1.0,
            )
        ]
    )
    FleetStore(place).put_incidents("c1", msgspec.json.encode([incident(n) for n in range(12)]))
    return folder


def history(data_dir: Path, store: Path | None) -> FleetHistory:
    return FleetHistory(AppConfig(data_dir=data_dir, store=None if store is None else str(store)))


def drawn(found: FleetHistory, seen: fleet.View) -> list[Any]:
    with flask.Flask("test").test_request_context():
        return fleet.body(found, seen)


def test_page_tells_offenders_cost_incidents_and_hosts_of_a_store_alone(tmp_path: Path, store: Path) -> None:
    parts = drawn(history(tmp_path, store), view())
    said = text_of(parts)
    assert "12 of 1 job" in said
    # Overlapping incidents of one job: 71 s of 64 GPUs, once.
    assert "1.3 GPU-hours" in said
    assert "gpu-077" in said
    assert "2 earlier incidents" in said
    assert "kept by the collector that pushed them" in said
    picture = pictures_of(parts)[0]
    assert "gpu-075 to gpu-077: at most 5 min 00 s" in picture
    assert "gpu-000 to gpu-002: at most 5.0 ms" in picture
    # The one minute of the one host is there, alone, in the darkest step.
    assert picture.count("heat-5 heat-run") == 1
    first_row = text_of(by_type(parts[-1], "Tbody")[0].children[0])
    assert first_row.startswith("gpu-0775 min 00 s")


def test_row_of_several_hosts_opens_them_one_by_one_and_keeps_the_view(tmp_path: Path, store: Path) -> None:
    found = history(tmp_path, store)
    picture = pictures_of(drawn(found, view("&m=idle_max_ms")))[0]
    assert f"/fleet?y=75-77&amp;last=1h&amp;until={END_S}" in picture
    parts = drawn(found, view("&y=75-77"))
    picture = pictures_of(parts)[0]
    assert "<title>gpu-077: at most 5 min 00 s</title>" in picture
    assert "<a " not in picture
    assert links_of(parts)["All hosts"] == f"/fleet?last=1h&until={END_S}"
    assert "none of them is in this part" in text_of(drawn(found, view("&y=500-600")))


def test_incident_that_this_server_has_is_a_link_to_its_page(tmp_path: Path, store: Path) -> None:
    state = LiveState(State(tmp_path))
    state.set_numbers({"tick": {}})
    state.see_job("near", title="job near", processes=[], facts={"world_size": 8})
    opened = state.open_incident("near", finding(), why="test")
    at = fleet.view_of(urls.parse("/fleet?last=1h"))
    found = links_of(drawn(history(tmp_path, store), at))
    assert f"/live/near/d/{opened.incident}" in found.values()


@pytest.mark.parametrize("where", ["own", "given"])
def test_page_without_a_store_says_what_to_do(tmp_path: Path, where: str) -> None:
    store = None if where == "own" else tmp_path / "nothing"
    said = text_of(drawn(history(tmp_path / "data", store), view()))
    assert ("mycroft serve --live" if where == "own" else f"mycroft fleet push {store} --name") in said
    assert not (tmp_path / "nothing").exists()


def test_sql_over_the_window_answers_and_refuses(tmp_path: Path, store: Path) -> None:
    found = history(tmp_path, store)
    config = AppConfig(data_dir=tmp_path)
    query = "SELECT (SELECT count(*) FROM host_minute) AS a, (SELECT count(*) FROM incidents) AS b"
    answer = found.sql(query, view().window, rows_max=10, timeout_s=10)
    assert answer is not None
    assert answer.frame.row(0) == (HOSTS * 60, 12)
    for wrong in ("SELECT * FROM read_text('/etc/hostname')", "DROP TABLE incidents", "SELEC"):
        assert "was not answered" in text_of(fleet.answer(found, view(), wrong, config))


def test_file_of_incidents_that_cannot_be_read_is_named_and_hides_nothing(tmp_path: Path, store: Path) -> None:
    place = FleetStore(open_place(str(store)))
    place.put_incidents("c9", b"{")
    try:
        said = text_of(drawn(history(tmp_path, store), view()))
    finally:
        place.place.delete("incidents/c9.json")
    assert "incidents/c9.json" in said
    assert "12 of 1 job" in said


@pytest.mark.parametrize(
    "query", ["last=1y&until=-1&m=x&y=a", "last=&until=99999999999999999999&m=&y=", "last=nand&until=٣"]
)
def test_address_that_says_nothing_sensible_shows_the_first_view(query: str) -> None:
    assert fleet.view_of(urls.parse(f"/fleet?{query}")) == fleet.View()


def test_view_is_the_same_after_it_was_an_address() -> None:
    for one in (fleet.View(), fleet.View(span="7d", until_s=5, metric="errors", rows=(3, 9), query="SELECT 1&2")):
        assert fleet.view_of(urls.parse(one.href())) == one


def test_rows_of_hosts_keep_the_greatest_of_each_bin() -> None:
    draw = np.random.default_rng(5)
    for count in (1, 39, 40, 41, 81, 1280):
        values = draw.integers(-1, 1000, (count, 7))
        grid = Grid(tuple(f"h{n:04}" for n in range(count)), 3, values)
        rows, folded = bands(grid, 40)
        assert len(rows) <= 40
        assert [n for first, last in rows for n in range(first, last + 1)] == list(range(count))
        for (first, last), row in zip(rows, folded, strict=True):
            assert row.tolist() == values[first : last + 1].max(axis=0).tolist()
        top = worst(grid, 3)
        assert top[0].value == values.max()
        assert all(values[int(one.host[1:]), one.bin - 3] == one.value for one in top)
    assert between(grid, 2, 3).hosts == ("h0002", "h0003")


def test_steps_rise_and_the_greatest_value_is_in_the_darkest() -> None:
    for greatest in (0, 1, 2, 3, 7, 100, 10**6, 2**60):
        steps = host_heat.thresholds(greatest)
        assert steps == sorted(set(steps))
        found = host_heat.levels(np.array([[host_heat.NOTHING, 0, greatest]]), steps)[0].tolist()
        assert found == [host_heat.NOTHING, 0, host_heat.LEVELS - 1 if greatest else 0]
        told = host_heat.legend(steps, greatest, str)
        assert [level for level, _ in told][-1] == found[-1]
        assert str(greatest) in told[-1][1]
