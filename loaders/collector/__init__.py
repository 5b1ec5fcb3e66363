"""What a collector keeps: a log of acknowledged batches, then segments listed by a manifest; and the live window."""

from mycroft.loaders.collector.collector import (
    BusyError,
    Collector,
    CollectorError,
    CollectorSettings,
    FullError,
    Taken,
    Ticket,
)
from mycroft.loaders.collector.window import Process, RelaySeen, Window, fresh_until, traces_of

__all__ = [
    "BusyError",
    "Collector",
    "CollectorError",
    "CollectorSettings",
    "FullError",
    "Process",
    "RelaySeen",
    "Taken",
    "Ticket",
    "Window",
    "fresh_until",
    "traces_of",
]
