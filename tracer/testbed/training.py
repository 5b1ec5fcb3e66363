"""What a rank runs: a training loop with 1F1B, whose every step has a name that a stack shows.

Forward and backward are kernels on the engine's device; tensors are buffers whose contents are checked.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mycroft.tracer import _testbed
from mycroft.tracer.testbed import logs
from mycroft.tracer.testbed.layout import Group
from mycroft.tracer.testbed.scenarios import Scenario

_OP_TYPE = {
    "all_reduce": "ALLREDUCE",
    "all_gather": "_ALLGATHER_BASE",
    "reduce_scatter": "_REDUCE_SCATTER_BASE",
    "broadcast": "BROADCAST",
    "all_to_all": "ALLTOALL_BASE",
    "send": "SEND",
    "recv": "RECV",
}
_COMPUTE_STREAM = 0
_TICK_NS = 200_000_000


class CheckFailedError(RuntimeError):
    """A collective gave another result than it must."""


@dataclass
class Member:
    """A communicator as one of its members uses it. `seq`: operations so far."""

    group: Group
    comm: _testbed.Communicator
    stream: int
    seq: int = 0


@dataclass
class Orders:
    """What the launcher has asked this rank to do wrong, and from which iteration on."""

    code: str = ""
    at_iteration: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def due(self, code: str, iteration: int) -> bool:
        """Whether a fault of the code is to be done now."""
        with self.lock:
            return self.code == code and iteration >= self.at_iteration


class Training:
    """One rank's job."""

    def __init__(
        self,
        scenario: Scenario,
        rank: int,
        engine: _testbed.Engine,
        members: list[tuple[str, int, str]],
        folder: Path,
        orders: Orders,
    ) -> None:
        self.scenario = scenario
        self.rank = rank
        self.engine = engine
        self.orders = orders
        self.folder = folder
        layout = scenario.layout
        self.tp, self.pp, self.dp = layout.coordinates(rank)
        self.groups = self.open_groups(members)
        work = scenario.work
        size = max(len(m.group.ranks) for m in self.groups.values())
        wide = max(work.gradient_elements * layout.dp, work.activation_elements * size)
        self.source = _testbed.Buffer(wide)
        self.target = _testbed.Buffer(wide)
        self.sending = [_testbed.Buffer(work.activation_elements) for _ in range(2)]

    def open_groups(self, members: list[tuple[str, int, str]]) -> dict[str, Member]:
        """Open the communicators that this rank is in, by what they are for; `members` are the ends of all ranks."""
        found: dict[str, Member] = {}
        for group in self.scenario.layout.groups():
            if self.rank not in group.ranks:
                continue
            comm = self.engine.open(
                group.name,
                hash_=group.hash,
                rank=group.ranks.index(self.rank),
                members=[members[r] for r in group.ranks],
                channels=self.scenario.channels,
                connections=self.scenario.connections,
            )
            found[group.use] = Member(group, comm, stream=len(found) + 1)
        return found

    # --- collectives ---

    def enqueue(self, member: Member, kind: str, source: _testbed.Buffer, elements: int, peer: int, stream: int) -> int:
        """Hand an operation to the engine; its result goes to `target`. Returns its number."""
        return self.engine.enqueue(
            member.comm,
            kind,
            source,
            self.target,
            elements=elements,
            algo=self.scenario.algo,
            peer=peer,
            stream=stream,
        )

    def ended(self, operation: int) -> None:
        """Notice that an operation was waited for."""

    def _wait(self, operation: int, member: Member | None, kind: str, elements: int) -> None:
        started = time.monotonic()
        told = False
        while not self.engine.wait(operation, _TICK_NS):
            ran = time.monotonic() - started
            if member is not None and not told and ran > self.scenario.timeout_s:
                told = True
                logs.watchdog_line(
                    rank=member.group.ranks.index(self.rank),
                    group=member.group.name,
                    seq=member.seq,
                    op=_OP_TYPE[kind],
                    elements=elements,
                    timeout_ms=int(self.scenario.timeout_s * 1000),
                    ran_ms=int(ran * 1000),
                )

    def _collective(self, use: str, kind: str, elements: int, *, peer: int = 0, wait: bool = True) -> None:
        member = self.groups.get(use)
        if member is None:
            return
        member.seq += 1
        stream = member.stream if kind not in ("send", "recv") else 100 + 2 * peer + (kind == "send")
        source = self.sending[peer % 2] if kind == "send" else self.source
        operation = self.enqueue(member, kind, source, elements, peer, stream)
        if wait:
            self._wait(operation, member, kind, elements)
            self.ended(operation)

    def all_reduce(self, use: str, elements: int) -> None:
        """Sum over a group and check the sum."""
        member = self.groups.get(use)
        if member is None:
            return
        self.source.fill(float(member.comm.rank + 1), 0.0)
        self._collective(use, "all_reduce", elements)
        size = member.comm.size
        wrong = self.target.differences(size * (size + 1) / 2, 0.0, 0, elements)
        if wrong:
            raise CheckFailedError(
                f"all_reduce {member.seq} of {member.group.name}: {wrong} of {elements} sums are wrong"
            )

    def kernel(self, share: float, *, before: tuple[str, ...]) -> None:
        """Run arithmetic on the device, on the stream of the first group of `before` that this rank is in.

        The host does not wait for it: the group's next operation is enqueued at once and its kernel starts when the
        arithmetic is done, as on a GPU. Without such a group the host waits.
        """
        work = self.scenario.work
        member = next((self.groups[use] for use in before if use in self.groups), None)
        operation = self.engine.compute(
            work=int(work.kernel_units * share),
            hold_ns=int(work.kernel_ms * 1e6 * share),
            stream=_COMPUTE_STREAM if member is None else member.stream,
        )
        if member is None:
            self._wait(operation, None, "kernel", 0)

    # --- one step ---

    def load_batch(self, iteration: int) -> bytes:
        """Read the next batch; blocks for ever if the order is to be absent."""
        if self.orders.due("absent", iteration):
            return self.read_from_storage(self.folder / "dataset.fifo")
        return os.urandom(4096)

    def read_from_storage(self, path: Path) -> bytes:
        """Open a file whose other end nobody writes: what a dead storage server looks like."""
        if not path.exists():
            os.mkfifo(path)
        with path.open("rb") as source:
            return source.read()

    def forward_step(self) -> None:
        """Forward pass of one microbatch."""
        elements = self.scenario.work.activation_elements
        if self.pp > 0:
            self._collective("pp", "recv", elements, peer=self.pp - 1)
        self.kernel(1.0, before=("ep", "tp"))
        self._collective("ep", "all_to_all", max(1, elements // 4))
        self.all_reduce("tp", elements)
        if self.pp + 1 < self.scenario.layout.pp:
            self._collective("pp", "send", elements, peer=self.pp + 1, wait=False)

    def backward_step(self) -> None:
        """Backward pass of one microbatch."""
        elements = self.scenario.work.activation_elements
        if self.pp + 1 < self.scenario.layout.pp:
            self._collective("pp", "recv", elements, peer=self.pp + 1)
        self.kernel(2.0, before=("ep", "tp"))
        self._collective("ep", "all_to_all", max(1, elements // 4))
        self.all_reduce("tp", elements)
        if self.pp > 0:
            self._collective("pp", "send", elements, peer=self.pp - 1, wait=False)

    def run_pipeline(self) -> None:
        """One forward, one backward."""
        count = self.scenario.work.microbatches
        warm = min(self.scenario.layout.pp - self.pp - 1, count)
        for _ in range(warm):
            self.forward_step()
        for _ in range(count - warm):
            self.forward_step()
            self.backward_step()
        for _ in range(warm):
            self.backward_step()

    def reduce_gradients(self, iteration: int) -> None:
        """Reduce-scatter, optimiser, all-gather over the data-parallel group."""
        member = self.groups.get("dp")
        if member is None:
            self.kernel(0.5, before=())
            return
        elements = self.scenario.work.gradient_elements // member.comm.size
        if self.orders.due("extra_op", iteration):
            self._collective("dp", "reduce_scatter", elements)
        if self.orders.due("wrong_size", iteration):
            elements //= 2
        self._collective("dp", "reduce_scatter", elements)
        self.kernel(0.5, before=("dp",))
        self._collective("dp", "all_gather", elements)

    def synchronise(self, iteration: int) -> None:
        """Gradient norm inside the tensor-parallel group, then the loss over all ranks."""
        groups = ["tp", "world"]
        if self.orders.due("order", iteration):
            groups.reverse()
        for use in groups:
            self.all_reduce(use, 256)

    def save_checkpoint(self, iteration: int) -> None:
        """Rank 0 writes while the others wait in a barrier."""
        if self.rank == 0:
            if self.orders.due("ckpt_stall", iteration):
                self.write_to_storage(self.folder / "checkpoint.fifo")
            (self.folder / "checkpoint.bin").write_bytes(os.urandom(1 << 16))
        self.all_reduce("world", 1)

    def write_to_storage(self, path: Path) -> None:
        """Write to a file whose other end nobody reads."""
        os.mkfifo(path)
        with path.open("wb") as sink:
            sink.write(b"\0" * 4096)

    def evaluate(self) -> None:
        """Forward passes only, then the loss over all ranks."""
        for _ in range(self.scenario.work.microbatches):
            self.forward_step()
        self.all_reduce("world", 1)

    def train_step(self, iteration: int) -> None:
        """One iteration."""
        self.load_batch(iteration)
        if self.orders.due("exception", iteration):
            raise ValueError("loss is NaN: the batch holds a token outside of the vocabulary")
        self.run_pipeline()
        self.reduce_gradients(iteration)
        self.synchronise(iteration)
        between = self.scenario.work.evaluate_every
        if between and iteration % between == between - 1:
            self.evaluate()
        every = self.scenario.work.checkpoint_every
        if every and (iteration % every == every - 1 or self.orders.due("ckpt_stall", iteration)):
            self.save_checkpoint(iteration)

    def train(self, report: Any) -> None:
        """All iterations; `report(iteration, seconds, cpu_seconds)` after each."""
        for iteration in range(self.scenario.iterations):
            started, cpu = time.monotonic(), time.process_time()
            self.train_step(iteration)
            seconds = time.monotonic() - started
            report(iteration, seconds, time.process_time() - cpu)
            if self.rank == 0:
                logs.say_plain(f"iteration {iteration} elapsed time per iteration (ms): {seconds * 1000:.1f}")
