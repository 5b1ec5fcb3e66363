"""What the store knows, once, as immutable tables: the only module of the analysis that asks the store for rows.

Everything after this works on `Facts`. Nothing here judges; what a source does not say is None or absent.
Operations stay a polars frame (millions of rows); groups, dumps, life signs and stacks are few and become objects.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import polars as pl

from mycroft.analysis.older_dumps import older_dumps

# The tracer and a Flight Recorder of one run count operations from different numbers: where both are there, the order
# of calls is read from the Flight Recorder and the flows tell of the rest. The tracer knows bytes, not elements: where
# members of one operation differ in one, they do in the other.
OPS: Final = """
SELECT
    rank,
    comm_id AS comm,
    CAST(op_seq AS BIGINT) AS seq,
    op_kind AS kind,
    epoch_ns(enq_ts) AS enq,
    epoch_ns(seen_start_ts) AS seen_start,
    epoch_ns(seen_end_ts) AS seen_end,
    dur_ns AS dur,
    state IN ('completed') AS completed,
    state IN ('started') AS started,
    coalesce(retired, FALSE) AS retired,
    coalesce(is_p2p, FALSE) AS p2p,
    peer,
    CAST(pair_seq AS BIGINT) AS pair,
    coalesce(coalesced, FALSE) AS coalesced,
    CAST(coalesce(in_numel, CASE WHEN file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring') THEN bytes END)
        AS BIGINT) AS in_numel,
    CAST(out_numel AS BIGINT) AS out_numel,
    hash(in_sizes, out_sizes) AS sizes,
    hash(dtype) AS dtype,
    root,
    stack_id AS stack,
    CAST(coalesce(record_id, line) AS BIGINT) AS record,
    CAST(op_id AS BIGINT) AS op_id,
    file_id AS file,
    CAST(line AS BIGINT) AS line
FROM coll_ops
WHERE (file_id NOT IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    OR NOT EXISTS (FROM rank_dumps WHERE kind = 'flight_recorder'))
"""
GROUPS: Final = """
SELECT comm_id, key, name, "desc", kind, backend, size, seen_size
FROM communicators
ORDER BY comm_id
"""
MEMBERS: Final = """
SELECT comm_id, rank, comm_rank, CAST(source AS VARCHAR) AS source
FROM members
ORDER BY comm_id, rank
"""
DUMPS: Final = """
SELECT d.rank, d.file_id, d.kind, d.version, d.backend, d.entries, d.first_record, d.last_record,
       epoch_ns(d.first_ts) AS first_ns, epoch_ns(d.last_ts) AS last_ns, d.has_events, d.has_timing, d.only_active,
       coalesce(f.problems LIKE '%cut short%', FALSE) AS cut
FROM rank_dumps d LEFT JOIN files f USING (file_id)
WHERE (file_id NOT IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    OR NOT EXISTS (FROM rank_dumps WHERE kind = 'flight_recorder'))
ORDER BY d.rank, d.file_id
"""
STATUS: Final = """
SELECT rank, comm_id AS comm, last_enqueued, last_started, last_completed, epoch_ns(ts) AS ts, file_id, line
FROM group_status
WHERE (file_id NOT IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    OR NOT EXISTS (FROM rank_dumps WHERE kind = 'flight_recorder'))
ORDER BY comm_id, rank, file_id, line
"""
RANKS: Final = """
SELECT r.rank, h.name AS host, r.local_rank, r.gpu, r.pid, r.dp, r.tp, r.pp, r.ep
FROM ranks r LEFT JOIN hosts h USING (host_id)
ORDER BY r.rank
"""
WORLD: Final = "SELECT max(world_size) AS world FROM jobs"
FILES: Final = "SELECT file_id, path, loader, problems, rank FROM files ORDER BY file_id"
EVENTS: Final = """
SELECT epoch_ns(ts) AS ts, CAST(kind AS VARCHAR) AS kind, rank, comm_rank, local_rank, CAST(level AS VARCHAR) AS level,
       code, comm_id AS comm, group_name, group_desc, seq, CAST(op_kind AS VARCHAR) AS op_kind, in_numel, out_numel,
       last_enqueued, last_completed, dur_ms, device, peer, peer_rank, name, value, stack_id, text, pid, file_id, line,
       CAST(time_quality AS VARCHAR) <> 'order_only' AS timed
FROM events
WHERE kind NOT IN ('unparsed', 'other', 'step', 'coll_call', 'op_perf', 'bench_row', 'nccl_env', 'nic_counter')
ORDER BY file_id, line, kind
LIMIT 200000
"""
STEPS: Final = """
SELECT rank, epoch_ns(ts) AS ts, value, dur_ms, file_id, line
FROM events
WHERE kind = 'step' AND rank IS NOT NULL
ORDER BY rank, ts, line
LIMIT 2000000
"""
JOB_STEPS: Final = """
SELECT epoch_ns(ts) AS ts, value, file_id, line
FROM events
WHERE kind = 'step' AND rank IS NULL
ORDER BY file_id, line
LIMIT 500000
"""
RESTARTS: Final = """
SELECT file_id, line FROM events WHERE kind = 'other' AND name = 'restart' ORDER BY file_id, line LIMIT 10000
"""
STACKS: Final = """
SELECT s.rank, s.pid, s.thread, coalesce(s.is_main, FALSE) AS is_main, s.state, s.stack_id, s.file_id, s.line,
       t.frames
FROM stacks s JOIN stack_texts t USING (stack_id)
WHERE s.rank IS NOT NULL
ORDER BY s.rank, s.file_id, s.line, s.thread
LIMIT 200000
"""
CALL_SITES: Final = "SELECT stack_id, frames FROM stack_texts WHERE stack_id IN (SELECT unnest(?))"
OP_ROWS: Final = """
SELECT rank, op_name, in_sizes, out_sizes, bytes, dtype, out_dtype, stack_id, file_id, line
FROM coll_ops
WHERE comm_id = ? AND op_seq = ? AND NOT coalesce(is_p2p, FALSE)
    AND (file_id NOT IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    OR NOT EXISTS (FROM rank_dumps WHERE kind = 'flight_recorder'))
ORDER BY rank, record_id
"""
META: Final = "SELECT key, value FROM trace_meta ORDER BY key"


_JOB_STEP_COLUMNS: Final = {"ts": pl.Int64, "value": pl.Float64, "file_id": pl.UInt32, "line": pl.UInt32}


class Frames(Protocol):
    """What the analysis needs of a store: `mycroft.loaders.store.Store` has it."""

    def frame(self, sql: str, params: Sequence[object] = ()) -> pl.DataFrame:
        """Return the rows of one SELECT."""
        ...


@dataclass(frozen=True, slots=True)
class Group:
    """One process group. `declared`: a source lists its members; else they are those seen or inferred to be in it."""

    comm: int
    key: str
    name: str
    desc: str
    kind: str
    members: tuple[int, ...]
    declared: bool
    order: Mapping[int, int] = field(default_factory=dict[int, int])
    unseen: int = 0
    """Members that must exist (size known) and that no source names."""
    possible: tuple[int, ...] = ()
    """Ranks without a dump that may be those members."""

    @property
    def title(self) -> str:
        """Return the words a reader knows the group by."""
        if self.desc and self.desc not in ("undefined", self.name):
            return self.desc if self.desc == "default_pg" else f"{self.desc} ({self.name})" if self.name else self.desc
        return f"group {self.name or self.key}"


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's dump and what it covers. Times ns, host clock; None: no entries."""

    rank: int
    file: int
    backend: str
    entries: int
    first_record: int | None
    first_ns: int | None
    last_ns: int | None
    has_events: bool
    has_timing: bool
    only_active: bool
    """It holds no history: only open operations, or not all that was written (`cut`)."""
    kind: str = "flight_recorder"
    cut: bool = False
    """What the rank did last is not in it: the file ends early, or it is older than those of the peers."""
    older: bool = False
    """It shows an earlier moment than the dumps of the peers; its open operations are left out."""


@dataclass(frozen=True, slots=True)
class Status:
    """How far one rank says it has come in one group; None: it does not say."""

    last_enqueued: int | None
    last_completed: int | None
    file: int | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """One fact of one line. See the table `events` for the meaning of the columns."""

    kind: str
    ts: int | None
    rank: int | None
    code: int | None
    name: str
    text: str
    file: int | None
    line: int | None
    comm: int | None = None
    group_name: str = ""
    seq: int | None = None
    op_kind: str = ""
    last_enqueued: int | None = None
    last_completed: int | None = None
    dur_ms: float | None = None
    peer_rank: int | None = None
    level: str = ""
    value: float | None = None
    pid: int | None = None
    numel: int | None = None
    timed: bool = True
    """The line has a time of its own; else `ts` is that of the last line of its writer that has one."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One thread of one rank; frames innermost first as `function (file:line)`."""

    rank: int
    thread: str
    is_main: bool
    state: str
    frames: tuple[str, ...]
    file: int | None
    line: int | None


@dataclass(frozen=True, slots=True)
class RankInfo:
    """Where a rank runs and where it stands in the layout; None: unknown."""

    rank: int
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None


@dataclass(frozen=True)
class Facts:
    """Everything the analysis looks at, in an order that depends on the evidence alone."""

    ops: pl.DataFrame
    groups: Mapping[int, Group]
    dumps: Mapping[int, Dump]
    status: Mapping[tuple[int, int], Status]
    """(comm, rank) -> position."""
    ranks: Mapping[int, RankInfo]
    expected: tuple[int, ...]
    """Every rank that the job has, as far as any source says."""
    world_known: bool
    events: tuple[Event, ...]
    steps: pl.DataFrame
    stacks: tuple[Stack, ...]
    files: Mapping[int, str]
    formats: Mapping[str, int]
    unread: tuple[tuple[str, str], ...]
    meta: Mapping[str, str]
    store: Frames
    job_steps: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_JOB_STEP_COLUMNS))
    """Steps that a line tells of the job and of no rank."""
    restarts: tuple[tuple[int, int], ...] = ()
    """File and line where an agent says that it starts the workers anew."""

    def rows_of(self, comm: int, seq: int) -> list[dict[str, Any]]:
        """Return one operation as every rank recorded it: names, sizes, dtypes, call site."""
        return self.store.frame(OP_ROWS, [comm, seq]).to_dicts()

    def call_sites(self, stacks: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Return the frames of these call sites, innermost first."""
        if not stacks:
            return {}
        rows = self.store.frame(CALL_SITES, [sorted(set(stacks))])
        return {int(r["stack_id"]): tuple(r["frames"] or ()) for r in rows.to_dicts()}

    def path(self, file: int | None) -> str | None:
        """Return the name of a file of the evidence."""
        return None if file is None else self.files.get(file)

    def cut_short(self) -> tuple[int, ...]:
        """Return the ranks whose dump does not show what they did last: how far they came is not known."""
        return tuple(sorted(r for r, dump in self.dumps.items() if dump.cut))

    def older(self) -> tuple[int, ...]:
        """Return the ranks whose dump is older than those of the peers; they are among those cut short."""
        return tuple(sorted(r for r, dump in self.dumps.items() if dump.older))

    def lost(self) -> tuple[int, ...]:
        """Return the ranks that left no dump, or one that is cut short."""
        return tuple(sorted({*self.without_dump(), *self.cut_short()}))

    def without_dump(self) -> tuple[int, ...]:
        """Return the ranks of the job that left no dump, although others did."""
        return tuple(r for r in self.expected if r not in self.dumps) if self.dumps else ()


def read_facts(store: Frames) -> Facts:
    """Read every table that the analysis uses. Missing tables' rows are simply absent."""
    ops = _typed_ops(store.frame(OPS))
    events = tuple(_event(row) for row in store.frame(EVENTS).to_dicts())
    ranks = {int(r["rank"]): _rank_info(r) for r in store.frame(RANKS).to_dicts()}
    dumps = _dumps(store.frame(DUMPS))
    members = store.frame(MEMBERS)
    stacks = tuple(_stack(row) for row in store.frame(STACKS).to_dicts())
    world_row = store.frame(WORLD)["world"]
    world = int(world_row[0]) if len(world_row) and world_row[0] is not None else None
    named = set(ranks) | set(dumps) | {int(r) for r in members["rank"].unique()}
    named |= {e.rank for e in events if e.rank is not None} | {s.rank for s in stacks}
    # A job numbers its ranks from 0 without gaps, so a gap is a rank that left no trace.
    top = max([*named, (world or 0) - 1], default=-1)
    expected = tuple(range(top + 1))
    groups = _groups(store.frame(GROUPS), members, ops, expected, dumps)
    status = {
        (int(r["comm"]), int(r["rank"])): Status(r["last_enqueued"], r["last_completed"], r["file_id"], r["line"])
        for r in store.frame(STATUS).to_dicts()
    }
    older = older_dumps(ops, groups, dumps)
    if older:
        dumps = {r: replace(d, cut=True, only_active=True, older=True) if r in older else d for r, d in dumps.items()}
        ops = ops.filter(pl.col("completed") | ~pl.col("rank").is_in(sorted(older)))
        status = {key: said for key, said in status.items() if key[1] not in older}
    files = store.frame(FILES)
    formats = Counter(str(name) for name in files["loader"] if name is not None)
    unread = tuple(
        (str(r["path"]), str(r["problems"] or "no reader knows this format"))
        for r in files.to_dicts()
        if r["loader"] is None
    )
    return Facts(
        ops=ops,
        groups=groups,
        dumps=dumps,
        status=status,
        ranks=ranks,
        expected=expected,
        world_known=world is not None or _lists_everybody(members, len(expected)),
        events=events,
        steps=store.frame(STEPS),
        stacks=stacks,
        files={int(r["file_id"]): str(r["path"]) for r in files.to_dicts()},
        formats=dict(sorted(formats.items())),
        unread=unread,
        meta={str(r["key"]): str(r["value"]) for r in store.frame(META).to_dicts()},
        store=store,
        job_steps=store.frame(JOB_STEPS),
        restarts=tuple(store.frame(RESTARTS).iter_rows()),
    )


def _typed_ops(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        pl.col("kind").cast(pl.String).fill_null("other"),
        pl.col("rank").cast(pl.Int32),
        pl.col("comm").cast(pl.Int32),
        pl.col("peer").cast(pl.Int32),
    ).sort("rank", "record", "file")


def _event(row: dict[str, Any]) -> Event:
    return Event(
        kind=row["kind"] or "other",
        ts=row["ts"],
        rank=row["rank"],
        code=row["code"],
        name=row["name"] or "",
        text=row["text"] or "",
        file=row["file_id"],
        line=row["line"],
        comm=row["comm"],
        group_name=row["group_name"] or "",
        seq=row["seq"],
        op_kind=row["op_kind"] or "",
        last_enqueued=row["last_enqueued"],
        last_completed=row["last_completed"],
        dur_ms=row["dur_ms"],
        peer_rank=row["peer_rank"],
        level=row["level"] or "",
        value=row["value"],
        pid=row["pid"],
        numel=row["in_numel"],
        timed=row["timed"] is not False,
    )


def _stack(row: dict[str, Any]) -> Stack:
    return Stack(
        rank=int(row["rank"]),
        thread=row["thread"] or "",
        is_main=bool(row["is_main"]),
        state=row["state"] or "",
        frames=tuple(row["frames"] or ()),
        file=row["file_id"],
        line=row["line"],
    )


def _rank_info(row: dict[str, Any]) -> RankInfo:
    return RankInfo(int(row["rank"]), row["host"], row["pid"], row["gpu"], row["dp"], row["tp"], row["pp"])


def _dumps(frame: pl.DataFrame) -> dict[int, Dump]:
    """Keep one dump a rank: the one that reaches furthest, then the one with most entries."""
    dumps: dict[int, Dump] = {}
    for row in frame.to_dicts():
        dump = Dump(
            rank=int(row["rank"]),
            file=int(row["file_id"]),
            backend=row["backend"] or "",
            entries=int(row["entries"] or 0),
            first_record=row["first_record"],
            first_ns=row["first_ns"],
            last_ns=row["last_ns"],
            has_events=row["has_events"] is not False,
            has_timing=bool(row["has_timing"]),
            only_active=bool(row["only_active"]) or bool(row["cut"]),
            cut=bool(row["cut"]),
            kind=row["kind"] or "flight_recorder",
        )
        old = dumps.get(dump.rank)
        if old is None or _reaches(dump) > _reaches(old):
            dumps[dump.rank] = dump
    return dumps


def _reaches(dump: Dump) -> tuple[bool, int, int]:
    return (not dump.cut, dump.last_ns or 0, dump.entries)


def _lists_everybody(members: pl.DataFrame, world: int) -> bool:
    """Say whether some source, other than the operations themselves, lists a group of every rank."""
    sizes = members.filter(pl.col("source") != "entries").group_by("comm_id").len()
    return bool(world) and world in sizes["len"].to_list()


def family(desc: str, kind: str) -> str:
    """Return what sister groups have in common: `tp_0` and `tp_3` are one family."""
    return f"{kind}:{re.sub(r'[0-9]+', '#', desc)}"


def _groups(
    frame: pl.DataFrame, members: pl.DataFrame, ops: pl.DataFrame, expected: tuple[int, ...], dumps: Mapping[int, Dump]
) -> dict[int, Group]:
    listed: dict[int, dict[int, tuple[int | None, str]]] = defaultdict(dict)
    for row in members.to_dicts():
        listed[int(row["comm_id"])][int(row["rank"])] = (row["comm_rank"], row["source"] or "entries")
    groups: dict[int, Group] = {}
    for row in frame.to_dicts():
        comm = int(row["comm_id"])
        inside = listed.get(comm, {})
        declared = bool(inside) and any(source != "entries" for _, source in inside.values())
        desc, name, kind = row["desc"] or "", row["name"] or "", row["kind"] or "other"
        ranks = tuple(sorted(inside))
        if not declared and (kind == "world" or desc == "default_pg"):
            ranks, declared = expected, bool(expected)
        order = {rank: place for rank, (place, _) in inside.items() if place is not None}
        size = row["size"] or 0
        groups[comm] = Group(
            comm, row["key"] or str(comm), name, desc, kind, ranks, declared, order, max(0, size - len(ranks))
        )
    return _complete(groups, ops, expected, dumps)


def _complete(
    groups: dict[int, Group], ops: pl.DataFrame, expected: tuple[int, ...], dumps: Mapping[int, Dump]
) -> dict[int, Group]:
    """Add to groups known by their entries alone the ranks that must be in them.

    The size comes from gathers (output over input) or from sister groups; the rank is one without a dump that is
    in no sister group. Only when it fits exactly is a rank added; otherwise the group says how many are unseen.
    """
    open_groups = {c: g for c, g in groups.items() if not g.declared}
    if not open_groups:
        return groups
    size = _gathered_sizes(ops)
    families: dict[str, list[Group]] = defaultdict(list)
    for group in open_groups.values():
        families[family(group.desc, group.kind)].append(group)
    result = dict(groups)
    for sisters in families.values():
        placed = {r for g in sisters for r in g.members}
        loose = tuple(r for r in expected if r not in placed and r not in dumps)
        if loose and len(sisters) == 1 and len(dumps) > 2 and set(sisters[0].members) >= set(dumps):
            # Everybody who left a dump is in it: a group of all ranks under another name.
            result[sisters[0].comm] = replace(sisters[0], members=tuple(sorted({*sisters[0].members, *loose})))
            continue
        # Sister groups are of one size; a missing dump can only make one look smaller.
        usual = max(len(g.members) for g in sisters) if len(sisters) > 1 else 0
        short = [(g, max(size.get(g.comm, 0), usual) - len(g.members)) for g in sisters]
        short = [(g, lack) for g, lack in short if lack > 0]
        for group, lack in short:
            if len(short) == 1 and len(loose) == lack:
                result[group.comm] = replace(group, members=tuple(sorted({*group.members, *loose})))
            else:
                result[group.comm] = replace(group, unseen=lack, possible=loose)
    return result


def _gathered_sizes(ops: pl.DataFrame) -> dict[int, int]:
    """Return the group sizes that gathers and reduce-scatters show by the ratio of their sides."""
    big, small = pl.max_horizontal("in_numel", "out_numel"), pl.min_horizontal("in_numel", "out_numel")
    found = (
        ops.lazy()
        .filter(pl.col("kind").is_in(["all_gather", "reduce_scatter"]) & (small > 0) & (big % small == 0))
        .select("comm", (big // small).alias("size"))
        .group_by("comm")
        .agg(pl.col("size").mode().max())
        .collect()
    )
    return {int(r["comm"]): int(r["size"]) for r in found.to_dicts()}
