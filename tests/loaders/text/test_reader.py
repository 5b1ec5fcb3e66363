"""The loader of text as a whole: whose file it is, what is kept of it, what is said of what was not understood."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from mycroft.loaders import load, open_store
from mycroft.loaders.files import last_line, read_lines
from mycroft.loaders.text import TextLoader, reader
from mycroft.loaders.text.blocks import BlockWriter
from mycroft.loaders.text.lines import is_text
from mycroft.loaders.text.paths import path_facts
from tests.loaders.text.recorder import Recorder, evidence, read

# Log lines are as long as they are.
# ruff: noqa: E501


@pytest.mark.parametrize(
    ("name", "rank", "local_rank", "host"),
    [
        ("logs/rank_3.log", 3, None, None),
        ("logs/rank-12/stderr.log", 12, None, None),
        ("out/1/rank.03/stdout", 3, None, None),
        ("x.tar.gz!logs/global_rank7.txt", 7, None, None),
        ("run_abc/attempt_0/3/stderr.log", None, 3, None),
        ("node-07/attempt_0/3/stderr.log", None, 3, "node-07"),
        ("local_rank_2.log", None, 2, None),
        ("host=gpu-b05/train.log", None, None, "gpu-b05"),
        ("ranking_9.log", None, None, None),
        ("console.txt", None, None, None),
        ("rank_99999999999.log", None, None, None),
    ],
)
def test_what_a_path_says(name: str, rank: int | None, local_rank: int | None, host: str | None) -> None:
    facts = path_facts(name)
    assert (facts.rank, facts.local_rank, facts.host) == (rank, local_rank, host)


def test_untagged_lines_of_a_rank_s_file_are_that_rank_s(tmp_path: Path) -> None:
    row = read(tmp_path, "INFO step=3 ms=5.0\n", "logs/rank_3.log").event("step")
    assert row["rank"] == 3


def test_tagged_lines_keep_their_own_rank(tmp_path: Path) -> None:
    assert read(tmp_path, "[rank5]: step=3 ms=5.0\n", "logs/rank_3.log").event("step")["rank"] == 5


def test_torchrun_s_folders_of_one_node_are_ranks(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"run/attempt_0/{i}/stderr.log": f"step {i}\n" for i in range(4)}
    assert [row["rank"] for row in read(tmp_path, files).rows(kind="step")] == [0, 1, 2, 3]


def test_torchrun_s_folders_of_two_nodes_need_a_word_of_the_node(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{node}/attempt_0/{i}/stderr.log": f"step {i}\n" for node in ("a", "b") for i in range(2)
    }
    assert all("rank" not in row for row in read(tmp_path, files).rows(kind="step"))
    files["b/attempt_0/0/stderr.log"] = "[rank2]: starting\nstep 0\n"
    rows = read(tmp_path, files).rows(kind="step")
    assert [row.get("rank") for row in rows] == [None, None, 2, 3]


def test_local_ranks_follow_from_lines_that_say_both(tmp_path: Path) -> None:
    both = "".join(f"[default{i}]:[rank{i + 8}]: step {i}\n" for i in range(3))
    rows = read(tmp_path, both + "[default3]:step 9\n").rows(kind="step", value=9.0)
    assert rows[0]["rank"] == 11


def test_task_ids_are_ranks_only_where_lines_say_so(tmp_path: Path) -> None:
    per_rank = "".join(f"{i}: [rank{i}]: step 1\n" for i in range(8)) + "5: step 2\n"
    assert read(tmp_path, per_rank).rows(kind="step", value=2.0)[0]["rank"] == 5
    per_node = "".join(f"{i // 4}: [rank{i}]: step 1\n" for i in range(8)) + "1: step 2\n"
    assert "rank" not in read(tmp_path, per_node).rows(kind="step", value=2.0)[0]


def test_tasks_that_equal_the_ranks_of_old_timeouts_are_ranks(tmp_path: Path) -> None:
    line = "{t}: [E ProcessGroupNCCL.cpp:475] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=10) ran for 12 milliseconds before timing out.\n"
    text = "".join(line.format(t=i, r=i) for i in range(4)) + "7: step 2\n"
    assert read(tmp_path, text).event("step")["rank"] == 7
    text = "".join(line.format(t=i // 2, r=i) for i in range(4)) + "1: step 2\n"
    assert "rank" not in read(tmp_path, text).event("step")


def test_the_end_of_a_rank_s_log_is_told(tmp_path: Path) -> None:
    text = "2026-03-02 04:11:09,500 INFO step=3\nlast words\n\n"
    row = read(tmp_path, text, "rank_6.log").event("log_end")
    assert (row["rank"], row["name"], row["text"]) == (6, "file", "last words")
    assert row["ts"] == datetime(2026, 3, 2, 4, 11, 9, 500000)


def test_in_a_console_every_rank_s_last_line_is_told(tmp_path: Path) -> None:
    text = "[rank0]: a\n[rank1]: b\n[rank0]: c\n"
    rows = read(tmp_path, text).rows(kind="log_end")
    assert [(row["rank"], row["text"], row["name"]) for row in rows] == [(1, "b", "stream"), (0, "c", "stream")]


def test_what_nothing_understands_is_counted_and_kept(tmp_path: Path) -> None:
    recorder = read(tmp_path, "hello there\n\nWARNING rank 6: odd thing\n")
    assert recorder.reports[0].dropped["line not understood"] == 2
    assert recorder.reports[0].loader == "console"
    rows = recorder.rows(kind="unparsed")
    assert [(row["text"], row.get("rank"), row.get("level")) for row in rows] == [
        ("hello there", None, None),
        ("WARNING rank 6: odd thing", 6, "warning"),
    ]


def test_many_lines_that_nothing_understands_are_only_counted(tmp_path: Path) -> None:
    recorder = read(tmp_path, "hello\n" * 5000)
    assert recorder.reports[0].dropped["line not understood"] == 5000
    assert not recorder.rows(kind="unparsed")


def test_the_prevailing_format_names_the_file(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.txt": "step 1\nstep 2\n[rank0]:[E p.cpp:1] [Rank 0] To avoid data inconsistency, we are taking the entire process down.\n",
        "b.txt": "step 1\n",
        "c.txt": "srun: error: node-03: task 2: Exited with exit code 1\n",
        "d.txt": "nothing\n",
    }
    assert [report.loader for report in read(tmp_path, files).reports] == [
        "torch_log",
        "training_log",
        "launcher_log",
        "console",
    ]


def test_the_year_comes_from_a_full_date_in_another_file(tmp_path: Path) -> None:
    line = "[rank0]:[E1231 23:59:59.0 p.cpp:1] To avoid data inconsistency, we are taking the entire process down.\n"
    files: dict[str, str | bytes] = {"a.txt": line, "b.txt": "2024-01-01 00:00:03 INFO start\n"}
    assert read(tmp_path, files).event("other")["ts"].year == 2023


def test_the_year_comes_from_the_dumps_where_no_log_has_one(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.given_dates = [int(datetime(2023, 5, 1, tzinfo=UTC).timestamp()) * 10**9]
    line = b"[rank0]:[E502 23:59:59.0 p.cpp:1] To avoid data inconsistency, we are taking the entire process down.\n"
    TextLoader().load(evidence(tmp_path, {"a.txt": line}), recorder)
    assert recorder.event("other")["ts"].year == 2023


def test_a_file_that_is_gone_is_a_report_and_the_others_are_read(tmp_path: Path) -> None:
    files = evidence(tmp_path, {"a.txt": b"step 1\n", "b.txt": b"step 2\n"})
    files[0].path.unlink()
    recorder = Recorder()
    first, second = TextLoader().load(files, recorder)
    assert "a.txt" in first.problems[0]
    assert (second.rows, len(recorder.rows(kind="step"))) == (1, 1)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"", False),
        (b"plain text\n", True),
        (b"\x80\x04\x95" + bytes(range(256)), False),
        (b"\0" * 4096, False),
        (b"log line\n" + b"\0" * 60 + b"log line\n" * 20, True),
        ("žluťoučký kůň\n".encode() * 10, True),
        (("plain text caf\xe9\n" * 20).encode("latin-1"), True),
        (("plain text\n" * 10).encode("utf-16"), True),
        (b"\x1b[32mgreen\x1b[0m\n", True),
    ],
)
def test_what_is_text(head: bytes, text: bool) -> None:
    assert is_text(head) is text


def test_every_line_of_the_evidence_can_be_opened(tmp_path: Path) -> None:
    lines = [f"line {i} \t\x1b[3m ünïcode" for i in range(1, 4000)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rank_0.log").write_text("\r\n".join(lines) + "\r\n")
    load([tmp_path / "in"], tmp_path / "trace.duckdb")
    with open_store(tmp_path / "trace.duckdb") as store:
        assert read_lines(store, 0, 1, 5000) == lines
        assert read_lines(store, 0, 2000, 3) == lines[1999:2002]
        assert read_lines(store, 0, 3999, 5) == lines[3998:]
        assert read_lines(store, 0, 5000, 5) == []
        assert read_lines(store, 0, 0, 5) == []
        assert read_lines(store, 7, 1, 5) == []
        assert last_line(store, 0) == 3999
        assert last_line(store, 7) is None


def test_beyond_the_budget_only_lines_with_findings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BlockWriter", lambda context: BlockWriter(context, 200_000))
    filler = "nothing of interest in this line of text\n" * 20_000
    finding = "[rank0]:[E p.cpp:1] To avoid data inconsistency, we are taking the entire process down.\n"
    recorder = read(tmp_path, filler + finding + filler)
    kept = recorder.rows("file_blocks")
    assert any(row["first_line"] <= 20_001 < row["first_line"] + row["lines"] for row in kept)
    assert sum(row["size_bytes"] for row in kept) < 400_000
    assert "not kept" in recorder.reports[0].problems[0]
