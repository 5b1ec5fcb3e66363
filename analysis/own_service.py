"""Own service time: what each GPU, host and flow took while everything it needed was there.

A victim waits, a culprit does not; waiting is in none of these numbers, so a slow one stands out by itself and nobody
has to guess who is a victim. Each metric is one number per entity and iteration: the log of its time over the median
of its peers, taken operation by operation where that is possible, so that lost rows and a changing number of
operations leave it alone.

| metric | time | entity | peers |
|---|---|---|---|
| G | previous operation's end (or the call, if later) to kernel start | rank | its group with the most operations |
| H | previous operation's end to the call | rank | all ranks |
| HG | median of G's time over the ranks of a host | host | same stage if there are 4 hosts, else all hosts |
| S, Rv | network's own share of a collective's flow | rank and channel that sends; rank that gets it | same kind |
| PS, PR | the same of sends | rank and channel that sends; rank that gets it | same size |
| ES, ER | the same of all-to-all | rank and channel that sends; rank that gets it | same size |
| FL | arrival to visibility at the GPU, per chunk | rank that receives | same kind |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.analysis.config import FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.grouped import Floats, Groups, Ints, Mask, looked_up, packed, stepwise
from mycroft.analysis.host_clocks import RANK_HOSTS, clock_offsets
from mycroft.analysis.iterations import Iterations, Operations, in_order_of_issue, with_iterations
from mycroft.loaders.schema import OP_KINDS

OPS: Final = """
SELECT rank, comm_id AS comm,
       CAST(coalesce(CASE WHEN is_p2p THEN coalesce(pair_seq, op_seq) ELSE op_seq END, -1) AS BIGINT) AS seq,
       CASE WHEN NOT coalesce(is_p2p, FALSE) THEN -1
            ELSE coalesce(CAST(CASE WHEN op_kind = 'send' THEN rank ELSE peer END AS BIGINT), -2) END AS src,
       CASE WHEN NOT coalesce(is_p2p, FALSE) THEN -1
            ELSE coalesce(CAST(CASE WHEN op_kind = 'send' THEN peer ELSE rank END AS BIGINT), -2) END AS dst,
       CAST(coalesce(enum_code(op_kind), 255) AS UTINYINT) AS kind, coalesce(is_p2p, FALSE) AS p2p,
       CAST(coalesce(bytes, 0) AS BIGINT) AS bytes, epoch_ns(enq_ts) AS enq, epoch_ns(kstart_ts) AS kstart,
       epoch_ns(dep_end_ts) AS dep, epoch_ns(start_ts) + dur_ns AS "end"
FROM coll_ops
WHERE file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring') AND state = 'completed' AND dur_ns IS NOT NULL
    AND enq_ts IS NOT NULL AND start_ts < make_timestamp_ns(?)
"""
FLOWS: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq,
       CAST(coalesce(enum_code(op_kind), 255) AS UTINYINT) AS kind, coalesce(channel, 0) AS channel,
       dir = 'send' AS sends, peer, slices, CAST(net_busy_ns AS BIGINT) AS net_busy, CAST(flush_ns AS BIGINT) AS flush
FROM flow_ops
WHERE peer IS NOT NULL AND end_ts < make_timestamp_ns(?) AND slices > 0 AND dir IS NOT NULL
"""
SEND, RECV, ALL_TO_ALL = (OP_KINDS.index(kind) for kind in ("send", "recv", "all_to_all"))
_FOREVER: Final = 1 << 62
# Below this a time is scatter of the machine, not service.
FLOOR_NS: Final = 50_000
# Operations whose usual time is below this share of the longer ones, of this quantile, say little of the GPU.
SMALL_OP: Final = 0.1
LARGE_QUANTILE: Final = 0.9
# Host time is compared on top of this share of an iteration: a tenth more of nearly nothing is nothing.
HOST_FLOOR: Final = 0.02
# Hosts of one stage that are enough to be each other's peers.
STAGE_HOSTS: Final = 4
# Flushes are microseconds; what they are compared on top of.
FLUSH_FLOOR_NS: Final = 2_000


@dataclass(frozen=True)
class Metric:
    """One metric: a row per iteration, a column per entity; NaN where nothing was seen."""

    name: str
    ids: tuple[Ints, ...]
    """Of each column the rank, the rank and the channel, or the host."""
    log_ratio: np.ndarray[Any, np.dtype[np.float64]]
    cost_s: np.ndarray[Any, np.dtype[np.float64]]
    """Seconds above the peers in that iteration."""

    @cached_property
    def entities(self) -> tuple[tuple[int, ...], ...]:
        """(rank,), (rank, channel) or (host,) of each column: asked for only where something is slow."""
        return tuple(zip(*(part.tolist() for part in self.ids), strict=True))


@dataclass(frozen=True)
class OwnService:
    """All metrics of a job over its iterations."""

    iterations: Iterations
    starts: np.ndarray[Any, np.dtype[np.int64]]
    ends: np.ndarray[Any, np.dtype[np.int64]]
    metrics: Mapping[str, Metric]
    hosts: Mapping[int, int]
    """Rank -> host."""
    neighbours: Callable[[], Mapping[int, frozenset[int]]]

    @cached_property
    def peers(self) -> Mapping[int, frozenset[int]]:
        """Rank -> ranks that it shares flows with: asked for only where a flow is slow."""
        return self.neighbours()


def own_service(
    store: Frames, limits: FlowLimits, *, at: int | None = None, offsets: Mapping[int, int] | None = None
) -> OwnService | None:
    """Return the metrics over everything that had ended by `at` (ns UTC; None: the whole evidence).

    None where no tracer left finished operations. Metrics whose columns a tracer does not fill are absent.
    """
    until = at if at is not None else _FOREVER
    # Clocks that run ahead put their rows after `at`.
    if offsets is None:
        offsets = clock_offsets(store, at=at)
    slack = max((abs(v) for v in offsets.values()), default=0)
    frame = store.frame(OPS, (until + slack,))
    if frame.is_empty():
        return None
    at_end = _column(frame, "end") - looked_up(_column(frame, "rank"), offsets, missing=0)
    frame, over = frame.with_columns(at=pl.Series(at_end)), at_end <= until
    if not over.all():
        frame = frame.filter(pl.Series(over))
    if frame.is_empty():
        return None
    ops = Operations(*(_column(frame, f.name) for f in fields(Operations)))
    order = in_order_of_issue(ops)
    iterations = with_iterations(ops, order, limits)
    hosts = {int(r): int(h) for r, h in store.frame(RANK_HOSTS).iter_rows()}
    build = _Builder(iterations, hosts)
    of_ranks = build.of_ranks(*_own_times(frame.select("dep", "kstart"), iterations, order))
    flows = _Flows.of(store.frame(FLOWS, (until + slack,)))
    found = [*of_ranks, *build.of_flows(flows)]
    return OwnService(
        iterations, iterations.starts, iterations.ends, {m.name: m for m in found}, hosts, flows.neighbours
    )


def _column(frame: pl.DataFrame, name: str) -> Any:
    """A column without gaps as numbers; of one with gaps, what stands in for them is for the caller to mask."""
    column = frame[name]
    if column.dtype == pl.Boolean:
        return column.to_numpy()
    return column.cast(pl.Int64).fill_null(0).to_numpy()


def _own_times(times: pl.DataFrame, it: Iterations, order: Ints) -> tuple[Ints, Mask, Ints, Mask]:
    """Return GPU time and host time of each collective that has an iteration, ns, and for which either is known.

    `times`: end of what each operation depended on and start of its kernel; `order`: of issue, as of all rows.
    """
    ops, kept = it.ops, it.kept
    if not kept.all():
        place = np.cumsum(kept) - 1
        order = place[order[kept[order]]]
        times = times.filter(pl.Series(kept))
    # End of the last operation that its rank waited for, where the one before was one of those.
    waited = (ops.kind != SEND)[order]
    rank = ops.rank[order]
    first = stepwise(rank)
    so_far = _running_largest(np.where(waited, ops.end[order], ops.end.min(initial=_FOREVER)), first)
    previous, known = np.empty_like(ops.end), np.zeros(len(ops), dtype=bool)
    previous[order[1:]] = so_far[:-1]
    known[order[1:]] = waited[:-1] & ~first[1:]
    has_dep = times["dep"].is_not_null().to_numpy()
    free = np.where(has_dep, _column(times, "dep"), previous)
    of_host = (has_dep | known) & ~ops.p2p
    of_gpu = of_host & times["kstart"].is_not_null().to_numpy()
    gpu = np.maximum(_column(times, "kstart") - np.maximum(free, ops.enq), 0)
    return gpu, of_gpu, np.maximum(ops.enq - free, 0), of_host


def _running_largest(values: Ints, first: Mask) -> Ints:
    """Return the largest value so far of each run of rows; `first`: where runs begin."""
    if not len(values):
        return values
    least = int(values.min())
    lift = (np.cumsum(first) - 1) * (int(values.max()) - least + 1)
    return np.maximum.accumulate(values - least + lift) - lift + least


@dataclass(frozen=True, slots=True)
class _Flows:
    """Flow halves of finished operations as columns."""

    rank: Ints
    comm: Ints
    seq: Ints
    kind: Ints
    channel: Ints
    sends: Mask
    peer: Ints
    slices: Ints
    net_busy: Ints
    flush: Ints
    timed: Mask
    """The stage that its side has was seen: the network of a send, the flush of a receive."""

    @property
    def p2p(self) -> Mask:
        return (self.kind == SEND) | (self.kind == RECV)

    @property
    def src(self) -> Ints:
        return np.where(self.p2p, np.where(self.sends, self.rank, self.peer), -1)

    @property
    def dst(self) -> Ints:
        return np.where(self.p2p, np.where(self.sends, self.peer, self.rank), -1)

    @classmethod
    def of(cls, frame: pl.DataFrame) -> _Flows:
        sends = _column(frame, "sends")
        timed = np.where(sends, frame["net_busy"].is_not_null().to_numpy(), frame["flush"].is_not_null().to_numpy())
        return cls(**{f.name: _column(frame, f.name) for f in fields(cls) if f.name != "timed"}, timed=timed)

    def neighbours(self) -> dict[int, frozenset[int]]:
        """Rank -> ranks that it shares a flow with."""
        # Channels of one pair follow each other in each direction.
        found: list[tuple[Ints, Ints]] = []
        for side in (self.sends, ~self.sends):
            one, other = self.rank[side], self.peer[side]
            new = stepwise(one, other)
            found += [(one[new], other[new]), (other[new], one[new])]
        ranks, others = (np.concatenate(parts) for parts in zip(*found, strict=True))
        pairs = Groups(ranks, others)
        ranks, others = ranks[pairs.first], others[pairs.first].tolist()
        of_rank = Groups(ranks)
        keys = ranks[of_rank.first].tolist()
        return {rank: frozenset(others[a:b]) for rank, (a, b) in zip(keys, of_rank.spans(), strict=True)}


class _Builder:
    def __init__(self, iterations: Iterations, hosts: Mapping[int, int]) -> None:
        self.it = iterations
        self.hosts = hosts

    def _metric(self, name: str, it: Ints, entity: tuple[Ints, ...], x: Floats, cost: Floats) -> list[Metric]:
        """Turn a row per iteration and entity into a matrix."""
        if not len(it):
            return []
        of = Groups(*entity)
        shape = (len(self.it.numbers), len(of))
        ratio, seconds = np.full(shape, np.nan), np.zeros(shape)
        row = self.it.row_of(it)
        ratio[row, of.of_row] = x
        seconds[row, of.of_row] = cost / 1e9
        return [Metric(name, tuple(part[of.first] for part in entity), ratio, seconds)]

    def of_ranks(self, gpu: Ints, of_gpu: Mask, host: Ints, of_host: Mask) -> list[Metric]:
        """G, H and HG."""
        return [*self._gpu(gpu, of_gpu), *self._host(host, of_host)]

    def _gpu(self, gpu: Ints, seen: Mask) -> list[Metric]:
        if not seen.any():
            return []
        seen[seen] = self._closest(seen)
        ops = self.it.ops
        rank, comm, it, g = ops.rank[seen], ops.comm[seen], self.it.it[seen], gpu[seen]
        same = Groups(comm, ops.seq[seen])
        peers, medians = same.sizes[same.of_row], same.medians(g)[same.of_row]
        # Of two each is the other's only peer.
        medians = np.where(peers == 2, same.sums(g)[same.of_row] - g, medians)
        compared = peers > 1
        found: list[Metric] = []
        if compared.any():
            # Of the larger ones, not of the largest: one that waited for a processor must not make all others small.
            usual = np.quantile(medians[compared], LARGE_QUANTILE, method="nearest")
            large = compared & (medians >= SMALL_OP * usual)
            per = Groups(it[large], rank[large])
            above = g[large] - medians[large]
            x = per.medians(np.log((g[large] + FLOOR_NS) / (medians[large] + FLOOR_NS)))
            found += self._metric(
                "G", it[large][per.first], (rank[large][per.first],), x, per.medians(above) * per.sizes
            )
        return [*found, *self._hosts_gpu(rank, it, same.of_row, g)]

    def _closest(self, seen: Mask) -> Mask:
        """Say of some rows whether they are of their rank's communicator with the most operations.

        Its members work on the same data: tensor parallel, where there is one.
        """
        rank, comm = self.it.ops.rank[seen], self.it.ops.comm[seen]
        pairs = Groups(rank, comm)
        of, which = rank[pairs.first], comm[pairs.first]
        order = np.lexsort((which, -pairs.sizes, of))
        chosen = np.zeros(len(pairs), dtype=bool)
        chosen[order[stepwise(of[order])]] = True
        return chosen[pairs.of_row]

    def _hosts_gpu(self, rank: Ints, it: Ints, op: Ints, g: Ints) -> list[Metric]:
        host = looked_up(rank, self.hosts, missing=-1)
        known = host >= 0
        if len(np.unique(host[known])) < 3:
            return []
        host, it = host[known], it[known]
        per_op = Groups(it, host, op[known])
        # The lower of two middle ones: a single slow GPU of two is not its host.
        middle = per_op.lower_medians(g[known])
        it, host = it[per_op.first], host[per_op.first]
        # Per operation: a lost row must not look like a faster host.
        per_host = Groups(it, host)
        it, host, times = it[per_host.first], host[per_host.first], per_host.sizes
        mean = per_host.sums(middle) / times
        stage_of = self._stages()
        stages = {h: stage_of.get(h, -1) for h in np.unique(host).tolist()}
        sizes = Counter(stages.values())
        stage = np.array([s if sizes[s := stages[h]] >= STAGE_HOSTS else -1 for h in host.tolist()], dtype=np.int64)
        x, cost = np.full(len(it), np.nan), np.zeros(len(it))
        compared = Groups(it, stage)
        for start, size in zip(compared.starts, compared.sizes, strict=True):
            if size >= 3:
                some = compared.order[start : start + size]
                others = median_of_others(mean[some])
                x[some] = np.log((mean[some] + FLOOR_NS) / (others + FLOOR_NS))
                cost[some] = (mean[some] - others) * times[some]
        known = ~np.isnan(x)
        return self._metric("HG", it[known], (host[known],), x[known], cost[known])

    def _stages(self) -> dict[int, int]:
        """Host -> stage: hosts whose ranks meet in an anchor do the same part of the model."""
        parent: dict[int, int] = {h: h for h in self.hosts.values()}

        def root(host: int) -> int:
            while parent[host] != host:
                parent[host] = parent[parent[host]]
                host = parent[host]
            return host

        if not self.it.anchors:
            return parent
        ops = self.it.ops
        inside = np.isin(ops.comm, list(self.it.anchors)) & ~ops.p2p
        comm, host = ops.comm[inside], looked_up(ops.rank[inside], self.hosts, missing=-1)
        comm, host = comm[host >= 0], host[host >= 0]
        pairs = Groups(comm, host).first
        first: dict[int, int] = {}
        for one_comm, one_host in zip(comm[pairs].tolist(), host[pairs].tolist(), strict=True):
            one, other = root(first.setdefault(one_comm, one_host)), root(one_host)
            parent[max(one, other)] = min(one, other)
        return {host: root(host) for host in parent}

    def _host(self, host: Ints, known: Mask) -> list[Metric]:
        it = self.it.it[known]
        if not len(it):
            return []
        rank = self.it.ops.rank[known]
        per_rank = Groups(it, rank)
        total = per_rank.sums(host[known])
        it, rank = it[per_rank.first], rank[per_rank.first]
        same = Groups(it)
        medians = same.medians(total)[same.of_row]
        row = self.it.row_of(it)
        length = (self.it.ends - self.it.starts)[row]
        floor = HOST_FLOOR * length
        some = length > 0
        x = np.log((total[some] + floor[some]) / (medians[some] + floor[some]))
        return self._metric("H", it[some], (rank[some],), x, (total - medians)[some])

    def of_flows(self, flows: _Flows) -> list[Metric]:
        """S, Rv, PS, PR, ES, ER and FL."""
        if not len(flows.rank):
            return []
        it, known = self._iterations_of(flows)
        net, flush = known & flows.timed & flows.sends, known & flows.timed & ~flows.sends
        return [*self._network(flows, it, net), *self._flushes(flows, it, flush)]

    def _iterations_of(self, flows: _Flows) -> tuple[Ints, Mask]:
        """Return the iteration of each flow half, and whether its operation has one."""
        ops = self.it.ops
        # The halves of one operation follow each other.
        keys_of_flows = (flows.comm, flows.seq, flows.src, flows.dst)
        new = stepwise(*keys_of_flows)
        same = self.it.same
        columns = zip((ops.comm, ops.seq, ops.src, ops.dst), keys_of_flows, strict=True)
        keys = packed(*(np.concatenate((of_ops[same.first], of_flows[new])) for of_ops, of_flows in columns))
        # In order, as the groups are.
        listed, wanted = keys[: len(same)], keys[len(same) :]
        numbers = same.largest(self.it.it)
        place = np.minimum(np.searchsorted(listed, wanted), len(listed) - 1)
        run = np.cumsum(new) - 1
        return numbers[place][run], (listed[place] == wanted)[run]

    def _network(self, flows: _Flows, numbers: Ints, seen: Mask) -> list[Metric]:
        if not seen.any():
            return []
        it, kind, busy = numbers[seen], flows.kind[seen], flows.net_busy[seen]
        rank, channel, peer = flows.rank[seen], flows.channel[seen], flows.peer[seen]
        like = Groups(it, kind, flows.slices[seen])
        medians, compared = like.medians(busy)[like.of_row], (like.sizes > 2)[like.of_row]
        above = busy - medians
        x = np.log((busy + FLOOR_NS) / (medians + FLOOR_NS))
        p2p, exchange = (kind == SEND) | (kind == RECV), kind == ALL_TO_ALL
        found: list[Metric] = []
        for used, send, receive in ((~p2p & ~exchange, "S", "Rv"), (p2p, "PS", "PR"), (exchange, "ES", "ER")):
            some = compared & used
            if some.any():
                number, ratio, more = it[some], x[some], above[some]
                found += self._per_entity(send, number, (rank[some], channel[some]), ratio, more)
                found += self._per_rank(receive, number, peer[some], channel[some], ratio, more)
        return found

    def _flushes(self, flows: _Flows, numbers: Ints, seen: Mask) -> list[Metric]:
        if not seen.any():
            return []
        it, slices = numbers[seen], flows.slices[seen]
        per = flows.flush[seen] / slices
        like = Groups(it, flows.kind[seen])
        medians = like.medians(per)[like.of_row]
        x = np.log((per + FLUSH_FLOOR_NS) / (medians + FLUSH_FLOOR_NS))
        return self._per_rank("FL", it, flows.rank[seen], flows.channel[seen], x, (per - medians) * slices)

    def _per_entity(self, name: str, it: Ints, entity: tuple[Ints, ...], x: Floats, above: Floats) -> list[Metric]:
        """One number per entity and iteration, its flows one after the other."""
        per = Groups(it, *entity)
        cost = per.sums(above)
        return self._metric(name, it[per.first], tuple(part[per.first] for part in entity), per.medians(x), cost)

    def _per_rank(self, name: str, it: Ints, rank: Ints, channel: Ints, x: Floats, above: Floats) -> list[Metric]:
        """One number per rank and iteration; channels run side by side, so the longest of them costs the time."""
        per = Groups(it, rank, within=channel)
        cost = per.sums(above) / per.distinct()
        return self._metric(name, it[per.first], (rank[per.first],), per.medians(x), cost)


def median_of_others(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return for each value the median of all but it."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    n = len(values)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    # Without the one at `place`, the k-th of the others is k, or k + 1 from `place` on.
    low, high = (n - 2) // 2, (n - 1) // 2
    pick = [ranked[np.where(k >= place, k + 1, k)] for k in (low, high)]
    return (pick[0] + pick[1]) / 2
