"""The paper's rules on traces small enough to work out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import polars as pl
import pytest

from mycroft.analysis.paper_rules import (
    PAPER_LIMITS,
    PaperTrigger,
    check_rc_table,
    paper_cause,
    paper_triggers,
    sampled_ranks,
)
from mycroft.loaders.schema import BY_NAME, polars_schema
from mycroft.loaders.store import MemoryStore, MemoryWriter

S = 1_000_000_000
T0 = 1_700_000_000 * S


@dataclass
class Tiny:
    """A trace written row by row; times in s from its start."""

    groups: dict[int, list[int]]
    ops: list[dict[str, object]] = field(default_factory=list)
    states: list[dict[str, object]] = field(default_factory=list)
    last_s: float = 0.0

    def op(self, rank: int, comm: int, seq: int, at_s: float, dur_s: float | None, *, kind: str = "all_reduce") -> None:
        start = T0 + int(at_s * S)
        dur = None if dur_s is None else int(dur_s * S)
        self.ops.append(
            {"rank": rank, "comm_id": comm, "op_seq": seq, "op_kind": kind, "enq_ts": start, "kstart_ts": start}
            | {"start_ts": start, "dur_ns": dur, "bytes": 1000, "is_p2p": False}
        )

    def state(self, rank: int, peer: int, comm: int, seq: int, at_s: float, counters: tuple[int, int, int]) -> None:
        ready, moved, done = counters
        self.states.append(
            {"ts": T0 + int(at_s * S), "rank": rank, "comm_id": comm, "peer": peer, "op_seq": seq, "channel": 0}
            | {"op_kind": "all_reduce", "dir": "send", "chunks_total": 8, "posted": 8, "idle_ms": 0}
            | {"ready": ready, "moved": moved, "done": done}
        )

    def store(self) -> MemoryStore:
        writer = MemoryWriter()
        members = [(c, r, i, "trace") for c, ranks in self.groups.items() for i, r in enumerate(ranks)]
        flows = [{"rank": ranks[0], "comm_id": comm, "op_seq": 0, "end_ts": T0} for comm, ranks in self.groups.items()]
        beats = [{"ts": T0 + int(self.last_s * S), "rank": 0}]
        comms = [{"comm_id": c, "key": f"k{c}", "name": f"dp{c}", "desc": f"dp{c}"} for c in self.groups]
        for table, rows in (
            ("members", [dict(zip(("comm_id", "rank", "comm_rank", "source"), m, strict=True)) for m in members]),
            ("communicators", comms),
            ("coll_ops", self.ops),
            ("flow_state", self.states),
            ("flow_ops", flows),
            ("heartbeat", beats),
        ):
            if rows:
                wanted = polars_schema(BY_NAME[table])
                writer.append(table, pl.DataFrame(rows, schema={name: wanted[name] for name in rows[0]}))
        return writer.store()


def steady(tiny: Tiny, *, until_s: float, every_s: float = 1.0, dur_s: float = 0.1) -> None:
    """All members of all groups come at the same time, each operation alike."""
    for comm, ranks in tiny.groups.items():
        for n in range(int(until_s / every_s)):
            for rank in ranks:
                tiny.op(rank, comm, n, n * every_s, dur_s)


def test_a_steady_job_fires_nothing() -> None:
    tiny = Tiny({1: [0, 1]}, last_s=60)
    steady(tiny, until_s=60)
    assert paper_triggers(tiny.store()) == ()


def test_a_window_without_completion_is_a_failure() -> None:
    tiny = Tiny({1: [0, 1]}, last_s=60)
    steady(tiny, until_s=31)
    (trigger,) = paper_triggers(tiny.store())
    assert trigger.kind == "failure"
    # The last operation ended at 30.1 s; windows end at 10, 15, 20 s and so on.
    assert trigger.at_ns == T0 + 45 * S


def test_half_the_throughput_is_a_straggler() -> None:
    tiny = Tiny({1: [0, 1]}, last_s=50)
    steady(tiny, until_s=30)
    for n in range(30, 50):
        for rank in (0, 1):
            tiny.op(rank, 1, n, n, 0.25)
    triggers = paper_triggers(tiny.store())
    assert [t.kind for t in triggers] == ["straggler"]
    # At 40 s the whole window is slow: 2.5 times the duration before.
    assert triggers[0].at_ns == T0 + 40 * S


def test_twice_the_interval_is_a_straggler_and_less_is_none() -> None:
    for every, fires in ((2.5, True), (1.8, False)):
        tiny = Tiny({1: [0, 1]}, last_s=60)
        steady(tiny, until_s=30)
        for n in range(12):
            for rank in (0, 1):
                tiny.op(rank, 1, 30 + n, 30 + n * every, 0.1)
        kinds = [t.kind for t in paper_triggers(tiny.store())]
        assert (kinds == ["straggler"]) is fires


def test_only_ten_ranks_are_looked_at_and_one_of_each_group() -> None:
    tiny = Tiny({c: [c, c + 16] for c in range(16)}, last_s=1)
    store = tiny.store()
    assert sampled_ranks(store, most=10) == (0, 1, 3, 4, 6, 8, 9, 11, 12, 14)
    assert len(sampled_ranks(store, most=0)) == 32


def test_a_group_that_nobody_samples_fails_unseen() -> None:
    tiny = Tiny({c: [c, c + 16] for c in range(16)}, last_s=60)
    for comm, ranks in tiny.groups.items():
        for n in range(30 if comm == 2 else 60):
            for rank in ranks:
                tiny.op(rank, comm, n, n, 0.1)
    store = tiny.store()
    assert paper_triggers(store) == ()
    (trigger,) = paper_triggers(store, limits=replace(PAPER_LIMITS, most_ranks=0))
    assert (trigger.kind, trigger.rank) == ("failure", 2)


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ((5, 4, 4), ("nic", "not transmitted")),
        ((5, 5, 3), ("nic", "not delivered")),
        ((5, 5, 5), ("gpu", "GPU not ready")),
        ((8, 8, 8), ("gpu", "all sent, not consumed")),
    ],
)
def test_the_table_reads_the_sending_side(counters: tuple[int, int, int], expected: tuple[str, str]) -> None:
    ready, moved, done = counters
    assert check_rc_table(ready=ready, moved=moved, done=done, total=8) == expected


def stuck(tiny: Tiny) -> MemoryStore:
    """Three ranks in operation 3 of communicator 1 since 3 s."""
    for n in range(3):
        for rank in (0, 1, 2):
            tiny.op(rank, 1, n, n, 0.1)
    for rank in (0, 1, 2):
        tiny.op(rank, 1, 3, 3, None)
    return tiny.store()


FAILURE = PaperTrigger(T0 + 20 * S, "failure", 0, 10.0)


def test_the_flow_with_the_least_data_is_blamed() -> None:
    tiny = Tiny({1: [0, 1, 2]}, last_s=20)
    tiny.state(0, 1, 1, 3, 4, (6, 6, 6))
    tiny.state(1, 2, 1, 3, 4, (5, 5, 3))
    tiny.state(2, 0, 1, 3, 4, (5, 5, 5))
    report = paper_cause(stuck(tiny), FAILURE)
    assert (report.rank, report.component, report.why) == (1, "nic", "not delivered")


def test_the_member_that_did_not_come_is_blamed() -> None:
    tiny = Tiny({1: [0, 1, 2]}, last_s=20)
    for rank in (0, 1, 2):
        tiny.op(rank, 1, 0, 0, 0.1)
    tiny.op(0, 1, 1, 1, None)
    tiny.op(1, 1, 1, 1, None)
    report = paper_cause(tiny.store(), FAILURE)
    assert (report.rank, report.component) == (2, "app")


def test_a_member_that_waits_in_another_group_is_followed_there() -> None:
    tiny = Tiny({1: [0, 1], 2: [1, 3]}, last_s=20)
    tiny.op(0, 1, 0, 1, None)
    tiny.op(1, 2, 0, 1, None)
    report = paper_cause(tiny.store(), FAILURE)
    assert (report.rank, report.component) == (3, "app")


def test_a_late_start_is_blamed_by_the_limit_in_use() -> None:
    tiny = Tiny({1: [0, 1]}, last_s=20)
    for n in range(20):
        tiny.op(0, 1, n, n, 0.6)
        tiny.op(1, 1, n, n + 0.5, 0.1)
    trigger = PaperTrigger(T0 + 20 * S, "straggler", 0, 2.0)
    assert paper_cause(tiny.store(), trigger).rank is None
    report = paper_cause(tiny.store(), trigger, limits=replace(PAPER_LIMITS, late_ns=S // 10))
    assert (report.rank, report.component) == (1, "gpu")


def test_an_empty_trace_fires_nothing() -> None:
    assert paper_triggers(Tiny({1: [0, 1]}).store()) == ()
