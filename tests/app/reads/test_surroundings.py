"""Where a rank stands: its device, its neighbours in ring and tree, the iteration, and what the evidence lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mycroft.app.open_stores import OpenStores
from mycroft.app.queries import TraceReader
from mycroft.app.reads import coverage, surroundings
from tests.app import flow_trace
from tests.app.trace_writer import write_rows

Made = Callable[..., Any]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a function that writes a trace of a shape, changed by tables, and returns its reader."""

    def make(shape: str, **tables: list[dict[str, Any]]) -> Any:
        path = tmp_path / "trace.duckdb"
        write_rows(path, {**flow_trace.rows(shape), **tables})
        return TraceReader(trace="made", title="made", generation=1, path=path, stores=OpenStores())

    return make


def key_of(reader: Any) -> str:
    return reader.frame("SELECT key FROM communicators WHERE comm_id = 0").item()


def test_the_place_in_a_ring_is_told_with_both_neighbours_and_the_channel(made: Made) -> None:
    reader = made("ring")
    wanted = dict(flow_trace.edges("ring", 1))
    before = {dst: src for src, dst in wanted.items()}
    place = surroundings.place_in_flow(reader, key_of(reader), flow_trace.SEQ, 5, 1)
    assert place is not None
    assert place.endswith(f"of 0–{flow_trace.WORLD - 1} on channel 1: from rank {before[5]}, to rank {wanted[5]}")


def test_a_ring_that_only_the_library_told_of_is_used_where_it_closes(made: Made) -> None:
    members = [{"comm_id": 0, "rank": rank, "comm_rank": rank, "source": "topology"} for rank in range(4)]
    ring = [{"comm_id": 0, "channel": 2, "pattern": "ring", "src": n, "dst": (n + 3) % 4} for n in range(4)]
    bare: dict[str, Any] = {"flow_state": [], "flow_ops": [], "members": members}
    reader = made("ring", **bare, edges=ring)
    assert surroundings.place_in_flow(reader, key_of(reader), flow_trace.SEQ, 1, None) == (
        "ring position 3 of 0–3 on channel 2: from rank 2, to rank 0"
    )
    assert surroundings.place_in_flow(reader, key_of(reader), flow_trace.SEQ, 1, 0) is None


def test_half_a_ring_gives_no_position(made: Made) -> None:
    ring = [{"comm_id": 0, "channel": 0, "pattern": "ring", "src": n, "dst": n + 1} for n in range(3)]
    reader = made("ring", flow_state=[], flow_ops=[], edges=ring)
    assert surroundings.place_in_flow(reader, key_of(reader), flow_trace.SEQ, 1, None) is None


def test_the_place_in_a_tree_names_who_is_above_and_below(made: Made) -> None:
    reader = made("tree")
    above = flow_trace.parents(1)
    rank = next(rank for rank in above if rank in above.values())
    below = sorted(child for child, parent in above.items() if parent == rank)
    place = surroundings.place_in_flow(reader, key_of(reader), flow_trace.SEQ, rank, 1)
    assert place is not None and place.startswith("tree of channel 1: ")
    assert all(str(child) in place for child in [*below, above[rank]])


def test_a_device_is_that_of_the_channel_to_blame_else_all_that_are_known(made: Made) -> None:
    edges = [{"comm_id": 0, "channel": n, "pattern": "ring", "src": 5, "dst": 6, "nic": f"mlx5_{n}"} for n in range(5)]
    said = [{"rank": 7, "attribute": "nic", "value": "mlx5_9"}, {"rank": 7, "attribute": "host", "value": "h"}]
    reader = made("ring", edges=edges, identity=said)
    assert surroundings.nics_of(reader, 5, 3) == "NIC mlx5_3"
    assert surroundings.nics_of(reader, 5, None) == "NIC mlx5_0, mlx5_1, mlx5_2 and 2 more"
    assert surroundings.nics_of(reader, 7, 0) == "NIC mlx5_9"
    assert surroundings.nics_of(reader, 2, 0) is None


def test_the_iteration_is_the_last_that_was_told_before(made: Made) -> None:
    events = [
        {"ts": flow_trace.START.replace(second=n), "time_quality": "exact", "level": "info", "kind": "step", "value": n}
        for n in (1, 2, 3)
    ]
    reader = made("ring", events=events)
    start = reader.frame("SELECT epoch_ns(min(ts)) FROM events").item()
    assert surroundings.iteration_before(reader, start + 1_500_000_000) == 2
    assert surroundings.iteration_before(reader, start - 1) is None


def test_what_dumps_and_clocks_lack_is_counted_and_the_unknown_is_not_called_whole(made: Made) -> None:
    dumps = [
        {"rank": 0, "file_id": 0, "kind": "flight_recorder", "first_record": 0},
        {"rank": 1, "file_id": 1, "kind": "flight_recorder", "first_record": 700},
        {"rank": 2, "file_id": 2, "kind": "flight_recorder", "first_record": 0, "only_active": True},
        {"rank": 3, "file_id": 3, "kind": "flight_recorder"},
    ]
    hosts = [
        {"host_id": 0, "name": "a", "clock_offset_ns": 5, "clock_error_ns": 40_000},
        {"host_id": 1, "name": "b"},
    ]
    files = [{"file_id": n, "path": f"d{n}", "dropped": 3 * n} for n in range(4)]
    found = coverage.coverage_of(made("ring", rank_dumps=dumps, hosts=hosts, files=files))
    assert (found.dumped, found.overwritten, found.only_active, found.whole) == (4, 1, 1, 1)
    assert (found.damaged_files, found.dropped) == (3, 18)
    assert (found.hosts, found.synchronised, found.clock_error_ns) == (2, 1, 40_000)
