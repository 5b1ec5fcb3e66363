"""Reading trace files: whole, damaged, of other versions, while they are being written."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mycroft.loaders import schema
from mycroft.tracer import Recorder, TraceError, TraceFile, _core, names, open_trace
from tests.tracer.comparison import rows

HEADER, ENTRY, ENTRIES, RECORD = 4096, 256, 1024, 64
RING = HEADER + ENTRY * ENTRIES
OFFSETS = {(s, f): offset for s, f, offset, _ in _core.layout()}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A trace of ten finished operations, closed."""
    with Recorder(directory=tmp_path, ring_mb=1, rank=0, sampler=False) as r:
        comm = r.comm("dp", rank=0, size=2)
        for _ in range(10):
            with r.op(comm, "all_reduce"):
                pass
        return r.path


def patched(path: Path, at: int, data: bytes) -> Path:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    return path


def header_word(field: str) -> int:
    return OFFSETS["FileHeader", field]


def test_unknown_version_is_refused_by_name(ring: Path) -> None:
    patched(ring, header_word("version"), struct.pack("<I", 7))
    patched(ring, header_word("writer"), b"mycroft 9.1.0\0")
    with pytest.raises(TraceError, match=r"\.ring: layout version 7, this build reads 1; install .*mycroft 9\.1\.0"):
        open_trace(ring)


@pytest.mark.parametrize(
    ("field", "data", "message"),
    [
        ("magic", b"MYCROFTX", "no trace of ours"),
        ("header_bytes", struct.pack("<I", 1), "sizes are not those of layout version 1"),
        ("record_bytes", struct.pack("<I", 72), "sizes are not those of layout version 1"),
        ("entry_bytes", struct.pack("<I", 0), "sizes are not those of layout version 1"),
        ("directory_entries", struct.pack("<I", 1 << 31), "sizes are not those of layout version 1"),
        ("directory_offset", struct.pack("<Q", 1 << 60), "offset or length of the ring is impossible"),
        ("ring_offset", struct.pack("<Q", (1 << 64) - 1), "offset or length of the ring is impossible"),
        ("ring_records", struct.pack("<Q", 0), "offset or length of the ring is impossible"),
        ("ring_records", struct.pack("<Q", (1 << 64) - 1), "offset or length of the ring is impossible"),
    ],
)
def test_damaged_header_is_refused_with_the_reason(ring: Path, field: str, data: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        open_trace(patched(ring, header_word(field), data))


@pytest.mark.parametrize("size", [0, 7, 100, 255])
def test_file_that_ends_in_its_header_is_refused(ring: Path, size: int) -> None:
    with ring.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(TraceError, match="ends after"):
        open_trace(ring)


def test_missing_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened: No such file"):
        open_trace(tmp_path / "none.ring")


def test_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not a regular file"):
        open_trace(tmp_path)


def test_cut_file_keeps_what_is_there_and_counts_the_rest(ring: Path) -> None:
    whole = open_trace(ring).tables["op"].num_rows
    with ring.open("r+b") as file:
        file.truncate(RING + 4 * RECORD + 10)
    trace = open_trace(ring)
    assert whole == 10
    assert trace.tables["op"].num_rows == 4
    assert trace.losses == {"missing": 7}  # six operations and the heartbeat of the end


def test_torn_record_is_counted_and_the_others_kept(ring: Path) -> None:
    (number,) = struct.unpack("<Q", ring.read_bytes()[RING + 3 * RECORD : RING + 3 * RECORD + 8])
    busy = (number & ((1 << 40) - 1)) | 0xFF << 40
    trace = open_trace(patched(ring, RING + 3 * RECORD, struct.pack("<Q", busy)))
    assert trace.losses == {"torn": 1}
    assert [o["op_seq"] for o in rows(trace.tables["op"])] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_reserved_and_never_begun_is_counted(ring: Path) -> None:
    trace = open_trace(patched(ring, RING + 3 * RECORD, bytes(8)))
    assert trace.losses == {"unwritten": 1}


def test_record_of_a_later_lap_is_counted_as_overwritten(ring: Path) -> None:
    later = struct.pack("<Q", (4 + 100_000) | 3 << 40)
    assert open_trace(patched(ring, RING + 3 * RECORD, later)).losses == {"overwritten": 1}


def test_record_of_an_unknown_type_is_counted(ring: Path) -> None:
    strange = struct.pack("<Q", 4 | 77 << 40)
    assert open_trace(patched(ring, RING + 3 * RECORD, strange)).losses == {"unknown": 1}


def test_impossible_head_reads_the_whole_ring_and_no_more(ring: Path) -> None:
    patched(ring, header_word("head"), struct.pack("<Q", (1 << 63) + 5))
    trace = open_trace(ring)
    assert all(table.num_rows == 0 for table in trace.tables.values())
    assert trace.losses["overwritten"] > 1 << 62


def test_ring_that_went_round_keeps_the_newest_and_counts_the_rest(tmp_path: Path) -> None:
    with Recorder(directory=tmp_path, ring_mb=1, rank=0, sampler=False) as r:
        comm = r.comm("dp", rank=0, size=2)
        slots = TraceFile(r.path).header["ring_records"]
        for _ in range(slots + 500):
            with r.op(comm, "all_reduce"):
                pass
        trace = open_trace(r.path)
    numbers = [o["op_seq"] for o in rows(trace.tables["op"])]
    assert numbers == list(range(500, slots + 500))
    assert trace.losses == {"overwritten": 500}


def test_following_gives_every_record_once_and_ends_with_the_trace(tmp_path: Path) -> None:
    seen: list[int] = []
    with Recorder(directory=tmp_path, ring_mb=1, rank=0, sampler=False) as r:
        comm = r.comm("dp", rank=0, size=2)
        turns = TraceFile(r.path).follow()
        for number in range(5):
            for _ in range(number):
                with r.op(comm, "all_reduce"):
                    pass
            seen += [o["op_seq"] for o in rows(next(turns).tables["op"])]
        assert seen == list(range(10))
    for turn in turns:
        seen += [o["op_seq"] for o in rows(turn.tables["op"])]
    assert seen == list(range(10))


def test_following_waits_for_a_record_that_is_being_written(tmp_path: Path) -> None:
    with Recorder(directory=tmp_path, ring_mb=1, rank=0, sampler=False) as r:
        comm = r.comm("dp", rank=0, size=2)
        for _ in range(3):
            with r.op(comm, "all_reduce"):
                pass
        (second,) = struct.unpack("<Q", r.path.read_bytes()[RING + RECORD : RING + RECORD + 8])
        patched(r.path, RING + RECORD, struct.pack("<Q", 2 | 0xFF << 40))
        turns = TraceFile(r.path).follow()
        assert next(turns).tables["op"].num_rows == 1
        patched(r.path, RING + RECORD, struct.pack("<Q", second))
        assert next(turns).tables["op"].num_rows == 2


def test_batches_come_without_a_copy_and_outlive_their_reader(ring: Path) -> None:
    batch = TraceFile(ring).batches()["op"]
    assert batch.num_rows == 10
    assert batch.column("op_seq").to_pylist() == list(range(10))
    assert batch.column("peer").null_count == 10


def test_undecodable_text_is_replaced(ring: Path) -> None:
    at = HEADER + OFFSETS["ProcessEntry", "host"]
    trace = open_trace(patched(ring, at, b"\xff\xfehost\0"))
    assert trace.process.host == "\ufffd\ufffdhost"


def test_codes_and_names_agree_with_the_schema_of_the_store() -> None:
    assert names.OP_KINDS == schema.OP_KINDS
    assert set(names.DIRS) == set(schema.DIRS)
    for core, listed in ((_core.DTYPES, names.DTYPES), (_core.PROTOS, names.PROTOS)):
        assert [listed[code].lower().replace("_", "") for code in core.values()] == [
            name.removeprefix("nccl").lower() for name in core
        ]
    assert [names.ALGOS[code] for code in _core.ALGOS.values()] == list(_core.ALGOS)
    nccl = {name: names.OP_KINDS[code] for name, code in _core.KINDS.items()}
    assert (nccl["AllReduce"], nccl["ReduceScatter"], nccl["AlltoAll"]) == (
        "all_reduce",
        "reduce_scatter",
        "all_to_all",
    )


def test_columns_of_the_store_can_hold_what_the_records_hold() -> None:
    columns = {name: {c for c, _, _ in found} for name, found in _core.batch_columns().items()}
    flow = {c.name for c in schema.FLOW_STATE.columns} - {"rank", "comm_id", "qp", "dir"}
    assert flow <= columns["state"]
    sums = {c.name for c in schema.FLOW_OPS.columns} - {"rank", "comm_id", "dir"}
    assert sums <= columns["flow"]


def test_every_byte_of_every_structure_has_a_field() -> None:
    sizes: dict[str, int] = {}
    for structure, name, offset, size in _core.layout():
        assert offset == sizes.get(structure, 0) or structure == "FileHeader", f"{structure}.{name}"
        sizes[structure] = offset + size
    expected = {name: 64 for name in sizes if name.endswith("Record")}
    assert sizes == expected | {"ProcessEntry": 256, "CommunicatorEntry": 256, "FileHeader": sizes["FileHeader"]}


def test_page_of_the_layout_lists_every_field_where_it_is() -> None:
    page = (ROOT / "docs/record-format.md").read_text()
    missing = [
        f"{structure}.{name}"
        for structure, name, offset, size in _core.layout()
        if not name.startswith("reserved") and f"| {offset} | {size} | `{name}` |" not in page
    ]
    assert missing == []
