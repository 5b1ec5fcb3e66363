"""Writes the cases beside it: `python -m tests.data.log_cases.make`. They are written, not recorded.

The fixed texts are those that the programs print in the versions that a case names; names, hosts, addresses and
numbers are invented. Each case is a function that returns its files and its truth.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.data.log_cases import connections, devices, processes, programs
from tests.data.log_cases.case import Case

HERE = Path(__file__).parent

CASES: dict[str, Callable[[], Case]] = {
    "issue-page-markdown": connections.issue_page,
    "deepspeed-pdsh-oom": processes.deepspeed_pdsh,
    "one-host-on-sockets-2.27": connections.host_on_sockets,
    "dcgm-slow-clock": devices.dcgm_slow_clock,
    "accelerate-gloo-assertion": processes.gloo_assertion,
    "ray-vllm-nvlink-xid74": devices.ray_nvlink,
    "megatron-port-error-2.23": connections.port_error_223,
    "pods-roce-down-2.29": connections.roce_down_229,
    "ras-json-dead-member": processes.ras_json_dead,
    "mpirun-fingerprint": programs.fingerprint,
    "torchrun-address-in-use": connections.address_in_use,
    "desync-report-glog": programs.desync_report,
    "srun-swallowed-exception": processes.swallowed_exception,
    "deepspeed-ecc": devices.ecc_deepspeed,
    "slurm-node-failure": processes.node_failure,
    "stern-docker0-2.24": connections.wrong_interface_224,
    "kineto-late-input": devices.kineto_late,
    "sglang-device-memory": devices.sglang_oom,
    "ray-worker-killed": processes.ray_killed,
    "inspector-v5-power-brake": devices.power_brake,
    "store-24-of-32": connections.store_clients,
    "healthy-old-xid": devices.healthy_old_xid,
    "pod-oomkilled": processes.pod_oom_killed,
    "lightning-two-groups": programs.order_files,
    "pyspy-json-parser": programs.gil_held,
    "old-driver-off-the-bus": devices.off_the_bus_three_lines,
    "two-hosts-accuse-each-other": connections.retry_both_ways,
    "fsdp-device-assert": devices.device_assert,
    "pods-shm-full": processes.shm_full,
    "megatron-long-checkpoint": programs.checkpoint_long,
    "compose-other-call": programs.extra_call,
    "mpirun-version-skew": connections.version_skew,
    "healthy-inspector": devices.healthy_inspector,
    "store-host-unreachable": connections.tcpstore_master_late,
}


def main() -> None:
    """Write every case anew."""
    for name, make in CASES.items():
        files, known = make()
        shutil.rmtree(HERE / name, ignore_errors=True)
        for path, text in {**files, "truth.json": json.dumps(known, indent=2) + "\n"}.items():
            target = HERE / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)


if __name__ == "__main__":
    main()
