"""The same training job through `torch.distributed`, every operation also in torch's Flight Recorder. Needs torch."""

# Torch is not among our dependencies.
# pyright: reportMissingImports=false
from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mycroft.tracer import _testbed
from mycroft.tracer.testbed import torch_backend
from mycroft.tracer.testbed.training import Member, Training


class TorchTraining(Training):
    """One rank's job, whose groups are torch's and whose buffers are tensors."""

    def open_groups(self, members: list[tuple[str, int, str]]) -> dict[str, Member]:
        """Make the process groups, all of them on every rank and in one order, as torch wants it."""
        scenario, layout = self.scenario, self.scenario.layout
        address, _, host = members[self.rank]
        torch_backend.use(
            self.engine,
            address=address,
            host=host,
            channels=scenario.channels,
            connections=scenario.connections,
            algo=scenario.algo,
        )
        torch_backend.register()
        timeout = timedelta(seconds=scenario.timeout_s)
        # A file is reached from every network namespace.
        store = dist.FileStore(str(self.folder / "store"), layout.world)
        dist.init_process_group(
            torch_backend.BACKEND, store=store, rank=self.rank, world_size=layout.world, timeout=timeout
        )
        self._torch: dict[str, Any] = {}
        self._work: dict[int, torch_backend.TestbedWork] = {}
        found: dict[str, Member] = {}
        for group in layout.groups():
            made = (
                dist.group.WORLD
                if group.use == "world"
                else dist.new_group(list(group.ranks), timeout=timeout, group_desc=group.name)
            )
            if self.rank in group.ranks:
                assert isinstance(made, torch_backend.TestbedGroup)
                self._torch[group.use] = made
                found[group.use] = Member(group, made.comm, stream=made.stream)
        return found

    def enqueue(self, member: Member, kind: str, source: _testbed.Buffer, elements: int, peer: int, stream: int) -> int:
        """Call torch; the work that it returns is ours."""
        group = self._torch[member.group.use]
        size = len(member.group.ranks)
        into = torch.frombuffer(source, dtype=torch.float32)
        out = torch.frombuffer(self.target, dtype=torch.float32)
        work: Any
        if kind == "all_reduce":
            out[:elements] = into[:elements]
            work = dist.all_reduce(out[:elements], group=group, async_op=True)
        elif kind == "reduce_scatter":
            work = group.reduce_scatter_single(out[:elements], into[: elements * size])
        elif kind == "all_gather":
            work = group.all_gather_single(out[: elements * size], into[:elements])
        elif kind == "all_to_all":
            work = group.all_to_all_single(out[: elements * size], into[: elements * size], [], [])
        elif kind == "send":
            work = group.send([into[:elements]], peer)
        else:
            work = group.recv([out[:elements]], peer)
        assert isinstance(work, torch_backend.TestbedWork)
        self._work[work.operation] = work
        return work.operation

    def ended(self, operation: int) -> None:
        """Hand over the result of an operation that was waited for."""
        self._work.pop(operation).wait()
        for number in [number for number, work in self._work.items() if work.ended]:
            del self._work[number]

    def write_dump(self, folder: Path) -> None:
        """Write what torch's recorder has, under the name that a rank's dump has; nothing without a recorder."""
        content = torch_backend.dump()
        if content:
            folder.mkdir(exist_ok=True)
            partial = folder / f".rank_{self.rank}"
            partial.write_bytes(content)
            partial.rename(folder / f"testbed_trace_rank_{self.rank}")
