"""What can be broken: one entry per fault, how it is done, and what a perfect analyst would say.

A fault is done by the launcher (network, signals), by the host's agent (other load) or by the rank itself
(conditions of its engine, wrong code). `does` are those orders; the truth names the rank or host they went to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Status = Literal["hang", "slow", "crash", "healthy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to break a job.

    `category` is a word of the verdict's list. `on` says whether a rank or a whole host is hit. `rank` fixes the rank
    where only one can be hit. `signature` is what the trace shows, in words, for the documents.
    """

    name: str
    status: Status
    category: str
    on: Literal["rank", "host", "nothing"] = "rank"
    rank: int | None = None
    conditions: dict[str, float] = field(default_factory=lambda: dict[str, float]())
    code: str = ""
    network: str = ""
    signal: str = ""
    agent: str = ""
    needs: tuple[str, ...] = ()
    signature: str = ""
    details: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())


FAULTS: Final[tuple[Fault, ...]] = (
    Fault(name="none", status="healthy", category="healthy", on="nothing", signature="all counters end equal"),
    Fault(
        name="nic_down",
        status="hang",
        category="link_fault",
        network="down",
        needs=("crossing",),
        signature="done < moved on what the rank sends; moved < posted on what it receives",
    ),
    Fault(
        name="nic_bw",
        status="slow",
        category="slow_nic",
        network="slow",
        needs=("crossing",),
        signature="net_busy of all flows of the rank grows",
    ),
    Fault(
        name="pcie",
        status="slow",
        category="pcie_degraded",
        conditions={"copy_bytes_per_s": 8e6, "flush_ns": 10e6},
        needs=("crossing",),
        signature="flush and gpu_hold of what the rank receives grow",
    ),
    Fault(
        name="gpu_power",
        status="slow",
        category="slow_gpu",
        conditions={"slow_compute": 2.5},
        signature="its kernels start late: the rank spends the shortest time inside its collectives",
    ),
    Fault(
        name="bg_compute",
        status="slow",
        category="slow_compute",
        on="host",
        agent="burn",
        signature="all ranks of the host arrive late",
    ),
    Fault(
        name="bg_traffic",
        status="slow",
        category="network_congestion",
        on="host",
        agent="traffic",
        needs=("crossing",),
        signature="net_busy of the flows of all ranks of the host grows",
    ),
    Fault(
        name="proxy_delay",
        status="slow",
        category="proxy_stall",
        conditions={"proxy_sleep_ns": 1e9, "proxy_sleep_p": 4e-3},
        needs=("crossing",),
        signature="post_delay_max or peer_wait_max of one flow is about a second",
    ),
    Fault(name="killed", status="crash", category="process_died", signal="KILL", signature="heartbeats end"),
    Fault(
        name="sigstop",
        status="hang",
        category="process_stopped",
        signal="STOP",
        signature="heartbeats end, the process is there",
    ),
    Fault(
        name="exception",
        status="crash",
        category="exception",
        code="exception",
        signature="heartbeats end after a traceback on stderr",
    ),
    Fault(
        name="absent",
        status="hang",
        category="dataloader",
        code="absent",
        signature="the rank has no open operation; heartbeats go on",
    ),
    Fault(
        name="ckpt_stall",
        status="hang",
        category="checkpoint",
        rank=0,
        code="ckpt_stall",
        signature="rank 0 has no open operation; all others wait in default_pg",
    ),
    Fault(
        name="recv_nopost",
        status="hang",
        category="proxy_stall",
        conditions={"no_post": 1},
        needs=("crossing",),
        signature="posted = consumed < total at the rank; ready > moved at its senders",
    ),
    Fault(
        name="qp_slow30",
        status="slow",
        category="slow_nic",
        conditions={"limited_channel": 0, "channel_bytes_per_s": 0.35},
        needs=("crossing",),
        details={"channel": 0, "fraction_of_nic": 0.35},
        signature="net_busy of channel 0 of what the rank sends grows, of channel 1 not",
    ),
    Fault(
        name="link_flap",
        status="slow",
        category="link_fault",
        network="flap",
        needs=("crossing",),
        signature="net_max of flows of the rank is about the length of an outage",
    ),
    Fault(
        name="gpu_hang",
        status="hang",
        category="device_hang",
        conditions={"device_stopped": 1},
        signature="enqueued and not started; consumed < flushed; ready = done < total; or, inside a host, no end",
    ),
    Fault(
        name="order",
        status="hang",
        category="order_deadlock",
        code="order",
        needs=("tp",),
        signature="open operations of two groups whose members wait for each other",
    ),
    Fault(
        name="wrong_size",
        status="hang",
        category="size_mismatch",
        code="wrong_size",
        needs=("dp",),
        signature="bytes and totals of one rank differ from those of the others in one operation",
    ),
    Fault(
        name="extra_op",
        status="hang",
        category="code_divergence",
        code="extra_op",
        needs=("dp",),
        signature="the rank is one operation ahead in one group",
    ),
)

FAULT_BY_NAME: Final = {fault.name: fault for fault in FAULTS}
