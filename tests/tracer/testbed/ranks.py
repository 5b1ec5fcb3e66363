"""Several engines in one process: every rank a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mycroft.tracer import _testbed

PATIENCE_NS = 60_000_000_000


@contextmanager
def engines(count: int, **options: Any) -> Iterator[list[_testbed.Engine]]:
    """Engines of one job; each rank is a host of its own, so that every connection is seen."""
    made = [_testbed.Engine(rank=rank, **options) for rank in range(count)]
    try:
        yield made
    finally:
        for engine in made:
            engine.shut_down()


def members(made: list[_testbed.Engine]) -> list[tuple[str, int, str]]:
    return [("127.0.0.1", engine.port, f"h{rank}") for rank, engine in enumerate(made)]


def on_every_rank(count: int, run: Callable[[int], Any]) -> list[Any]:
    """Run a function on all ranks at once and return their results; an exception of any is raised."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            results[rank] = run(rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def totals(made: list[_testbed.Engine]) -> dict[str, int]:
    """Slices and bytes of all ranks, once everything is acknowledged."""
    deadline = time.monotonic() + 60
    for engine in made:
        assert engine.drain(max(1, int((deadline - time.monotonic()) * 1e9)))
    return {name: sum(engine.totals[name] for engine in made) for name in made[0].totals}
