"""Damaged logs: seeded changes of real shapes, for tests and for long runs by hand.

`python -m tests.loaders.text.mutations [SECONDS [SEED]]` loads mutated logs until the time is over and prints what
broke: an exception, a row that points outside the file, more memory or time than the input allows.
"""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

from tests.evidence_wrappers import ENCODINGS, WRAPPERS, hard_wrapped
from tests.loaders.text.recorder import Recorder, evidence

# Pieces of every format; between them lie any bytes.
PIECES: Final = (
    "[rank3]:[E217 09:14:03.013057536 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=2191, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for 600024 milliseconds "
    "before timing out.",
    "[PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog at work sequence id: 75 PG status: last enqueued "
    "work: 139, last completed work: 74",
    "Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug info. Last "
    "enqueued NCCL work: 2194, last completed NCCL work: 2190.",
    "Stack trace of the failed collective: \n#0 f from /a.py:1\n#1 g from b.py:2\n",
    "Traceback (most recent call last):\n  File \"x.py\", line 3, in f\n    g()\nValueError: bad\n",
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1a (most recent call first):\n  File \"x.py\", line 3 in f\n",
    "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: unknown error\n",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n====\nx FAILED\n----\nFailures:\n[0]:\n  time      : "
    "2026-02-17_09:15:06\n  host      : h\n  rank      : 2 (local_rank: 2)\n  exitcode  : -6 (pid: 5) (SIGABRT)\n====\n",
    "failed (exitcode: -9) local_rank: 3 (pid: 42065) of binary: /usr/bin/python3",
    "srun: error: node-03: tasks 0-3,7: Exited with exit code 1",
    "RuntimeError: [x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.12.0.13]:22004",
    "- [2, 5] joined but didn't finish collective #4411 (count from 1)",
    "Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=77, OpType=ALLREDUCE, TensorShape=[1, 2], "
    "TensorDtypes=Float, X), but Rank 2 is running collective: CollectiveFingerPrint(OpType=BARRIER)",
    "Collective sequence number: 77 has errors\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\nmissing ranks: {6}\n",
    "NAME  READY   STATUS    NODE\npod-0 1/1 Running n1\n",
    "Process 51235: python x\nPython v3.11.9 (/x)\n\nThread 51235 (idle): \"MainThread\"\n    get (a.py:1)\n",
    "Thread 1 (Thread 0x7f1a (LWP 71) \"python\"):\n#0  0x00007f1a in poll () from /lib/libc.so\n",
    "node-3:41:42 [0] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 3 busId af000 commId 0x2b - Init COMPLETE",
    "node-3:41:42 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer node-03<38012>",
    "node-3:41:42 [0] NCCL INFO AllReduce: opCount 1a6 sendbuff 0x1 recvbuff 0x2 count 5 datatype 7 op 0 root 0 comm 0x3 "
    "[nranks=4] stream 0x4",
    "NVRM: Xid (PCI:0000:97:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "  7%|7 | 512/7300 [21:30<4:45:02,  2.52s/it]\r  8%|8 | 513/7300 [21:33<4:45:02,  2.52s/it]",
    "2026-11-29 15:16:39,686 INFO rank=0 step=4 loss=0.47725 ms=159.2",
    "INFO rank=5 rank 5: dp=1 pp=0 tp=1 host=node-1 pid=4123",
    "saving checkpoint at iteration 9012",
)  # fmt: skip
JUNK: Final = (
    b"\0",
    b"\xff",
    b"\r",
    b"\n",
    b"\x1b[31m",
    b"[",
    b"(",
    b"{",
    b'"',
    b"\\u",
    b"9" * 40,
    b" " * 300,
    b"[rank",
    b"\xe2\x80",
)


def log(random_: random.Random) -> bytes:
    """Return a log of random pieces, wrapped and damaged at random."""
    lines = [
        f"[rank{random_.randrange(9)}]: {piece}" if random_.random() < 0.3 else piece
        for piece in random_.choices(PIECES, k=random_.randrange(1, 60))
    ]
    text = "\n".join(lines) + "\n"
    for _ in range(random_.randrange(3)):
        text = WRAPPERS[random_.choice(list(WRAPPERS))](text)
    if random_.random() < 0.2:
        text = hard_wrapped(random_.randrange(40, 200))(text)
    data = bytearray(ENCODINGS[random_.choice(list(ENCODINGS))](text) if random_.random() < 0.15 else text.encode())
    for _ in range(random_.randrange(30)):
        at = random_.randrange(len(data) + 1)
        what = random_.random()
        if what < 0.4:
            data[at:at] = random_.choice(JUNK) * random_.choice((1, 1, 2, 50))
        elif what < 0.7:
            del data[at : at + random_.randrange(1, 80)]
        elif what < 0.9 and at < len(data):
            data[at] = random_.randrange(256)
        else:
            end = at + random_.randrange(400)
            data[at:at] = data[at:end] * random_.choice((1, 3, 30))
    if random_.random() < 0.2:
        del data[random_.randrange(len(data) + 1) :]
    return bytes(data)


def check(folder: Path, data: bytes) -> Recorder:
    """Load `data`; raises AssertionError for rows that cannot be true of it."""
    from mycroft.loaders.stacks import StacksLoader
    from mycroft.loaders.text import TextLoader

    recorder = Recorder()
    files = evidence(folder, {"logs/console.txt": data})
    for loader in (StacksLoader(), TextLoader()):
        recorder.reports += loader.load(files, recorder)
    lines = data.count(b"\n") + 1
    if any("utf-16" in problem for report in recorder.reports for problem in report.problems):
        lines = len(data)
    for table in ("events", "stacks", "group_status"):
        for row in recorder.rows(table):
            assert 0 <= row.get("line", 1) <= lines, (table, row)
            assert len(row.get("text", "")) <= 2000
    # UTF-16 that is none has three bytes of UTF-8 for every two; both loaders keep what they read.
    kept = recorder.rows("file_blocks")
    assert sum(row["size_bytes"] for row in kept) <= 6 * len(data) + 4096 * len(kept)
    return recorder


def main() -> None:
    """Run for some seconds and print every input that broke something."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    end = time.monotonic() + seconds
    runs = broken = 0
    while time.monotonic() < end:
        data = log(random.Random(seed))
        started = time.process_time()
        try:
            with tempfile.TemporaryDirectory() as folder:
                check(Path(folder), data)
        except Exception:
            broken += 1
            print(f"seed {seed}:")
            traceback.print_exc(limit=-4)
        took = time.process_time() - started
        if took > 2 + len(data) / 100_000:
            broken += 1
            print(f"seed {seed}: {took:.1f} s for {len(data)} bytes")
        runs, seed = runs + 1, seed + 1
    print(f"{runs} logs, {broken} broke something")


if __name__ == "__main__":
    main()
