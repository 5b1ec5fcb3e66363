"""From files to a trace: the same evidence makes the same trace, and one broken part never takes the rest down."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from mycroft.loaders import (
    LOADERS,
    EvidenceFile,
    LoadContext,
    LoadError,
    LoadReport,
    Progress,
    StoreError,
    load,
    open_store,
    schema,
)
from mycroft.loaders.context import SchemaMismatchError, TraceContext, conform
from mycroft.loaders.store import StoreWriter
from tests.loaders import dumps

NO_FILES = pl.DataFrame(schema=schema.polars_schema(schema.FILES))
CASE = dumps.SAMPLES / "sigkill"
# Where a row lies in its file and how files are numbered depends on their names.
_BY_NAME = {"file_id", "path", "source"}


def tables_of(path: Path, *, without: frozenset[str] = frozenset()) -> dict[str, pl.DataFrame]:
    with open_store(path) as store:
        return {
            table.name: store.frame(f"SELECT * FROM {table.name}")
            for table in schema.TABLES
            if table.name not in without
        }


def facts_of(path: Path) -> dict[str, list[str]]:
    """Return the rows of all tables without what depends on the names of files, in a fixed order."""
    facts: dict[str, list[str]] = {}
    for name, frame in tables_of(path, without=frozenset({"files", "file_blocks"})).items():
        dropped = _BY_NAME - ({"source"} if name != "jobs" else set())
        facts[name] = sorted(str(row) for row in frame.drop(dropped, strict=False).rows())
    return facts


def load_again(sources: Sequence[Path], tmp_path: Path) -> Path:
    out = tmp_path / f"t{len(list(tmp_path.glob('t*.duckdb')))}.duckdb"
    load(sources, out)
    return out


def test_the_same_evidence_makes_the_same_trace(tmp_path: Path) -> None:
    first, second = tables_of(load_again([CASE], tmp_path)), tables_of(load_again([CASE], tmp_path))
    for name, frame in first.items():
        assert frame.equals(second[name]), name


def test_the_order_of_sources_does_not_matter(tmp_path: Path) -> None:
    files = sorted(path for path in CASE.rglob("*") if path.is_file())
    wanted = facts_of(load_again(files, tmp_path))
    dice = random.Random(1)
    for _ in range(2):
        dice.shuffle(files)
        assert facts_of(load_again(files, tmp_path)) == wanted


def pack(folder: Path, kind: str, out: Path) -> Path:
    members = sorted((str(path.relative_to(folder)), path) for path in folder.rglob("*") if path.is_file())
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as archive:
            for name, path in members:
                archive.write(path, name)
        return out
    with tarfile.open(out, "w:gz" if kind == "tar.gz" else "w:xz" if kind == "tar.xz" else "w") as archive:
        for name, path in members:
            archive.add(path, name)
    return out


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz"])
def test_the_container_does_not_matter(kind: str, tmp_path: Path) -> None:
    archive = pack(CASE, kind, tmp_path / "evidence")
    packed, plain = load_again([archive], tmp_path), load_again([CASE], tmp_path)
    assert facts_of(packed) == facts_of(plain)


def test_compressed_dumps_are_the_same_dumps(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for path in (CASE / "fr").iterdir():
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    packed, plain = load_again([folder], tmp_path), load_again([CASE / "fr"], tmp_path)
    assert facts_of(packed) == facts_of(plain)


def test_an_archive_beside_the_folder_it_was_made_from_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    shutil.copytree(CASE, folder / "run")
    wanted = facts_of(load_again([folder], tmp_path))
    pack(folder, "tar.gz", folder / "run.tar.gz")
    doubled = load_again([folder], tmp_path)
    with open_store(doubled) as store:
        copies = store.frame("SELECT path, problems FROM files WHERE problems LIKE 'a copy of%'")
    assert copies.height == sum(1 for path in (folder / "run").rglob("*") if path.is_file()) - 1  # truth.json
    for name in ("coll_ops", "events", "communicators", "members", "ranks", "rank_dumps"):
        assert facts_of(doubled)[name] == wanted[name], name


def test_equal_logs_of_two_ranks_are_both_read(tmp_path: Path) -> None:
    for rank in (3, 4):
        path = tmp_path / "in" / f"rank_{rank}" / "stderr.log"
        path.parent.mkdir(parents=True)
        path.write_text("RuntimeError: CUDA out of memory\n")
    summary = load([tmp_path / "in"], tmp_path / "t.duckdb")
    assert summary.unread == []
    assert sum(summary.formats.values()) == 2


def test_renamed_files_make_the_same_operations(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for path in (CASE / "fr").iterdir():
        rank = int(path.name.rsplit("_", 1)[1])
        shutil.copy(path, folder / f"z{9 - rank}-of-job.rank{rank}.pkl")
    renamed, plain = facts_of(load_again([folder], tmp_path)), facts_of(load_again([CASE / "fr"], tmp_path))
    assert renamed == plain


def test_every_file_is_listed_with_its_loader_or_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.bin").write_bytes(bytes(range(256)) * 10)
    (folder / "empty").write_bytes(b"")
    (folder / "link").symlink_to("/etc/passwd")
    dumps.write(folder / "trace_0", dumps.dump([dumps.entry()]))
    summary = load([folder], tmp_path / "t.duckdb")
    with open_store(tmp_path / "t.duckdb") as store:
        rows = store.frame("SELECT file_id, path, loader, rows, problems, rank, size_bytes FROM files").rows()
    assert rows == [
        (0, "a.bin", None, 0, "no loader knows this format; see `mycroft formats`", None, 2560),
        (1, "empty", None, 0, "empty", None, 0),
        (2, "link", None, 0, "a link; links are not followed", None, None),
        (3, "trace_0", "flight_recorder", 2, None, 0, (folder / "trace_0").stat().st_size),
    ]
    assert [name for name, _ in summary.unread] == ["a.bin", "empty", "link"]
    assert summary.formats == {"flight_recorder": 1}
    assert summary.files == 4


def test_the_digest_is_of_the_contents_alone(tmp_path: Path) -> None:
    for name, content in (
        ("in1/a", b"x\n"),
        ("in1/b", b"y\n"),
        ("in2/c", b"y\n"),
        ("in2/d", b"x\n"),
        ("in3/a", b"x\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    digests = [load([tmp_path / f"in{i}"], tmp_path / f"t{i}.duckdb").digest for i in (1, 2, 3)]
    assert digests[0] == digests[1] != digests[2]
    with open_store(tmp_path / "t1.duckdb") as store:
        assert store.meta["digest"] == digests[0]


class BrokenLoader:
    name = "broken"
    title = "always fails"
    recognised_by = "a word"
    yields = "nothing"

    def sniff(self, file: EvidenceFile) -> bool:
        return file.head.startswith(b"break me")

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        raise ZeroDivisionError("as bad as\nit gets")


def test_a_loader_that_breaks_does_not_take_the_others_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["mycroft.loaders.load"], "LOADERS", (BrokenLoader(), *LOADERS))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad").write_bytes(b"break me\n")
    dumps.write(tmp_path / "in" / "trace_0", dumps.dump([dumps.entry()]))
    summary = load([tmp_path / "in"], tmp_path / "t.duckdb")
    assert summary.rows["coll_ops"] == 1
    assert summary.problems == [
        ("bad", "the reader of this format failed, please report it: ZeroDivisionError: as bad as it gets")
    ]


def test_progress_tells_the_stages_in_order(tmp_path: Path) -> None:
    seen: list[Progress] = []
    load([CASE / "fr"], tmp_path / "t.duckdb", progress=seen.append)
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["unpack", "sniff", "load flight_recorder", "sort/write"]
    sniffed = [progress for progress in seen if progress.stage == "sniff"]
    assert [progress.done for progress in sniffed] == list(range(1, 8))
    assert {progress.total for progress in sniffed} == {7}


def test_a_source_that_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        load([tmp_path / "nowhere"], tmp_path / "out" / "t.duckdb")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_load_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    def cancel(progress: Progress) -> None:
        if progress.stage == "sniff":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load([CASE], tmp_path / "out" / "t.duckdb", progress=cancel)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_existing_trace_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "t.duckdb"
    load([CASE / "fr"], out)
    before = out.read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        load([CASE / "fr"], out)
    assert out.read_bytes() == before


def test_nothing_but_the_trace_is_left_behind(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(CASE / "fr", "fr")
    (tmp_path / "a.tar").write_bytes(content.getvalue())
    load([tmp_path / "a.tar"], tmp_path / "out" / "t.duckdb")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["t.duckdb"]


def test_names_of_loaders_are_unique_and_described() -> None:
    assert len({loader.name for loader in LOADERS}) == len(LOADERS)
    for loader in LOADERS:
        assert loader.title and loader.recognised_by and loader.yields


# ---- the context --------------------------------------------------------------------------------


def filled(context: TraceContext) -> None:
    dice = random.Random(4)
    for part in range(20):
        comm = context.comm(f"{part % 5}", ranks=[0, 1], desc="tp")
        frame = pl.DataFrame(
            {
                "rank": [part % 2] * 50,
                "comm_id": [comm] * 50,
                "op_seq": [dice.randrange(1000) for _ in range(50)],
                "op_kind": ["all_reduce"] * 50,
                "record_id": range(part * 50, part * 50 + 50),
            }
        )
        context.emit("coll_ops", frame)
        context.emit(
            "events", pl.DataFrame({"kind": ["other"], "host_id": [context.host(f"n{part % 3}")], "line": [part]})
        )


def test_rows_that_do_not_fit_into_memory_make_the_same_trace(tmp_path: Path) -> None:
    for name, size in (("big", 1 << 30), ("small", 5000)):
        context = TraceContext(tmp_path / name, buffer_bytes=size)
        filled(context)
        writer = StoreWriter(tmp_path / f"{name}.duckdb")
        context.write(writer, files=NO_FILES, meta={"schema_version": str(schema.SCHEMA_VERSION)})
        writer.finish()
    assert len(list((tmp_path / "small").iterdir())) > 3
    big, small = tables_of(tmp_path / "big.duckdb"), tables_of(tmp_path / "small.duckdb")
    assert big["coll_ops"].height == 1000
    for name, frame in big.items():
        assert frame.equals(small[name]), name


def test_readings_of_devices_are_rows_of_their_host(tmp_path: Path) -> None:
    port = ("CA 'mlx5_3'", "\tCA type: MT4129", "\tNumber of ports: 1", "\tPort 1:", "\t\tState: Down", "\t\tRate: 40")
    (tmp_path / "ibstat.txt").write_text("\n".join(f"hx-a03: {line}" for line in port))
    summary = load([tmp_path / "ibstat.txt"], tmp_path / "t.duckdb")
    with open_store(tmp_path / "t.duckdb") as store:
        rows = store.frame(
            "SELECT h.name, e.device, e.kind, e.value, e.number FROM host_evidence e JOIN hosts h USING (host_id)"
        ).rows()
    assert ("hx-a03", "mlx5_3", "state", "Down", None) in rows
    assert ("hx-a03", "mlx5_3", "rate", "40", 40.0) in rows
    assert summary.rows["host_evidence"] == len(rows)


def test_hosts_are_numbered_by_name_and_rows_follow(tmp_path: Path) -> None:
    context = TraceContext(tmp_path / "spill")
    for name in ("n2", "n10", "n1"):
        context.emit("events", pl.DataFrame({"kind": ["other"], "host_id": [context.host(name)], "text": [name]}))
    writer = StoreWriter(tmp_path / "t.duckdb")
    context.write(writer, files=NO_FILES, meta={"schema_version": str(schema.SCHEMA_VERSION)})
    writer.finish()
    with open_store(tmp_path / "t.duckdb") as store:
        rows = store.frame("SELECT h.name, e.text FROM events AS e JOIN hosts AS h USING (host_id)").rows()
    assert len(rows) == 3
    assert all(name == text for name, text in rows)


def test_the_first_word_on_a_rank_wins_and_contradictions_are_kept(tmp_path: Path) -> None:
    context = TraceContext(tmp_path / "spill")
    context.rank(3, host="n1", pid=100, reason="log prefix", file_id=7, line=9)
    context.rank(3, host="n2", pid=100)
    context.rank(3, bus_id="0000:1b:00.0")
    writer = StoreWriter(tmp_path / "t.duckdb")
    context.write(writer, files=NO_FILES, meta={"schema_version": str(schema.SCHEMA_VERSION)})
    writer.finish()
    with open_store(tmp_path / "t.duckdb") as store:
        sql = "SELECT r.rank, h.name, r.pid FROM ranks AS r JOIN hosts AS h USING (host_id)"
        assert store.frame(sql).rows() == [(3, "n1", 100)]
        claims = "SELECT attribute, value, ambiguous, reason, file_id, line FROM identity ORDER BY attribute, value"
        assert store.frame(claims).rows() == [
            ("bus_id", "0000:1b:00.0", False, None, None, None),
            ("host", "n1", True, "log prefix", 7, 9),
            ("host", "n2", True, None, None, None),
            ("pid", "100", False, "log prefix", 7, 9),
        ]


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"rank": [1], "nothing": [2]}),
        pl.DataFrame({"rank": [-1]}),
        pl.DataFrame({"kind": ["no such kind"]}),
        pl.DataFrame({"text": [[1]]}),
    ],
    ids=["column", "range", "enum", "type"],
)
def test_rows_that_a_table_cannot_hold_are_a_mistake_of_the_loader(frame: pl.DataFrame) -> None:
    with pytest.raises(SchemaMismatchError):
        conform("events", frame)


def many_small(path: Path, count: int) -> Path:
    """Pack so many small files, of which half are text."""
    rng = random.Random(5)
    with tarfile.open(path, "w") as archive:
        for number in range(count):
            text = f"2026-03-03 02:17:05 worker {number} did something {rng.random()}\n" * 4
            content = rng.randbytes(200) if number % 2 else text.encode()
            info = tarfile.TarInfo(f"node{number % 97}/logs/file-{number}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_each_of_many_small_files_takes_little_memory(tmp_path: Path) -> None:
    peaks: list[int] = []
    for count in (200, 200, 800):
        tracemalloc.start()
        summary = load([many_small(tmp_path / f"{count}.tar", count)], tmp_path / f"t{len(peaks)}.duckdb")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert summary.files == count
        assert len(summary.unread) == count // 2
    # The first load fills caches of the process. A million files are allowed 4 GB.
    assert (peaks[2] - peaks[1]) / 600 < 4_000
