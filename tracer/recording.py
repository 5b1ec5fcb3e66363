"""Writing records from Python, for any library that moves data between ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from mycroft.tracer import _core
from mycroft.tracer.names import DTYPES, OP_KINDS

_UNKNOWN = 0xFF


def name_hash(name: str) -> int:
    """Return a 64-bit identity for a communicator that has only a name: equal on all ranks."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


class Flow:
    """One direction of one connection during one operation; counters are chunks and only grow."""

    def __init__(self, core: _core.Recorder, handle: int) -> None:
        self._core = core
        self._handle = handle

    def reach(
        self,
        *,
        posted: int | None = None,
        ready: int | None = None,
        moved: int | None = None,
        done: int | None = None,
        size: int = 0,
    ) -> None:
        """Say how many chunks have reached each stage; `size` bytes belong to the newest moved chunk."""
        self._core.flow_reach(self._handle, posted=posted, ready=ready, moved=moved, done=done, size=size)

    def stop(self) -> None:
        """End it; its sums are written. A second call does nothing."""
        self._core.flow_stop(self._handle)


class Op:
    """One operation of this rank."""

    def __init__(self, core: _core.Recorder, context: int, handle: int) -> None:
        self._core = core
        self._context = context
        self._handle = handle

    def flow(self, *, peer: int, send: bool, total: int, channel: int = 0) -> Flow:
        """Begin a flow under this operation; `peer` is a rank of the communicator, `total` its chunks."""
        handle = self._core.flow_start(self._context, self._handle, peer=peer, send=send, total=total, channel=channel)
        return Flow(self._core, handle)

    def end(self) -> None:
        """End it now, if all its flows have stopped."""
        self._core.op_end(self._handle)


class Comm:
    """One communicator of this process."""

    def __init__(self, core: _core.Recorder, context: int, name: str) -> None:
        self._core = core
        self._context = context
        self.name = name

    def start(
        self,
        kind: str,
        *,
        size_bytes: int = 0,
        peer: int | None = None,
        dtype: str | None = None,
        channels: int | None = None,
    ) -> Op:
        """Begin an operation. `peer` is the other rank of a send or recv, or the root.

        Raises:
            ValueError: if `kind` or `dtype` is none of `mycroft.tracer.names`.
        """
        if kind not in OP_KINDS:
            raise ValueError(f"op kind {kind!r}: expected one of {', '.join(OP_KINDS)}")
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(f"dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
        handle = self._core.op_start(
            self._context,
            OP_KINDS.index(kind),
            size_bytes=size_bytes,
            peer=peer,
            p2p=kind in ("send", "recv"),
            dtype=DTYPES.index(dtype) if dtype is not None else _UNKNOWN,
            channels=channels if channels is not None else _UNKNOWN,
        )
        return Op(self._core, self._context, handle)

    def close(self) -> None:
        """Close it; operations that are still open are recorded as aborted."""
        self._core.comm_close(self._context)


class Recorder:
    """Writes one trace file for this process.

    A child made by fork writes nothing: call `abandon` there, or make a recorder of its own.

    Args:
        directory: where trace files lie; None: /dev/shm/mycroft-<uid>, the plugin's default.
        budget_mb: of all trace files in that directory, MB.
        ring_mb: of this file; None: the budget divided by the processes of this host.
        interval_ms: between two samples of the flows in flight, ms.
        rank: global rank; None: what torchrun, Slurm or MPI say.
        world_size: ranks of the job; None: what the launcher says.
        local_rank: rank on this host; None: what the launcher says.
        host: name of this host; None: what the system says.
        sampler: start the thread that samples; without it call `tick`.

    Raises:
        TracerOffError: if no trace file can be made; says why.
    """

    def __init__(
        self,
        *,
        directory: str | Path | None = None,
        budget_mb: int = 512,
        ring_mb: int | None = None,
        interval_ms: int = 100,
        rank: int | None = None,
        world_size: int | None = None,
        local_rank: int | None = None,
        host: str | None = None,
        sampler: bool = True,
    ) -> None:
        self._core = _core.Recorder(
            directory=str(directory) if directory is not None else None,
            budget_bytes=budget_mb << 20,
            file_bytes=(ring_mb or 0) << 20,
            interval_ms=interval_ms,
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            host=host,
            sampler=sampler,
        )

    @property
    def path(self) -> Path:
        """The trace file."""
        return Path(self._core.path)

    @property
    def enabled(self) -> bool:
        """Whether new operations are recorded."""
        return self._core.enabled

    def comm(
        self,
        name: str,
        *,
        rank: int | None = None,
        size: int | None = None,
        hash_: int | None = None,
        backend: str = "python",
    ) -> Comm:
        """Open a communicator. `hash_` must be equal on all its ranks; None: made from the name."""
        identity = name_hash(name) if hash_ is None else hash_
        context = self._core.comm_open(name, hash_=identity, rank=rank, size=size, backend=backend)
        return Comm(self._core, context, name)

    @contextmanager
    def op(
        self,
        comm: Comm,
        kind: str,
        *,
        size_bytes: int = 0,
        peer: int | None = None,
        dtype: str | None = None,
        channels: int | None = None,
    ) -> Iterator[Op]:
        """Record an operation around a block; it ends with the block, also by an exception."""
        started = comm.start(kind, size_bytes=size_bytes, peer=peer, dtype=dtype, channels=channels)
        try:
            yield started
        finally:
            started.end()

    def tick(self) -> None:
        """Sample now."""
        self._core.tick()

    def abandon(self) -> None:
        """Write nothing any more and leave the file as it is: for the child of a fork."""
        self._core.abandon()

    def close(self) -> None:
        """End the trace in order."""
        self._core.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
