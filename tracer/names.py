"""What the codes of the trace file are called. The order is the code; record.h has the same lists."""

from __future__ import annotations

from typing import Final

OP_KINDS: Final = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "send",
    "recv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "coalesced",
    "other",
)
DIRS: Final = ("recv", "send")  # indexed by the `send` flag
OP_STATES: Final = ("open", "completed", "enqueued", "aborted")
DTYPES: Final = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
)
ALGOS: Final = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT", "OTHER")
PROTOS: Final = ("LL", "LL128", "SIMPLE")
GAP_REASONS: Final = (
    "unknown",
    "switched_off",
    "switched_on",
    "no_flow_slot",
    "no_op_slot",
    "no_comm_slot",
    "ring_busy",
    "sampler_late",
)
EVENTS: Final = ("coll", "p2p", "proxy", "kernel")

# Column of a decoded batch -> its new name and the list that its codes index.
CODED: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "op_kind": ("op_kind", OP_KINDS),
    "send": ("dir", DIRS),
    "op_state": ("op_state", OP_STATES),
    "dtype": ("dtype", DTYPES),
    "algo": ("algo", ALGOS),
    "proto": ("proto", PROTOS),
    "reason": ("reason", GAP_REASONS),
}
FLAGS: Final = ("running", "foreign", "partial", "aborted", "p2p", "kernel_end", "reopened")
