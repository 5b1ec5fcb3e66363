"""Prefixes of launchers and collectors: what they say, and that any stack of them comes off."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mycroft.loaders.text.clock import Years
from mycroft.loaders.text.wrappers import Facts, Peeler, Profile, profile_of
from tests.evidence_wrappers import ENCODINGS, LINE_ENDS, WRAPPERS, colour_residue, hard_wrapped
from tests.loaders.text.recorder import Recorder, read

# Log lines are as long as they are.
# ruff: noqa: E501

SAMPLE = """\
W0217 08:43:03.418000 51142 site-packages/torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1
[rank0]: step 535 | loss 2.5650 | 2.09 s/it
[rank5]: UserWarning: shard train-00417.tar: retrying read (attempt 1/9)
[rank6]:[E217 09:14:03.013057536 ProcessGroupNCCL.cpp:629] [Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2191, OpType=ALLREDUCE, NumelIn=25557032, NumelOut=25557032, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.
[rank6]:[E217 09:14:03.014063250 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 6]  failure detected by watchdog at work sequence id: 2191 PG status: last enqueued work: 2194, last completed work: 2190
[rank5]:[E217 09:14:03.140300469 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug info. Last enqueued NCCL work: 2190, last completed NCCL work: 2190.This is most likely caused by incorrect usages
[rank2]: Traceback (most recent call last):
[rank2]:   File "/app/train.py", line 3, in main
[rank2]:     run()
[rank2]: ValueError: bad <shard> & "quotes"
E0217 09:15:07.000000 51142 site-packages/torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 2 (pid: 51214) of binary: /opt/env/bin/python3.11
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
pretrain.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-02-17_09:15:06
  host      : hx-a03
  rank      : 2 (local_rank: 2)
  exitcode  : -6 (pid: 51214) (SIGABRT)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 51214
============================================================
"""
FACTS = (
    "kind",
    "rank",
    "comm_rank",
    "seq",
    "op_kind",
    "in_numel",
    "last_enqueued",
    "last_completed",
    "dur_ms",
    "code",
    "name",
    "value",
    "group_name",
    "peer_rank",
    "text_of_exception",
)


def facts(recorder: Recorder, *, bars: bool = True) -> list[tuple[object, ...]]:
    rows = [row for row in recorder.rows() if row["kind"] not in ("log_end", "unparsed")]
    for row in rows:
        row["text_of_exception"] = row["text"] if row["kind"] == "exception" else None
    kept = [row for row in rows if bars or row.get("name") != "progress"]
    return sorted((tuple(row.get(name) for name in FACTS) for row in kept), key=repr)


@pytest.fixture
def plain(tmp_path: Path) -> list[tuple[object, ...]]:
    return facts(read(tmp_path, SAMPLE))


def test_the_plain_sample_has_what_the_others_are_compared_with(plain: list[tuple[object, ...]]) -> None:
    assert [row[0] for row in plain] == [
        "dump_signal",
        "exception",
        "launcher_failure",
        "launcher_failure",
        "pg_status",
        "phase",
        "step",
        "watchdog_timeout",
    ]


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_hides_nothing(tmp_path: Path, plain: list[tuple[object, ...]], name: str) -> None:
    assert facts(read(tmp_path, WRAPPERS[name](SAMPLE)), bars=False) == plain


OUTER = ("docker", "cri", "json_message", "collector", "kubectl", "coloured")
INNER = ("srun", "pdsh", "ray", "compose", "stern", "redrawn", "coloured", "job_stream")


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(OUTER, INNER)))
def test_wrappers_may_be_stacked(tmp_path: Path, plain: list[tuple[object, ...]], outer: str, inner: str) -> None:
    assert facts(read(tmp_path, WRAPPERS[outer](WRAPPERS[inner](SAMPLE))), bars=False) == plain


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("kubectl", "docker"), ("kubectl", "cri"), ("srun", "srun"), ("collector", "docker"), ("cri", "docker")],
)
def test_containers_may_stand_behind_prefixes(
    tmp_path: Path, plain: list[tuple[object, ...]], outer: str, inner: str
) -> None:
    assert facts(read(tmp_path, WRAPPERS[outer](WRAPPERS[inner](SAMPLE)))) == plain


@pytest.mark.parametrize("name", LINE_ENDS)
def test_line_ends_make_no_difference(tmp_path: Path, plain: list[tuple[object, ...]], name: str) -> None:
    assert facts(read(tmp_path, LINE_ENDS[name](SAMPLE))) == plain


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_make_no_difference(tmp_path: Path, plain: list[tuple[object, ...]], name: str) -> None:
    assert facts(read(tmp_path, ENCODINGS[name](SAMPLE))) == plain


def test_residue_of_colours_comes_off(tmp_path: Path, plain: list[tuple[object, ...]]) -> None:
    assert facts(read(tmp_path, colour_residue(SAMPLE))) == plain


@pytest.mark.parametrize("width", [80, 100, 132])
def test_text_broken_at_a_width_is_joined(tmp_path: Path, plain: list[tuple[object, ...]], width: int) -> None:
    recorder = read(tmp_path, hard_wrapped(width)(SAMPLE))
    assert facts(recorder) == plain
    assert "joined" in recorder.reports[0].problems[0]


@pytest.mark.parametrize("outer", ["docker", "kubectl", "srun", "collector", "redrawn"])
def test_a_paste_may_be_wrapped_again(tmp_path: Path, plain: list[tuple[object, ...]], outer: str) -> None:
    assert facts(read(tmp_path, WRAPPERS[outer](hard_wrapped(100)(SAMPLE))), bars=False) == plain


def test_line_numbers_of_a_paste_are_those_of_the_file(tmp_path: Path) -> None:
    text = hard_wrapped(80)(SAMPLE)
    row = read(tmp_path, text).event("watchdog_timeout")
    assert text.splitlines()[row["line"] - 1].startswith("[rank6]:[E217 09:14:03.013057536")


def at_words(text: str, width: int) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        while len(line) > width and " " in line[1:width]:
            cut = line.rindex(" ", 1, width)
            lines.append(line[:cut])
            line = line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines) + "\n"


def test_text_wrapped_at_words_is_joined_with_a_blank(tmp_path: Path) -> None:
    recorder = read(tmp_path, at_words(SAMPLE, 90))
    assert recorder.event("watchdog_timeout")["seq"] == 2191
    assert recorder.event("pg_status")["last_enqueued"] == 2194


PREFIXES = [
    ("[rank12]: x", {"rank": 12}),
    ("[default3]:[rank11]: x", {"local_rank": 3, "rank": 11}),
    ("[trainer0]: x", {"local_rank": 0, "role": "trainer"}),
    ("[1,7]<stderr>: x", {"rank": 7, "stream": "stderr"}),
    ("[prterun-node1-77@1,5]<stdout>: x", {"rank": 5}),
    ("[1,5][node1:77]<stdout>:x", {"rank": 5, "host": "node1", "pid": 77}),
    ("(TrainWorker pid=4711, ip=10.0.0.7) x", {"pid": 4711, "address": "10.0.0.7"}),
    ("(RayTrainWorker[rank=3] pid=9) x", {"pid": 9, "rank": 3}),
    ("(Worker_TP2_EP1 pid=309) x", {"tp": 2, "pid": 309}),
    ("(EngineCore_DP1 pid=310) x", {"dp": 1, "pid": 310}),
    ("(VllmWorkerProcess pid=12) x", {"pid": 12}),
    ("[2026-02-17 09:14:03 DP0 PP1 TP6] x", {"dp": 0, "pp": 1, "tp": 6}),
    ("[2026-02-17 09:14:03 TP6] x", {"tp": 6}),
    ("run7.node-a.nolog [stderr] x", {"job": "run7", "host": "node-a", "stream": "stderr"}),
    ("[jobA] x", {"job": "jobA"}),
    ("[pod/llm-worker-3/main] x", {"pod": "llm-worker-3"}),
    ("2026-03-02T04:11:09Z node7 kernel: x", {"host": "node7", "program": "kernel"}),
    ("Mar  2 04:11:09 node7 kernel: x", {"host": "node7", "program": "kernel"}),
    ("Mar  2 04:11:09 node7 trainer[55]: x", {"host": "node7", "program": "trainer"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PREFIXES)
def test_what_unmistakable_prefixes_say(line: str, expected: dict[str, object]) -> None:
    found, rest = Peeler(Profile(), Years()).peel(line)
    assert rest == "x"
    assert {name: getattr(found, name) for name in expected} == expected


AMBIGUOUS = [
    ("3: x {i}", "srun", {"task": 3}),
    ("[3] x {i}", "index", {"index": 3}),
    ("node-3: x {i}", "pdsh", {"host": "node-3"}),
    ("10.0.0.3: x {i}", "pdsh", {"host": "10.0.0.3"}),
    ("trainer-1  | x {i}", "compose", {"service": "trainer-1"}),
    ("llm-worker-3 main x {i}", "stern", {"pod": "llm-worker-3"}),
]


@pytest.mark.parametrize(("form", "name", "expected"), AMBIGUOUS)
def test_ambiguous_prefixes_need_most_lines_of_the_file(form: str, name: str, expected: dict[str, object]) -> None:
    lines = [form.format(i=i) for i in range(20)]
    profile = profile_of(lines, Years())
    assert profile.counts == {name: 1}
    found, rest = Peeler(profile, Years()).peel(lines[5])
    assert rest == "x 5"
    assert {key: getattr(found, key) for key in expected} == expected
    mixed = profile_of([*lines[:4], *(f"loss of step {i} is 3" for i in range(20))], Years())
    assert Peeler(mixed, Years()).peel(lines[0]) == (Facts(), lines[0])


@pytest.mark.parametrize(
    "form", ["RuntimeError: x {i}", "step{i}: loss", "INFO: x {i}", "epoch3: x {i}", "w{i}-x: different words {i}"]
)
def test_words_with_a_colon_are_no_hosts(form: str) -> None:
    lines = [form.format(i=i) for i in range(20)]
    assert profile_of(lines, Years()).counts == {}


def test_the_indentation_behind_a_prefix_is_kept() -> None:
    peeler = Peeler(Profile({"srun": 1}), Years())
    assert peeler.peel("0: 2026-03-02T04:11:09Z     frame (x.py:3)")[1] == "    frame (x.py:3)"


def test_ray_tells_when_it_has_left_lines_out() -> None:
    found, rest = Peeler(Profile(), Years()).peel("(W pid=3) failed [repeated 7x across cluster]")
    assert (found.repeated, rest) == (7, "failed")


def test_an_exact_time_of_the_collector_beats_the_program_s(tmp_path: Path) -> None:
    text = '{"log":"2026-01-01 09:00:00,000 INFO rank=0 step=1 ms=2.0\\n","stream":"stdout","time":"2026-01-01T08:00:00.25Z"}\n'
    row = read(tmp_path, text).event("step")
    assert (row["ts"].hour, row["time_quality"]) == (8, "exact")


OLD = "[E ProcessGroupNCCL.cpp:475] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600{0}01 milliseconds before timing out.\n"


def test_what_stands_before_a_redrawn_line_belongs_to_every_piece_of_it(tmp_path: Path) -> None:
    bar = "\r 3%|3 | 3/100\r"
    lines = [f"llm-worker-{r} main {bar}{OLD.format(r)}" for r in (0, 0, 0, 1, 1, 1)]
    rows = read(tmp_path, "".join(lines)).rows(kind="watchdog_timeout")
    assert [row["comm_rank"] for row in rows] == [0, 1]
    assert all("llm-worker" not in row["text"] for row in rows)


def test_a_process_that_passes_on_what_several_ranks_print_is_none_of_them(tmp_path: Path) -> None:
    passed_on = "".join(f"(TrainWorker pid=4711, ip=10.0.0.7) {OLD.format(r)}" for r in range(3))
    assert all("pid" not in row for row in read(tmp_path, passed_on).rows(kind="watchdog_timeout"))
    (tmp_path / "own").mkdir()
    own = "".join(f"(TrainWorker pid={4711 + r}, ip=10.0.0.7) {OLD.format(r)}" for r in range(3))
    rows = read(tmp_path / "own", own).rows(kind="watchdog_timeout")
    assert [row["pid"] for row in rows] == [4711, 4712, 4713]


def test_quotation_marks_and_links_of_a_page_come_off(tmp_path: Path) -> None:
    text = "n1:7:9 [0] transport/[net_ib.cc:101](http://net_ib.cc:101/) NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
    row = read(tmp_path, "".join(f"> {text}> \n" for _ in range(3))).rows(kind="link_down")[0]
    assert (row["device"], row["pid"]) == ("mlx5_0", 7)


def test_a_name_before_the_kernel_s_stamp_is_a_host_even_on_one_line() -> None:
    line = "gx-z09: [Wed Mar  4 10:10:40 2026] NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus."
    found, rest = Peeler(Profile(), Years()).peel(line)
    assert (found.host, rest[:5]) == ("gx-z09", "[Wed ")
    assert Peeler(Profile(), Years()).peel("n1: [ 123.456789] mlx5_core: Link down")[0].host == "n1"


def test_vllm_names_the_rank_of_a_worker() -> None:
    found, rest = Peeler(Profile(), Years()).peel("(VllmWorker rank=2 pid=303) ERROR 03-04 10:10:01 failed")
    assert (found.rank, found.pid, rest) == (2, 303, "ERROR 03-04 10:10:01 failed")
