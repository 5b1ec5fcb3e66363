"""The commands and the page of a fleet over a real bucket."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mycroft.app.cli import main
from mycroft.loaders.fleet import FleetSegment, FleetStore, open_place
from tests.app.pages.test_fleet import END_S, HOSTS, incident, minutes
from tests.browser.serving import served

# Of the last full hour: what is a year old is in no report.
END = int(time.time()) // 3600 * 3600


@pytest.fixture
def filled(s3_url: str, tmp_path: Path) -> str:
    """A bucket with an hour of many hosts in six segments, and incidents of two jobs."""
    store = FleetStore(open_place(s3_url))
    rows = minutes()
    moved = pa.array([minute + (END - END_S) * 10**9 for minute in rows.column("minute").cast(pa.int64()).to_pylist()])
    rows = rows.set_column(rows.schema.names.index("minute"), "minute", moved.cast(pa.timestamp("ns")))
    size = rows.num_rows // 6
    for number in range(6):
        part = rows.slice(number * size, size)
        path = tmp_path / f"{number}.parquet"
        pq.write_table(part, path)
        name = f"facts/host_minute/hour=2026092113/group=c1/{int(time.time())}-{number}.parquet"
        store.place.put(name, path)
        store.add(
            [
                FleetSegment(
                    table="host_minute",
                    path=name,
                    first_ns=(END - 3600) * 10**9,
                    last_ns=(END - 60) * 10**9,
                    rows=size,
                    size_bytes=path.stat().st_size,
                    made=float(END),
                    group="c1",
                    origin=f"c1/{number}",
                )
            ]
        )
    store.put_incidents(
        "c1", msgspec.json.encode([incident(n, job=f"job{n}", opened=END - 900, closed=END - 600) for n in range(2)])
    )
    return s3_url


def page_of(site: str) -> str:
    """What the page of the hour shows once it has read the history."""
    asked: dict[str, Any] = {
        "output": "..fleet-body.children...fleet-window.children..",
        "outputs": [{"id": f"fleet-{part}", "property": "children"} for part in ("body", "window")],
        "inputs": [{"id": "fleet-choice", "property": "data", "value": {"last": "1h", "m": "idle_max_ms"}}],
        "changedPropIds": ["fleet-choice.data"],
        "state": [
            {"id": "url", "property": "pathname", "value": "/fleet"},
            {"id": "url", "property": "search", "value": f"?until={END}&last=1h"},
        ],
    }
    headers = {"Content-Type": "application/json", "Origin": site}
    with urlopen(Request(f"{site}/_dash-update-component", json.dumps(asked).encode(), headers), timeout=120) as answer:
        return answer.read().decode()


def test_page_report_compaction_and_retention_work_on_a_bucket(
    filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()

    def fleet(*words: str) -> str:
        assert main(["fleet", *words]) == 0
        return capsys.readouterr().out

    def hosts() -> str:
        query = "SELECT count(DISTINCT host), max(idle_max_ms) FROM host_minute"
        return fleet("sql", query, "--store", filled, "--last", "3d", "--format", "csv").splitlines()[1]

    with served(tmp_path / "data", "--store", filled) as site:
        before = page_of(site.url)
        assert "gpu-077" in before and f"{HOSTS} hosts" in before and "job far away" in before
        assert hosts() == f"{HOSTS},300000"
        assert "6 segments" in fleet("compact", filled, "--at-least", "2")
        store = FleetStore(open_place(filled))
        assert len(store.read().segments) == 1
        # The parts are there for who reads an older version; then they go.
        assert len(store.place.names("facts")) == 7
        assert "6 files" in fleet("retain", filled, "--older-than", "3d", "--grace", "0.00001m")
        assert len(store.place.names("facts")) == 1
        assert hosts() == f"{HOSTS},300000"
    with served(tmp_path / "data", "--store", filled) as site:
        after = page_of(site.url)
        assert "gpu-077" in after and f"{HOSTS} hosts" in after
    report = json.loads(fleet("report", "--store", filled, "--data", str(tmp_path / "data"), "--last", "3d", "--json"))
    assert [(one["name"], one["jobs"]) for one in report["offenders"]] == [("gpu-077", 2)]
    # All of it is old: it leaves, and its file later.
    assert "1 segment," in fleet("retain", filled, "--older-than", "0.001m")
    assert FleetStore(open_place(filled)).read().segments == ()
