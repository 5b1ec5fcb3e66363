"""Own service of a window of time: what a relay tells of each rank and of what it sends where, in a few bytes.

The measures are those of `own_service`, but not yet compared: peers may be at other relays. One row says what one unit
usually took - an operation of a GPU, a slice on the wire - as a logarithm in whole steps, and how many units there
were. It is made of rows of one process alone, so it is the same however ranks are spread over relays, and rows of many
relays are merged by putting them together.

Typical times are medians of operations alike (same kind and size), weighted by how many there were: neither a burst nor
a garbage collection moves them, nor where the window cuts an iteration, for that is the same at all peers. Host time is
a sum; of it the two longest gaps are left out, for a checkpoint is one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow

from mycroft.analysis.fleet.seam import Pick, Reduction, Table
from mycroft.analysis.fleet.summaries import RECV, SEND
from mycroft.analysis.own_service import ALL_TO_ALL, FLOOR_NS, FLUSH_FLOOR_NS, HOST_FLOOR

pa: Any = pyarrow

# What a row is of: codes of the wire.
GPU, HOST, COLLECTIVE, PAIR, EXCHANGE, FLUSH = range(6)
COMPLETED: Final = 1
# Times as logarithms: (ln ns - LEAST) * STEPS, at least 1.
STEPS: Final = 4096
LEAST: Final = 7.0
# Gaps of a process that are left out of its host time, and operations without which it has none.
GAPS_LEFT_OUT: Final = 2
_LEAST_OPS: Final = 4

_KEYS: Final = {
    "what": pa.uint8(),
    "rank": pa.uint32(),
    "comm": pa.uint64(),
    "channel": pa.uint8(),
    "peer": pa.uint32(),
}
MEASURED: Final = Reduction(
    name="measured",
    table="measures",
    time="ts",
    keys=tuple(_KEYS),
    measures=(),
    # No process is at two relays; what is told twice is the same. One that moved is where it did more.
    picks=(Pick(by=("count",), take=("value",), prefix=""),),
    types={**_KEYS, "count": pa.uint32(), "value": pa.uint16()},
)
"""Measures of one window, of several relays together."""

OPS: Final = pl.Schema(
    {
        "process": pl.String,
        "position": pl.UInt64,
        "comm": pl.UInt16,
        "op_kind": pl.UInt8,
        "p2p": pl.UInt8,
        "bytes": pl.UInt64,
        "enq": pl.Int64,
        "kstart": pl.Int64,
        "end": pl.Int64,
    }
)
"""Finished operations; times in ns."""
FLOWS: Final = pl.Schema(
    {
        "process": pl.String,
        "position": pl.UInt64,
        "comm": pl.UInt16,
        "op_kind": pl.UInt8,
        "channel": pl.UInt8,
        "send": pl.UInt8,
        "peer": pl.UInt32,
        "slices": pl.UInt32,
        "net_busy": pl.UInt64,
        "flush": pl.UInt64,
        "end": pl.Int64,
    }
)
"""Finished halves of flows."""
WHO: Final = pl.Schema(
    {
        "part": pl.UInt16,
        "process": pl.String,
        "rank": pl.UInt32,
        "comm": pl.UInt16,
        "hash": pl.UInt64,
        "place": pl.UInt32,
    }
)
"""Processes in their communicators. `part`: their job; `place`: the least rank of it on the same host."""
TOLD: Final = pa.schema([("part", pa.uint16()), *_KEYS.items(), ("value", pa.uint16()), ("count", pa.uint32())])
"""What `measure` returns: columns of the wire."""


def measure(ops: pl.DataFrame, flows: pl.DataFrame, who: pl.DataFrame, *, since_ns: int, until_ns: int) -> Table:
    """Return what own service took in a window, as `TOLD` has it.

    Args:
        ops: rows of `OPS`; those that ended before the window tell when a process was free again.
        flows: rows of `FLOWS`.
        who: rows of `WHO`; of processes that are not among them nothing is told.
        since_ns: operations and flows that ended from here on ...
        until_ns: ... and before this count.
    """
    times = _own_times(ops.unique(["process", "position"]), who, since_ns, until_ns)
    inside = pl.col("end").is_between(since_ns, until_ns, closed="left") & (pl.col("slices") > 0)
    halves = flows.filter(inside).unique(["process", "position"]).join(who, on=["process", "comm"], how="inner")
    found = [_gpu(times), _host(times, until_ns - since_ns), *_sent(halves), _flushed(halves)]
    # In the order in which neighbours are alike: it packs best.
    made: Any = _steps(pl.concat(found)).sort("part", *_KEYS).select(TOLD.names).to_arrow()
    return made.cast(TOLD)


def _own_times(ops: pl.DataFrame, who: pl.DataFrame, since_ns: int, until_ns: int) -> pl.DataFrame:
    """Return GPU time and host time of the collectives of the window; null where either is not known."""
    waited = pl.when(pl.col("op_kind") != SEND).then(pl.col("end"))
    # When the process was free: the end of the last operation that it waited for, if the one before was one.
    free = waited.cum_max().shift(1).over("process", order_by=["enq", "end", "position"])
    last = waited.shift(1).over("process", order_by=["enq", "end", "position"])
    return (
        ops.with_columns(pl.when(last.is_not_null()).then(free).alias("free"))
        .filter(
            pl.col("end").is_between(since_ns, until_ns, closed="left")
            & (pl.col("p2p") == 0)
            & pl.col("free").is_not_null()
        )
        .join(who, on=["process", "comm"], how="inner")
        .select(
            "part",
            "process",
            "rank",
            "place",
            "hash",
            "op_kind",
            "bytes",
            (pl.col("kstart") - pl.max_horizontal("free", "enq")).clip(0).alias("gpu"),
            (pl.col("enq") - pl.col("free")).clip(0).alias("host"),
        )
    )


def _gpu(times: pl.DataFrame) -> pl.DataFrame:
    times = times.filter(pl.col("gpu").is_not_null())
    # Members of the communicator with the most operations work on the same data.
    counted = times.group_by("process", "hash").len().sort(["process", "len", "hash"], descending=[False, True, False])
    closest = counted.unique("process", keep="first", maintain_order=True).select("process", "hash")
    alike = (
        times.join(closest, on=["process", "hash"], how="semi")
        .group_by("part", "rank", "hash", "op_kind", "bytes")
        .agg(pl.len().cast(pl.Float64).alias("n"), pl.col("gpu").median().alias("usual"))
    )
    return _told(
        alike,
        GPU,
        ["rank", "hash"],
        time=(pl.col("n") * (pl.col("usual") + FLOOR_NS)).sum(),
        count=pl.col("n").sum(),
        comm=pl.col("hash"),
    )


def _host(times: pl.DataFrame, length_ns: int) -> pl.DataFrame:
    known = times.filter(pl.len().over("process") >= _LEAST_OPS)
    longest = pl.col("host").top_k(GAPS_LEFT_OUT).sum()
    return _told(
        known,
        HOST,
        ["rank", "place"],
        # A tenth more of nearly nothing is nothing.
        time=(pl.col("host").sum() - longest).cast(pl.Float64) + HOST_FLOOR * length_ns,
        count=pl.lit(1.0),
        peer=pl.col("place"),
    )


def _sent(halves: pl.DataFrame) -> list[pl.DataFrame]:
    sends = halves.filter((pl.col("send") == 1) & pl.col("net_busy").is_not_null() & pl.col("peer").is_not_null())
    pair, exchange = pl.col("op_kind").is_in([SEND, RECV]), pl.col("op_kind") == ALL_TO_ALL
    kinds = ((COLLECTIVE, ~pair & ~exchange), (PAIR, pair), (EXCHANGE, exchange))
    found: list[pl.DataFrame] = []
    for what, which in kinds:
        alike = (
            sends.filter(which)
            .with_columns(pl.lit(0, pl.UInt8).alias("channel") if what == EXCHANGE else pl.col("channel"))
            .group_by("part", "rank", "hash", "channel", "peer", "op_kind", "slices")
            .agg(pl.len().cast(pl.Float64).alias("n"), pl.col("net_busy").median().alias("usual"))
        )
        found.append(
            _told(
                alike,
                what,
                ["rank", "hash", "channel", "peer"],
                time=(pl.col("n") * (pl.col("usual") + FLOOR_NS)).sum(),
                count=(pl.col("n") * pl.col("slices")).sum(),
                comm=pl.col("hash"),
                channel=pl.col("channel"),
                peer=pl.col("peer"),
            )
        )
    return found


def _flushed(halves: pl.DataFrame) -> pl.DataFrame:
    alike = (
        halves.filter((pl.col("send") == 0) & pl.col("flush").is_not_null())
        .group_by("part", "rank", "op_kind")
        .agg(
            pl.col("slices").cast(pl.Float64).sum().alias("n"),
            (pl.col("flush") / pl.col("slices")).median().round().alias("usual"),
            pl.col("channel").n_unique().alias("channels"),
        )
    )
    return _told(
        alike,
        FLUSH,
        ["rank"],
        time=(pl.col("n") * (pl.col("usual") + FLUSH_FLOOR_NS)).sum() / pl.col("channels").max(),
        # Channels run side by side: what one of them took is what it cost.
        count=pl.col("n").sum() / pl.col("channels").max(),
    )


def _told(
    rows: pl.DataFrame, what: int, by: list[str], *, time: pl.Expr, count: pl.Expr, **keys: pl.Expr
) -> pl.DataFrame:
    """Return one row per group; of the other keys those that are given, else 0."""
    none = {name: pl.lit(0) for name in ("comm", "channel", "peer")}
    grouped = rows.group_by("part", *by).agg(time.alias("time"), count.alias("units"))
    return grouped.select(
        "part",
        pl.lit(what, pl.UInt8).alias("what"),
        pl.col("rank").cast(pl.UInt32),
        *(
            {**none, **keys}[name].cast(dtype).alias(name)
            for name, dtype in (("comm", pl.UInt64), ("channel", pl.UInt8), ("peer", pl.UInt32))
        ),
        "time",
        "units",
    )


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    one = pl.max_horizontal(pl.col("time") / pl.col("units"), pl.lit(1.0))
    return rows.filter(pl.col("units") >= 1).select(
        "part",
        *_KEYS,
        pl.col("units").round().clip(1, (1 << 32) - 1).cast(pl.UInt32).alias("count"),
        ((one.log() - LEAST) * STEPS).round().clip(1, (1 << 16) - 1).cast(pl.UInt16).alias("value"),
    )


def time_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the logarithm of the nanoseconds that values stand for; of 0, which is none, not a number."""
    return np.where(values > 0, values.astype(np.float64) / STEPS + LEAST, np.nan)
