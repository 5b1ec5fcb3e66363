"""Measures how fast text is read, against `json.loads` and `re` line by line in the same run.

`python -m tests.bench.text [MIB]` makes consoles of that size each (default 64), reads them with the text loader in a
process of one core, and prints medians of three runs: MB of the file per second, and the growth of the peak memory.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.text import TextLoader
from tests.evidence_wrappers import WRAPPERS

RUNS: Final = 3
MB: Final = 1_000_000

SILENT: Final = (
    "INFO:model:tokens seen {n} of the mixture web=0.61 code=0.22 math=0.17, learning rate 2.9e-4, grad norm 0.4{n}",
    "buffer pool: {n} pages of 2 MiB in use, high water mark 61.2GiB, allocator retries 0",
    "[trainer.py:311] mixture weights updated from the schedule, next change in {n} updates",
    "WARNING: tokenizer returned {n} tokens for a document of 8192 characters, truncating to the context length",
)
# As a job prints them with NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,COLL: mostly calls and channels.
_CALL: Final = (
    "node-{h}:{p}:{t} [{d}] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x7f2c8e000000 recvbuff 0x7f2c8e000000 "
    "count 67108864 datatype 9 op 0 root 0 comm 0x55f148f456{d} [nranks=64] stream 0x55f148aa{d}"
)
_CHANNEL: Final = (
    "node-{h}:{p}:{t} [{d}] NCCL INFO Channel {c:02d}/0 : {d}[{d}] -> {e}[{e}] [send] via NET/IB/{d}/GDRDMA"
)
NCCL: Final = (
    *([_CALL] * 24),
    *([_CHANNEL] * 20),
    "node-{h}:{p}:{t} [{d}] NCCL INFO Trees [0] {e}/-1/-1->{d}->-1 [1] {e}/-1/-1->{d}->-1",
    "node-{h}:{p}:{t} [{d}] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
    "node-{h}:{p}:{t} [{d}] NCCL INFO Using network IB",
    "node-{h}:{p}:{t} [{d}] NCCL INFO threadThresholds 8/8/64 | 512/8/64 | 512 | 512",
)


def silent(count: int) -> str:
    """Return lines that match nothing."""
    return "".join(SILENT[i % len(SILENT)].format(n=i) + "\n" for i in range(count))


def nccl(count: int) -> str:
    """Return lines of NCCL's debug log."""
    return "".join(
        NCCL[i % len(NCCL)].format(
            h=i // 8 % 8, p=4000 + i % 64, t=5000 + i % 64, d=i % 8, e=(i + 1) % 8, c=i % 16, n=i // 64
        )
        + "\n"
        for i in range(count)
    )


def tagged(text: str) -> str:
    """Put the prefixes of torchrun in front."""
    return "".join(f"[default{i % 8}]:[rank{i % 8}]: {line}\n" for i, line in enumerate(text.splitlines()))


def full_stack(text: str) -> str:
    """Wrap in torchrun, srun, colours, a collector's stamp and Docker's records."""
    for name in ("coloured", "srun", "collector"):
        text = WRAPPERS[name](tagged(text) if name == "coloured" else text)
    return WRAPPERS["docker"](text)


CASES: Final[dict[str, Callable[[], str]]] = {
    "nothing matches, plain": lambda: silent(20_000),
    "nothing matches, full stack of wrappers": lambda: full_stack(silent(20_000)),
    "steps of a training log": lambda: "".join(
        f"2026-02-17 09:14:{i % 60:02d},013 INFO rank={i % 8} step={i // 8} loss=2.31 ms=643.6\n" for i in range(20_000)
    ),
    "NCCL INFO lines": lambda: nccl(20_000),
    "NCCL INFO lines, full stack of wrappers": lambda: full_stack(nccl(20_000)),
}


class Sink:
    """A context that drops what it is given."""

    def comm(self, name: str, **_: Any) -> int:
        return 0

    def seen(self, comm_id: int, rank: int) -> None:
        pass

    def members(self, name: str, **_: Any) -> None:
        return None

    def host(self, name: str) -> int:
        return 0

    def stack(self, frames: object) -> int:
        return 0

    def rank(self, rank: int, **_: Any) -> None:
        pass

    def job(self, **_: Any) -> None:
        pass

    def dates(self) -> list[int]:
        return []

    def emit(self, table: str, frame: object) -> None:
        pass


def plain(path: Path) -> int:
    """Read line by line with `json.loads` and one pattern of prefixes and messages."""
    prefix = re.compile(
        r"(?:\d{4}-\d\d-\d\dT\S+ )?(?:\d+: )?(?:\x1b\[\d+m)?(?:\[default(\d+)\]:)?(?:\[rank(\d+)\]: ?)?"
    )
    message = re.compile(
        r"Watchdog caught collective operation timeout|last enqueued (?:NCCL )?work: (\d+)|exitcode|Traceback"
        r"|\bstep[= ](\d+)|NCCL (?:INFO|WARN) (.*)"
    )
    found = 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text = json.loads(line)["log"] if line.startswith("{") else line
            match = prefix.match(text)
            if message.search(text, match.end() if match else 0):
                found += 1
    return found


def ours(path: Path) -> int:
    """Read with the text loader."""
    with path.open("rb") as content:
        head = content.read(64 << 10)
    file = EvidenceFile(0, path.name, path, path.stat().st_size, "", head)
    (report,) = TextLoader().load([file], Sink())
    return report.rows


def measured(read: Callable[[Path], int], path: Path) -> tuple[float, int, int]:
    """Return median CPU seconds, rows, and growth of the peak resident memory in bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds: list[float] = []
    rows = 0
    for _ in range(RUNS):
        started = time.process_time()
        rows = read(path)
        seconds.append(time.process_time() - started)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return statistics.median(seconds), rows, grown * 1024


def table(mib: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| {'text, ' + str(mib) + ' MiB each':<42} | ours MB/s | rows | memory + | plain MB/s |"
    yield "|---|---|---|---|---|"
    for name, make in CASES.items():
        piece = make().encode()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "console.txt"
            with path.open("wb") as file:
                for _ in range(max(1, (mib << 20) // len(piece))):
                    file.write(piece)
            size = path.stat().st_size
            took, rows, grown = measured(ours, path)
            slow, _, _ = measured(plain, path)
        yield f"| {name:<42} | {size / MB / took:.0f} | {rows} | {grown >> 20} MiB | {size / MB / slow:.0f} |"


def main() -> None:
    """Print the table; one core, so that the numbers are per core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for line in table(int(sys.argv[1]) if len(sys.argv) > 1 else 64):
        print(line, flush=True)


if __name__ == "__main__":
    main()
