"""Mycroft's own traces: trace files (rings, live or left behind) and exports of them.

A ring knows its process and, by the launcher's variables, its global rank; peers are ranks of the communicator, which
is known by NCCL's hash. Communicators are put together from all traces at once. Counts are in the unit of NCCL's proxy
steps (chunks); NCCL 2.23 counts raw steps, the same on both sides of a flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.comm_ranks import CommRanks, Process, hash_name
from mycroft.loaders.schema import BY_NAME, polars_schema
from mycroft.tracer import Communicator, Trace, TraceError, open_trace, read_export
from mycroft.tracer.arrow import Table, pa
from mycroft.tracer.export import MARK, ExportError
from mycroft.tracer.process_state import process_state

RING_MAGIC: Final = b"MYCROFTR"
# ABI v1-v3 tell no size of a communicator.
_FIRST_SIZED_ABI: Final = 4
_CONTEXT_TAG: Final = 0xC5
_SLOT_BITS: Final = 12
_LARGER_SIDE: Final = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
# What a record of an operation says, as the state of the table. `enqueued` ones are over for the tracer, and nothing
# shows how they ended: no state, and retired.
# Rows that are worked on together: enough for the costs of one go to vanish, few enough for the memory of a laptop.
_ROWS_TOGETHER: Final = 2_000_000
_STATES: Final = {"open": "scheduled", "completed": "completed", "aborted": "aborted"}


@dataclass(frozen=True, slots=True)
class _Part:
    """One trace of one file, with the global rank of its process."""

    file: EvidenceFile
    report: LoadReport
    trace: Trace
    rank: int | None
    process: Process

    @property
    def told(self) -> int:
        """The rank of a trace whose records are handed over: it is known by then."""
        assert self.rank is not None
        return self.rank

    def count(self, rows: int) -> None:
        """Count rows that were taken."""
        self.report.rows += rows

    def comm(self, number: int) -> Communicator | None:
        """Return the communicator with that number in this trace."""
        return next((c for c in self.trace.communicators if c.comm == number), None)


def operation_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the tracer's rows of operations with the columns of `coll_ops`, times in ns.

    Besides the tracer's own columns it takes `size`, the members of the communicator, and `peer_rank`, the global rank
    of `peer`; both may be null. Bytes become those of the larger side of the operation, as schema.py has them.
    """
    late = (pl.col("kstart_ts") - pl.col("enq_ts")).dt.total_nanoseconds().fill_null(0)
    larger = pl.when(pl.col("op_kind").is_in(_LARGER_SIDE)).then(pl.col("size")).otherwise(1)
    p2p, seq = pl.col("p2p"), pl.col("op_seq")
    states = polars_schema(BY_NAME["coll_ops"])["state"]
    return frame.with_columns(
        op_seq=pl.when(p2p).then(pl.col("source_seq").cast(pl.UInt64)).otherwise(seq),
        pair_seq=pl.when(p2p).then(seq),
        op_name=pl.col("op_kind"),
        start_ts=pl.coalesce("kstart_ts", "enq_ts"),
        dur_ns=pl.col("dur_ns") - late,
        end_is_derived=pl.when(pl.col("dur_ns").is_not_null()).then(~pl.col("kernel_end")),
        state=pl.col("op_state").replace_strict(_STATES, default=None, return_dtype=states),
        retired=pl.col("op_state") == "enqueued",
        is_p2p=p2p,
        root=pl.when(~p2p).then(pl.col("peer")),
        peer=pl.when(p2p).then(pl.col("peer_rank")),
        bytes=pl.col("bytes") * larger,
        record_id=pl.col("position"),
    )


class _Traces:
    """Loads a set of traces, whatever they were read from."""

    def __init__(self, context: LoadContext, name: str) -> None:
        self.context = context
        self.name = name
        self.ranks = CommRanks()
        self.parts: list[_Part] = []
        self.sizes: dict[int, int] = {}
        self._ids: dict[tuple[int, int], int] = {}

    def add(self, file: EvidenceFile, report: LoadReport, trace: Trace) -> None:
        """Take one trace; nothing is handed over yet."""
        for reason, count in trace.losses.items():
            report.drop(f"record {reason}", count)
        who = trace.process
        # A trace without a pid is a process of its own all the same.
        process = (who.host, who.pid) if who.pid else ("", file.file_id)
        if who.rank is not None:
            self.ranks.told(process, who.rank)
        if who.world_size is not None:
            self.ranks.at_least(who.world_size)
        for comm in trace.communicators:
            if comm.hash and comm.rank is not None:
                size = comm.size if comm.abi >= _FIRST_SIZED_ABI or comm.abi == 0 else None
                self.ranks.see(comm.hash, size, comm.rank, process, desc=comm.name or None)
        self.parts.append(_Part(file, report, trace, who.rank, process))

    def load(self) -> None:
        """Hand over everything, many traces at a time: what is done with rows costs the same for one and for all."""
        together: list[_Part] = []
        rows = 0
        for part in self.parts:
            rank = part.rank if part.rank is not None else self.ranks.rank_of(part.process)
            held = sum(t.num_rows for t in part.trace.tables.values())
            if rank is None:
                part.report.problems.append(
                    f"{part.file.name}: nothing says which rank process {part.process[1]} is; set RANK for the job"
                )
                part.report.drop("record of an unknown rank", held)
                continue
            part.report.rank = rank
            self._dimensions(part, rank)
            together.append(replace(part, rank=rank))
            rows += held
            if rows >= _ROWS_TOGETHER:
                self._records(together)
                together, rows = [], 0
        if together:
            self._records(together)

    # ---- who -----------------------------------------------------------------------

    def comm_id(self, comm: Communicator, rank: int) -> int:
        """Return the provisional id of a communicator that `rank` is in."""
        members = self._members(comm)
        key = (comm.hash, rank)
        if key not in self._ids:
            listed = self.ranks.members(comm.hash) is not None
            self._ids[key] = self.context.comm(
                hash_name(comm.hash),
                ranks=members,
                desc=comm.name or None,
                hash_=comm.hash,
                backend="nccl" if comm.abi else comm.backend,
                source="trace" if listed else "entries",
                of_rank=rank,
            )
        return self._ids[key]

    def _members(self, comm: Communicator) -> list[int] | None:
        """Return the members by rank inside; where no trace tells the size, those that left traces, if gapless."""
        members = self.ranks.members(comm.hash)
        if members is not None or comm.size is not None:
            return members
        seen = {inside for _, inside, _ in self.ranks.processes([hash_name(comm.hash)])}
        found = [self.ranks.global_rank(comm.hash, inside) for inside in range(len(seen))]
        return [r for r in found if r is not None] if seen == set(range(len(seen))) and None not in found else None

    def _dimensions(self, part: _Part, rank: int) -> None:
        who = part.trace.process
        gpu = who.bus_id or (str(who.device) if who.device is not None else None)
        self.context.rank(
            rank,
            host=who.host or None,
            pid=who.pid or None,
            local_rank=who.local_rank,
            gpu=gpu,
            reason=f"{who.rank_source} of the traced process" if who.rank_source else "traced process",
            file_id=part.file.file_id,
        )
        for address in filter(None, who.addresses.split(",")):
            self.context.rank(rank, address=address, reason="traced process", file_id=part.file.file_id)
        if who.world_size is not None:
            self.context.job(world_size=who.world_size)
        for comm in part.trace.communicators:
            if comm.hash:
                self.comm_id(comm, rank)

    # ---- records -------------------------------------------------------------------

    def _records(self, parts: Sequence[_Part]) -> None:
        numbers, peers = self._communicators(parts)
        ops = self._ops(parts, numbers, peers)
        self._emit("coll_ops", ops, parts)
        for kind, table in (("state", "flow_state"), ("flow", "flow_ops")):
            self._emit(table, self._flows(parts, kind, numbers, peers), parts)
        self._emit("heartbeat", self._heartbeats(parts, numbers), parts)
        self._emit("group_status", self._status(parts), parts)
        self._gaps(parts)
        self._unheard(parts)
        self._dumps(parts, ops)

    def _emit(self, table: str, frame: pl.DataFrame, parts: Sequence[_Part]) -> None:
        names = [c.name for c in BY_NAME[table].columns if c.name in frame.columns]
        _each_part(frame, _Part.count, parts)
        self.context.emit(table, frame.select(names))

    def _communicators(self, parts: Sequence[_Part]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return a row for every communicator of every trace, and one for every known member of each.

        The first: `part` and `comm`, the number of the trace and the one that its records carry; `comm_id`, `opened`
        (ns), `size`, `rank`, and `inside`, under which the second, (inside, peer, peer_rank), has the members.
        """
        # A trace that tells no size is answered by what others left.
        places: dict[tuple[int, bool], int] = {}
        rows: list[tuple[int, int, int, int, int | None, int, int]] = []
        members: list[tuple[int, int, int]] = []
        for number, part in enumerate(parts):
            for c in part.trace.communicators:
                if not c.hash:
                    continue
                key = c.hash, c.size is None
                if key not in places:
                    places[key] = len(places)
                    members += [(places[key], inside, rank) for inside, rank in self._ranks_inside(c)]
                rows.append((number, c.comm, self.comm_id(c, part.told), c.opened_ns, c.size, places[key], part.told))
        numbers = pl.DataFrame(
            rows,
            schema={
                "part": pl.UInt32,
                "comm": pl.UInt16,
                "comm_id": pl.UInt32,
                "opened": pl.Int64,
                "size": pl.UInt64,
                "inside": pl.UInt32,
                "rank": pl.UInt32,
            },
            orient="row",
        )
        peers = {"inside": pl.UInt32, "peer": pl.UInt32, "peer_rank": pl.UInt32}
        return numbers, pl.DataFrame(members, schema=peers, orient="row")

    def _ranks_inside(self, comm: Communicator) -> list[tuple[int, int]]:
        """Return (number inside, global rank) of the members that are known."""
        members = self._members(comm)
        if members:
            return list(enumerate(members))
        seen = [inside for _, inside, _ in self.ranks.processes([hash_name(comm.hash)])]
        known = [(inside, self.ranks.global_rank(comm.hash, inside)) for inside in seen]
        return [(inside, rank) for inside, rank in known if rank is not None]

    def _known(
        self, parts: Sequence[_Part], frame: pl.DataFrame, numbers: pl.DataFrame, what: str, *, time: str
    ) -> pl.DataFrame:
        """Put communicator and rank beside each row; rows of a communicator that is not known are counted and dropped.

        Besides `comm_id` and `rank` they get `size` and `inside`.
        """
        joined = frame.join(numbers, on=["part", "comm"], how="left", maintain_order="left")
        # A number is given again after 65,534 communicators: an older record is of another one.
        good = pl.col("comm_id").is_not_null() & (pl.col(time).cast(pl.Int64) >= pl.col("opened"))
        kept = joined.filter(good)
        if joined.height > kept.height:
            text = f"{what} of a communicator that is not known"
            lost = joined.filter(~good.fill_null(value=False))
            _each_part(lost, lambda part, count: part.report.drop(text, count), parts)
        return kept.drop("opened")

    def _flows(self, parts: Sequence[_Part], kind: str, numbers: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
        frame = _rows_of(parts, kind)
        time = "ts" if kind == "state" else "end_ts"
        own = self._known(parts, frame.filter(~pl.col("foreign")), numbers, f"{kind} record", time=time)
        if own["op_seq"].null_count():
            text = f"{kind} record of an operation that is not known"
            nameless = own.filter(pl.col("op_seq").is_null())
            _each_part(nameless, lambda part, count: part.report.drop(text, count), parts)
            own = own.filter(pl.col("op_seq").is_not_null())
        own = own.join(peers, on=["inside", "peer"], how="left", maintain_order="left")
        own = own.with_columns(peer=pl.col("peer_rank"))
        others = frame.filter(pl.col("foreign"))
        traces: list[int] = others["part"].unique(maintain_order=True).to_list()
        foreign = [self._foreign(parts[number], others.filter(pl.col("part") == number), kind) for number in traces]
        return pl.concat([own, *(f for f in foreign if f.height)], how="diagonal") if foreign else own

    def _foreign(self, part: _Part, frame: pl.DataFrame, kind: str) -> pl.DataFrame:
        """Give flow halves that were run for another process (PXN) to the rank that posted them, if it is traced."""
        if frame.is_empty():
            return frame
        by_salt = {p.trace.process.salt: p for p in self.parts if p.trace.process.salt}
        origins: list[tuple[int, int, int, int, int | None, str]] = []
        for row in _polars(part.trace.tables["foreign"]).iter_rows(named=True):
            context = int(row["context"])
            origin = by_salt.get(context >> 16 & ((1 << 40) - 1)) if context >> 56 == _CONTEXT_TAG else None
            comm = origin.comm(context & 0xFFFF) if origin is not None else None
            if origin is None or comm is None or origin.rank is None:
                continue
            slot, gen = int(row["parent"]) >> 49 & 0xFFF, int(row["parent"]) >> 24 & 0xFFFFF
            ops = _polars(origin.trace.tables["op"])
            mine = ops.filter(pl.col("op_id") == (slot | gen << _SLOT_BITS))
            if mine.is_empty():
                continue
            op = mine.row(-1, named=True)
            peer = self.ranks.global_rank(comm.hash, row["peer"]) if row["peer"] is not None else None
            comm_id = self.comm_id(comm, origin.rank)
            origins.append((row["flow_id"], origin.rank, comm_id, op["op_seq"], peer, op["op_kind"]))
        known = pl.DataFrame(
            origins,
            schema={
                "flow": pl.UInt64,
                "rank": pl.UInt32,
                "comm_id": pl.UInt32,
                "seq": pl.UInt64,
                "peer_rank": pl.UInt32,
                "kind": pl.String,
            },
            orient="row",
        ).unique("flow", keep="last")
        # The flow's own number stands where its operation would.
        joined = frame.join(known, left_on="op_seq", right_on="flow", how="inner")
        if lost := frame.height - joined.height:
            part.report.drop(f"{kind} record of a process that left no trace here", lost)
        return joined.with_columns(op_seq=pl.col("seq"), peer=pl.col("peer_rank"), op_kind=pl.col("kind")).drop(
            "seq", "kind"
        )

    def _ops(self, parts: Sequence[_Part], numbers: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
        """Return one row per operation: the newest record of each, which holds all that is known of it."""
        # Not by time: two records of one operation may differ by the rounding of the clock. The number tells the
        # generations of a slot apart even when their counter has come round.
        key = ["part", "comm", "op_id", "op_seq"]
        frame = _rows_of(parts, "op").unique(key, keep="last", maintain_order=True)
        frame = self._known(parts, frame, numbers, "op record", time="enq_ts")
        frame = frame.join(peers, on=["inside", "peer"], how="left", maintain_order="left")
        return operation_columns(frame).with_columns(file_id=_file_of(parts))

    def _heartbeats(self, parts: Sequence[_Part], numbers: pl.DataFrame) -> pl.DataFrame:
        ids = numbers.select("part", "comm", last_comm_id="comm_id")
        frame = _rows_of(parts, "heartbeat").join(ids, on=["part", "comm"], how="left", maintain_order="left")
        frame = frame.with_columns(
            rank=_of_part(parts, [part.told for part in parts], pl.UInt32),
            pid_alive=pl.lit(value=True),
            sampler_ts=pl.col("ts"),
            n_open=pl.col("open_ops"),
            oldest_open_enq_ts=pl.col("oldest_open_ts"),
            last_progress_ts=pl.col("progress_ts"),
            last_op_seq=pl.col("op_seq"),
        )
        beating: list[int] = frame["part"].unique().sort().to_list()
        rows: list[tuple[int, int, bool]] = []
        for number in beating:
            trace = parts[number].trace
            alive = (trace.state or process_state(trace.process)) if not trace.closed else None
            if alive is None or trace.last_tick_ns is None:
                continue
            rows.append((number, trace.last_tick_ns, alive.exists))
            if alive.stopped:
                what = f"process {parts[number].process[1]} of rank {parts[number].told} is stopped"
                parts[number].report.problems.append(f"{what} (state {alive.letter})")
        if not rows:
            return frame
        # What this machine says of the process now, right after its sampler's last time: `ts` is above `sampler_ts`
        # in such rows only. The same evidence on another machine lacks it.
        told = pl.DataFrame(rows, schema={"part": pl.UInt32, "tick": pl.Int64, "exists": pl.Boolean}, orient="row")
        now = frame.unique("part", keep="last", maintain_order=True).join(told, on="part", maintain_order="left")
        now = now.with_columns(
            ts=(pl.col("tick") + 1).cast(pl.Datetime("ns")),
            sampler_ts=pl.col("tick").cast(pl.Datetime("ns")),
            pid_alive=pl.col("exists"),
            late_ms=pl.lit(None, dtype=frame.schema["late_ms"]),
        )
        return pl.concat([frame, now.drop("tick", "exists")])

    def _status(self, parts: Sequence[_Part]) -> pl.DataFrame:
        """The live words of each communicator: true up to the moment at which a process was killed."""
        rows = [
            {
                "part": number,
                "rank": part.told,
                "comm_id": self.comm_id(c, part.told),
                "last_enqueued": c.last_seq,
                "ts": c.last_enq_ns,
                "file_id": part.file.file_id,
            }
            for number, part in enumerate(parts)
            for c in part.trace.communicators
            if c.hash and c.last_enq_ns is not None
        ]
        frame = pl.DataFrame(
            rows,
            schema={
                "part": pl.UInt32,
                "rank": pl.UInt32,
                "comm_id": pl.UInt32,
                "last_enqueued": pl.Int64,
                "ts": pl.Int64,
                "file_id": pl.UInt32,
            },
        )
        return frame.with_columns(ts=pl.col("ts").cast(pl.Datetime("ns")))

    def _unheard(self, parts: Sequence[_Part]) -> None:
        """Say of which processes their agents had fallen silent: silence of such says nothing of the process."""
        rows = [
            {
                "part": number,
                "rank": part.told,
                "ts": part.trace.last_tick_ns,
                "level": "warning",
                "kind": "other",
                "source": self.name,
                "name": "unheard",
                "text": f"nothing comes from the agent on {part.trace.process.host or 'its host'} any more",
                "time_quality": "exact",
                "file_id": part.file.file_id,
            }
            for number, part in enumerate(parts)
            if part.trace.unheard and part.trace.last_tick_ns is not None
        ]
        if rows:
            known = polars_schema(BY_NAME["events"])
            frame = pl.DataFrame(rows, schema={name: known.get(name, pl.UInt32) for name in rows[0]} | {"ts": pl.Int64})
            self._emit("events", frame.with_columns(ts=pl.col("ts").cast(pl.Datetime("ns"))), parts)

    def _gaps(self, parts: Sequence[_Part]) -> None:
        frame = _rows_of(parts, "gap").with_columns(
            rank=_of_part(parts, [part.told for part in parts], pl.UInt32),
            level=pl.lit("warning"),
            kind=pl.lit("other"),
            source=pl.lit(self.name),
            name=pl.col("reason").cast(pl.String),
            value=pl.col("count").cast(pl.Float64),
            text=pl.format("tracer: {}, {} times", pl.col("reason").cast(pl.String), "count"),
            time_quality=pl.lit("exact"),
            file_id=_file_of(parts),
        )
        self._emit("events", frame, parts)

    def _dumps(self, parts: Sequence[_Part], ops: pl.DataFrame) -> None:
        """Say of each trace what it holds."""
        held = {
            row["part"]: row
            for row in ops.group_by("part")
            .agg(
                entries=pl.len(),
                first_record=pl.col("record_id").min(),
                last_record=pl.col("record_id").max(),
                first_ts=pl.col("enq_ts").min().cast(pl.Int64),
                last_ts=pl.col("enq_ts").max().cast(pl.Int64),
                has_timing=pl.col("kstart_ts").is_not_null().any(),
            )
            .iter_rows(named=True)
        }
        rows: list[dict[str, object]] = []
        for number, part in enumerate(parts):
            abis = {c.abi for c in part.trace.communicators}
            row: dict[str, object] = {
                "rank": part.told,
                "file_id": part.file.file_id,
                "kind": "ring",
                "version": "1",
                "backend": "nccl" if any(abis) else "python",
                "lib_version": f"NCCL profiler ABI v{max(abis)}" if any(abis) else None,
                "has_events": True,
                "only_active": False,
                **held.get(number, {"entries": 0, "has_timing": False}),
            }
            if not part.trace.losses.get("overwritten"):
                row["first_record"] = 0
            rows.append(row)
        wanted = polars_schema(BY_NAME["rank_dumps"])
        times = {"first_ts": pl.Int64(), "last_ts": pl.Int64()}
        frame = pl.DataFrame(rows, schema={name: times.get(name, kind) for name, kind in wanted.items()})
        self.context.emit("rank_dumps", frame.with_columns(pl.col(*times).cast(pl.Datetime("ns"))))


def _each_part(frame: pl.DataFrame, take: Callable[[_Part, int], object], parts: Sequence[_Part]) -> None:
    """Call `take` with every trace that rows of a frame are from, and how many they are."""
    counts = frame.group_by("part").agg(count=pl.len()).sort("part")
    number: int
    count: int
    for number, count in counts.iter_rows():
        take(parts[number], count)


def _of_part(parts: Sequence[_Part], values: Sequence[int], kind: type[pl.DataType]) -> pl.Expr:
    """Return, for rows with `part`, the value of each row's trace."""
    return pl.lit(pl.Series(values, dtype=kind)).gather(pl.col("part")) if parts else pl.lit(None, kind)


def _file_of(parts: Sequence[_Part]) -> pl.Expr:
    return _of_part(parts, [part.file.file_id for part in parts], pl.UInt32)


def _rows_of(parts: Sequence[_Part], kind: str) -> pl.DataFrame:
    """Return the rows of one kind of all traces, in their order, with the number of the trace as `part`."""
    tables = [part.trace.tables[kind] for part in parts]
    if all(table.schema.equals(tables[0].schema) for table in tables):
        frame = _polars(pa.concat_tables(tables))
    else:
        frame = pl.concat([_polars(table) for table in tables], how="diagonal_relaxed")
    counts = np.array([table.num_rows for table in tables])
    return frame.with_columns(part=pl.Series(np.repeat(np.arange(len(parts), dtype=np.uint32), counts)))


def _polars(table: Table) -> pl.DataFrame:
    """Return an Arrow table as a frame, texts as plain strings."""
    plain = pa.schema(
        [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    )
    # The interface without a library between them: polars takes any Arrow stream.
    return pl.DataFrame(table.cast(plain))


def add_traces(traces: Iterable[Trace], context: LoadContext, file: EvidenceFile) -> LoadReport:
    """Hand over traces that are in memory already, as if `file` held them: one per process, all of one job."""
    report = LoadReport(file.file_id, TraceExportLoader.name)
    together = _Traces(context, TraceExportLoader.name)
    for trace in traces:
        together.add(file, report, trace)
    together.load()
    return report


class RingLoader:
    """Reads trace files of the tracer."""

    name = "ring"
    title = "Mycroft trace files (shared-memory rings of the NCCL plugin and of recorders)"
    recognised_by = "the first eight bytes, MYCROFTR"
    yields = "flow_state, flow_ops, coll_ops, heartbeat, communicators with members, ranks, gaps as events"

    def sniff(self, file: EvidenceFile) -> bool:
        """The magic of the header."""
        return file.head.startswith(RING_MAGIC)

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all rings, then hand everything over: a flow's peer is named by another process' ring."""
        traces = _Traces(context, self.name)
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.file_id, self.name)
            reports.append(report)
            try:
                traces.add(file, report, open_trace(file.path))
            except TraceError as error:
                report.problems.append(_of_file(str(error), file))
        traces.load()
        return reports


class TraceExportLoader:
    """Reads what `mycroft trace cat` wrote."""

    name = "mycroft_trace"
    title = "exported Mycroft traces (Parquet, Arrow IPC, JSON lines)"
    recognised_by = "mycroft.trace in the first line, or in the schema of the file"
    yields = "the same as a ring"

    def sniff(self, file: EvidenceFile) -> bool:
        """Our mark in a JSON line or an Arrow schema; for Parquet, whose schema is at its end, our kinds of rows."""
        head = file.head
        if head.startswith(b"PAR1"):
            return b"communicator" in head and b"process" in head
        if head.startswith(b"ARROW1"):
            return MARK in head
        return head[:200].lstrip().startswith(b'{"schema": "' + MARK + b'"')

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all exports, then hand everything over."""
        traces = _Traces(context, self.name)
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.file_id, self.name)
            reports.append(report)
            try:
                for trace in read_export(Path(file.path)):
                    traces.add(file, report, trace)
            except (ExportError, OSError) as error:
                report.problems.append(_of_file(str(error), file))
        traces.load()
        return reports


def _of_file(message: str, file: EvidenceFile) -> str:
    """Return a message of the tracer with the name that the user knows."""
    return message.replace(str(file.path), file.name)
