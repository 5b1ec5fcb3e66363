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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.analysis.config import FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.host_clocks import RANK_HOSTS, clock_offsets
from mycroft.analysis.iterations import Iterations, with_iterations

OPS: Final = """
SELECT rank, comm_id AS comm, CAST(CASE WHEN is_p2p THEN coalesce(pair_seq, op_seq) ELSE op_seq END AS BIGINT) AS seq,
       CAST(CASE WHEN NOT is_p2p THEN -1 WHEN op_kind = 'send' THEN rank ELSE peer END AS INTEGER) AS src,
       CAST(CASE WHEN NOT is_p2p THEN -1 WHEN op_kind = 'send' THEN peer ELSE rank END AS INTEGER) AS dst,
       CAST(op_kind AS VARCHAR) AS kind, coalesce(is_p2p, FALSE) AS p2p, CAST(bytes AS BIGINT) AS bytes,
       epoch_ns(enq_ts) AS enq, epoch_ns(kstart_ts) AS kstart, epoch_ns(dep_end_ts) AS dep,
       epoch_ns(start_ts) + dur_ns AS "end"
FROM coll_ops
WHERE file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring') AND state = 'completed' AND dur_ns IS NOT NULL
    AND enq_ts IS NOT NULL AND start_ts < make_timestamp_ns(?)
"""
FLOWS: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, CAST(op_kind AS VARCHAR) AS kind, channel,
       CAST(dir AS VARCHAR) AS dir, CAST(peer AS INTEGER) AS peer, slices, CAST(net_busy_ns AS BIGINT) AS net_busy,
       CAST(flush_ns AS BIGINT) AS flush, epoch_ns(end_ts) AS end_ns
FROM flow_ops
WHERE peer IS NOT NULL AND end_ts < make_timestamp_ns(?) AND slices > 0
"""
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


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a row per iteration, a column per entity; NaN where nothing was seen."""

    name: str
    entities: tuple[tuple[int, ...], ...]
    """(rank,), (rank, channel) or (host,)."""
    log_ratio: np.ndarray[Any, np.dtype[np.float64]]
    cost_s: np.ndarray[Any, np.dtype[np.float64]]
    """Seconds above the peers in that iteration."""


@dataclass(frozen=True, slots=True)
class OwnService:
    """All metrics of a job over its iterations."""

    iterations: Iterations
    starts: np.ndarray[Any, np.dtype[np.int64]]
    ends: np.ndarray[Any, np.dtype[np.int64]]
    metrics: Mapping[str, Metric]
    hosts: Mapping[int, int]
    """Rank -> host."""
    peers: Mapping[int, frozenset[int]]
    """Rank -> ranks that it shares flows with."""


def own_service(
    store: Frames, limits: FlowLimits, *, at: int | None = None, offsets: Mapping[int, int] | None = None
) -> OwnService | None:
    """Return the metrics over everything that had ended by `at` (ns UTC; None: the whole evidence).

    None where no tracer left finished operations. Metrics whose columns a tracer does not fill are absent.
    """
    until = at if at is not None else (1 << 62)
    # Clocks that run ahead put their rows after `at`.
    if offsets is None:
        offsets = clock_offsets(store, at=at)
    slack = max((abs(v) for v in offsets.values()), default=0)
    ops = store.frame(OPS, (until + slack,))
    if ops.is_empty():
        return None
    clock = pl.DataFrame(
        {"rank": list(offsets), "offset": list(offsets.values())}, schema={"rank": pl.UInt32, "offset": pl.Int64}
    )
    ops = (
        ops.join(clock, on="rank", how="left")
        .with_columns(at=pl.col("end") - pl.col("offset").fill_null(0))
        .filter(pl.col("at") <= until)
        .drop("offset")
    )
    if ops.is_empty():
        return None
    iterations = with_iterations(ops, limits)
    hosts = {int(r): int(h) for r, h in store.frame(RANK_HOSTS).iter_rows()}
    numbers = iterations.ends["it"].to_list()
    build = _Builder(iterations, {n: i for i, n in enumerate(numbers)}, hosts)
    flows = store.frame(FLOWS, (until + slack,))
    found = [*build.of_ranks(), *build.of_flows(flows)]
    return OwnService(
        iterations,
        iterations.ends["start_ns"].to_numpy(),
        iterations.ends["end_ns"].to_numpy(),
        {m.name: m for m in found},
        hosts,
        _neighbours(flows),
    )


def _neighbours(flows: pl.DataFrame) -> dict[int, frozenset[int]]:
    sides = pl.col("rank").cast(pl.Int64), pl.col("peer").cast(pl.Int64)
    ends = flows.lazy().select(rank=sides[0], peer=sides[1]).unique()
    both = pl.concat([ends, ends.select(rank="peer", peer="rank")])
    return {rank: frozenset(peers) for rank, peers in both.group_by("rank").agg("peer").collect().iter_rows()}


class _Builder:
    def __init__(self, iterations: Iterations, row: Mapping[int, int], hosts: Mapping[int, int]) -> None:
        self.it = iterations
        self.row = row
        self.hosts = hosts

    def _metric(self, name: str, frame: pl.DataFrame, entity: list[str]) -> list[Metric]:
        """Turn (it, *entity, x, cost) into a matrix."""
        frame = frame.filter(pl.col("x").is_not_null())
        if frame.is_empty():
            return []
        keys = frame.select(entity).unique().sort(entity).with_row_index("column")
        placed = frame.join(keys, on=entity)
        rows = placed["it"].replace_strict(self.row, return_dtype=pl.Int64).to_numpy()
        columns = placed["column"].to_numpy()
        x = np.full((len(self.row), keys.height), np.nan)
        cost = np.zeros_like(x)
        x[rows, columns] = placed["x"].to_numpy()
        cost[rows, columns] = placed["cost"].to_numpy() / 1e9
        return [Metric(name, tuple(keys.select(entity).rows()), x, cost)]

    def of_ranks(self) -> list[Metric]:
        """G, H and HG."""
        blocking = pl.col("kind") != "send"
        previous = pl.when(blocking).then(pl.col("end")).cum_max().shift(1).over("rank")
        ops = (
            self.it.ops.lazy()
            .with_columns(free=pl.coalesce("dep", previous))
            .filter(pl.col("free").is_not_null() & ~pl.col("p2p"))
            .with_columns(
                g=(pl.col("kstart") - pl.max_horizontal("free", "enq")).clip(lower_bound=0),
                h=(pl.col("enq") - pl.col("free")).clip(lower_bound=0),
            )
            .select("it", "rank", "comm", "seq", "g", "h")
            .collect()
        )
        if ops.is_empty():
            return []
        return [*self._gpu(ops), *self._host(ops)]

    def _gpu(self, ops: pl.DataFrame) -> list[Metric]:
        seen = ops.filter(pl.col("g").is_not_null())
        if seen.is_empty():
            return []
        # The group with the most operations works on the same data: tensor parallel, where there is one.
        closest = (
            seen.group_by("rank", "comm")
            .agg(n=pl.len())
            .sort("rank", "n", "comm", descending=[False, True, False])
            .unique("rank", keep="first", maintain_order=True)
            .select("rank", "comm")
        )
        seen = seen.join(closest, on=["rank", "comm"])
        op = ["comm", "seq"]
        compared = seen.with_columns(
            med=pl.col("g").median().over(op), n=pl.len().over(op), both=pl.col("g").sum().over(op)
        ).with_columns(
            # Of two each is the other's only peer.
            med=pl.when(pl.col("n") == 2).then(pl.col("both") - pl.col("g")).otherwise(pl.col("med"))
        )
        # Of the larger ones, not of the largest: one that waited for a processor must not make all others small.
        usual = pl.col("med").filter(pl.col("n") > 1).quantile(LARGE_QUANTILE)
        large = compared.filter((pl.col("n") > 1) & (pl.col("med") >= SMALL_OP * usual))
        ratio = ((pl.col("g") + FLOOR_NS) / (pl.col("med") + FLOOR_NS)).log()
        per_rank = (
            large.with_columns(x=ratio, above=(pl.col("g") - pl.col("med")))
            .group_by("it", "rank")
            .agg(pl.col("x").median(), cost=pl.col("above").median() * pl.len())
        )
        return [*self._metric("G", per_rank, ["rank"]), *self._hosts_gpu(seen)]

    def _hosts_gpu(self, seen: pl.DataFrame) -> list[Metric]:
        table = pl.DataFrame(
            {"rank": list(self.hosts), "host": list(self.hosts.values())}, schema={"rank": pl.UInt32, "host": pl.Int64}
        )
        per_host = (
            seen.join(table, on="rank")
            .group_by("it", "host", "comm", "seq")
            # The lower of two middle ones: a single slow GPU of two is not its host.
            .agg(pl.col("g").quantile(0.5, "lower"))
            .group_by("it", "host")
            # Per operation: a lost row must not look like a faster host.
            .agg(g=pl.col("g").mean(), n=pl.len())
        )
        if per_host["host"].n_unique() < 3:
            return []
        stage = self._stages()
        per_host = per_host.with_columns(stage=pl.col("host").replace_strict(stage, default=-1, return_dtype=pl.Int64))
        sizes = per_host.group_by("stage").agg(hosts=pl.col("host").n_unique())
        per_host = per_host.join(sizes, on="stage").with_columns(
            stage=pl.when(pl.col("hosts") >= STAGE_HOSTS).then(pl.col("stage")).otherwise(-1)
        )
        frames: list[pl.DataFrame] = []
        for (_, _), part in per_host.sort("it", "host").group_by(["it", "stage"], maintain_order=True):
            if part.height < 3:
                continue
            g = part["g"].to_numpy()
            others = _median_of_others(g)
            frames.append(
                part.with_columns(
                    x=pl.Series(np.log((g + FLOOR_NS) / (others + FLOOR_NS))), cost=pl.Series(g - others) * part["n"]
                )
            )
        return self._metric("HG", pl.concat(frames), ["host"]) if frames else []

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
        members = (
            self.it.ops.filter(pl.col("comm").is_in(list(self.it.anchors)) & ~pl.col("p2p"))
            .select("comm", "rank")
            .unique()
            .sort("comm", "rank")
        )
        first: dict[int, int] = {}
        for comm, rank in members.iter_rows():
            host = self.hosts.get(int(rank))
            if host is not None:
                one, other = root(first.setdefault(comm, host)), root(host)
                parent[max(one, other)] = min(one, other)
        return {host: root(host) for host in parent}

    def _host(self, ops: pl.DataFrame) -> list[Metric]:
        length = self.it.ends.select("it", length=pl.col("end_ns") - pl.col("start_ns")).filter(pl.col("length") > 0)
        per_rank = (
            ops.group_by("it", "rank")
            .agg(h=pl.col("h").median() * pl.len(), total=pl.col("h").sum(), n=pl.len())
            .with_columns(med=pl.col("total").median().over("it"))
            .join(length, on="it")
            .with_columns(floor=HOST_FLOOR * pl.col("length"))
            .with_columns(
                x=((pl.col("total") + pl.col("floor")) / (pl.col("med") + pl.col("floor"))).log(),
                cost=pl.col("total") - pl.col("med"),
            )
        )
        return self._metric("H", per_rank, ["rank"])

    def of_flows(self, flows: pl.DataFrame) -> list[Metric]:
        """S, Rv, PS, PR, ES, ER and FL."""
        if flows.is_empty():
            return []
        sends = pl.col("dir") == "send"
        p2p = pl.col("kind").is_in(["send", "recv"])
        numbers = self.it.ops.select("comm", "seq", "src", "dst", "it").unique(["comm", "seq", "src", "dst"])
        placed = (
            flows.lazy()
            .with_columns(
                src=pl.when(~p2p).then(-1).when(sends).then(pl.col("rank").cast(pl.Int32)).otherwise(pl.col("peer")),
                dst=pl.when(~p2p).then(-1).when(sends).then(pl.col("peer")).otherwise(pl.col("rank").cast(pl.Int32)),
                use=pl.when(p2p)
                .then(pl.lit("P"))
                .when(pl.col("kind") == "all_to_all")
                .then(pl.lit("E"))
                .otherwise(pl.lit("C")),
            )
            .join(numbers.lazy(), on=["comm", "seq", "src", "dst"])
            .collect()
        )
        like = ["it", "use", "kind", "slices"]
        net = (
            placed.filter(sends & pl.col("net_busy").is_not_null())
            .with_columns(med=pl.col("net_busy").median().over(like), peers=pl.len().over(like))
            .filter(pl.col("peers") > 2)
            .with_columns(
                x=((pl.col("net_busy") + FLOOR_NS) / (pl.col("med") + FLOOR_NS)).log(),
                above=pl.col("net_busy") - pl.col("med"),
            )
        )
        flush = (
            placed.filter(~sends & pl.col("flush").is_not_null())
            .with_columns(per=pl.col("flush") / pl.col("slices"))
            .with_columns(med=pl.col("per").median().over("it", "use", "kind"))
            .with_columns(
                x=((pl.col("per") + FLUSH_FLOOR_NS) / (pl.col("med") + FLUSH_FLOOR_NS)).log(),
                above=(pl.col("per") - pl.col("med")) * pl.col("slices"),
            )
        )
        to = net.with_columns(rank=pl.col("peer").cast(pl.UInt32))
        found: list[Metric] = []
        for use, send, receive in (("C", "S", "Rv"), ("P", "PS", "PR"), ("E", "ES", "ER")):
            entity = ["rank", "channel"]
            found += self._metric(send, _per_entity(net.filter(pl.col("use") == use), entity), entity)
            found += self._metric(receive, _per_entity(to.filter(pl.col("use") == use), ["rank"]), ["rank"])
        return [*found, *self._metric("FL", _per_entity(flush, ["rank"]), ["rank"])]


def _per_entity(flows: pl.DataFrame, entity: list[str]) -> pl.DataFrame:
    """One number per entity and iteration; channels run side by side, so the longest of them costs the time."""
    channels = pl.col("channel").n_unique() if "channel" not in entity else pl.lit(1)
    return flows.group_by("it", *entity).agg(pl.col("x").median(), cost=pl.col("above").sum() / channels)


def _median_of_others(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
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
