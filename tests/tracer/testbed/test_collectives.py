"""Real bytes through real sockets: results are right, and what is sent is received, whatever the size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.tracer import _testbed
from tests.tracer.testbed.ranks import PATIENCE_NS, engines, members, on_every_rank, totals


def run_collective(kind: str, algo: str, ranks: int, elements: int, channels: int, connections: int, slot: int) -> None:
    """One operation on all ranks: checks every element and that nothing was lost on the way."""
    with engines(ranks, slot_bytes=slot) as made:
        wide_in = kind in ("reduce_scatter", "all_to_all")
        wide_out = kind in ("all_gather", "all_to_all")

        def one(rank: int) -> _testbed.Buffer:
            comm = made[rank].open(
                "group", hash_=9, rank=rank, members=members(made), channels=channels, connections=connections
            )
            source = _testbed.Buffer(elements * (ranks if wide_in else 1))
            target = _testbed.Buffer(elements * (ranks if wide_out else 1))
            source.fill(float(rank), 1.0 if not wide_in else 0.0)
            name = ("send" if rank == 0 else "recv") if kind == "pair" else kind
            operation = made[rank].enqueue(
                comm, name, source, target, elements=elements, algo=algo, peer=1 - rank if kind == "pair" else ranks - 1
            )
            assert made[rank].wait(operation, PATIENCE_NS)
            return target

        targets = on_every_rank(ranks, one)
        total = sum(range(ranks))
        for rank, target in enumerate(targets):
            if kind == "all_reduce":
                assert target.differences(total, float(ranks), 0, elements) == 0
            elif kind == "reduce_scatter":
                assert target.differences(total, 0.0, 0, elements) == 0
            elif kind == "broadcast":
                assert target.differences(ranks - 1, 1.0, 0, elements) == 0
            elif kind == "pair" and rank == 1:
                assert target.differences(0.0, 1.0, 0, elements) == 0
            elif kind == "all_to_all":
                assert sum(target.differences(float(q), 0.0, q * elements, elements) for q in range(ranks)) == 0
            elif kind == "all_gather":
                values = memoryview(target).tolist()
                assert values == [float(q + i % 1021) for q in range(ranks) for i in range(elements)]
        moved = totals(made)
        assert moved["slices_sent"] == moved["slices_received"]
        assert moved["bytes_sent"] == moved["bytes_received"]


@given(
    st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]),
    st.sampled_from(["RING", "TREE"]),
    st.integers(2, 6),
    st.integers(1, 3001),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([64, 256, 4096]),
)
@settings(max_examples=40, deadline=None)
def test_results_are_right_and_bytes_are_conserved(
    kind: str, algo: str, ranks: int, elements: int, channels: int, connections: int, slot: int
) -> None:
    run_collective(kind, algo, ranks, elements, channels, connections, slot)


def test_a_send_arrives_whole() -> None:
    run_collective("pair", "RING", 2, 12_345, 2, 2, 1024)


def test_a_large_all_reduce_over_trees_is_right() -> None:
    run_collective("all_reduce", "TREE", 7, 60_001, 2, 1, 4096)


def test_a_peer_that_sends_more_than_fits_is_an_error_and_no_corruption() -> None:
    with engines(2, slot_bytes=64) as small, engines(1, slot_bytes=4096) as large:
        pair = [small[0], large[0]]
        ends = members(pair)

        def one(rank: int) -> str:
            comm = pair[rank].open("group", hash_=9, rank=rank, members=ends, channels=1)
            buffer = _testbed.Buffer(900)
            operation = pair[rank].enqueue(
                comm, "send" if rank else "recv", buffer, buffer, elements=900, peer=1 - rank
            )
            try:
                pair[rank].wait(operation, 2_000_000_000)
            except RuntimeError as error:
                return str(error)
            return ""

        told = on_every_rank(2, one)
        assert "sent 3600 bytes into a buffer of 64" in told[0]


@pytest.mark.parametrize(
    ("condition", "value"), [("no_post", 1), ("no_send", 1), ("nic_down", 1), ("device_stopped", 1)]
)
def test_an_operation_stands_while_something_is_broken_and_ends_once_it_is_not(condition: str, value: float) -> None:
    with engines(2) as made:
        comms = on_every_rank(2, lambda r: made[r].open("group", hash_=9, rank=r, members=members(made)))
        buffers = [_testbed.Buffer(5000) for _ in range(2)]
        made[1].set_condition(condition, value)
        operations = on_every_rank(
            2, lambda r: made[r].enqueue(comms[r], "all_reduce", buffers[r], buffers[r], elements=5000)
        )
        assert not made[0].wait(operations[0], 300_000_000)
        made[1].set_condition(condition, 0)
        assert all(on_every_rank(2, lambda r: made[r].wait(operations[r], PATIENCE_NS)))


def test_what_cannot_be_is_refused_with_words() -> None:
    with engines(1) as made:
        comm = made[0].open("group", hash_=9, rank=0, members=members(made))
        buffer = _testbed.Buffer(10)
        with pytest.raises(ValueError, match="there is no collective reduce_all"):
            made[0].enqueue(comm, "reduce_all", buffer, buffer, elements=10)
        with pytest.raises(ValueError, match="input holds 10 elements, 11 are needed"):
            made[0].enqueue(comm, "all_reduce", buffer, buffer, elements=11)
        with pytest.raises(RuntimeError, match="there is no such peer"):
            made[0].enqueue(comm, "send", buffer, buffer, elements=10, peer=0)
        with pytest.raises(ValueError, match="there is no condition magic"):
            made[0].set_condition("magic", 1)
    with pytest.raises(RuntimeError, match="cannot listen on 203"):
        _testbed.Engine(rank=0, address="203.0.113.9")
    with pytest.raises(RuntimeError, match="profiler plugin"):
        _testbed.Engine(rank=0, plugin="/nowhere/libnothing.so")
