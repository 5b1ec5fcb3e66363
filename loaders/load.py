"""From a pile of files to one trace: unpack, recognise, route, load, sort and write."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import metadata
from itertools import repeat
from pathlib import Path
from typing import Final

import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.base import EvidenceFile, Loader, LoadReport
from mycroft.loaders.bundle import Bundle, Found, Limits, NamedFile, unpack
from mycroft.loaders.context import TraceContext
from mycroft.loaders.rank_names import pieces
from mycroft.loaders.registry import LOADERS
from mycroft.loaders.store import MOST_JOBS, StoreWriter
from mycroft.scratch import scratch_folder

HEAD_BYTES: Final = 64 << 10
# Heads of all files together that stay in memory after the files have been recognised.
HEADS_KEPT: Final = 128 << 20
_READ: Final = 1 << 20
_NOWHERE: Final = Path(os.devnull)
_MAX_PROBLEMS: Final = 20
_FILES_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load has come: `done` of `total` in a stage; `total` 0 where it is not known yet."""

    stage: str
    done: int
    total: int
    message: str


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What a load made of the evidence."""

    path: Path
    digest: str
    files: int
    formats: dict[str, int]
    unread: list[tuple[str, str]]
    problems: list[tuple[str, str]]
    dropped: dict[str, int]
    rows: dict[str, int]
    world_size: int | None
    seconds: float


@dataclass(slots=True)
class _File:
    """A file on its way: what is known of it, and what became of it."""

    evidence: EvidenceFile
    loader: Loader | None
    problems: list[str] = field(default_factory=lambda: list[str]())
    dropped: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    loader_name: str | None = None
    rows: int = 0
    rank: int | None = None


# Readings of devices, whatever printed them; `events` keeps the line that each comes from.
READINGS: Final = """
SELECT ts, host_id, device, coalesce(name, CAST(kind AS VARCHAR)) AS kind, detail AS value, value AS number
FROM events
WHERE kind IN ('gpu_state', 'nic_state', 'nic_counter', 'pcie_state') AND host_id IS NOT NULL
ORDER BY ts NULLS LAST, host_id, device, kind, file_id, line
"""


def _silent(progress: Progress) -> None:
    """Nobody listens."""


def load(
    sources: Sequence[str | Path | NamedFile],
    out: Path,
    *,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    progress: Callable[[Progress], None] | None = None,
    ranks_expected: int | None = None,
) -> LoadSummary:
    """Load evidence of any mix of formats into a new trace file.

    The content of the trace depends on the evidence alone, not on the order of files or the time of the run.

    Args:
        sources: files, folders or archives; `-` is standard input; a `NamedFile` is known by its name.
        out: trace file to make; it must not exist.
        limits: what unpacking may cost.
        progress: called often, from this thread.
        ranks_expected: ranks that the job should have, as the user says; it goes before what the evidence says.

    Raises:
        LoadError: if a source does not exist.
        StoreError: if `out` exists or cannot be written.
    """
    started = time.perf_counter()
    tell = progress or _silent
    out.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(f".{out.name}.", within=out.parent) as scratch:
        writer = StoreWriter(out)
        try:
            summary = _load_into(writer, sources, scratch, limits, tell, ranks_expected)
        except BaseException:
            writer.abandon()
            raise
    return replace(summary, seconds=time.perf_counter() - started)


def _load_into(
    writer: StoreWriter,
    sources: Sequence[str | Path | NamedFile],
    scratch: Path,
    limits: Limits,
    tell: Callable[[Progress], None],
    ranks_expected: int | None,
) -> LoadSummary:
    unpacked = scratch / "files"
    unpacked.mkdir()
    bundle = unpack(
        sources,
        unpacked,
        limits=limits,
        tick=lambda count, name: tell(Progress("unpack", count, 0, name)),
        wanted=_is_known,
    )
    files, refused = _recognised(bundle, tell)
    context = TraceContext(scratch / "rows")
    if ranks_expected is not None:
        context.job(world_size=ranks_expected, source="the user")
    _run_loaders(files, context, tell)
    found = context.jobs({file.evidence.file_id: file.evidence.name for file in files})
    jobs = found.jobs[:MOST_JOBS]
    if len(jobs) > 1:
        context = _reread(files, jobs[0], scratch / "rows-0", ranks_expected, tell)
    tell(Progress("sort/write", 0, 1, "writing the trace"))
    digest = _digest(files)
    meta = {
        "schema_version": str(schema.SCHEMA_VERSION),
        "engine": metadata.version("mycroft-trace"),
        "digest": digest,
        "files": str(len(files) + len(refused)),
        "jobs": str(len(jobs)),
        "parts": str(len(found.parts)),
    }
    owner = {file_id: number for number, members in reversed(list(enumerate(jobs))) for file_id in members}
    world = context.write(writer, files=_files_frame(files, refused, owner), meta=meta)
    writer.derive("host_evidence", READINGS)
    for number, members in enumerate([*jobs[1:], *found.parts], 1):
        context = _reread(files, members, scratch / f"rows-{number}", None, tell)
        writer.begin_job(number)
        mine = [file for file in files if file.evidence.file_id in set(members)]
        context.write(writer, files=_files_frame(mine, (), dict.fromkeys(members, number)), meta=meta)
        writer.derive("host_evidence", READINGS)
    writer.finish()
    tell(Progress("sort/write", 1, 1, "done"))
    dropped: Counter[str] = Counter()
    for file in files:
        dropped.update(file.dropped)
    return LoadSummary(
        path=writer.path,
        digest=digest,
        files=len(files) + len(refused),
        formats=dict(sorted(Counter(f.loader_name for f in files if f.loader_name).items())),
        unread=[(f.evidence.name, _why(f)) for f in files if not f.loader_name]
        + [(name, why) for _, name, why in refused],
        problems=[(f.evidence.name, problem) for f in files if f.loader_name for problem in f.problems],
        dropped=dict(sorted(dropped.items())),
        rows=writer.rows,
        world_size=world,
        seconds=0.0,
    )


def _digest(files: Sequence[_File]) -> str:
    """Return what the content of all files comes to, whatever they are called."""
    whole = hashlib.sha256()
    for number, content in enumerate(sorted(file.evidence.sha256 for file in files)):
        whole.update(f"{chr(10) * bool(number)}{content}".encode())
    return f"sha256:{whole.hexdigest()}"


def _reread(
    files: Sequence[_File],
    members: Sequence[int],
    spill: Path,
    ranks_expected: int | None,
    tell: Callable[[Progress], None],
) -> TraceContext:
    """Read the files of one job again, on their own: ranks and groups of another must not be mixed in."""
    wanted = set(members)
    context = TraceContext(spill)
    if ranks_expected is not None:
        context.job(world_size=ranks_expected, source="the user")
    mine = [file for file in files if file.evidence.file_id in wanted]
    _run_loaders(mine, context, tell)
    for file in mine:
        file.problems = list(dict.fromkeys(file.problems))
    return context


# ---- recognise ---------------------------------------------------------------------------


def _recognised(bundle: Bundle, tell: Callable[[Progress], None]) -> tuple[list[_File], list[tuple[int, str, str]]]:
    """Number all names in their sorted order, read every file once and find its loader."""
    everything: list[tuple[str, Found | None, str]] = [(f.name, f, "") for f in bundle.files]
    everything += [(r.name, None, r.why) for r in bundle.refused]
    everything.sort(key=lambda item: (item[0], item[2]))
    refused = [(i, name, why) for i, (name, found, why) in enumerate(everything) if found is None]
    found_files = [(i, found) for i, (_, found, _) in enumerate(everything) if found is not None]
    keep = min(HEAD_BYTES, HEADS_KEPT // max(len(found_files), 1))
    files: list[_File] = []
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 4)) as pool:
        # `map` would queue a million calls at once; blocks keep the memory small.
        for start in range(0, len(found_files), 4096):
            block = found_files[start : start + 4096]
            for file in pool.map(_recognise, *zip(*block, strict=True), repeat(keep)):
                files.append(file)
                tell(Progress("sniff", len(files), len(found_files), file.evidence.name))
    _mark_copies(files)
    return files, refused


def _is_known(name: str, content: bytes) -> bool:
    """Say whether any loader would read a small file."""
    file = EvidenceFile(0, name, _NOWHERE, len(content), "", content)
    return bool(content) and any(loader.sniff(file) for loader in LOADERS)


def _recognise(file_id: int, found: Found, keep: int) -> _File:
    """Hash one file and ask the loaders in order. A file that cannot be read is unread, with the reason."""
    if found.sha256 is not None:
        file = _File(EvidenceFile(file_id, found.name, found.path, found.size_bytes, found.sha256, b""), None)
        if found.problem or not found.size_bytes:
            file.problems.append(found.problem or "empty")
        return file
    digest = hashlib.sha256()
    head = b""
    problem = found.problem
    size = 0
    try:
        with found.path.open("rb") as content:
            while piece := content.read(_READ):
                head = head or piece[:HEAD_BYTES]
                size += len(piece)
                digest.update(piece)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        head = b""
    whole = EvidenceFile(file_id, found.name, found.path, size, digest.hexdigest(), head)
    loader = next((loader for loader in LOADERS if head and loader.sniff(whole)), None)
    file = _File(replace(whole, head=head[:keep]), loader)
    if problem:
        file.problems.append(problem)
    elif not head:
        file.problems.append("empty")
    return file


def _mark_copies(files: Sequence[_File]) -> None:
    """Read a file once that was handed over twice, such as an archive beside the folder it was made from.

    Equal content alone says nothing: two ranks may have written the same log. The path of one must end in that of the
    other.
    """
    same: dict[tuple[str, int], list[_File]] = {}
    for file in files:
        if file.loader is not None:
            same.setdefault((file.evidence.sha256, file.evidence.size_bytes), []).append(file)
    for group in same.values():
        if len(group) < 2:
            continue
        # The longest path knows most of where it comes from.
        group.sort(key=lambda f: (-len(pieces(f.evidence.name)), f.evidence.name))
        endings: dict[tuple[str, ...], _File] = {}
        for file in group:
            parts = tuple(pieces(file.evidence.name))
            original = endings.get(parts)
            if original is None:
                for start in range(len(parts)):
                    endings.setdefault(parts[start:], file)
            else:
                file.loader = None
                file.problems.append(f"a copy of {original.evidence.name}, which is read")


# ---- load ---------------------------------------------------------------------------------


def _run_loaders(files: Sequence[_File], context: TraceContext, tell: Callable[[Progress], None]) -> None:
    by_loader: dict[str, list[_File]] = {}
    by_id = {file.evidence.file_id: file for file in files}
    for file in files:
        if file.loader is not None:
            by_loader.setdefault(file.loader.name, []).append(file)
    for loader in LOADERS:
        mine = by_loader.get(loader.name, [])
        if not mine:
            continue
        stage = f"load {loader.name}"
        tell(Progress(stage, 0, len(mine), loader.title))
        for report in _reports(loader, mine, context):
            file = by_id[report.file_id]
            file.loader_name = report.loader or None
            file.rows = report.rows
            file.rank = report.rank
            if report.dropped:
                file.dropped = dict(report.dropped)
            file.problems += report.problems
        tell(Progress(stage, len(mine), len(mine), loader.title))


def _reports(loader: Loader, files: Sequence[_File], context: TraceContext) -> list[LoadReport]:
    """Run one loader. One that breaks has its files listed with the reason, and the others go on."""
    try:
        return loader.load([file.evidence for file in files], context)
    except Exception as error:  # whatever it is, the rest of the evidence still counts
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.evidence.file_id, loader.name)
            report.problems.append(f"the reader of this format failed, please report it: {text}")
            reports.append(report)
        return reports


# ---- the table of files -------------------------------------------------------------------


def _why(file: _File) -> str:
    return "; ".join(file.problems) or "no loader knows this format; see `mycroft formats`"


def _files_frame(
    files: Sequence[_File], refused: Sequence[tuple[int, str, str]], jobs: Mapping[int, int]
) -> pl.DataFrame:
    columns = ("file_id", "loader", "path", "size_bytes", "sha256", "rows", "dropped", "problems", "rank")
    wanted = schema.polars_schema(schema.FILES)
    layout = {name: wanted[name] for name in columns}
    # Tuples of a million files at once would take more memory than all that is known of them.
    pieces_of = [pl.DataFrame(schema=layout)]
    for start in range(0, len(files), _FILES_AT_ONCE):
        rows = [_row(file) for file in files[start : start + _FILES_AT_ONCE]]
        pieces_of.append(pl.DataFrame(rows, schema=layout, orient="row"))
    for start in range(0, len(refused), _FILES_AT_ONCE):
        left_out = [
            (file_id, None, name, None, None, 0, 0, why, None)
            for file_id, name, why in refused[start : start + _FILES_AT_ONCE]
        ]
        pieces_of.append(pl.DataFrame(left_out, schema=layout, orient="row"))
    frame = pl.concat(pieces_of)
    owner = [jobs.get(file_id, 0) for file_id in frame["file_id"]]
    return frame.with_columns(pl.Series("job_id", owner, dtype=pl.UInt32))


def _row(file: _File) -> tuple[object, ...]:
    return (
        file.evidence.file_id,
        file.loader_name,
        file.evidence.name,
        file.evidence.size_bytes,
        file.evidence.sha256,
        file.rows,
        sum(file.dropped.values()),
        _problems(file),
        file.rank,
    )


def _problems(file: _File) -> str | None:
    """Return what was wrong with a file, one per line; None where nothing was."""
    lines = list(file.problems)
    lines += [f"{count} dropped: {reason}" for reason, count in sorted(file.dropped.items())]
    if not file.loader_name and not lines:
        lines = [_why(file)]
    if len(lines) > _MAX_PROBLEMS:
        lines = [*lines[:_MAX_PROBLEMS], f"and {len(lines) - _MAX_PROBLEMS} more"]
    return "\n".join(lines) or None
