"""PyTorch Flight Recorder dumps of every layout (torch 2.2 to 2.14), pickle and JSON, of any backend.

The C++ reader turns the files into columns and executes nothing. Here the dumps are put together: which rank each is
of, which of two dumps of one rank counts, which group an operation belongs to, who its partner is.

What a dump cannot say: its rank (the file name does), its host, when it was taken. `pg_id` is a counter of the process
and differs between ranks; `record_id` is not comparable across ranks. gloo lists no group members and does not record
send/recv. The bare list of torch 2.2 names no groups at all: only a topology file can tell them apart across ranks.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
import polars as pl

from mycroft.loaders import schema
from mycroft.loaders._core import DumpInfo, DumpReader
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.groups import natural
from mycroft.loaders.rank_names import candidates, ranks_of

# Above this size no dump is read: 2,000 entries have less than 1 MB.
MAX_DUMP_BYTES: Final = 512 << 20
# Bytes of dumps that are in memory as columns at the same time.
CHUNK_BYTES: Final = 768 << 20
# Two dumps of one rank whose newest operations differ by more are of different moments.
SAME_MOMENT_NS: Final = 5_000_000_000

_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
# A pickle of protocol 0 or 1 that names something to call starts like this; it is claimed in order to be refused.
_PICKLED_GLOBAL: Final = re.compile(rb"[(\]}]*c[A-Za-z_][\w.]*\n[A-Za-z_][\w.]*\n")
_JSON_KEYS: Final = (b'"pg_config"', b'"profiling_name"', b'"comm_lib_version"', b'"nccl_comm_state"')
# A profiler's trace lists the groups too.
_PROFILER_KEYS: Final = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"traceEvents"')
_RANK_LIST: Final = re.compile(r"\s*\[\s*(?:\d{1,10}\s*(?:,\s*\d{1,10}\s*)*)?\]\s*")
# Recorders with device events; gloo and the hooks of later backends have none.
_WITH_EVENTS: Final = frozenset({"nccl", "ncclx", "rccl", "xccl", "hccl", "mccl"})
_WITHOUT_EVENTS: Final = frozenset({"gloo", "nccl2", "mpi", "ucc"})
_KINDS: Final = pl.Series(schema.OP_KINDS, dtype=pl.Enum(schema.OP_KINDS))
_STATES: Final = pl.Series(schema.OP_STATES, dtype=pl.Enum(schema.OP_STATES))


class DumpContext(LoadContext, Protocol):
    """What this loader needs besides `LoadContext`: what earlier loaders (topology) have said of the groups."""

    def seen(self, comm_id: int, rank: int) -> None:
        """Note that a rank left a trace of a communicator."""
        ...

    def listed_groups(self, source: str) -> list[tuple[str, str | None, tuple[int, ...]]]:
        """Return name, description and members of the groups that a source has listed."""
        ...


def parse_ranks(text: str) -> tuple[int, ...] | None:
    """Return the ranks of a text such as "[0, 1]"; None for anything else. Nothing is evaluated."""
    if not _RANK_LIST.fullmatch(text):
        return None
    ranks = tuple(int(number) for number in re.findall(r"\d+", text))
    return ranks if len(set(ranks)) == len(ranks) and all(rank < 2**32 - 1 for rank in ranks) else None


@dataclass(slots=True)
class _Dump:
    """One file that was read."""

    file: EvidenceFile
    info: DumpInfo
    report: LoadReport
    is_json: bool
    position: int
    rank: int | None = None
    kept: bool = False
    comms: list[int] = field(default_factory=lambda: list[int]())
    members: list[tuple[int, ...] | None] = field(default_factory=lambda: list[tuple[int, ...] | None]())
    by_id: dict[int, int] = field(default_factory=lambda: dict[int, int]())  # communicators that have only a pg_id


class FlightRecorderLoader:
    """Reads Flight Recorder dumps; the only loader that ever touches a pickle."""

    name = "flight_recorder"
    title = "PyTorch Flight Recorder dumps (pickle or JSON, torch 2.2 to 2.14)"
    recognised_by = "a pickle of protocol 2 to 5, or JSON with entries, pg_config or comm_lib_version"
    yields = "coll_ops, group_status, rank_dumps, communicators with their members, stacks of the callers"

    def sniff(self, file: EvidenceFile) -> bool:
        """Every pickle is claimed, so that a foreign one is refused with its reason; JSON by its keys."""
        head = file.head
        if _PICKLE.match(head) or _PICKLED_GLOBAL.match(head):
            return True
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if start not in (b"{", b"[") or any(key in head for key in _PROFILER_KEYS):
            return False
        return any(key in head for key in _JSON_KEYS)

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all dumps, decide which rank each is of, and hand over one dump per rank."""
        return _Load(context).run(files)  # pyright: ignore[reportArgumentType]


class _Load:
    def __init__(self, context: DumpContext) -> None:
        self._context = context
        self._reader = DumpReader()
        self._texts: list[str] = []
        self._ranks_of_text: dict[int, tuple[int, ...] | None] = {}
        self._stack_ids: list[int] = []
        self._done: dict[int, str] = {}  # rank: name of the file that it was taken from
        self._named_comms: dict[tuple[object, ...], int] = {}
        self._members: dict[tuple[object, ...], tuple[int, ...] | None] = {}
        self._topology = context.listed_groups("topology")

    def run(self, files: Sequence[EvidenceFile]) -> list[LoadReport]:
        ordered = sorted(files, key=lambda file: natural(file.name))
        ranks = dict(zip((f.file_id for f in ordered), ranks_of([f.name for f in ordered]), strict=True))
        # All dumps of one rank come into the same chunk.
        ordered.sort(key=lambda file: -1 if (rank := ranks[file.file_id]) is None else rank)
        reports: list[LoadReport] = []
        for chunk in _chunks(ordered, ranks):
            reports += self._chunk(chunk, ranks)
        return reports

    def _chunk(self, files: Sequence[EvidenceFile], ranks: dict[int, int | None]) -> list[LoadReport]:
        infos, batch = self._reader.read(
            [os.fspath(file.path) for file in files], threads=min(os.cpu_count() or 1, 8), max_bytes=MAX_DUMP_BYTES
        )
        self._texts += self._reader.texts(len(self._texts))
        self._stack_ids += [
            self._context.stack([self._texts[code] for code in stack])
            for stack in self._reader.stacks(len(self._stack_ids))
        ]
        dumps = [
            _Dump(file, info, _report(file, info), not _PICKLE.match(file.head), i)
            for i, (file, info) in enumerate(zip(files, infos, strict=True))
        ]
        for dump in dumps:
            dump.rank = self._rank(dump, ranks[dump.file.file_id])
            dump.report.rank = dump.rank
        self._choose(dumps)
        kept = [dump for dump in dumps if dump.kept]
        for dump in kept:
            self._name_groups(dump)
        if kept:
            self._emit_dumps(kept)
            self._emit_status(kept)
            self._emit_ops(dumps, pl.DataFrame(batch))
        return [dump.report for dump in dumps]

    # ---- which rank, which dump -------------------------------------------------------

    def _rank(self, dump: _Dump, named: int | None) -> int | None:
        """Return the rank of a dump: by its name, checked against the groups it says it is in."""
        if dump.info.error:
            return named
        allowed: set[int] | None = None
        for _, _, _, ranks_code in dump.info.config:
            members = self._rank_list(ranks_code)
            if members:
                allowed = set(members) if allowed is None else allowed.intersection(members)
        if named is None or (allowed and named not in allowed):
            return self._rank_by_groups(dump, named, allowed or set())
        return named

    def _rank_by_groups(self, dump: _Dump, named: int | None, allowed: set[int]) -> int | None:
        """Return the rank of a dump whose name gives none, or one that is in none of its groups."""
        others = [rank for rank in candidates(dump.file.name) if rank in allowed]
        if others:
            return others[0]
        if len(allowed) == 1:
            (only,) = allowed
            if named is not None:
                dump.report.problems.append(f"its name says rank {named}, its groups say rank {only}: taken as {only}")
            return only
        if named is None:
            dump.report.problems.append(
                "its name holds no rank, and a dump does not say its rank itself; name it like nccl_trace_rank_7"
            )
        else:
            dump.report.problems.append(f"its name says rank {named}, which is in none of the groups it lists")
        return named

    def _choose(self, dumps: Sequence[_Dump]) -> None:
        """Keep one dump of each rank: the later one, and of the same moment the richer one (a pickle has stacks)."""
        of_rank: dict[int, list[_Dump]] = {}
        for dump in dumps:
            if dump.rank is not None and not dump.info.error:
                of_rank.setdefault(dump.rank, []).append(dump)
        for rank, found in sorted(of_rank.items()):
            if rank in self._done:
                _not_twice(found, rank, self._done[rank], "")
                continue
            # A process may have two recorders, one for each backend. What is missing from one that sees no ends cannot
            # be told from what has ended, so that the one with events says more.
            seeing = [dump for dump in found if has_events(dump.info)] or found
            latest = max(dump.info.last_ts or 0 for dump in seeing)
            fresh = [dump for dump in seeing if latest - (dump.info.last_ts or 0) <= SAME_MOMENT_NS]
            best = max(fresh, key=_richness)
            best.kept = True
            name = self._done[rank] = best.file.name
            _not_twice([d for d in fresh if d is not best], rank, name, ", which says more of the same moment")
            _not_twice([d for d in seeing if d not in fresh], rank, name, ", which is later")
            _not_twice([d for d in found if d not in seeing], rank, name, ", whose recorder sees starts and ends")

    def _rank_list(self, code: int | None) -> tuple[int, ...] | None:
        if code is None:
            return None
        if code not in self._ranks_of_text:
            self._ranks_of_text[code] = parse_ranks(self._texts[code])
        return self._ranks_of_text[code]

    # ---- groups -----------------------------------------------------------------------

    def _name_groups(self, dump: _Dump) -> None:
        """Find the communicator of each group that the operations of a dump are in."""
        info = dump.info
        rank = dump.rank
        assert rank is not None
        listed: dict[tuple[object, object], tuple[int, tuple[int, ...]]] = {}
        same_members: dict[tuple[int, ...], int] = {}
        for pg_id, name, desc, ranks_code in sorted(info.config, key=lambda c: (c[0] is None, c[0] or 0)):
            members = self._rank_list(ranks_code)
            if members is None and ranks_code is not None:
                dump.report.drop("pg_config ranks that are no list of numbers")
            if not members:
                continue
            if name is None:  # layout 1.4: known by the counter of the process only
                nth = same_members.get(members, 0)
                same_members[members] = nth + 1
                comm = self._comm("" if nth == 0 else f"~{nth}", members, None, info.backend)
                listed["id", pg_id] = (comm, members)
                if pg_id is not None:
                    dump.by_id[pg_id] = comm
            else:
                comm = self._comm(self._texts[name], members, self._text(desc), info.backend)
                listed[name, desc] = (comm, members)
                listed.setdefault((name, None), (comm, members))
            self._context.seen(comm, rank)
        mine = [group for group in self._topology if rank in group[2]]
        for pg_id, name, desc in info.groups:
            found = listed.get((name, desc)) or listed.get(("id", pg_id))
            if found is None and name is not None and desc is None:
                found = listed.get((name, None))
            if found is None:
                found = self._unlisted(dump, pg_id, name, desc, mine)
            self._context.seen(found[0], rank)
            dump.comms.append(found[0])
            dump.members.append(found[1] or None)

    def _text(self, code: int | None) -> str | None:
        return None if code is None else self._texts[code]

    def _comm(self, name: str, members: tuple[int, ...], desc: str | None, backend: str) -> int:
        key = (name, id(members), desc, backend)  # texts are parsed once, so equal lists are one object
        if key not in self._named_comms:
            self._named_comms[key] = self._context.comm(
                name, ranks=members, desc=desc, backend=backend or None, source="dump"
            )
        return self._named_comms[key]

    def _unlisted(
        self,
        dump: _Dump,
        pg_id: int | None,
        name: int | None,
        desc: int | None,
        mine: Sequence[tuple[str, str | None, tuple[int, ...]]],
    ) -> tuple[int, tuple[int, ...]]:
        """Name a group that the dump does not list: as its entries do, or by its place among the rank's groups."""
        rank, backend = dump.rank, dump.info.backend or None
        assert rank is not None
        if name is not None:
            text, described = self._texts[name], self._text(desc)
            comm = self._context.comm(text, desc=described, backend=backend, source="entries", of_rank=rank)
            key = (text, described, rank)
            if key not in self._members:
                self._members[key] = self._context.members(text, desc=described, of_rank=rank)
            return comm, self._members[key] or ()
        # Groups are created in the same order everywhere, and a process counts those that it is in.
        if pg_id is not None and 0 <= pg_id < len(mine):
            text, described, members = mine[pg_id]
            return self._context.comm(text, ranks=members, desc=described, backend=backend, source="topology"), members
        if pg_id == 0:
            return self._context.comm("0", backend=backend, source="entries", of_rank=rank), ()
        problem = "names its groups by a counter of its own; without a topology file only the first can be matched"
        if problem not in dump.report.problems:
            dump.report.problems.append(problem)
        own = f"group {pg_id} of rank {rank}"
        return self._context.comm(own, backend=backend, source="entries", of_rank=rank), ()

    # ---- rows -------------------------------------------------------------------------

    def _emit_dumps(self, dumps: Sequence[_Dump]) -> None:
        rows: list[dict[str, object]] = []
        for dump in dumps:
            assert dump.rank is not None
            self._context.rank(dump.rank)
            info = dump.info
            rows.append(
                {
                    "rank": dump.rank,
                    "file_id": dump.file.file_id,
                    "kind": "flight_recorder",
                    "version": info.version or None,
                    "backend": info.backend or None,
                    "lib_version": info.lib_version or None,
                    "entries": info.entries,
                    "first_record": info.first_record,
                    "last_record": info.last_record,
                    "first_ts": info.first_ts,
                    "last_ts": info.last_ts,
                    "has_events": has_events(info),
                    "has_timing": has_timing(info),
                    "only_active": only_active(info),
                }
            )
            dump.report.rows += 1
        wanted = schema.polars_schema(schema.RANK_DUMPS)
        wanted["first_ts"] = wanted["last_ts"] = pl.Int64()
        self._context.emit("rank_dumps", pl.DataFrame(rows, schema=wanted))

    def _emit_status(self, dumps: Sequence[_Dump]) -> None:
        rows: list[tuple[object, ...]] = []
        for dump in dumps:
            comm_of = self._status_comms(dump)
            for pg_id, enqueued, started, completed in dump.info.status:
                comm = comm_of.get(pg_id)
                if comm is None:
                    dump.report.drop("pg_status of a group that the dump does not name")
                    continue
                rows.append((dump.rank, comm, enqueued, started, completed, dump.file.file_id))
                dump.report.rows += 1
        columns = ("rank", "comm_id", "last_enqueued", "last_started", "last_completed", "file_id")
        wanted = schema.polars_schema(schema.GROUP_STATUS)
        self._context.emit(
            "group_status", pl.DataFrame(rows, schema={name: wanted[name] for name in columns}, orient="row")
        )

    def _status_comms(self, dump: _Dump) -> dict[int, int]:
        """Return the communicator of each `pg_id` of pg_status.

        Entries name their groups by both, `pg_id` and name. In between, ids and names both rise in the order of
        creation: where as many names as ids lie between two known pairs, they belong together in that order.
        """
        info, rank = dump.info, dump.rank
        known = dict(dump.by_id)
        anchors: dict[int, int] = {}  # pg_id: number that is its name
        for (pg_id, name, _), comm in zip(info.groups, dump.comms, strict=True):
            if pg_id is not None:
                known[pg_id] = comm
                if name is not None and (number := _counter(self._texts[name])) is not None:
                    anchors[pg_id] = number
        named: dict[int, int] = {}
        for _, name, desc, ranks_code in info.config:
            members = self._rank_list(ranks_code)
            if members and name is not None and (number := _counter(self._texts[name])) is not None:
                named[number] = self._comm(self._texts[name], members, self._text(desc), info.backend)
        ids = sorted({status[0] for status in info.status} - set(known))
        numbers = sorted(set(named) - set(anchors.values()))
        for some_ids, some_numbers in _between(sorted(anchors.items()), ids, numbers):
            if len(some_ids) == len(some_numbers):
                known.update(zip(some_ids, (named[n] for n in some_numbers), strict=True))
        if not info.groups and not info.config and rank is not None:
            mine = [group for group in self._topology if rank in group[2]]
            for pg_id in ids:
                if 0 <= pg_id < len(mine):
                    name, desc, members = mine[pg_id]
                    known[pg_id] = self._context.comm(name, ranks=members, desc=desc, source="topology")
        return known

    def _emit_ops(self, dumps: Sequence[_Dump], ops: pl.DataFrame) -> None:
        """Turn the reader's columns into rows of coll_ops."""
        kept = np.array([dump.kept for dump in dumps])
        if not kept.all():
            ops = ops.filter(pl.Series(kept).gather(ops["file"]))
        if ops.is_empty():
            return
        file = ops["file"]
        start, comms, members = _flattened(dumps)
        flat = pl.Series(start, dtype=pl.UInt32).gather(file) + ops["group"]
        texts = pl.Series(self._texts, dtype=pl.String)

        def text(column: str) -> pl.Series:
            return texts.gather(ops[column])

        def time(column: str) -> pl.Series:
            return ops[column].cast(pl.Datetime("ns"))

        counts = np.bincount(file.to_numpy(), minlength=len(dumps))
        for dump, count in zip(dumps, counts, strict=True):
            dump.report.rows += int(count)
        ranks = pl.Series([dump.rank if dump.kept else None for dump in dumps], dtype=pl.UInt32)
        frame = pl.DataFrame(
            {
                "rank": ranks.gather(file),
                "comm_id": pl.Series(comms, dtype=pl.UInt32).gather(flat),
                "op_seq": ops["op_seq"].cast(pl.UInt64),
                "op_kind": _KINDS.gather(ops["op_kind"]),
                "op_name": text("op_name"),
                "start_ts": time("enq_ts"),
                "enq_ts": time("enq_ts"),
                "seen_start_ts": time("seen_start_ts"),
                "seen_end_ts": time("seen_end_ts"),
                "dur_ns": ops["dur_ns"],
                "state": _STATES.gather(ops["state"]),
                "retired": ops["retired"].cast(pl.Boolean),
                "is_p2p": ops["is_p2p"].cast(pl.Boolean),
                "peer": _peers(ops, flat, members),
                "pair_seq": ops["pair_seq"].cast(pl.UInt64),
                "coalesced": ops["coalesced"].cast(pl.Boolean),
                "bytes": ops["bytes"].cast(pl.UInt64),
                "in_numel": ops["in_numel"].cast(pl.UInt64),
                "out_numel": ops["out_numel"].cast(pl.UInt64),
                "in_sizes": text("in_sizes"),
                "out_sizes": text("out_sizes"),
                "dtype": text("dtype"),
                "out_dtype": text("out_dtype"),
                "timeout_ms": ops["timeout_ms"].cast(pl.UInt64),
                "stack_id": pl.Series(self._stack_ids, dtype=pl.UInt64).gather(ops["stack"]),
                "record_id": ops["record_id"].cast(pl.UInt64),
                "op_id": ops["op_id"].cast(pl.UInt64),
                "file_id": pl.Series([dump.file.file_id for dump in dumps], dtype=pl.UInt32).gather(file),
                "line": ops["line"],
            }
        )
        self._context.emit("coll_ops", frame)


def _counter(text: str) -> int | None:
    """Return the number that a group is called, None where its name is a hash or a word."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def _between(
    anchors: Sequence[tuple[int, int]], ids: Sequence[int], numbers: Sequence[int]
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Return the ids and numbers that lie between neighbouring anchors; nothing where the anchors do not both rise."""
    if any(low >= high for (_, low), (_, high) in pairwise(anchors)):
        return
    bounds = [(-1, -1), *anchors, (2**63, 2**63)]
    for (id_low, number_low), (id_high, number_high) in pairwise(bounds):
        some_ids = ids[bisect_right(ids, id_low) : bisect_left(ids, id_high)]
        yield some_ids, numbers[bisect_right(numbers, number_low) : bisect_left(numbers, number_high)]


def _chunks(files: Sequence[EvidenceFile], ranks: dict[int, int | None]) -> Iterator[list[EvidenceFile]]:
    """Split files that are in order of rank into chunks of bounded size; the files of one rank stay together."""
    chunk: list[EvidenceFile] = []
    size = 0
    for file in files:
        another = bool(chunk) and ranks[file.file_id] != ranks[chunk[-1].file_id]
        if another and size + file.size_bytes > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += file.size_bytes
    if chunk:
        yield chunk


def _report(file: EvidenceFile, info: DumpInfo) -> LoadReport:
    report = LoadReport(file.file_id, FlightRecorderLoader.name)
    for reason, count in info.dropped.items():
        report.drop(reason, count)
    if info.error:
        report.problems.append(info.error)
        # A pickle of something else is no broken dump: nobody reads it.
        if not info.is_dump and not file_says_dump(file):
            report.loader = ""
    if info.damage:
        report.problems.append(f"cut short: {info.damage}; {info.entries} entries before that are kept")
        report.drop("the rest of a file that was cut short")
    if info.trailing:
        report.problems.append(f"{info.trailing} bytes after its end are ignored")
    return report


def file_says_dump(file: EvidenceFile) -> bool:
    """Say whether the first bytes hold words that only a Flight Recorder dump has."""
    return any(word in file.head for word in (b"pg_config", b"profiling_name", b"pg_status"))


def _richness(dump: _Dump) -> tuple[object, ...]:
    """Order of the dumps of one moment: whole, with stacks, by reach, by how much had ended, then a fixed choice."""
    info = dump.info
    return (
        not info.damage,
        not dump.is_json,
        info.last_record or 0,
        info.entries,
        info.completed,
        natural(dump.file.name),
    )


def _not_twice(dumps: Iterable[_Dump], rank: int, other: str, why: str) -> None:
    for dump in dumps:
        dump.report.problems.append(f"not used: rank {rank} is taken from {other}{why}")


def has_events(info: DumpInfo) -> bool | None:
    """Say whether the recorder sees starts and ends; None where a dump gives no sign."""
    if info.completed or info.started_signs:
        return True
    if info.backend in _WITHOUT_EVENTS:
        return False
    if info.backend in _WITH_EVENTS:
        return True
    return False if info.retired_only else None


def has_timing(info: DumpInfo) -> bool | None:
    """Say whether starts were recorded; None where a dump gives no sign."""
    if info.started_signs or any(started is not None for _, _, started, _ in info.status):
        return True
    # Something was enqueued and nothing ever started: the recorder does not see starts.
    return False if info.entries or info.status else None


def only_active(info: DumpInfo) -> bool | None:
    """Say whether completed operations were left out; None where a dump gives no sign."""
    if not info.has_entries:
        return None
    if info.completed or info.retired_only:
        return False
    if info.entries == 0:
        return True if any(enqueued is not None for _, enqueued, _, _ in info.status) else None
    if info.record_gaps:
        return True
    # A whole ring that starts late is full; a short one that starts late had its completed entries taken out.
    return (info.first_record or 0) > 0 and info.entries < 256


def _flattened(dumps: Sequence[_Dump]) -> tuple[list[int], list[int], list[tuple[int, ...] | None]]:
    """Put the groups of all dumps into one list; return where each dump's begin, their communicators and members."""
    start: list[int] = []
    comms: list[int] = []
    members: list[tuple[int, ...] | None] = []
    for dump in dumps:
        start.append(len(comms))
        comms += dump.comms
        members += dump.members
    return start, comms, members


def _peers(ops: pl.DataFrame, flat: pl.Series, members: Sequence[tuple[int, ...] | None]) -> pl.Series:
    """Return the global rank of the other side of each send/recv, whose name holds ranks inside the group."""
    pairs = pl.DataFrame({"flat": flat, "peer_rank": ops["peer_rank"]})
    known = pairs.filter(pl.col("peer_rank").is_not_null()).unique()

    def global_rank(flat: int, peer_rank: int) -> int | None:
        ranks = members[flat]
        return ranks[peer_rank] if ranks is not None and peer_rank < len(ranks) else None

    peers = [global_rank(*row) for row in known.iter_rows()]
    looked_up = known.with_columns(pl.Series("peer", peers, dtype=pl.UInt32))
    return pairs.join(looked_up, on=["flat", "peer_rank"], how="left", maintain_order="left")["peer"]
