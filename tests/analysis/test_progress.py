"""The three checks of the paper: who is behind, which flow has least, which row of the table fits."""

from __future__ import annotations

import pytest

from mycroft.analysis.flow import Half
from mycroft.analysis.flow_rows import read_snapshot
from mycroft.analysis.progress import FlowFacts, behind, check_min_data, check_min_op, check_rc_table
from tests.analysis.simulated_jobs import job

SLOTS = 4
N = 32


def half(posted: int, ready: int, moved: int, done: int) -> Half:
    return Half(rank=0, total=N, posted=posted, ready=ready, moved=moved, done=done, idle_ns=5_000_000_000, ts=0)


def test_furthest_behind_are_named_and_nobody_where_all_are_level() -> None:
    assert check_min_op({0: 7, 1: 5, 2: 7}, [0, 1, 2]) == {1}
    assert check_min_op({0: 7, 1: 7}, [0, 1]) == frozenset()
    assert check_min_op({0: 3}, [0, 1, 2]) == {1, 2}
    assert check_min_op({}, [0, 1]) == frozenset()


def test_rank_that_does_not_come_is_behind_in_a_communicator_of_its_own() -> None:
    broken = job("absent")
    snapshot = read_snapshot(broken.store, at=broken.after(10.0))
    assert snapshot is not None
    late = [behind(snapshot, comm) for comm, members in snapshot.members.items() if broken.rank in members]
    assert frozenset({broken.rank}) in late


def test_least_data_is_all_flows_that_are_equal() -> None:
    broken = job("nic_down")
    snapshot = read_snapshot(broken.store, at=broken.after(10.0))
    assert snapshot is not None
    op = snapshot.flows[0].op
    least = check_min_data(snapshot, op)
    assert least and list(least) == sorted(least, key=lambda k: (k.channel, k.src, k.dst))


@pytest.mark.parametrize(
    ("send", "recv", "facts", "sink", "whom"),
    [
        (None, half(4, 0, 0, 0), FlowFacts(src_enqueued=False), "app", "src"),
        (None, half(4, 0, 0, 0), FlowFacts(src_alive=False), "crash", "src"),
        (half(4, 0, 0, 0), half(4, 0, 0, 0), FlowFacts(src_started=False), "gpu", "src"),
        (half(4, 0, 0, 0), half(4, 0, 0, 0), FlowFacts(input_there=False), "follow", "input"),
        (half(8, 5, 4, 4), None, FlowFacts(), "follow", "dst"),
        (half(8, 5, 4, 4), half(8, 4, 4, 4), FlowFacts(), "proxy", "src"),
        (half(8, 5, 4, 4), half(4, 4, 4, 4), FlowFacts(), "recv_proxy", "dst"),
        (half(8, 5, 4, 4), half(4, 4, 4, 0), FlowFacts(), "gpu", "dst"),
        (half(8, 5, 4, 4), half(4, 2, 4, 0), FlowFacts(), "flush", "dst"),
        (half(8, 4, 4, 2), half(6, 2, 2, 2), FlowFacts(), "net", "path"),
        (half(8, 4, 4, 2), half(6, 2, 2, 2), FlowFacts(dst_alive=False), "crash", "dst"),
        (half(8, 4, 4, 4), half(8, 4, 4, 4), FlowFacts(), "gpu", "src"),
        (half(N, N, N, N), half(N, N, N, N - 4), FlowFacts(), "gpu", "dst"),
        (half(N, N, N, N), half(N, N - 4, N - 4, N - 4), FlowFacts(), "net", "path"),
    ],
)
def test_every_row_of_the_table(send: Half | None, recv: Half | None, facts: FlowFacts, sink: str, whom: str) -> None:
    row = check_rc_table(send, recv, facts, slots=SLOTS)
    assert (row.sink, row.whom) == (sink, whom)
