"""Evidence damaged at random: every loader ends, raises nothing, and says what it left out.

The damage is the same in every run. Files are whole samples or small files of formats that have none.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycroft.loaders import LOADERS, EvidenceFile, LoadReport
from tests.loaders import (
    test_chakra,
    test_comma_example_profiler,
    test_kineto,
    test_npkit,
    test_nsight,
    test_ras_json,
    test_xpu_timer,
)
from tests.loaders.sources import load_with
from tests.loaders.text.recorder import Recorder, evidence

DATA = Path(__file__).parents[1] / "data"
ROUNDS = 12
MOST = 200_000
# A damaged file of at most 200 kB that keeps the processor busy longer than this, s, has found a way to stop us.
PATIENCE_S = 10.0
_TOKENS = (
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"}",
    b"[" * 3000,
    b'"',
    b"\\",
    b"\n\n",
    b"-",
    b"9" * 24,
    b"0x",
    b"<",
    b"\x1b[31m",
    b"\r",
    b"%s" * 50,
    b"1e999",
)


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Return `content` after one to six accidents."""
    data = bytearray(content)
    for _ in range(dice.randrange(1, 7)):
        if not data:
            break
        at = dice.randrange(len(data))
        span = dice.randrange(1, 1 + min(2000, len(data)))
        match dice.randrange(8):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + span]
            case 2:
                data[at:at] = data[at : at + span]
            case 3:
                data[at:at] = dice.choice(_TOKENS)
            case 4:
                del data[max(1, at) :]
            case 5:
                lines = data.split(b"\n")
                dice.shuffle(lines)
                data = bytearray(b"\n".join(lines))
            case 6:
                numbers = list(re.finditer(rb"\d+", data[at : at + 4000]))
                if numbers:
                    hit = dice.choice(numbers)
                    odd = dice.choice((b"-1", b"4294967296", b"18446744073709551616", b"0", b"nan", b""))
                    data[at + hit.start() : at + hit.end()] = odd
            case _:
                other = dice.randrange(len(data))
                data[at:at] = data[other : other + span]
    return bytes(data[:MOST])


def samples() -> Iterator[tuple[str, dict[str, bytes]]]:
    for folder in sorted((DATA / "logs").iterdir()):
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.is_file() and path.suffix in (".log", ".txt", ".out", ""):
                yield str(path.relative_to(DATA)), {path.name: path.read_bytes()[:MOST]}
    for path in sorted((DATA / "public").rglob("*")):
        if path.is_file() and path.name != "SOURCE" and path.suffix != ".gz":
            yield str(path.relative_to(DATA)), {path.name: path.read_bytes()[:MOST]}
    yield (
        "kineto",
        {
            "host_77.1.pt.trace.json": test_kineto.trace(
                [test_kineto.kernel(1, 5, 9), test_kineto.call(1, 2, **test_kineto.META)]
            )
        },
    )
    yield "comma", test_comma_example_profiler.files({r: [test_comma_example_profiler.coll(r, 0)] for r in range(2)})
    yield "example", {"p-nodeA-77.txt": test_comma_example_profiler.example(0).encode()}
    yield "chakra", {"rank_1.et": test_chakra.trace(test_chakra.node(), test_chakra.node(5, None))}
    yield "observer", {"rank-4.json": test_chakra.json_trace(test_chakra.observed())}
    yield "xpu_timer", {"00002-00008.timeline": test_xpu_timer.kernel() + test_xpu_timer.GC}
    yield "npkit", {"cpu_events_rank_1_channel_3": test_npkit.records((0x2F, 9, 1, 1), (0x30, 9, 1, 5))}
    lost = {"rank": 1, "host": "n9", "pid": 77, "status": {"considered_dead": True}}
    yield (
        "ras",
        {"ras.json": test_ras_json.json.dumps(test_ras_json.report([test_ras_json.member(0)], [lost])).encode()},
    )


def load_any(file: EvidenceFile) -> list[tuple[str, Recorder]]:
    """Load a file with every loader that takes it."""
    found: list[tuple[str, Recorder]] = []
    for loader in LOADERS:
        if loader.sniff(file):
            recorder = Recorder()
            recorder.reports = loader.load([file], recorder)
            found.append((loader.name, recorder))
    return found


SAMPLES = dict(samples())


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    dice = random.Random(name)
    for number in range(ROUNDS):
        for file_name, content in SAMPLES[name].items():
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            (file,) = evidence(folder, {file_name: damaged(content, dice)})
            began = time.process_time()
            for _loader, recorder in load_any(file):
                assert all(isinstance(report, LoadReport) for report in recorder.reports)
                assert all(count > 0 for report in recorder.reports for count in report.dropped.values())
            assert time.process_time() - began < PATIENCE_S


def test_damaged_databases(tmp_path: Path) -> None:
    test_nsight.load(
        tmp_path / "whole", test_nsight.STRINGS, test_nsight.KERNELS, test_nsight.RUNTIME, test_nsight.NVTX
    )
    content = (tmp_path / "whole" / "made.sqlite").read_bytes()
    dice = random.Random(5)
    for number in range(60):
        data = bytearray(content)
        for _ in range(dice.randrange(1, 40)):
            data[dice.randrange(16, len(data))] = dice.randrange(256)
        made = load_with(
            test_nsight.NsightLoader(), tmp_path / str(number), {"rank_1.sqlite": bytes(data)}, sniffed=False
        )
        assert all(count > 0 for report in made.reports for count in report.dropped.values())


HOSTILE = {
    "nothing": b"",
    "one NUL": b"\0",
    "NULs": bytes(1 << 20),
    "deep arrays": b'{"traceEvents": ' + b"[" * 200_000,
    "deep objects": b'{"communicators": [' + b'{"a":' * 200_000,
    "one long line": b"NCCL INFO " + b"x" * (4 << 20),
    "one long word with a prefix": b"a1:1:1 [0] NCCL INFO Trees " + b"[0] 1/1/1->2->3 " * 200_000,
    "many prefixes": b"a1:1:1 [0] NCCL INFO " * 50_000,
    "many keys": b'{"nccl_version": "2.28", ' + b'"a": 1, ' * 300_000,
    "one long string": b'{"header": {"id": "' + b"x" * (4 << 20) + b'"}, "coll_perf": {}}',
    "spaces": b" " * (2 << 20) + b"\n",
    "colons": b":" * (1 << 20),
    "digits": b"1" * (1 << 20) + b"\n",
    "rows of digits": (b"     1234567 " * 40 + b"\n") * 3000,
    "escapes": b"\x1b[" * 300_000,
    "braces": b"{}\n" * 200_000,
    "events without end": b"["
    + b'{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 1, "args": {"CommHash": 1}},' * 5000,
}


# These also have to bear a file that only looks like theirs.
FORCED = ("kineto", "ras_json", "inspector", "comma", "example_profiler", "npkit", "nsight", "chakra", "text")


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_shapes(tmp_path: Path, kind: str) -> None:
    (file,) = evidence(tmp_path, {"evidence.log": HOSTILE[kind]})
    for loader in LOADERS:
        began = time.process_time()
        loader.sniff(file)
        if loader.sniff(file) or loader.name in FORCED:
            loader.load([file], Recorder())
        assert time.process_time() - began < PATIENCE_S, loader.name


def test_a_line_of_100_mb(tmp_path: Path) -> None:
    content = b"a1:1:1 [0] NCCL INFO Using network Socket\n" + b"x1y " * (25 << 20)
    content += b"\na1:1:1 [0] NCCL INFO NET/IB : No device found.\n"
    (file,) = evidence(tmp_path, {"evidence.log": content})
    ((loader, recorder),) = load_any(file)
    assert loader == "text"
    assert recorder.event("identity")["detail"] == "Socket"
    assert recorder.event("nic_state")["name"] == "no_device"
