"""The rules of the paper, plainly read: the baseline that our own rules are compared with. No verdict uses them.

Mycroft (SOSP'25), Algorithm 1: at most ten ranks are sampled, at least one of each data-parallel group where that is
possible, and looked at in windows of 10 s, all their operations together. A rank without a completion in the window has
failed; one whose throughput fell to half of what it was, or whose operations come at twice the interval, is a
straggler. Algorithm 2: in the communicators of that rank, the members at the least operation (`CheckMinOp`); else, for
a straggler, the member that starts late; else the flow with the least data (`CheckMinData`), whose counters of the
sending side say why (`CheckRCTable`).

Where the paper leaves a choice: windows begin every 5 s; what was before is the mean over all earlier windows of that
rank; a member at the least operation that waits in another communicator is followed there; a rank is
late by 1 s, or by 0.1 s (the paper gives no number, so both are measured); ties go to the first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.facts import Frames

# The paper's logs are of the network's proxies: communicators inside one host leave none.
COMPLETIONS: Final = """
SELECT rank, epoch_ns(start_ts) + dur_ns AS end_ns, dur_ns AS dur, coalesce(bytes, 0) AS bytes
FROM coll_ops
WHERE dur_ns IS NOT NULL AND comm_id IN (SELECT comm_id FROM flow_ops)
ORDER BY rank, end_ns
"""
SPAN: Final = """
SELECT min(epoch_ns(enq_ts)) AS first, max(t) AS last
FROM coll_ops, (SELECT max(epoch_ns(ts)) AS t FROM heartbeat)
"""
DATA_PARALLEL: Final = """
SELECT m.comm_id AS comm, min(m.rank) AS rank
FROM members m
JOIN communicators c USING (comm_id)
WHERE c."desc" LIKE 'dp%' OR c.name LIKE 'dp%'
GROUP BY m.comm_id
ORDER BY m.comm_id
"""
MEMBERS: Final = "SELECT comm_id AS comm, rank FROM members ORDER BY comm_id, rank"
# What each rank is inside of at a moment, oldest first.
OPEN: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, CAST(op_kind AS VARCHAR) AS kind,
       coalesce(is_p2p, FALSE) AS p2p, peer, CAST(pair_seq AS BIGINT) AS pair, epoch_ns(enq_ts) AS enq,
       kstart_ts IS NOT NULL AND epoch_ns(kstart_ts) <= $1 AS started
FROM coll_ops
WHERE epoch_ns(enq_ts) <= $1 AND epoch_ns(enq_ts) > $1 - 600000000000
    AND (dur_ns IS NULL OR epoch_ns(start_ts) + dur_ns > $1)
ORDER BY rank, enq, comm
"""
REACHED: Final = """
SELECT comm_id AS comm, rank, max(CAST(op_seq AS BIGINT)) AS seq
FROM coll_ops
WHERE epoch_ns(enq_ts) <= $1 AND NOT coalesce(is_p2p, FALSE)
GROUP BY ALL
"""
PAIRS: Final = """
SELECT comm_id AS comm, rank, peer, CAST(op_kind AS VARCHAR) AS kind, max(CAST(pair_seq AS BIGINT)) AS pair
FROM coll_ops
WHERE epoch_ns(enq_ts) <= $1 AND is_p2p
GROUP BY ALL
"""
# Of a collective all its sends, of a send and receive the newest of that pair.
LAST_SENDS: Final = """
SELECT rank, channel, peer, chunks_total AS total, ready, moved, done
FROM flow_state
WHERE comm_id = $2 AND epoch_ns(ts) <= $1 AND dir = 'send' AND op_seq = $3 AND op_kind = $4
QUALIFY row_number() OVER (PARTITION BY rank, channel, peer ORDER BY ts DESC) = 1
ORDER BY rank, channel, peer
"""
LAST_OF_PAIR: Final = """
SELECT rank, channel, peer, chunks_total AS total, ready, moved, done
FROM flow_state
WHERE comm_id = $2 AND epoch_ns(ts) <= $1 AND dir = 'send' AND op_kind = 'send' AND rank = $3 AND peer = $4
QUALIFY row_number() OVER (PARTITION BY channel ORDER BY op_seq DESC, ts DESC) = 1
ORDER BY channel
"""
WINDOW_SENDS: Final = """
SELECT rank, comm_id AS comm, epoch_ns(ts) AS ts, CAST(op_seq AS BIGINT) AS seq, channel, peer,
       chunks_total AS total, ready, moved, done
FROM flow_state
WHERE list_contains($2, comm_id) AND dir = 'send' AND epoch_ns(ts) > $3 AND epoch_ns(ts) <= $1
ORDER BY ts, comm, rank, channel, peer
"""
STARTS: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, epoch_ns(start_ts) AS start
FROM coll_ops
WHERE list_contains($2, comm_id) AND NOT coalesce(is_p2p, FALSE)
    AND epoch_ns(start_ts) > $3 AND epoch_ns(start_ts) <= $1
ORDER BY comm, seq, rank
"""

Component = Literal["app", "nic", "gpu"]
Cause = tuple[int | None, Component | None, str]
"""Rank, component, in words; the rules can also end without either."""


@dataclass(frozen=True, slots=True)
class PaperLimits:
    """The numbers of the paper. `most_ranks` 0: all ranks are looked at."""

    window_ns: int = 10 * NS_PER_S
    hop_ns: int = 5 * NS_PER_S
    most_ranks: int = 10
    low_throughput: float = 0.5
    long_interval: float = 2.0
    late_ns: int = 1 * NS_PER_S


PAPER_LIMITS: Final = PaperLimits()


@dataclass(frozen=True, slots=True)
class PaperTrigger:
    """Algorithm 1 fired at the end of a window for a sampled rank; `value`: how many times slower, or s without one."""

    at_ns: int
    kind: Literal["failure", "straggler"]
    rank: int
    value: float


@dataclass(frozen=True, slots=True)
class PaperReport:
    """What the paper's rules say at one moment; `rank` and `component` None where Algorithm 2 names nobody."""

    trigger: PaperTrigger
    rank: int | None
    component: Component | None
    why: str


# ---- Algorithm 1 ---------------------------------------------------------------------------


def sampled_ranks(store: Frames, *, most: int) -> tuple[int, ...]:
    """Return the ranks that are looked at: the first of each data-parallel group, evenly thinned out to `most`.

    `most` 0: every rank. Jobs without such groups give ranks at even distances.
    """
    everybody = sorted({int(r) for r in store.frame(MEMBERS)["rank"]})
    if not most:
        return tuple(everybody)
    chosen = sorted({int(r) for r in store.frame(DATA_PARALLEL)["rank"]}) or everybody
    if len(chosen) <= most:
        return tuple(chosen)
    return tuple(chosen[i * len(chosen) // most] for i in range(most))


def paper_triggers(store: Frames, *, limits: PaperLimits = PAPER_LIMITS) -> tuple[PaperTrigger, ...]:
    """Return the firings of Algorithm 1 in order of time; while it stays in alarm it fires once."""
    first, last = store.frame(SPAN).row(0)
    if first is None or last is None:
        return ()
    ranks = sampled_ranks(store, most=limits.most_ranks)
    done = store.frame(COMPLETIONS).filter(pl.col("rank").is_in(list(ranks)))
    ends = list(range(int(first) + limits.window_ns, int(last) + 1, limits.hop_ns))
    found: list[PaperTrigger] = []
    history: dict[int, list[tuple[float, float]]] = defaultdict(list)
    active: set[int] = set()
    alarmed = False
    for end in ends:
        seen = done.filter((pl.col("end_ns") > end - limits.window_ns) & (pl.col("end_ns") <= end))
        here = set(seen["rank"].to_list())
        failed = sorted(active - here)
        active |= here
        # A window that began before the first one ended would be compared with itself.
        known = {
            key: rows[: max(0, len(rows) - limits.window_ns // limits.hop_ns + 1)] for key, rows in history.items()
        }
        slow = _stragglers(seen, known, history, limits)
        if failed:
            now = PaperTrigger(end, "failure", failed[0], limits.window_ns / NS_PER_S)
        elif slow:
            value, rank = max(slow, key=lambda item: (item[0], -item[1]))
            now = PaperTrigger(end, "straggler", rank, value)
        else:
            alarmed = False
            continue
        # What turns from slow into standing still is worth a second word.
        if not alarmed or (now.kind == "failure" and found[-1].kind == "straggler"):
            found.append(now)
        alarmed = True
    return tuple(found)


def _stragglers(
    seen: pl.DataFrame,
    known: Mapping[int, Sequence[tuple[float, float]]],
    history: dict[int, list[tuple[float, float]]],
    limits: PaperLimits,
) -> list[tuple[float, int]]:
    """Return (ratio, rank) of what is slow in this window, and remember the window."""
    per = (
        seen.group_by("rank", maintain_order=True)
        .agg(
            pl.col("bytes").sum(),
            pl.col("dur").sum(),
            pl.len().alias("count"),
            (pl.col("end_ns").max() - pl.col("end_ns").min()).alias("span"),
        )
        .filter(pl.col("count") > 1)
    )
    found: list[tuple[float, int]] = []
    for rank, size, dur, count, span in per.iter_rows():
        throughput, interval = size / max(dur, 1), span / (count - 1)
        before = known.get(rank, ())
        if before:
            usual = sum(t for t, _ in before) / len(before)
            gap = sum(i for _, i in before) / len(before)
            ratios: list[float] = []
            if usual > 0 and throughput < limits.low_throughput * usual:
                ratios.append(usual / max(throughput, 1e-12))
            if gap > 0 and interval > limits.long_interval * gap:
                ratios.append(interval / gap)
            if ratios:
                found.append((max(ratios), rank))
        history[rank].append((throughput, interval))
    return found


# ---- Algorithm 2 ---------------------------------------------------------------------------


def paper_cause(store: Frames, trigger: PaperTrigger, *, limits: PaperLimits = PAPER_LIMITS) -> PaperReport:
    """Return what Algorithm 2 makes of a firing, from rows of all ranks up to it."""
    if trigger.kind == "failure":
        rank, component, why = _Stall(store, trigger.at_ns).cause(trigger.rank)
    else:
        comms = [int(c) for c, r in store.frame(MEMBERS).iter_rows() if r == trigger.rank]
        rank, component, why = _late_or_least(store, comms, trigger.at_ns, limits)
    return PaperReport(trigger, rank, component, why)


def paper_reports(store: Frames, *, limits: PaperLimits = PAPER_LIMITS) -> tuple[PaperReport, ...]:
    """Return what the paper's rules report over a whole trace, in order of time."""
    return tuple(paper_cause(store, t, limits=limits) for t in paper_triggers(store, limits=limits))


def check_rc_table(*, ready: int, moved: int, done: int, total: int) -> tuple[Component, str]:
    """Return component and reason by the counters of a sending side alone, as the paper's table does."""
    if ready > moved:
        return "nic", "not transmitted"
    if moved > done:
        return "nic", "not delivered"
    return ("gpu", "GPU not ready") if done < total else ("gpu", "all sent, not consumed")


class _Stall:
    """Every rank's open operations at one moment, for the walk from a rank that has failed."""

    def __init__(self, store: Frames, at_ns: int) -> None:
        self.store = store
        self.at = at_ns
        self.open: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in store.frame(OPEN, [at_ns]).to_dicts():
            self.open[int(row["rank"])].append(row)
        self.reached = {(int(c), int(r)): int(s) for c, r, s in store.frame(REACHED, [at_ns]).iter_rows()}
        self.pairs = {
            (int(c), int(r), int(p), str(k)): int(n)
            for c, r, p, k, n in store.frame(PAIRS, [at_ns]).iter_rows()
            if p is not None and n is not None
        }
        self.members: dict[int, list[int]] = defaultdict(list)
        for comm, rank in store.frame(MEMBERS).iter_rows():
            self.members[int(comm)].append(int(rank))

    def cause(self, rank: int) -> Cause:
        """Follow members at the least operation; the walk ends where one is inside of nothing, or all are equal."""
        visited: set[int] = set()
        while True:
            visited.add(rank)
            ops = self.open.get(rank)
            if not ops:
                return rank, "app", "not started"
            # A send does not hold its rank up while the rank is inside of something else.
            op = next((o for o in ops if o["kind"] != "send"), ops[0])
            behind = [r for r in self.check_min_op(op) if r not in visited]
            if not behind:
                return self._by_data(op)
            rank = behind[0]

    def check_min_op(self, op: Mapping[str, Any]) -> list[int]:
        """Return the members that have come least far in the communicator of an operation; none where all are equal."""
        comm, rank = int(op["comm"]), int(op["rank"])
        if op["p2p"]:
            if op["peer"] is None or op["pair"] is None:
                return []
            peer, other = int(op["peer"]), "recv" if op["kind"] == "send" else "send"
            return [peer] if self.pairs.get((comm, peer, rank, other), -1) < int(op["pair"]) else []
        at = {r: self.reached.get((comm, r), -1) for r in self.members.get(comm, [rank])}
        least = min(at.values())
        return [r for r, seq in at.items() if seq == least] if least < max(at.values()) else []

    def _by_data(self, op: Mapping[str, Any]) -> Cause:
        """`CheckMinData`, then `CheckRCTable`."""
        comm = int(op["comm"])
        if op["p2p"]:
            pair = (int(op["rank"]), int(op["peer"])) if op["peer"] is not None else (-1, -1)
            src, dst = pair if op["kind"] == "send" else pair[::-1]
            rows = self.store.frame(LAST_OF_PAIR, [self.at, comm, src, dst]).to_dicts()
        else:
            rows = self.store.frame(LAST_SENDS, [self.at, comm, int(op["seq"]), str(op["kind"])]).to_dicts()
        if not rows:
            waiting = [
                r
                for r in self.members.get(comm, [])
                if any(o["comm"] == comm and o["seq"] == op["seq"] and not o["started"] for o in self.open.get(r, []))
            ]
            return (waiting[0], "gpu", "GPU not ready") if waiting else (None, None, "no flow of this operation")
        least = min(rows, key=lambda r: r["done"] / max(r["total"], 1))
        component, why = check_rc_table(
            ready=least["ready"], moved=least["moved"], done=least["done"], total=least["total"]
        )
        return int(least["rank"]), component, why


def _late_or_least(store: Frames, comms: Sequence[int], at_ns: int, limits: PaperLimits) -> Cause:
    """A straggler: the member that starts late by more than the limit, else the one whose flow is least far mostly."""
    asked = [at_ns, list(comms), at_ns - limits.window_ns]
    starts = store.frame(STARTS, asked)
    if starts.height:
        late = (
            starts.with_columns((pl.col("start") - pl.col("start").min().over("comm", "seq")).alias("late"))
            .group_by("comm", "rank")
            .agg(pl.col("late").mean())
            .sort("late", "rank", descending=[True, False])
            .select("rank", "late")
        )
        rank, worst = late.row(0)
        if worst > limits.late_ns:
            return int(rank), "gpu", f"starts {worst / NS_PER_S:.2f} s late"
    votes: Counter[tuple[int, Component, str]] = Counter()
    rows = store.frame(WINDOW_SENDS, asked)
    least = (
        rows.with_columns(
            (pl.col("done") / pl.max_horizontal("total", 1)).alias("share"), (pl.col("ts") // 100_000_000).alias("tick")
        )
        .sort("tick", "comm", "seq", "share", "rank", "channel", "peer")
        .group_by("tick", "comm", "seq", maintain_order=True)
        .first()
    )
    for row in least.to_dicts():
        component, why = check_rc_table(ready=row["ready"], moved=row["moved"], done=row["done"], total=row["total"])
        votes[int(row["rank"]), component, why] += 1
    if not votes:
        return None, None, "no flow of these communicators"
    (rank, component, why), _ = max(votes.items(), key=lambda item: (item[1], -item[0][0]))
    return rank, component, why
