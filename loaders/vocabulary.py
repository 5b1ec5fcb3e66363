"""The words that columns of a trace may hold: every ENUM of `loaders/schema.py`.

The order of a list is part of the contract: C++ and the tracer give positions in it.
"""

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
DIRS: Final = ("send", "recv")
OP_STATES: Final = ("scheduled", "started", "completed", "aborted")
LEVELS: Final = ("debug", "info", "warning", "error", "fatal")
TIME_QUALITIES: Final = ("exact", "zone_assumed", "year_assumed", "order_only")
MEMBER_SOURCES: Final = ("dump", "topology", "log", "trace", "entries")
TRANSPORTS: Final = ("net_ib", "net_socket", "net_other", "p2p", "shm", "nvls", "collnet", "other")
EVENT_KINDS: Final = (
    # what torch's watchdog and monitor say
    "watchdog_timeout",
    "pg_status",
    "dump_signal",
    "heartbeat_stuck",
    "desync_report",
    "fingerprint_mismatch",
    "fr_analysis",
    # how processes end
    "exception",
    "signal",
    "exit",
    "launcher_failure",
    "launcher_signal",
    "log_end",
    "alive",
    # connections and stores
    "connection_closed",
    "connect_failed",
    "store_error",
    "join_timeout",
    # NCCL
    "comm_init",
    "nccl_version",
    "nccl_env",
    "nccl_error",
    "nccl_abort",
    "coll_call",
    "ras_comm",
    "ras_member",
    "ras_peer",
    # device, host, network
    "cuda_error",
    "out_of_memory",
    "oom_kill",
    "xid",
    "link_down",
    "link_up",
    "ib_error",
    "pcie_error",
    "storage_error",
    "host_fault",
    "gpu_state",
    "nic_state",
    "nic_counter",
    "pcie_state",
    "pod_state",
    # measurements
    "op_perf",
    "bench_row",
    # the user's own log
    "identity",
    "step",
    "phase",
    "finished",
    "dump_written",
    # everything else
    "other",
    "unparsed",
)
