"""Who runs the pieces of an analysis: this process, processes beside it, or a Ray cluster. The code they run is one.

`LocalExecutor` is a plain call and the reference: whatever else runs must give the same digest.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from typing import Any, Final, Protocol

import pyarrow as pa

from mycroft.errors import MycroftError

# Work handed out ahead for each that does it: enough that none waits, few enough that results do not pile up.
_AHEAD: Final = 2
_MOST_TRIES: Final = 3


class ExecutorError(MycroftError):
    """Work that could not be done: says by whom and why."""


class Executor(Protocol):
    """Does a function for each item; results come in any order, each item's exactly once."""

    @property
    def threads(self) -> int:
        """Threads that each call may use."""
        ...

    def map(self, work: Callable[[Any], pa.Table], items: Iterable[Any]) -> Iterator[pa.Table]:
        """Yield the result of each item."""
        ...


class LocalExecutor:
    """Here and now, one item after the other, with all the threads there are."""

    def __init__(self, *, threads: int | None = None) -> None:
        """`threads` None: as many as the machine has processors."""
        self.threads = threads or os.cpu_count() or 1

    def map(self, work: Callable[[Any], pa.Table], items: Iterable[Any]) -> Iterator[pa.Table]:
        """Yield the result of each item, in their order."""
        yield from (work(item) for item in items)


class ProcessExecutor:
    """Processes of this machine, one thread each: their memory is given back, and one that dies is replaced."""

    threads: int = 1

    def __init__(self, *, processes: int | None = None) -> None:
        """`processes` None: as many as the machine has processors."""
        self._processes = processes or os.cpu_count() or 1

    def map(self, work: Callable[[Any], pa.Table], items: Iterable[Any]) -> Iterator[pa.Table]:
        """Yield the result of each item.

        Raises:
            ExecutorError: processes died again and again.
        """
        left = enumerate(items)
        open_: dict[int, Any] = {}
        deaths = 0
        while True:
            with self._pool() as pool:
                waiting: dict[Future[pa.Table], int] = {}
                try:
                    for number, item in open_.items():
                        waiting[pool.submit(work, item)] = number
                    while True:
                        while len(waiting) < self._processes * _AHEAD:
                            following = next(left, None)
                            if following is None:
                                break
                            open_[following[0]] = following[1]
                            waiting[pool.submit(work, following[1])] = following[0]
                        if not waiting:
                            return
                        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                            result = future.result()
                            # Only what has been handed on is done: the rest is computed again after a death.
                            del open_[waiting.pop(future)]
                            yield result
                except BrokenProcessPool as error:
                    deaths += 1
                    if deaths > _MOST_TRIES:
                        raise ExecutorError(
                            f"processes died {deaths} times, perhaps of too little memory; give each less to do"
                        ) from error

    def _pool(self) -> ProcessPoolExecutor:
        # Forked children would share locks of threads that they do not have.
        return ProcessPoolExecutor(self._processes, mp_context=multiprocessing.get_context("spawn"))


class RayExecutor:
    """Tasks of a Ray cluster that exists already: `pip install ray`. It never starts a cluster.

    A task whose worker or node dies is run again. Its nodes must have the same release of Mycroft and reach the files.
    """

    threads: int = 1

    def __init__(self, address: str = "auto", *, most_retries: int = 3) -> None:
        """Connect.

        Args:
            address: of the head, as `10.0.0.5:6379`; `auto`: as `$RAY_ADDRESS` or the node of this machine says.
            most_retries: of one task, when what ran it has died.

        Raises:
            ExecutorError: Ray is not installed, or there is no such cluster.
        """
        if address == "local" or not address:
            raise ExecutorError("no cluster named: Mycroft connects to one that runs (`ray start --head`), as `auto`")
        try:
            ray = importlib.import_module("ray")
        except ImportError as error:
            raise ExecutorError("Ray is not installed here; pip install ray") from error
        self._ray: Any = ray
        if not ray.is_initialized():
            try:
                ray.init(address=address, logging_level="error", log_to_driver=False, configure_logging=False)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
                raise ExecutorError(
                    f"no Ray cluster at {address}: {' '.join(str(error).split())[:300]}; start one (`ray start --head`)"
                ) from error
        self._task: Any = ray.remote(max_retries=most_retries, num_cpus=1)(_same_release)

    def map(self, work: Callable[[Any], pa.Table], items: Iterable[Any]) -> Iterator[pa.Table]:
        """Yield the result of each item.

        Raises:
            ExecutorError: a task failed for good.
        """
        ray = self._ray
        version = metadata.version("mycroft-trace")
        shared = ray.put(work)
        left = iter(items)
        waiting: list[Any] = []
        while True:
            room = max(1, int(ray.cluster_resources().get("CPU", 1))) * _AHEAD
            while len(waiting) < room:
                try:
                    item = next(left)
                except StopIteration:
                    break
                waiting.append(self._task.remote(version, shared, item))
            if not waiting:
                return
            done, waiting = ray.wait(waiting, num_returns=1)
            for reference in done:
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayError as error:
                    raise ExecutorError(f"a task failed on Ray: {' '.join(str(error).split())[-500:]}") from error
                yield result

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()


def _same_release(version: str, work: Callable[[Any], pa.Table], item: Any) -> pa.Table:
    here = metadata.version("mycroft-trace")
    if here != version:
        raise ExecutorError(f"this node has mycroft-trace {here}, who asks has {version}; install the same release")
    return work(item)
