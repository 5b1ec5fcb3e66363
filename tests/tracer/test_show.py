"""`mycroft trace` and `mycroft plugin-path`: traces as a person reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mycroft.app.cli import main
from mycroft.tracer import Recorder
from mycroft.tracer.show import tail_lines


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    r = Recorder(directory=tmp_path, ring_mb=1, rank=3, world_size=8, sampler=False)
    with r.op(r.comm("dp", rank=1, size=4), "all_reduce", size_bytes=64):
        r.tick()
    return r


def test_cat_prints_one_json_line_per_record_in_the_order_written(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "cat", str(recorder.path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["op", "heartbeat", "op"]
    assert [line["position"] for line in lines] == [0, 1, 2]


def test_cat_can_be_limited_to_a_kind(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "cat", "--kind", "heartbeat", str(recorder.path)]) == 0
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == ["heartbeat"]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
def test_cat_writes_what_cat_and_diagnose_read(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    out = tmp_path / "out" / f"trace.{suffix}"
    out.parent.mkdir()
    assert main(["trace", "cat", str(recorder.path), "--out", str(out)]) == 0
    assert main(["trace", "cat", str(recorder.path)]) == 0
    direct = capsys.readouterr().out
    assert main(["trace", "cat", str(out)]) == 0
    assert capsys.readouterr().out == direct
    recorder.close()
    # It is read, and one rank of eight is too little to say that the job is healthy.
    assert main(["diagnose", str(out)]) == 3
    assert "1 of 8 ranks" in capsys.readouterr().out


def test_stat_of_a_folder_says_who_and_how_far(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "stat", str(recorder.path.parent)]) == 0
    text = capsys.readouterr().out
    assert "rank 3 of 8" in text
    assert "records: 2 op, 1 heartbeat" in text
    assert "dp 0x" in text
    assert "rank 1 of 4, last enqueued 0" in text


def test_tail_prints_what_comes_after_it_began(recorder: Recorder) -> None:
    comm = recorder.comm("tp", rank=0, size=2)
    turns = iter([True, True, False])

    def wait() -> bool:
        with recorder.op(comm, "broadcast"):
            pass
        return next(turns)

    lines = [json.loads(line) for line in tail_lines(recorder.path, wait)]

    assert [line["op_kind"] for line in lines] == ["broadcast", "broadcast"]


def test_tail_ends_with_the_trace(recorder: Recorder) -> None:
    recorder.close()
    assert list(tail_lines(recorder.path, lambda: pytest.fail("waited after the end"))) == []


@pytest.mark.parametrize("verb", ["cat", "stat", "tail"])
def test_file_that_is_no_trace_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    path = tmp_path / "x.ring"
    path.write_bytes(b"MYCROFTRjunk" + bytes(4096))
    assert main(["trace", verb, str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
