"""Analyses over more rows than one process can hold: pieces, reductions over them, and who runs them."""

from mycroft.analysis.fleet.executors import Executor, ExecutorError, LocalExecutor, ProcessExecutor, RayExecutor
from mycroft.analysis.fleet.seam import Piece, Reduction, Window, digest, merge, partial, run

__all__ = [
    "Executor",
    "ExecutorError",
    "LocalExecutor",
    "Piece",
    "ProcessExecutor",
    "RayExecutor",
    "Reduction",
    "Window",
    "digest",
    "merge",
    "partial",
    "run",
]
