"""What a stranger's pickle can do to us: nothing."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycroft.loaders._core import DumpInfo, DumpReader
from tests.loaders import hostile

DATA = Path(__file__).parent.parent / "data"
REAL = DATA / "nccl_flight_recorder_16_ranks" / "gpu_error" / "_dump_9"
REAL_WITH_FRAMES = DATA / "flight_recorder" / "stuck_dataloader" / "fr" / "nccl_trace_rank_2"


def read(content: bytes) -> tuple[DumpInfo, pl.DataFrame]:
    info, batch = DumpReader().read_bytes(content)
    return info, pl.DataFrame(batch)


@pytest.mark.parametrize("shape", hostile.executing(Path("marker")).keys())
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(shape: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    content = hostile.executing(marker)[shape]

    info, rows = read(content)

    assert not marker.exists()
    assert "does not occur in a dump; nothing was executed" in info.error or "starts with PROTO" in info.error
    assert rows.is_empty()


def test_the_executing_pickles_would_run_elsewhere(tmp_path: Path) -> None:
    # Otherwise the test above could not fail.
    marker = tmp_path / "marker"
    path = tmp_path / "evil"
    path.write_bytes(hostile.executing(marker)["inside an entry"])
    subprocess.run([sys.executable, "-c", f"import pickle; pickle.load(open({str(path)!r}, 'rb'))"], check=True)
    assert marker.exists()


def test_a_refusal_names_the_place_and_the_opcode() -> None:
    info, _ = read(hostile.PROTO + hostile.text("os") + b"cos\nsystem\n.")
    assert info.error == "byte 9: opcode GLOBAL does not occur in a dump; nothing was executed"


@pytest.mark.parametrize("name", hostile.malformed().keys())
def test_what_no_pickler_writes_is_refused(name: str) -> None:
    info, rows = read(hostile.malformed()[name])
    assert info.error.startswith("byte ")
    assert rows.is_empty()


@pytest.mark.parametrize("name", hostile.recursive().keys())
def test_a_value_inside_itself_is_refused(name: str) -> None:
    info, rows = read(hostile.recursive()[name])
    assert "recursion" in info.error
    assert rows.is_empty()


_MEASURE = """
import resource, sys
from mycroft.loaders._core import DumpReader
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
info, batch = DumpReader().read_bytes(open(sys.argv[1], "rb").read())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(after - before, len(batch), info.error or info.damage or sum(info.dropped.values()) or "read")
"""


BOMBS = {**hostile.bombs(), **hostile.shared_by_rows()}


@pytest.mark.parametrize("name", BOMBS.keys())
def test_a_bomb_costs_no_more_than_memory_in_proportion_to_its_size(name: str, tmp_path: Path) -> None:
    content = BOMBS[name]
    path = tmp_path / "bomb"
    path.write_bytes(content)

    # A CPU limit instead of a clock: a bomb that runs for ever ends in a signal, whatever else the machine does.
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)),
    )

    grown_kib = int(done.stdout.split()[0])
    assert grown_kib <= 64 * 1024 + 120 * len(content) // 1024
    assert "read" not in done.stdout.split()[2:], "a bomb was taken for a dump without a word"


_MEASURE_LOAD = """
import resource, sys
from pathlib import Path
from mycroft.loaders import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
summary = load([sys.argv[1]], Path(sys.argv[2]))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(after - before, summary.rows["coll_ops"], len(summary.problems) + len(summary.unread))
"""


def test_a_folder_of_bombs_is_loaded_in_bounded_memory(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for rank, content in enumerate(BOMBS.values()):
        (folder / f"trace_{rank}").write_bytes(content)
    (folder / "trace_99").write_bytes(REAL.read_bytes())

    done = subprocess.run(
        [sys.executable, "-c", _MEASURE_LOAD, str(folder), str(tmp_path / "t.duckdb")],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (120, 120)),
    )

    grown_kib, rows, told = map(int, done.stdout.split())
    assert rows >= 20
    assert told >= len(BOMBS) - 1
    assert grown_kib < 1 << 20
    assert (tmp_path / "t.duckdb").stat().st_size < 64 << 20


def test_a_real_dump_cut_at_every_byte_keeps_the_entries_before_the_cut() -> None:
    content = REAL.read_bytes()
    whole, all_rows = read(content)
    assert whole.error == "" and all_rows.height == 20
    kept = 0
    for end in range(len(content)):
        info, rows = read(content[:end])
        assert info.error or info.damage, f"cut at {end}: nothing was noticed"
        assert rows.height >= kept, f"cut at {end}: fewer entries than before"
        kept = rows.height
        if rows.height:
            same = [name for name in rows.columns if name not in ("coalesced", "group")]
            codes = {"op_name", "in_sizes", "out_sizes", "dtype", "out_dtype", "stack"}
            plain = [name for name in same if name not in codes]
            assert rows.select(plain).equals(all_rows.head(rows.height).select(plain)), f"cut at {end}"
    assert kept == 20


def test_a_cut_dump_says_where_it_ends_and_how_much_is_kept() -> None:
    content = REAL_WITH_FRAMES.read_bytes()
    info, rows = read(content[: len(content) * 2 // 3])
    assert info.error == ""
    assert info.damage.startswith("byte ")
    assert 0 < rows.height == info.entries
    assert info.dropped.get("entry cut off by the end of the file", 0) <= 1


@pytest.mark.parametrize("path", [REAL, REAL_WITH_FRAMES], ids=["nccl", "gloo"])
def test_flipped_bits_give_rows_or_a_reason_and_never_a_crash(path: Path) -> None:
    content = path.read_bytes()
    dice = random.Random(20)
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(dice.choice((1, 1, 1, 2, 8))):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        info, rows = read(bytes(damaged))
        assert rows.height == info.entries
        assert rows["op_kind"].is_in(range(13)).all()
        if info.error:
            assert rows.is_empty()


@given(st.binary(max_size=200))
def test_any_bytes_after_the_start_of_a_pickle_give_rows_or_a_reason(tail: bytes) -> None:
    info, rows = read(hostile.PROTO + tail)
    assert rows.height == info.entries
    assert info.error or info.is_dump


@given(
    st.lists(
        st.sampled_from(
            [
                b"}",
                b"]",
                b"(",
                b"u",
                b"e",
                b"s",
                b"a",
                b"N",
                b"K\x01",
                b"\x86",
                b"t",
                b"q\x00",
                b"h\x00",
                b"X\x01\x00\x00\x00a",
            ]
        ),
        max_size=60,
    )
)
def test_any_order_of_opcodes_gives_rows_or_a_reason(opcodes: list[bytes]) -> None:
    info, _ = read(hostile.PROTO + b"".join(opcodes) + b".")
    assert info.error or info.is_dump


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as out:
        out.truncate(2 << 20)
    (info,), batch = DumpReader().read([os.fspath(path)], threads=1, max_bytes=1 << 20)
    assert "more than the limit of 1048576" in info.error
    assert len(batch) == 0


def test_json_bombs_are_refused() -> None:
    for content in (b'{"entries":' + b"[" * 2_000_000, b'{"a":' * 500_000, b"[" * 70 + b"]" * 70):
        info, rows = read(content)
        assert "nested deeper than 64" in info.error
        assert rows.is_empty()


def test_hostile_numbers_become_unknown_and_are_counted() -> None:
    fields = {
        "record_id": b"J\xff\xff\xff\xff",  # -1
        "op_id": b"\x8a\x09" + b"\xff" * 8 + b"\x00",  # 2**64 - 1
        "time_created_ns": b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
        "timeout_ms": b"G" + b"\x7f\xf8" + b"\0" * 6,
        "duration_ms": b"G" + b"\x7f\xf8" + b"\0" * 6,
        "input_sizes": b"](](J\xff\xff\xff\xffee",
        "state": hostile.text("exploded"),
        "frames": hostile.text("none"),
    }
    for field, value in fields.items():
        info, rows = read(hostile.dump_with(field, value))
        assert rows.height == 1, field
        assert sum(info.dropped.values()) == 1, (field, info.dropped)


def test_text_that_is_no_utf8_becomes_text() -> None:
    raw = b"nccl:all_reduce\xff\xc3\x28\x00"
    value = b"X" + len(raw).to_bytes(4, "little") + raw
    content = (
        hostile.PROTO + b"}(" + hostile.text("entries") + b"](}(" + hostile.text("profiling_name") + value + b"ueu."
    )
    reader = DumpReader()
    _, batch = reader.read_bytes(content)
    (code,) = pl.DataFrame(batch)["op_name"]
    assert reader.texts()[code] == "all_reduce\ufffd\ufffd(\ufffd"
