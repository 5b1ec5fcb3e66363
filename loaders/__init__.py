"""Every source of evidence in, one shape out: `load` writes a trace, `open_store` reads it."""

from mycroft.loaders.base import EvidenceFile, LoadContext, Loader, LoadError, LoadReport
from mycroft.loaders.bundle import Limits, NamedFile
from mycroft.loaders.load import LoadSummary, Progress, load
from mycroft.loaders.registry import LOADERS
from mycroft.loaders.store import Store, StoreError, open_store

__all__ = [
    "LOADERS",
    "EvidenceFile",
    "Limits",
    "LoadContext",
    "LoadError",
    "LoadReport",
    "LoadSummary",
    "Loader",
    "NamedFile",
    "Progress",
    "Store",
    "StoreError",
    "load",
    "open_store",
]
