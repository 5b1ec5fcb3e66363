"""The sentences of a finding and the commands that come next, by category: a table for each, filled from the facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# {who} the ranks with their hosts, {op} the operation with number and group, {place} where the stack is,
# {detail} what a claim adds. A phrase is chosen by category; "" is the fallback.
SUMMARIES: Final[dict[str, str]] = {
    "absent": "{who} never entered {op}, and the others wait for it{place}.",
    "dataloader": "{who} never entered {op}: it is in its data loader{place}.",
    "checkpoint": "{who} never entered {op}: it is still in its checkpoint code{place}.",
    "code_divergence": "{who} took another path than its peers: {detail}.",
    "size_mismatch": "{who} passed something else than its peers to {op}: {detail}.",
    "order_deadlock": "{who} entered two groups in another order than its peers: {detail}.",
    "exception": "{who} left with an exception while the others wait in {op}: {detail}.",
    "out_of_memory": "{who} ran out of memory; the others were left in {op}.",
    "process_died": "{who} died; the others were left in {op}{detail_tail}.",
    "process_stopped": "{who} is alive but does not run; the others wait for it in {op}.",
    "device_hang": "The device of {who} does not get through {op}, although the program issued it and more.",
    "gpu_fault": "The GPU of {who} failed: {detail}; the others were left in {op}.",
    "link_fault": "The link of {device} on {who} failed: {detail}.",
    "misconfigured_interface": "{who} is set up in another way than the others: {detail}.",
    "init_timeout": "{who} did not join while the job started: {detail}.",
    "slow_gpu": "{who} is slow because its GPU is: {detail}.",
    "pcie_degraded": "{who} is slow behind a narrow PCIe link: {detail}.",
    "slow_nic": "{who} carries less than its peers: {detail}.",
    "network_congestion": "The network is congested at {who}: {detail}.",
    "slow_compute": "{who} reaches its operations late, again and again, and its peers wait: {detail}.",
    "slow_group": "Every operation of {op} is slow although all its members arrive on time: {detail}.",
    "unknown": "{who} is inside {op}, which everybody entered and nobody finishes; nothing tells who holds it up.",
}
SLOW_INPUT: Final = "{who} is late by the same extra time again and again: it waits for its input: {detail}."
ONE_OF: Final = "One of {who} holds up {op}; the evidence does not tell which."
ONE_OF_BY_CATEGORY: Final[dict[str, str]] = {
    "absent": "One of {who} did not enter {op}; the evidence does not tell which of them is the cause.",
    "process_died": "One of {who} is gone, and the others wait in {op}; the evidence does not tell which.",
    "size_mismatch": "{who} disagree about {op}, and nothing tells which of them is wrong: {detail}.",
    "code_divergence": "{who} disagree about {op}, and nothing tells which of them left the path: {detail}.",
    "order_deadlock": "{who} wait for each other in a circle that begins at {op}; nothing tells who left the order.",
    "unknown": "One of {who} holds up {op}: all entered it with equal arguments, none finishes, and the dumps do not "
    "tell which device or link it is.",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do next. `{rank}`, `{pid}`, `{host}`, `{gpu}` are filled in; a step without its facts says so."""

    command: str
    why: str


STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "absent": (
        Step("py-spy dump --native --pid {pid}", "where rank {rank} is; twice, a minute apart"),
        Step("tail -n 100 <log of rank {rank}>", "its last words"),
    ),
    "dataloader": (
        Step("py-spy dump --pid {pid}", "still in the loader? on rank {rank}"),
        Step(
            "ls -l /proc/{pid}/fd && cat /proc/{pid}/stack", "which file or socket the reader of rank {rank} waits for"
        ),
    ),
    "checkpoint": (
        Step("py-spy dump --pid {pid}", "still saving? on rank {rank}"),
        Step("df -h <checkpoint folder>; nfsiostat 1 3", "is its storage full or stalled"),
    ),
    "code_divergence": (
        Step("grep -n 'if .*rank' <training script>", "branches that depend on the rank or on its data"),
        Step("TORCH_DISTRIBUTED_DEBUG=DETAIL", "set it for the next run: names the operation at once"),
    ),
    "size_mismatch": (
        Step("TORCH_DISTRIBUTED_DEBUG=DETAIL", "set it for the next run: checks sizes before each operation"),
        Step("<print the batch of rank {rank} before the operation>", "padding, last batch, or a skipped module"),
    ),
    "order_deadlock": (
        Step("<make every rank use the groups in one order>", "or put both operations on one group"),
        Step("TORCH_NCCL_ENABLE_TIMING=1", "set it for the next run: shows which one started"),
    ),
    "exception": (Step("<read the traceback in the log of rank {rank}>", "what it raised first"),),
    "out_of_memory": (
        Step("dmesg -T | grep -i -E 'oom|killed process'", "the kernel's word, on {host}"),
        Step("nvidia-smi --query-gpu=memory.used,memory.total --format=csv", "on {host}"),
    ),
    "process_died": (
        Step("dmesg -T | tail -n 100", "out-of-memory killer, segfault or Xid, on {host}"),
        Step("<exit code of rank {rank} in the launcher's log>", "what ended it"),
    ),
    "process_stopped": (
        Step("grep State /proc/{pid}/status", "T: stopped, D: in the kernel; rank {rank} on {host}"),
        Step("py-spy dump --native --pid {pid}", "who holds the GIL"),
    ),
    "device_hang": (
        Step("nvidia-smi -q -i {gpu}", "on {host}: ECC, throttling, pending page retirement"),
        Step("dmesg -T | grep -i xid", "on {host}"),
        Step("cuda-gdb -p {pid} -batch -ex 'info cuda kernels'", "which kernel stands, rank {rank}"),
    ),
    "gpu_fault": (
        Step(
            "nvidia-smi -q -i {gpu}; dmesg -T | grep -i xid",
            "on {host}: is it still there, what does the driver ask for",
        ),
        Step("<drain {host}, reset the GPU or reboot>", "before the job is started there again"),
    ),
    "link_fault": (
        Step("ibstat; ibv_devinfo; mlxlink -d <device> -c", "on {host}: state, rate and cable of the port"),
        Step("dmesg -T | grep -i -E 'mlx5|link'", "on {host}: when it went, and whether it came back"),
    ),
    "misconfigured_interface": (
        Step("export NCCL_SOCKET_IFNAME=<interface that all hosts share>", "on {host}, then start again"),
        Step("ip -br addr", "on {host}: which interface has an address in the subnet of the others"),
    ),
    "init_timeout": (
        Step("<is the process of {host} running, and its port open>", "on {host}"),
        Step("NCCL_DEBUG=INFO", "set it for the next run: bootstrap addresses of every host"),
    ),
    "slow_gpu": (
        Step("nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER -i {gpu}", "on {host}: what it is held back by"),
        Step("<air flow, power cap and neighbours of {gpu}>", "on {host}; drain it if heat persists"),
    ),
    "pcie_degraded": (
        Step("lspci -vvv | grep -E '^[0-9a-f]|LnkCap|LnkSta'", "on {host}: the width each link trained to"),
        Step("<reseat the card or cable, or reset the slot>", "on {host}"),
    ),
    "slow_nic": (
        Step("ib_write_bw / nccl-tests in pairs", "from {host} to two others: is it the host or the path"),
        Step("lspci -vvv; ethtool -S <nic>; ibstat", "on {host}: link width, errors, rate"),
    ),
    "network_congestion": (
        Step("ethtool -S <nic> | grep -E 'pause|discard'", "twice, on {host} and its senders"),
        Step("<who else sends to {host}: placement, ECN and PFC settings of its switch port>", "on the network side"),
    ),
    "slow_compute": (
        Step("nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE -i {gpu}", "on {host}: throttling"),
        Step("top -b -n 1 | head -n 20", "on {host}: other load"),
    ),
    "slow_group": (
        Step("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH", "set it for the next run: which NICs carry the group"),
        Step("ibstat; ethtool -S <nic> | grep -E 'err|drop|pause'", "on the hosts of the group"),
    ),
    "unknown": (
        Step("TORCH_NCCL_ENABLE_TIMING=1", "set it for the next run: tells whose device had not started"),
        Step("dmesg -T | grep -i -E 'xid|nvlink|mlx5'", "on the hosts of these ranks"),
        Step("nvidia-smi -q", "on the hosts of these ranks"),
    ),
}
