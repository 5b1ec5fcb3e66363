"""Stack dumps of py-spy, gdb and others: as files, as JSON, and inside consoles."""

# Dumps are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.stacks import StacksLoader
from tests.loaders.text.recorder import Recorder, evidence, read

PY_SPY = """\
Process 51235: python -u pretrain.py --cfg big.yaml
Python v3.11.9 (/opt/env/bin/python3.11)

Thread 51235 (idle): "MainThread"
    get (multiprocessing/queues.py:113)
    next_batch (pretrain.py:171)
    <module> (pretrain.py:455)
Thread 52101 (active+gil): "Thread-1 (_pin_memory_loop)"
    select (selectors.py:415)
"""
NATIVE = """\
Process 51235: python train.py
Python v3.11.9 (/opt/env/bin/python3.11)

Thread 0x7F1AC8B3F740 (active): "MainThread"
    ncclGroupEnd (libnccl.so.2)
    pthread_cond_wait@@GLIBC_2.3.2 (libc.so.6)
    all_reduce (torch/distributed/distributed_c10d.py:2806)
"""
LOCALS = """\
Process 7: python train.py
Python v3.11.9 (/opt/env/bin/python3.11)

Thread 7 (active): "MainThread"
    save (ckpt.py:12)
        Arguments:
            path: "/mnt/x (y.py:3)"
        Locals:
            self: <Saver at 0x7f>
    main (train.py:9)
        Locals:
            n: 3
"""
GDB = """\
[New LWP 72]
Thread 2 (Thread 0x7f1ac8000700 (LWP 72) "cuda-EvtHandlr"):
#0  0x00007f1ac9d0a8df in poll () from /lib64/libc.so.6
#1  0x00007f1a9f8a1b2c in ?? () from /lib64/libcuda.so.1
Thread 1 (Thread 0x7f1ac8b3f740 (LWP 71) "python"):
#0  ncclGroupEndInternal (x=0x0) at group.cc:300
#1  0x00007f1a00000000 in c10d::ProcessGroupNCCL::endCoalescing() () from /opt/lib/libtorch_cuda.so
#2  std::vector<int, std::allocator<int> >::push_back (this=0x1, v=<error: x>) at vec.h:3
"""
PSTACK = """\
#0  0x00007f1ac9d0a8df in poll () from /lib64/libc.so.6
#1  0x00007f1a9f8a1b2c in uv_run () from /lib64/libuv.so
#2  0x0000000000401136 in main ()
"""
EU_STACK = """\
PID 71 - process
TID 71:
#0  0x00007f1ac9d0a8df poll
#1  0x0000000000401136 main
TID 72:
#0  0x00007f1ac9d0a8df futex_wait
"""


def load(folder: Path, contents: dict[str, str]) -> Recorder:
    recorder = Recorder()
    loader = StacksLoader()
    files = [file for file in evidence(folder, {k: v.encode() for k, v in contents.items()}) if loader.sniff(file)]
    recorder.reports = loader.load(files, recorder)
    return recorder


def stacks(recorder: Recorder) -> list[tuple[Any, ...]]:
    return [
        (
            row.get("rank"),
            row.get("pid"),
            row.get("thread"),
            row.get("is_main"),
            row.get("state"),
            recorder.stacks[row["stack_id"]],
        )
        for row in recorder.rows("stacks")
    ]


def test_a_dump_is_a_row_for_every_thread(tmp_path: Path) -> None:
    recorder = load(tmp_path, {"pyspy-rank5.txt": PY_SPY})
    assert stacks(recorder) == [
        (5, 51235, "MainThread", True, "idle", ("get (multiprocessing/queues.py:113)", "next_batch (pretrain.py:171)", "<module> (pretrain.py:455)")),
        (5, 51235, "Thread-1 (_pin_memory_loop)", False, "active+gil", ("select (selectors.py:415)",)),
    ]  # fmt: skip
    assert [row["line"] for row in recorder.rows("stacks")] == [4, 8]
    assert recorder.ranks[5]["pid"] == 51235
    assert recorder.reports[0].loader == "py_spy"


def test_native_frames_have_a_library_and_no_line(tmp_path: Path) -> None:
    ((_, _, _, is_main, state, frames),) = stacks(load(tmp_path, {"x.txt": NATIVE}))
    assert (is_main, state) == (True, "active")
    assert frames[0] == "ncclGroupEnd (libnccl.so.2)"
    assert frames[2] == "all_reduce (torch/distributed/distributed_c10d.py:2806)"


def test_locals_are_no_frames(tmp_path: Path) -> None:
    ((*_, frames),) = stacks(load(tmp_path, {"x.txt": LOCALS}))
    assert frames == ("save (ckpt.py:12)", "main (train.py:9)")


def test_gdb_threads(tmp_path: Path) -> None:
    recorder = load(tmp_path, {"gdb-71.txt": GDB})
    other, main = stacks(recorder)
    assert (other[2], main[2]) == ("cuda-EvtHandlr", "python")
    assert (other[3], main[3]) == (False, True)
    assert main[5] == (
        "ncclGroupEndInternal (group.cc:300)",
        "c10d::ProcessGroupNCCL::endCoalescing() (/opt/lib/libtorch_cuda.so)",
        "std::vector<int, std::allocator<int> >::push_back (vec.h:3)",
    )
    assert recorder.reports[0].loader == "gdb"


def test_pstack_and_eu_stack(tmp_path: Path) -> None:
    recorder = load(tmp_path, {"pstack.71.txt": PSTACK, "z.txt": EU_STACK})
    pstack, eu_main, eu_other = stacks(recorder)
    assert (pstack[1], pstack[5][0], len(pstack[5])) == (71, "poll (/lib64/libc.so.6)", 3)
    assert (eu_main[1], eu_main[3], eu_main[5]) == (71, True, ("poll", "main"))
    assert (eu_other[3], eu_other[5]) == (False, ("futex_wait",))


def as_json(pid: int, thread: int, name: str | None, *frames: str) -> dict[str, Any]:
    return {
        "pid": pid,
        "thread_id": 139967254742720,
        "thread_name": name,
        "os_thread_id": thread,
        "active": False,
        "owns_gil": False,
        "frames": [
            {"name": frame, "filename": f"/opt/lib/python3.11/{frame}.py", "short_filename": f"{frame}.py", "line": 3, "module": None, "locals": None}
            for frame in frames
        ],
    }  # fmt: skip


def test_json_dumps(tmp_path: Path) -> None:
    text = json.dumps([as_json(51235, 51235, "MainThread", "get", "main"), as_json(51235, 52101, None, "select")])
    recorder = load(tmp_path, {"pyspy/rank_3.json": text})
    assert stacks(recorder) == [
        (3, 51235, "MainThread", True, "idle", ("get (get.py:3)", "main (main.py:3)")),
        (3, 51235, "52101", False, "idle", ("select (select.py:3)",)),
    ]


def test_of_a_thread_dumped_twice_the_text_is_kept(tmp_path: Path) -> None:
    text = json.dumps([as_json(51235, 51235, "MainThread", "get"), as_json(51235, 9, "only-json", "x")])
    recorder = load(tmp_path, {"json/rank_5.json": text, "text/rank_5.txt": PY_SPY})
    assert sorted(row[2] for row in stacks(recorder)) == ["MainThread", "Thread-1 (_pin_memory_loop)", "only-json"]


def test_the_rank_may_stand_in_the_command_line(tmp_path: Path) -> None:
    recorder = load(tmp_path, {"a.txt": PY_SPY.replace("--cfg big.yaml", "--node-rank 7 --rank=12"), "b.txt": NATIVE})
    assert [row[0] for row in stacks(recorder)] == [12, 12, None]


def test_framework_headers_in_a_console(tmp_path: Path) -> None:
    dump = PY_SPY.split("\n\n", 1)[1]
    lines = [
        "[2026-02-17 09:14:03 TP6] Pyspy dump for PID 309:",
        *(f"[2026-02-17 09:14:03 TP6] {line}" for line in dump.splitlines()),
    ]
    recorder = read(tmp_path, "\n".join(["start", *lines, "[2026-02-17 09:14:04 TP6] going on", ""]))
    main, other = stacks(recorder)
    assert (main[1], main[2], main[5][1]) == (309, "MainThread", "next_batch (pretrain.py:171)")
    assert other[5] == ("select (selectors.py:415)",)


def test_dumps_of_several_ranks_in_one_console(tmp_path: Path) -> None:
    one = [f"[rank1]: {line}" for line in PY_SPY.splitlines()]
    two = [f"[rank2]: {line}" for line in PY_SPY.replace("51235", "51236").splitlines()]
    text = "\n".join(line for pair in zip(one, two, strict=True) for line in pair) + "\n"
    recorder = read(tmp_path, text)
    assert sorted((row[0], row[1], row[2]) for row in stacks(recorder)) == [
        (1, 51235, "MainThread"),
        (1, 51235, "Thread-1 (_pin_memory_loop)"),
        (2, 51236, "MainThread"),
        (2, 51236, "Thread-1 (_pin_memory_loop)"),
    ]


def test_a_dump_that_failed_says_what_is_missing(tmp_path: Path) -> None:
    text = "Error: Permission denied: Try running py-spy again with elevated permissions\n"
    recorder = load(tmp_path, {"pyspy-77.txt": "Permission denied (os error 13): py-spy needs root\n" + text})
    assert "SYS_PTRACE" in recorder.reports[0].problems[0]


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_dumps_cut_short_keep_what_is_there(tmp_path: Path, cut: int) -> None:
    text = json.dumps([as_json(1, 1, "MainThread", "get")])
    recorder = load(tmp_path, {"a_rank_1.txt": PY_SPY[:cut], "b_rank_2.json": text[:cut]})
    assert all(row[5] for row in stacks(recorder))


@pytest.mark.parametrize(
    "content",
    [
        '[{"frames": 3, "pid": 1}]',
        '[{"pid": -1, "thread_id": 1, "frames": [{"name": "x", "line": 1}]}, 5, null]',
        '[{"thread_id": 1, "frames": [null]}]',
    ],
)
def test_json_of_another_shape_is_counted(tmp_path: Path, content: str) -> None:
    recorder = load(tmp_path, {"a.json": content})
    assert sum(recorder.reports[0].dropped.values()) + len(recorder.rows("stacks")) >= 1
