"""The line formats of NCCL, the kernel and the machine: the visible list."""

from __future__ import annotations

from typing import Final

from mycroft.loaders.text import (
    gpu_state,
    kernel_log,
    mount_state,
    nccl_log,
    nccl_tests,
    nccl_topology,
    nic_state,
    pcie_state,
    ras_report,
    reading,
)
from mycroft.loaders.text.matcher import BulkMatcher, Matcher
from mycroft.loaders.text.scope import FileScope

MATCHERS: Final[tuple[Matcher | BulkMatcher, ...]] = (
    *reading.MATCHERS,
    *nccl_log.MATCHERS,
    *nccl_topology.MATCHERS,
    *ras_report.MATCHERS,
    *kernel_log.MATCHERS,
    *gpu_state.MATCHERS,
    *nic_state.MATCHERS,
    *pcie_state.MATCHERS,
    *nccl_tests.MATCHERS,
    *mount_state.MATCHERS,
)


def finish(scope: FileScope) -> None:
    """Complete what is known only at the end of a file."""
    nccl_topology.finish(scope)
