"""The reductions there are, over the tables of a collector's store: what a fleet is asked for a window or a day.

Column names are those of the tracer's records (docs/record-format.md), codes stay codes; `process` names a process for
ever.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow

from mycroft.analysis.fleet.seam import Measure, Pick, Reduction

pa: Any = pyarrow
NS_PER_MINUTE: Final = 60_000_000_000
# Upper ends of the bins of how long a flow has stood, ms; what is above the last is in a bin of its own.
IDLE_BINS_MS: Final = (300, 3_000, 30_000)

_TIME: Final = pa.timestamp("ns")
_FLOW: Final = {
    "process": pa.string(),
    "comm": pa.uint16(),
    "op_seq": pa.uint64(),
    "channel": pa.uint8(),
    "send": pa.uint8(),
    "peer": pa.uint32(),
    "flow_id": pa.uint32(),
}
_COUNTERS: Final = ("chunks_total", "posted", "ready", "moved", "done", "idle_ms")

SNAPSHOT: Final = Reduction(
    name="snapshot",
    table="state",
    time="ts",
    keys=tuple(_FLOW),
    measures=(Measure("rows", "count"), Measure("idle_ms_max", "max", "idle_ms")),
    picks=(Pick(by=("ts", "position"), take=(*_COUNTERS, "op_kind", "running")),),
    types={
        **_FLOW,
        "rows": pa.int64(),
        "idle_ms_max": pa.uint32(),
        "last_ts": _TIME,
        "last_position": pa.uint64(),
        **{f"last_{name}": pa.uint32() for name in _COUNTERS},
        "last_op_kind": pa.uint8(),
        "last_running": pa.uint8(),
    },
)
"""How far each flow half was when it was last seen in the window: what root-cause analysis begins with."""

ACTIVITY: Final = Reduction(
    name="activity",
    table="state",
    time="ts",
    keys=("process", ("minute", f"epoch_ns(ts) // {NS_PER_MINUTE}")),
    measures=(
        Measure("rows", "count"),
        Measure("idle_ms_max", "max", "idle_ms"),
        Measure("idle_ms_min", "min", "idle_ms"),
        *(Measure(f"idle_to_{end}", "count_if", f"idle_ms < {end}") for end in IDLE_BINS_MS),
    ),
    types={
        "process": pa.string(),
        "minute": pa.int64(),
        "rows": pa.int64(),
        "idle_ms_max": pa.uint32(),
        "idle_ms_min": pa.uint32(),
        **{f"idle_to_{end}": pa.int64() for end in IDLE_BINS_MS},
    },
)
"""How long flows stood, by process and minute of UTC; the bins are cumulative."""

OPERATIONS: Final = Reduction(
    name="operations",
    table="op",
    time="enq_ts",
    keys=("process", "comm"),
    measures=(
        # An operation is written when it ends, and also while it is open: only what has ended is counted.
        Measure("ended", "count_if", "op_state = 1"),
        Measure("op_first", "min", "op_seq"),
        Measure("op_last", "max", "op_seq"),
        Measure("enq_last", "max", "epoch_ns(enq_ts)"),
        Measure("dur_sum_ns", "sum", "CASE WHEN op_state = 1 THEN dur_ns END"),
    ),
    picks=(
        Pick(
            by=("dur_ns", "position"),
            take=("op_seq", "op_kind"),
            prefix="longest_",
            where="dur_ns >= 0 AND op_state = 1",
        ),
    ),
    types={
        "process": pa.string(),
        "comm": pa.uint16(),
        "ended": pa.int64(),
        "op_first": pa.uint64(),
        "op_last": pa.uint64(),
        "enq_last": pa.int64(),
        "dur_sum_ns": pa.int64(),
        "longest_dur_ns": pa.int64(),
        "longest_position": pa.uint64(),
        "longest_op_seq": pa.uint64(),
        "longest_op_kind": pa.uint8(),
    },
)
"""How many operations ended and how long they took, by process and communicator, and the longest of them."""

_SUMS: Final = (
    "net_busy_ns",
    "peer_wait_ns",
    "post_delay_ns",
    "flush_ns",
    "gpu_hold_ns",
    "bytes",
    "slices",
)
SERVICE: Final = Reduction(
    name="service",
    table="flow",
    time="end_ts",
    keys=("process",),
    measures=(
        Measure("flows", "count"),
        *(Measure(f"{name}_sum", "sum", name) for name in _SUMS),
        Measure("net_max_ns", "max", "net_max_ns"),
        Measure("post_delay_max_ns", "max", "post_delay_max_ns"),
    ),
    types={
        "process": pa.string(),
        "flows": pa.int64(),
        **{f"{name}_sum": pa.uint64() for name in _SUMS},
        "net_max_ns": pa.uint64(),
        "post_delay_max_ns": pa.uint64(),
    },
)
"""What each process' network, proxy and GPU took for themselves: sums, of which the caller makes ratios."""

HEARTBEATS: Final = Reduction(
    name="heartbeats",
    table="heartbeat",
    time="ts",
    keys=("process",),
    measures=(
        Measure("beats", "count"),
        Measure("first", "min", "epoch_ns(ts)"),
        Measure("last", "max", "epoch_ns(ts)"),
        Measure("progress", "max", "epoch_ns(progress_ts)"),
        Measure("late_ms_max", "max", "late_ms"),
        Measure("lost_max", "max", "lost"),
    ),
    types={
        "process": pa.string(),
        "beats": pa.int64(),
        "first": pa.int64(),
        "last": pa.int64(),
        "progress": pa.int64(),
        "late_ms_max": pa.uint32(),
        "lost_max": pa.uint32(),
    },
)
"""Who was heard of, when last, and when it last got anywhere."""

REDUCTIONS: Final = (SNAPSHOT, ACTIVITY, OPERATIONS, SERVICE, HEARTBEATS)
BY_NAME: Final = {reduction.name: reduction for reduction in REDUCTIONS}
