"""The testbed's collectives as a backend of `torch.distributed`, with torch's own Flight Recorder beside our trace.

    torch_backend.use(engine)                       # this process' rank of the testbed
    dist.init_process_group("mycroft", ...)
    dist.all_reduce(tensor)                         # moves through the engine, traced by the plugin
    torch_backend.dump()                            # what torch's recorder has of the same operations

Only CPU tensors of float32, sums, and splits of equal sizes: what the engine can do. Needs torch; nothing else of the
testbed imports this module.
"""

# Torch is not among our dependencies.
# pyright: reportMissingImports=false
from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from mycroft.tracer import _testbed

BACKEND: Final = "mycroft"
_TICK_NS: Final = 200_000_000
_WATCH_S: Final = 0.02
_SOURCE: Final = Path(__file__).with_name("torch_flight_recorder.cpp")


class _Process:
    """What the groups of this process share: the engine, its endpoint, the recorder, the work that is under way."""

    def __init__(self) -> None:
        self.engine: _testbed.Engine | None = None
        self.endpoint: tuple[str, int, str] = ("127.0.0.1", 0, "")
        self.channels, self.connections, self.algo = 2, 1, "RING"
        self.recorder: Any = None
        self.groups = 0
        self.pending: list[TestbedWork] = []
        self.lock = threading.Lock()
        self.some = threading.Event()
        self.watch: threading.Thread | None = None

    def begin(self, work: TestbedWork) -> None:
        """Let the watch notice the end of an operation, also of one that nobody waits for."""
        with self.lock:
            self.pending.append(work)
            if self.watch is None:
                self.watch = threading.Thread(target=self._watch, name="watchdog", daemon=True)
                self.watch.start()
        self.some.set()

    def _watch(self) -> None:
        nothing = threading.Event()
        while True:
            self.some.wait()
            with self.lock:
                waiting = list(self.pending)
                if not waiting:
                    self.some.clear()
            for work in waiting:
                work.look()
            with self.lock:
                self.pending = [work for work in self.pending if not work.ended]
            nothing.wait(_WATCH_S)


_PROCESS: Final = _Process()


def use(
    engine: _testbed.Engine,
    *,
    address: str = "127.0.0.1",
    host: str = "",
    channels: int = 2,
    connections: int = 1,
    algo: str = "RING",
) -> None:
    """Say which engine carries the operations of this process; before the first group is made."""
    _PROCESS.engine = engine
    _PROCESS.endpoint = (address, engine.port, host)
    _PROCESS.channels, _PROCESS.connections, _PROCESS.algo = channels, connections, algo


def load_recorder() -> str:
    """Load torch's recorder for the groups made after this, compiled if need be; returns why not, "" if it is there.

    Takes about a minute of one core the first time, a compiler, and the header of nlohmann-json, which torch's own
    header includes and torch does not ship.
    """
    from torch.utils.cpp_extension import load

    try:
        _PROCESS.recorder = load("mycroft_flight_recorder", [str(_SOURCE)], extra_cflags=["-O1", "-DFMT_HEADER_ONLY=1"])
        _PROCESS.recorder.prepare()
    except (RuntimeError, OSError, ImportError) as error:
        lines = str(error).splitlines()
        told = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
        return f"torch's Flight Recorder cannot be compiled: {told.strip()[:300]}"
    return ""


def dump() -> bytes:
    """Return what torch's recorder has of this process, as torch writes it; empty without a recorder."""
    return b"" if _PROCESS.recorder is None else _PROCESS.recorder.dump()


class TestbedWork(dist._Work):  # pyright: ignore[reportPrivateUsage]
    """One operation under way. Whoever first sees its end hands over the results."""

    __test__ = False  # the name begins like a test's

    def __init__(self, operation: int, *, hand_over: Callable[[], None], retire: Callable[[], None]) -> None:
        super().__init__()
        self.operation = operation
        self.ended = False
        self._hand_over = hand_over
        self._retire = retire
        self._lock = threading.Lock()

    def look(self) -> bool:
        """Return whether it has ended."""
        return self._wait(0)

    def is_completed(self) -> bool:
        """Return whether it has ended."""
        return self.look()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end, for ever unless `timeout` is given; True.

        Raises:
            RuntimeError: the time is over.
        """
        limit_ns = int(timeout.total_seconds() * 1e9) if timeout else 0
        waited = 0
        while not self._wait(_TICK_NS):
            waited += _TICK_NS
            if limit_ns and waited >= limit_ns:
                raise RuntimeError(f"operation {self.operation} of the testbed has not ended after {timeout}")
        return True

    def _wait(self, timeout_ns: int) -> bool:
        assert _PROCESS.engine is not None
        if not self.ended and _PROCESS.engine.wait(self.operation, timeout_ns):
            with self._lock:
                if not self.ended:
                    self._hand_over()
                    self._retire()
                    self.ended = True
        return self.ended


class TestbedGroup(dist.ProcessGroup):
    """One communicator of the engine as a process group of torch."""

    __test__ = False

    def __init__(self, options: Any) -> None:
        engine = _PROCESS.engine
        if engine is None:
            raise RuntimeError("torch_backend.use(engine) must be called before the first group is made")
        rank, size, store = options.group_rank, options.group_size, options.store
        super().__init__(rank, size)
        self.ranks = list(options.global_ranks_in_group) or list(range(size))
        self.name = str(options.group_id)
        self.description = ""
        self._timeout_ms = int(options.timeout.total_seconds() * 1000)
        self._number = _PROCESS.groups
        _PROCESS.groups += 1
        self.stream = self._number + 1
        self._collective = self._p2p = self._op = 0
        store.set(f"endpoint{rank}", "\n".join(map(str, _PROCESS.endpoint)))
        ends = [store.get(f"endpoint{other}").decode().split("\n") for other in range(size)]
        self.comm = engine.open(
            self.name,
            hash_=int.from_bytes(hashlib.sha256(f"{self.name}/{self.ranks}".encode()).digest()[:8], "little") | 1,
            rank=rank,
            members=[(address, int(port), host) for address, port, host in ends],
            channels=_PROCESS.channels,
            connections=_PROCESS.connections,
        )

    # What torch asks of a group made in Python.

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the name of the backend."""
        return BACKEND

    def getSize(self) -> int:  # noqa: N802
        """Return the number of members."""
        return len(self.ranks)

    def getGroupName(self) -> str:  # noqa: N802
        """Return torch's name of the group."""
        return self.name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take torch's name of the group."""
        self.name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        """Return what the group is for."""
        return self.description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Take what the group is for, and tell the recorder who is in it."""
        self.description = description
        if _PROCESS.recorder is not None:
            _PROCESS.recorder.ranks(self.name, description, self.ranks)

    # Operations.

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> TestbedWork:
        """Sum over the group, in place."""
        (tensor,) = tensors
        _only_sum(opts)
        return self._start("all_reduce", [tensor], [tensor], tensor.numel())

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> TestbedWork:
        """Send the root's tensor to all."""
        (tensor,) = tensors
        return self._start("broadcast", [tensor], [tensor], tensor.numel(), peer=opts.rootRank)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> TestbedWork:
        """Gather one tensor of each member into one."""
        return self._start("all_gather", [source], [output], source.numel(), title="_allgather_base")

    def allgather(
        self, outputs: list[list[torch.Tensor]], sources: list[torch.Tensor], opts: Any = None
    ) -> TestbedWork:
        """Gather one tensor of each member into a list."""
        return self._start("all_gather", sources, outputs[0], sources[0].numel())

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> TestbedWork:
        """Sum, and keep one part of the result."""
        _only_sum(opts)
        return self._start("reduce_scatter", [source], [output], output.numel(), title="_reduce_scatter_base")

    def reduce_scatter(
        self, outputs: list[torch.Tensor], sources: list[list[torch.Tensor]], opts: Any = None
    ) -> TestbedWork:
        """Sum lists of tensors, and keep one."""
        _only_sum(opts)
        return self._start("reduce_scatter", sources[0], outputs, outputs[0].numel())

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_sizes: Sequence[int],
        source_sizes: Sequence[int],
        opts: Any = None,
    ) -> TestbedWork:
        """Exchange equal parts with every member."""
        sizes = {*output_sizes, *source_sizes}
        if len(sizes) > 1 or source.numel() % len(self.ranks):
            raise ValueError("the testbed exchanges parts of one size only")
        return self._start("all_to_all", [source], [output], source.numel() // len(self.ranks))

    def send(self, tensors: list[torch.Tensor], target: int, tag: int = 0) -> TestbedWork:
        """Send to one member."""
        return self._start("send", tensors, [], tensors[0].numel(), peer=target)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> TestbedWork:
        """Receive from one member."""
        return self._start("recv", [], tensors, tensors[0].numel(), peer=source)

    def barrier(self, opts: Any = None) -> TestbedWork:
        """Wait for all: a sum of one element, as NCCL's."""
        tensor = torch.zeros(1)
        return self._start("all_reduce", [tensor], [tensor], 1, title="barrier")

    def _start(
        self,
        kind: str,
        sources: list[torch.Tensor],
        outputs: list[torch.Tensor],
        elements: int,
        *,
        peer: int = 0,
        title: str | None = None,
    ) -> TestbedWork:
        engine = _PROCESS.engine
        assert engine is not None
        for tensor in (*sources, *outputs):
            if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
                raise TypeError(f"the testbed moves float32 of the CPU, not {tensor.dtype} of {tensor.device}")
        whole = len(self.ranks) * elements
        into = _testbed.Buffer(max(1, sum(tensor.numel() for tensor in sources)))
        out = _testbed.Buffer(max(1, whole if kind in ("all_gather", "all_to_all") else elements))
        view = torch.frombuffer(into, dtype=torch.float32)
        at = 0
        for tensor in sources:
            view[at : at + tensor.numel()] = tensor.detach().reshape(-1)
            at += tensor.numel()
        p2p = kind in ("send", "recv")
        self._collective += not p2p
        self._p2p += p2p
        self._op += 1
        named = f"{BACKEND}:{title or kind}" if not p2p else f"{BACKEND}:{kind} {self._arrow(kind, peer)}"
        entry = self._record(named, sources, outputs, p2p=p2p)
        operation = engine.enqueue(
            self.comm,
            kind,
            into,
            out,
            elements=elements,
            algo=_PROCESS.algo,
            peer=peer,
            stream=100 + 2 * peer + (kind == "send") if p2p else self.stream,
        )

        def hand_over() -> None:
            result = torch.frombuffer(out, dtype=torch.float32)
            first = 0
            for tensor in outputs:
                tensor.detach().copy_(result[first : first + tensor.numel()].view(tensor.shape))
                first += tensor.numel()

        work = TestbedWork(operation, hand_over=hand_over, retire=entry)
        _PROCESS.begin(work)
        return work

    def _arrow(self, kind: str, peer: int) -> str:
        own = self.rank()
        return f"{own}->{peer}" if kind == "send" else f"{own}<-{peer}"

    def _record(
        self, title: str, sources: list[torch.Tensor], outputs: list[torch.Tensor], *, p2p: bool
    ) -> Callable[[], None]:
        recorder, number, op = _PROCESS.recorder, self._number, self._op
        if recorder is None:
            return lambda: None
        entry = recorder.record(
            number,
            self.name,
            self.description,
            self._collective,
            self._p2p,
            op,
            title,
            sources,
            outputs,
            self._timeout_ms,
            p2p,
        )
        return lambda: recorder.retire(entry, number, op, title)


def _only_sum(opts: Any) -> None:
    if opts is not None and opts.reduceOp != dist.ReduceOp.SUM:
        raise ValueError(f"the testbed can only sum, not {opts.reduceOp}")


def register() -> None:
    """Make the backend known to torch under `BACKEND`; once per process."""
    if not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(
            BACKEND, lambda options, _: TestbedGroup(options), extended_api=True, devices=["cpu"]
        )
