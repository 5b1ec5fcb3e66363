"""Events of the monitor mode of NCCL RAS, the same in text and JSON."""

from __future__ import annotations


def monitor_level(event: str) -> str:
    """Return how grave an event of RAS's monitor mode is."""
    if event.endswith("DEAD"):
        return "error"
    if any(word in event for word in ("TIMEOUT", "STUCK", "UNRESPONSIVE", "DISCONNECTED", "RETRY")):
        return "warning"
    return "info"
