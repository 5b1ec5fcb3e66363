"""From rows to the snapshot: what was open, how far each flow half was, and who was heard of, at one moment.

Only the last rows of operations that were open then become objects; the millions before them are filtered where they
lie. "Last" is told by each rank's own clock, against its own newest row, so that a host's clock changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.analysis.certainty import UNHEARD_SINCE_NS
from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_MS, NS_PER_S, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.flow import FlowKey, Half, OpenOp, OpKey, Snapshot
from mycroft.analysis.grouped import Groups, Ints, looked_up, packed, stepwise
from mycroft.analysis.host_clocks import LISTED, RANK_HOSTS, clock_offsets

# Rows of a Flight Recorder of the same run are counted from another number and know no kernel: only the tracer's own
# are read here.
RING_DUMPS: Final = """
SELECT rank, coalesce(has_timing, FALSE) AS kernels, lib_version, coalesce(entries, 0) AS entries
FROM rank_dumps
WHERE kind = 'ring'
ORDER BY rank
"""
# Times are read with the slack of the clocks and put right afterwards.
BEATS: Final = """
SELECT rank, epoch_ns(ts) AS ts, epoch_ns(sampler_ts) AS sampler, epoch_ns(last_progress_ts) AS progress, pid_alive,
       n_open
FROM heartbeat
WHERE ts < make_timestamp_ns($1) AND ts >= make_timestamp_ns($2)
"""
# Ranks from whose agents nothing came any more when the rows were taken.
UNHEARD: Final = "SELECT DISTINCT rank FROM events WHERE kind = 'other' AND name = 'unheard' AND rank IS NOT NULL"
NEWEST: Final = "SELECT max(epoch_ns(sampler_ts)) AS newest FROM heartbeat"
# NCCL's numbers of sends differ between ranks; those of a pair do not.
OPEN_OPS: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, CAST(pair_seq AS BIGINT) AS pair,
       CAST(op_kind AS VARCHAR) AS kind, coalesce(is_p2p, FALSE) AS p2p, peer, epoch_ns(enq_ts) AS enq,
       epoch_ns(kstart_ts) AS kstart, algo, proto, CAST(state AS VARCHAR) AS state, record_id AS record,
       CASE WHEN state NOT IN ('scheduled', 'started', 'aborted') OR dur_ns IS NOT NULL
            THEN epoch_ns(start_ts) + coalesce(dur_ns, 0) END AS end_ns
FROM coll_ops
WHERE file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring') AND op_seq IS NOT NULL
    AND NOT coalesce(retired, FALSE) AND (enq_ts IS NULL OR enq_ts < make_timestamp_ns($1))
    AND (
        (dur_ns IS NULL AND state IN ('scheduled', 'started', 'aborted'))
        OR epoch_ns(start_ts) + coalesce(dur_ns, 0) > $2
    )
"""
# Operations of communicators that somebody is inside of, which others have behind them.
FINISHED: Final = """
WITH wanted AS (
    SELECT unnest(string_split($1, ',')::BIGINT[]) AS comm, unnest(string_split($2, ',')::BIGINT[]) AS seq
)
SELECT c.rank, c.comm_id AS comm, CAST(c.op_seq AS BIGINT) AS seq, CAST(c.pair_seq AS BIGINT) AS pair,
       CAST(c.op_kind AS VARCHAR) AS kind, c.peer, epoch_ns(c.start_ts) + coalesce(c.dur_ns, 0) AS end_ns
FROM coll_ops c
SEMI JOIN wanted w ON c.comm_id = w.comm AND coalesce(CAST(c.pair_seq AS BIGINT), CAST(c.op_seq AS BIGINT)) = w.seq
WHERE (state NOT IN ('scheduled', 'started', 'aborted') OR state IS NULL OR dur_ns IS NOT NULL OR retired)
    AND c.file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
ORDER BY ALL
"""
REACHED: Final = """
SELECT comm_id AS comm, rank, max(CAST(op_seq AS BIGINT)) AS last
FROM coll_ops
WHERE NOT coalesce(is_p2p, FALSE) AND op_kind NOT IN ('send', 'recv') AND op_seq IS NOT NULL
    AND file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    AND comm_id IN (SELECT unnest(string_split($1, ',')::BIGINT[])) AND (enq_ts IS NULL OR epoch_ns(enq_ts) <= $2)
GROUP BY ALL
"""
# ... and of ranks whose clock is noticeably off, by that clock.
REACHED_BY_CLOCK: Final = """
WITH clock AS (
    SELECT unnest(string_split($3, ',')::BIGINT[]) AS rank, unnest(string_split($4, ',')::BIGINT[]) AS ahead
)
SELECT c.comm_id AS comm, c.rank, max(CAST(c.op_seq AS BIGINT)) AS last
FROM coll_ops c JOIN clock k USING (rank)
WHERE NOT coalesce(c.is_p2p, FALSE) AND c.op_kind NOT IN ('send', 'recv') AND c.op_seq IS NOT NULL
    AND c.file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    AND c.comm_id IN (SELECT unnest(string_split($1, ',')::BIGINT[]))
    AND (c.enq_ts IS NULL OR epoch_ns(c.enq_ts) - k.ahead <= $2)
GROUP BY ALL
"""
STATUS: Final = """
SELECT comm_id AS comm, rank, CAST(last_enqueued AS BIGINT) AS last, epoch_ns(ts) AS ts
FROM group_status
WHERE last_enqueued IS NOT NULL AND file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
"""
STATES: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, op_kind IN ('send', 'recv') AS p2p,
       coalesce(channel, 0) AS channel, dir = 'send' AS send, peer, epoch_ns(ts) AS ts, chunks_total AS total, posted,
       ready, moved, done, coalesce(idle_ms, 0) AS idle_ms
FROM flow_state
WHERE peer IS NOT NULL AND ts < make_timestamp_ns($1) AND ts >= make_timestamp_ns($2)
"""
# Ranks without rows in the window are asked again for all they have.
STATES_OF: Final = STATES.rstrip() + " AND rank IN (SELECT unnest(string_split($3, ',')::BIGINT[]))\n"
ENDED: Final = """
WITH wanted AS (
    SELECT unnest(string_split($1, ',')::BIGINT[]) AS comm, unnest(string_split($2, ',')::BIGINT[]) AS seq
)
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, op_kind IN ('send', 'recv') AS p2p,
       coalesce(channel, 0) AS channel, dir = 'send' AS send, peer, max(slices) AS slices,
       max(epoch_ns(end_ts)) AS end_ns
FROM flow_ops f
SEMI JOIN wanted w ON f.comm_id = w.comm AND CAST(f.op_seq AS BIGINT) = w.seq
WHERE peer IS NOT NULL AND end_ts < make_timestamp_ns($3)
GROUP BY ALL
"""
SIDE_SENDERS: Final = """
SELECT DISTINCT s.rank
FROM coll_ops s JOIN coll_ops o ON o.rank = s.rank AND o.enq_ts > s.enq_ts AND o.op_kind <> 'recv'
    AND epoch_ns(o.enq_ts) < epoch_ns(s.start_ts) + s.dur_ns
WHERE s.rank IN (SELECT unnest(string_split($1, ',')::BIGINT[])) AND s.op_kind = 'send' AND s.dur_ns > 1000000
    AND s.enq_ts >= make_timestamp_ns($2) AND o.enq_ts >= make_timestamp_ns($2)
    AND s.enq_ts < make_timestamp_ns($3) AND o.enq_ts < make_timestamp_ns($3)
    AND s.file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    AND o.file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
"""
# What goes up a tree has ended before what comes down has, at the same rank and by its own clock.
TREE_ENDS_OF: Final = """
SELECT s.rank, s.comm_id AS comm, s.channel, s.peer,
       sum(sign(epoch_ns(r.end_ts) - epoch_ns(s.end_ts))) AS votes
FROM flow_ops s
JOIN flow_ops r
    ON r.rank = s.rank AND r.comm_id = s.comm_id AND r.op_seq = s.op_seq AND r.channel = s.channel AND r.peer = s.peer
JOIN coll_ops o
    ON o.rank = s.rank AND o.comm_id = s.comm_id AND o.op_seq = s.op_seq AND o.algo = 'TREE' AND o.state = 'completed'
WHERE s.dir = 'send' AND r.dir = 'recv' AND s.comm_id IN (SELECT unnest(string_split($1, ',')::BIGINT[]))
GROUP BY ALL
ORDER BY ALL
"""
_RAW_STEPS: Final = "NCCL profiler ABI v1"
_FOREVER: Final = 1 << 62
# How far back heartbeats are looked at for pauses and gaps.
BEATS_BACK_NS: Final = 600 * NS_PER_S
NOTICED_NS: Final = 100 * NS_PER_MS
SENDS_BACK_NS: Final = 30 * NS_PER_S
# State rows are read from this long before the moment; ranks without any are asked for older ones. A flow in flight is
# written ten times a second, one that has stood for ten seconds once a second.
STATES_BACK_NS: Final = 2_500 * NS_PER_MS
STATES_BACK_IN_FLIGHT_NS: Final = 700 * NS_PER_MS
IN_FLIGHT_NS: Final = 8 * NS_PER_S
# No gap between heartbeats that a rank came back from makes a live one of one that has been silent for longer.
LONGEST_GAP_NS: Final = 6 * NS_PER_S
_HALF: Final = ["rank", "comm", "seq", "p2p", "channel", "send", "peer"]


def listed(numbers: Iterable[int]) -> str:
    """Return numbers as the text that a query splits again: one parameter however many there are."""
    return ",".join(str(int(n)) for n in numbers) or "-1"


def read_snapshot(
    store: Frames,
    limits: FlowLimits = FLOW_DEFAULTS,
    *,
    at: int | None = None,
    offsets: Mapping[int, int] | None = None,
) -> Snapshot | None:
    """Return how things stood at `at` (ns UTC; None: at the end), None where no tracer left anything.

    Ranks without a trace are absent from it. Nothing that happened later is in it, but for what clocks are off by.
    `offsets`: of the clocks, where they are known already.
    """
    rings = store.frame(RING_DUMPS)
    if rings.is_empty():
        return None
    return _Reading(store, limits, rings, at, offsets).snapshot()


class _Reading:
    def __init__(
        self, store: Frames, limits: FlowLimits, rings: pl.DataFrame, at: int | None, offsets: Mapping[int, int] | None
    ) -> None:
        self.store = store
        self.limits = limits
        self.kernels = {int(r): bool(k) for r, k in rings.select("rank", "kernels").iter_rows()}
        self.empty = {int(r) for r, n in rings.select("rank", "entries").iter_rows() if not n}
        self.raw_steps = any(str(v) == _RAW_STEPS for v in rings["lib_version"])
        self.at = at
        self.hosts = {int(r): int(h) for r, h in store.frame(RANK_HOSTS).iter_rows()}
        self.listed = store.frame(LISTED)
        if offsets is None:
            offsets = clock_offsets(store, at=at, hosts=self.hosts, members=self.listed)
        self.offsets = offsets
        self.slack = max((abs(v) for v in self.offsets.values()), default=0)

    @property
    def until(self) -> int:
        """Upper bound of times as written."""
        return _FOREVER if self.at is None else self.at + self.slack + 1

    def _corrected(self, frame: pl.DataFrame, *times: str, by: str | None = None) -> pl.DataFrame:
        """Put times right; `by`: leave out rows whose time is after the moment."""
        if frame.is_empty():
            return frame
        if self.slack:
            ahead = pl.Series(looked_up(_numbers(frame, "rank"), self.offsets, missing=0))
            frame = frame.with_columns((frame[name] - ahead).alias(name) for name in times)
        if by is None or self.at is None:
            return frame
        later = frame[by] > self.at
        return frame.filter(~later.fill_null(value=False)) if later.any() else frame

    def snapshot(self) -> Snapshot:
        """Read everything."""
        beats = self._beats()
        signs = _signs_of(beats)
        ops = self._ops()
        open_ops, algo = self._open(ops.filter(pl.col("end").is_null()))
        comms = sorted({o.key.comm for found in open_ops.values() for o in found})
        numbers = sorted({(o.key.comm, o.key.seq) for found in open_ops.values() for o in found})
        finished = self._finished(numbers)
        reached = self._reached(open_ops, comms)
        states = self._states(beats, signs)
        newest = _newest(states)
        heard, silent, at_ns, loss = self._heard(beats, signs, newest, ops)
        send, recv = self._halves(states, open_ops, finished)
        self._add_unnamed(open_ops, send, recv, heard)
        progress = self._progress(signs, ops, send, recv)
        lost = self._lost(silent, heard, progress)
        members: dict[int, list[int]] = defaultdict(list)
        for comm, rank in self.listed.iter_rows():
            members[int(comm)].append(int(rank))
        return Snapshot(
            at_ns=at_ns,
            ranks=tuple(sorted(self.kernels)),
            silent=silent,
            progress=progress,
            heard=heard,
            open={r: tuple(_first_of_each(o)) for r, o in open_ops.items()},
            members={c: tuple(m) for c, m in members.items()},
            reached=reached,
            finished=finished,
            algo=algo,
            send=send,
            recv=recv,
            parents=self._parents(algo),
            raw_steps=self.raw_steps,
            unnamed=frozenset(r for r, n in signs.select("rank", "n_open").iter_rows() if n and r not in open_ops),
            side_senders=self._side_senders(open_ops),
            pause_ns=_middle(signs["pause"]),
            loss=loss,
            lost=lost,
            hosts=self.hosts,
        )

    # ---- signs of life ---------------------------------------------------------------

    def _beats(self) -> pl.DataFrame:
        end = self.at if self.at is not None else self.store.frame(NEWEST).item()
        if end is None:
            return self.store.frame(BEATS, (0, 0))
        frame = self.store.frame(BEATS, (self.until, max(0, int(end) - BEATS_BACK_NS - self.slack)))
        return self._corrected(frame, "ts", "sampler", "progress", by="ts").sort("rank", "ts")

    def _heard(
        self, beats: pl.DataFrame, signs: pl.DataFrame, newest: Mapping[int, int], ops: pl.DataFrame
    ) -> tuple[dict[int, int], dict[int, bool | None], int, float]:
        """When each rank was heard of last, who has fallen silent (and whether its process exists), and the moment."""
        heard = {int(r): int(s) for r, s in signs.select("rank", "sampler").iter_rows() if s is not None}
        others = zip(ops["rank"], ops.select(pl.max_horizontal("enq", "end")).to_series(), strict=True)
        for rank, ts in (*newest.items(), *others):
            if ts is not None and rank in heard:
                heard[rank] = max(heard[rank], ts)
        at_ns = self.at if self.at is not None else max(heard.values(), default=0)
        until = beats.filter(pl.col("sampler") <= at_ns).select("rank", "sampler")
        gaps = pl.Series(np.diff(_numbers(until, "sampler"))[~stepwise(_numbers(until, "rank"))[1:]])
        usual = float(gaps.median() or NS_PER_S) if len(gaps) else float(NS_PER_S)  # pyright: ignore[reportArgumentType]
        longest = min(int(gaps.max() or 0), LONGEST_GAP_NS) if len(gaps) else 0  # pyright: ignore[reportArgumentType]
        expected = float((gaps / max(usual, 1.0)).round().sum() or 0.0)
        loss = max(0.0, 1 - len(gaps) / expected) if expected else 0.0
        # A gap that a rank came back from is no silence; rows do get lost.
        limit = max(self.limits.silent_ns, longest + round(usual))
        alive = {int(r): a for r, a in signs.select("rank", "alive").iter_rows()}
        silent = {r: alive.get(r) for r, ts in heard.items() if at_ns - ts > limit}
        # A trace without a row, while those of the others have long had some.
        first = min(heard.values(), default=at_ns) if beats.is_empty() else int(beats["ts"].min())  # pyright: ignore[reportArgumentType]
        if at_ns - first > limit:
            silent |= dict.fromkeys(sorted(self.empty - set(heard)))
        return heard, silent, at_ns, round(loss, 3)

    def _lost(
        self, silent: Mapping[int, bool | None], heard: Mapping[int, int], progress: Mapping[int, int]
    ) -> frozenset[int]:
        """Those whose agents fell silent well before the job stopped: it has heard of them since, only we have not."""
        if not silent:
            return frozenset()
        unheard = {int(rank) for (rank,) in self.store.frame(UNHEARD).iter_rows()} & set(silent)
        newest = max((ts for rank, ts in progress.items() if rank not in silent), default=0)
        return frozenset(r for r in unheard if r in heard and heard[r] < newest - UNHEARD_SINCE_NS)

    def _progress(
        self, signs: pl.DataFrame, ops: pl.DataFrame, send: Mapping[FlowKey, Half], recv: Mapping[FlowKey, Half]
    ) -> dict[int, int]:
        found: dict[int, int] = {}

        def later(rank: int, ts: int | None) -> None:
            if ts is not None and (self.at is None or ts <= self.at):
                found[rank] = max(found.get(rank, ts), ts)

        for rank, ts in signs.select("rank", "progress").iter_rows():
            later(int(rank), ts)
        for rank, *times in ops.select("rank", "enq", "kstart", "end").iter_rows():
            for ts in times:
                later(rank, ts)
        for side in (send, recv):
            for half in side.values():
                later(half.rank, half.ts - half.idle_ns)
        return found

    # ---- operations -------------------------------------------------------------------

    def _ops(self) -> pl.DataFrame:
        """Operations that were open then, and those that ended within a slack of it."""
        ended_after = _FOREVER if self.at is None else self.at - self.slack
        frame = self.store.frame(OPEN_OPS, (self.until, ended_after)).rename({"end_ns": "end"})
        frame = self._corrected(frame, "enq", "kstart", "end", by="enq")
        if self.at is None:
            return frame
        return frame.with_columns(
            kstart=pl.when(pl.col("kstart") <= self.at).then(pl.col("kstart")),
            end=pl.when(pl.col("end") <= self.at).then(pl.col("end")),
        )

    def _open(self, ops: pl.DataFrame) -> tuple[dict[int, list[OpenOp]], dict[OpKey, tuple[str, str, str]]]:
        found: dict[int, list[OpenOp]] = defaultdict(list)
        algo: dict[OpKey, tuple[str, str, str]] = {}
        for row in sorted(ops.to_dicts(), key=_in_order):
            rank = int(row["rank"])
            key = op_key(rank, row)
            algo.setdefault(key, (str(row["kind"]), str(row["algo"] or ""), str(row["proto"] or "")))
            started = row["kstart"] is not None if self.kernels.get(rank) else None
            aborted = row["state"] == "aborted" and self.at is None
            found[rank].append(OpenOp(rank, key, str(row["kind"]), row["enq"], started, aborted))
        return dict(found), algo

    def _finished(self, numbers: list[tuple[int, int]]) -> frozenset[tuple[int, OpKey]]:
        if not numbers:
            return frozenset()
        frame = self.store.frame(FINISHED, (listed(c for c, _ in numbers), listed(s for _, s in numbers)))
        frame = self._corrected(frame, "end_ns")
        if self.at is not None:
            frame = frame.filter(pl.col("end_ns") <= self.at)
        return frozenset((int(row["rank"]), op_key(int(row["rank"]), row)) for row in frame.iter_rows(named=True))

    def _reached(self, open_ops: Mapping[int, Iterable[OpenOp]], comms: list[int]) -> dict[tuple[int, int], int]:
        if not comms:
            return {}
        # A clock that is off by less is late by no more than rows are apart.
        off = {r: ahead for r, ahead in sorted(self.offsets.items()) if abs(ahead) > NOTICED_NS}
        until = _FOREVER if self.at is None else self.at
        plain = self.store.frame(REACHED, (listed(comms), until))
        found = {(int(c), int(r)): int(n) for c, r, n in plain.iter_rows() if r not in off}
        if off:
            asked = listed(comms), until, listed(off), listed(off.values())
            found |= {(int(c), int(r)): int(n) for c, r, n in self.store.frame(REACHED_BY_CLOCK, asked).iter_rows()}
        wanted = set(comms)
        for comm, rank, last, ts in self.store.frame(STATUS).iter_rows():
            if comm in wanted and (ts is None or ts - off.get(rank, 0) <= until):
                place = int(comm), int(rank)
                found[place] = max(found.get(place, -1), int(last))
        for rank, ops in open_ops.items():
            for item in ops:
                if not item.key.p2p:
                    place = item.key.comm, rank
                    found[place] = max(found.get(place, -1), item.key.seq)
        return found

    def _side_senders(self, open_ops: Mapping[int, list[OpenOp]]) -> frozenset[int]:
        """Ranks that only have sends pending, of those that went on with other work during earlier sends."""
        asked = [r for r, ops in open_ops.items() if all(o.key.p2p and o.key.src == r for o in ops)]
        if not asked:
            return frozenset()
        first = max((o.enq or 0 for r in asked for o in open_ops[r]), default=0) - SENDS_BACK_NS
        frame = self.store.frame(SIDE_SENDERS, (listed(asked), max(0, first - self.slack), self.until))
        return frozenset(int(r) for r in frame["rank"])

    def _parents(self, algo: Mapping[OpKey, tuple[str, str, str]]) -> dict[tuple[int, int, int, int], bool]:
        comms = sorted({op.comm for op, (_, name, _) in algo.items() if name == "TREE"})
        found: dict[tuple[int, int, int, int], bool] = {}
        if comms:
            for row in self.store.frame(TREE_ENDS_OF, (listed(comms),)).to_dicts():
                if row["votes"]:
                    found[int(row["comm"]), int(row["channel"]), int(row["rank"]), int(row["peer"])] = row["votes"] > 0
        return found

    # ---- flows --------------------------------------------------------------------------

    def _states(self, beats: pl.DataFrame, signs: pl.DataFrame) -> pl.DataFrame:
        """The last row of each half that was fresh when its rank was sampled last, in order of the halves."""
        end = self.at
        if end is None:
            newest = beats["sampler"].max() if beats.height else None
            end = int(newest) if newest is not None else _FOREVER  # pyright: ignore[reportArgumentType]
        oldest = signs["progress"].min()
        moving = oldest is not None and end - int(oldest) < IN_FLIGHT_NS  # pyright: ignore[reportArgumentType]
        back = STATES_BACK_IN_FLIGHT_NS if moving else STATES_BACK_NS
        first = max(0, end - back - self.slack) if end != _FOREVER else 0
        frame = self.store.frame(STATES, (self.until, first))
        lacking = sorted(set(self.kernels) - set(np.unique(_numbers(frame, "rank")).tolist()))
        if lacking and first:
            frame = pl.concat([frame, self.store.frame(STATES_OF, (first, 0, listed(lacking)))])
        frame = self._corrected(frame, "ts", by="ts")
        if frame.is_empty():
            return frame
        keys, ts = [_numbers(frame, name) for name in _HALF], _numbers(frame, "ts")
        of_rank = Groups(keys[0])
        fresh = of_rank.largest(ts)[of_rank.of_row] - ts <= self.limits.state_window_ns
        rows = np.flatnonzero(fresh)
        return frame[rows[Groups(*(key[rows] for key in keys), within=ts[rows]).last]]

    def _halves(
        self,
        states: pl.DataFrame,
        open_ops: Mapping[int, list[OpenOp]],
        finished: frozenset[tuple[int, OpKey]],
    ) -> tuple[dict[FlowKey, Half], dict[FlowKey, Half]]:
        send: dict[FlowKey, Half] = {}
        recv: dict[FlowKey, Half] = {}
        if states.is_empty():
            return send, recv
        opened = {(o.rank, o.key) for ops in open_ops.values() for o in ops}
        names = (*_HALF, "total", "posted", "ready", "moved", "done", "idle_ms", "ts")
        columns = (states[name].to_list() for name in names)
        for rank, comm, seq, p2p, channel, sends, peer, total, posted, ready, moved, done, idle_ms, ts, over in zip(
            *columns, self._over(states), strict=True
        ):
            src, dst = (rank, peer) if sends else (peer, rank)
            op = OpKey(comm, seq, src, dst) if p2p else OpKey(comm, seq)
            if (rank, op) in finished:
                continue
            if over:
                if (rank, op) not in opened:
                    continue
                posted = ready = moved = done = total
            half = Half(rank, total, posted, ready, moved, done, idle_ms * NS_PER_MS, ts, over)
            (send if sends else recv)[FlowKey(op, channel, src, dst)] = half
        return send, recv

    def _over(self, states: pl.DataFrame) -> list[bool]:
        """Say of each half whether all of it had ended by then."""
        comm, seq = _numbers(states, "comm"), _numbers(states, "seq")
        each = Groups(comm, seq).first
        asked = listed(comm[each].tolist()), listed(seq[each].tolist()), self.until
        ended = self._corrected(self.store.frame(ENDED, asked), "end_ns", by="end_ns")
        keys = packed(*(np.concatenate((_numbers(ended, name), _numbers(states, name))) for name in _HALF))
        known, wanted = keys[: len(ended)], keys[len(ended) :]
        if not len(known):
            return [False] * len(wanted)
        order = np.argsort(known)
        place = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
        same = (known[place] == wanted) & ended["slices"].is_not_null().to_numpy()[place]
        return (same & (_numbers(ended, "slices")[place] >= _numbers(states, "total"))).tolist()

    def _add_unnamed(
        self,
        open_ops: dict[int, list[OpenOp]],
        send: Mapping[FlowKey, Half],
        recv: Mapping[FlowKey, Half],
        heard: Mapping[int, int],
    ) -> None:
        """A flow in flight shows an operation whose own row was lost."""
        known = {(o.rank, o.key) for ops in open_ops.values() for o in ops}
        for side in (send, recv):
            for key, half in side.items():
                if (half.rank, key.op) in known or half.ended:
                    continue
                # It ended a moment ago, and that row is not here yet.
                if heard.get(half.rank, half.ts) - half.ts > self.limits.state_window_ns:
                    continue
                known.add((half.rank, key.op))
                kind = ("send" if key.src == half.rank else "recv") if key.op.p2p else ""
                open_ops.setdefault(half.rank, []).append(OpenOp(half.rank, key.op, kind, None, None))


def _signs_of(beats: pl.DataFrame) -> pl.DataFrame:
    """What the heartbeats, sorted by rank and time, come to for each rank: last sample, progress, open operations.

    `alive`: what the machine says of the process now, in rows whose `ts` is above `sampler`. `pause`: the longest time
    without progress that it got over.
    """
    return beats.group_by("rank", maintain_order=True).agg(
        pl.col("sampler").max(),
        pl.col("progress").max(),
        pl.col("n_open").last(),
        alive=pl.col("pid_alive").filter(pl.col("ts") > pl.col("sampler")).last(),
        pause=pl.col("progress").drop_nulls().diff().max(),
    )


def _newest(states: pl.DataFrame) -> dict[int, int]:
    """Return the time of the newest row of each rank."""
    ranks, ts = _numbers(states, "rank"), _numbers(states, "ts")
    of_rank = Groups(ranks)
    return dict(zip(ranks[of_rank.first].tolist(), of_rank.largest(ts).tolist(), strict=True))


def _numbers(frame: pl.DataFrame, name: str) -> Ints:
    """A column as numbers; what stands in for its gaps is for the caller to mask."""
    column = frame[name].cast(pl.Int64)
    return (column.fill_null(0) if column.has_nulls() else column).to_numpy()


def _middle(values: pl.Series) -> int:
    """Return the median; 0 of none."""
    return int(values.median() or 0)  # pyright: ignore[reportArgumentType]


def _in_order(op: Mapping[str, Any]) -> tuple[int, int, bool, int]:
    """As each rank recorded them in each communicator, those without a number last."""
    return op["rank"], op["comm"], op["record"] is None, op["record"] or 0


def op_key(rank: int, row: Mapping[str, Any]) -> OpKey:
    """Return the key that both sides of an operation share."""
    comm = int(row["comm"])
    if row["kind"] not in ("send", "recv") or row["peer"] is None:
        return OpKey(comm, int(row["seq"]))
    peer = int(row["peer"])
    number = row.get("pair", row["seq"])
    src, dst = (rank, peer) if row["kind"] == "send" else (peer, rank)
    return OpKey(comm, int(number if number is not None else row["seq"]), src, dst)


def _first_of_each(ops: Iterable[OpenOp]) -> list[OpenOp]:
    """Keep the oldest open collective of each communicator and every send/recv: what is behind it waits for it."""
    oldest: dict[int, OpenOp] = {}
    pairs: list[OpenOp] = []
    for item in ops:
        if item.key.p2p:
            pairs.append(item)
        elif item.key.comm not in oldest or item.key.seq < oldest[item.key.comm].key.seq:
            oldest[item.key.comm] = item
    kept = sorted([*oldest.values(), *pairs], key=lambda o: (o.key, o.kind))
    # A send that nobody receives yet does not hold its rank up while the rank is inside of something else.
    waiting = [o for o in kept if not (o.key.p2p and o.key.src == o.rank)]
    return waiting or kept
