"""torch.profiler traces (Kineto): NCCL kernels, the calls that launched them, steps and phases.

The trace is read as a stream: `JsonElements` (C++) hands out the few per cent of the events that speak of
communication or of the user's phases, only these are decoded, and of them only numbers are kept. Memory does not
grow with the file but with the communication in it, up to `_MAX_OPS` operations.

Times: µs in the file, written with three decimals and too large for a float; they are converted from their text.
`baseTimeNanoseconds`, where present, is added (without it the time is already UTC).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from mycroft.loaders._core import JsonElements
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.byte_stream import pieces
from mycroft.loaders.json_values import as_int, as_list, micros_to_ns
from mycroft.loaders.op_names import dtype_bytes, op_kind
from mycroft.loaders.rows import RowBuffer, clip

_MAX_EVENT: Final = 4 << 20
_MAX_OPS: Final = 1_000_000
_MAX_PHASES: Final = 200_000
_NEEDLES: Final = ("nccl", "record_param_comms", "user_annotation", "ProfilerStep", "DataLoader", "process_labels")
_KERNEL: Final = re.compile(r"nccl(?:Dev)?Kernel")
_STEP: Final = re.compile(r"ProfilerStep#?\s*(\d+)")
_FILE_RANK: Final = re.compile(r"(?:^|[^a-z])(?:rank|r)[-_]?(\d+)(?=[^\d]|$)", re.IGNORECASE)
_FILE_HOST: Final = re.compile(r"(?:^|/)([\w.-]+?)_(\d+)\.\d+\.pt\.trace\.json")
_NOT_OPS: Final = {"wait", "init", "coalesced_start", "start_coalescing", "end_coalescing"}
_ALGO: Final = re.compile(r"_(RING|TREE|NVLS|COLLNET|PAT)_?(?:[A-Z]*_)?(LL128|LL|SIMPLE)")
_NEW_ALGO: Final = re.compile(r"_(RING|TREE|NVLS\w*|COLLNET\w*|PAT)_(LL128|LL|SIMPLE)")


class _Event(msgspec.Struct):
    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    pid: Any = None
    args: dict[str, Any] = {}


class _Group(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    backend_config: str = ""
    pg_size: int | None = None
    ranks: list[int] = []


class _Distributed(msgspec.Struct):
    backend: str | None = None
    rank: int | None = None
    world_size: int | None = None
    nccl_version: str | None = None
    pg_config: list[_Group] = []


_EVENTS: Final = msgspec.json.Decoder(list[_Event], strict=False)
_EVENT: Final = msgspec.json.Decoder(_Event, strict=False)
_DISTRIBUTED: Final = msgspec.json.Decoder(_Distributed, strict=False)


@dataclass(slots=True)
class _Call:
    """The CPU side of an operation (`record_param_comms`)."""

    ts: int
    args: dict[str, Any]


@dataclass(slots=True)
class _Trace:
    """What is known of one file while it is read."""

    file: EvidenceFile
    report: LoadReport
    base_ns: int = 0
    distributed: _Distributed = field(default_factory=_Distributed)
    pid: int | None = None
    calls: dict[int, _Call] = field(default_factory=lambda: dict[int, _Call]())
    used: set[int] = field(default_factory=lambda: set[int]())
    ops: list[dict[str, Any]] = field(default_factory=lambda: list[dict[str, Any]]())
    phases: list[tuple[str, str, int, int | None, int | None]] = field(
        default_factory=lambda: list[tuple[str, str, int, int | None, int | None]]()
    )
    has_kernels: bool = False


def group_ranks(args: dict[str, Any]) -> list[int] | None:
    """Return the members that an event's metadata gives, None where they are not all written."""
    text = args.get("Process Group Ranks")
    if isinstance(text, list):
        return [r for r in map(as_int, as_list(cast("Any", text))) if r is not None]
    if isinstance(text, str) and "." not in text and len(text) < 200_000:
        ranks = [int(r) for r in re.findall(r"\d{1,9}", text)]
        size = as_int(args.get("Group size"))
        if ranks and (size is None or size == len(ranks)):
            return ranks
    start, stride, size = (as_int(args.get(k)) for k in ("Global rank start", "Global rank stride", "Group size"))
    if start is None or stride is None or size is None or start < 0 or stride < 1 or not 0 < size <= 1 << 20:
        return None
    return list(range(start, start + stride * size, stride))


class KinetoLoader:
    """Reads Chrome traces written by torch.profiler."""

    name = "kineto"
    title = "torch.profiler (Kineto) trace"
    recognised_by = "JSON object with traceEvents, and schemaVersion, deviceProperties or distributedInfo"
    yields = "coll_ops with kernel start and duration per rank, steps and phases, communicators"

    def sniff(self, file: EvidenceFile) -> bool:
        """Look at the first bytes only; a gzip file is looked into."""
        head = file.head
        if head[:2] == b"\x1f\x8b":
            try:
                head = zlib.decompressobj(wbits=31).decompress(head, 1 << 16)
            except zlib.error:
                return False
        start = head.lstrip()[:1]
        if start != b"{":
            return False
        if b'"schemaVersion"' in head or b'"deviceProperties"' in head or b'"distributedInfo"' in head:
            return True
        return b'"traceEvents"' in head and (b'"Ev Idx"' in head or b'"External id"' in head or b"pt.trace" in head)

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read every trace; one rank each."""
        return [self._load_one(file, context) for file in files]

    def _load_one(self, file: EvidenceFile, context: LoadContext) -> LoadReport:
        report = LoadReport(file.file_id, self.name)
        trace = _Trace(file, report)
        scanner = JsonElements(["traceEvents"], list(_NEEDLES), _MAX_EVENT)
        for piece in pieces(file.path, report):
            batch: list[bytes] = []
            for is_member, key, value, _offset in scanner.feed(piece):
                if is_member:
                    self._member(trace, key, value)
                else:
                    batch.append(value)
            if batch:
                self._events(trace, batch)
        counts = scanner.finish()
        if counts["oversized"]:
            report.drop("event longer than 4 MiB", counts["oversized"])
        if counts["open"]:
            report.problems.append("the trace ends in the middle; kept what came before")
        if not counts["elements"]:
            report.problems.append("no traceEvents found; is this a complete torch.profiler export?")
        self._finish(trace, context)
        return report

    def _member(self, trace: _Trace, key: str, value: bytes) -> None:
        if key == "distributedInfo":
            try:
                trace.distributed = _DISTRIBUTED.decode(value)
            except (msgspec.MsgspecError, RecursionError, ValueError):
                trace.report.drop("distributedInfo not understood")
        elif key == "baseTimeNanoseconds":
            try:
                trace.base_ns = int(value)
            except ValueError:
                trace.report.drop("baseTimeNanoseconds is no number")

    def _events(self, trace: _Trace, batch: list[bytes]) -> None:
        try:
            events = _EVENTS.decode(b"[" + b",".join(batch) + b"]")
        except (msgspec.MsgspecError, RecursionError, ValueError):
            events: list[_Event] = []
            for raw in batch:
                try:
                    events.append(_EVENT.decode(raw))
                except (msgspec.MsgspecError, RecursionError, ValueError):
                    trace.report.drop("event is not valid JSON or has other types than expected")
        for event in events:
            self._event(trace, event)

    def _event(self, trace: _Trace, event: _Event) -> None:
        if event.ph == "M":
            if event.name == "process_labels" and event.args.get("labels") == "CPU":
                trace.pid = as_int(event.pid)
            return
        if event.ph != "X":
            return
        ts = micros_to_ns(bytes(event.ts))
        if ts is None:
            trace.report.drop("event without a time")
            return
        dur = micros_to_ns(bytes(event.dur))
        if event.cat == "kernel":
            if _KERNEL.match(event.name):
                trace.has_kernels = True
                self._op(trace, event.args, event.name, ts=ts, dur=dur, kernel=True)
        elif event.name == "record_param_comms":
            trace.pid = trace.pid or as_int(event.pid)
            key = as_int(event.args.get("External id"))
            name = event.args.get("Collective name")
            if key is not None and len(trace.calls) < _MAX_OPS and (name is None or name not in _NOT_OPS):
                trace.calls[key] = _Call(ts, event.args)
        elif event.cat == "user_annotation":
            self._phase(trace, event.name, ts, dur)

    def _phase(self, trace: _Trace, name: str, ts: int, dur: int | None) -> None:
        if name.startswith(("nccl:", "gloo:")):
            return
        if len(trace.phases) >= _MAX_PHASES:
            trace.report.drop(f"more than {_MAX_PHASES:,} annotations")
            return
        step = _STEP.match(name)
        if step:
            trace.phases.append(("step", "step", ts, dur, int(step[1][:15])))
        else:
            trace.phases.append(("phase", phase_name(name), ts, dur, None))

    def _op(self, trace: _Trace, args: dict[str, Any], name: str, *, ts: int, dur: int | None, kernel: bool) -> None:
        if len(trace.ops) >= _MAX_OPS:
            trace.report.drop(f"more than {_MAX_OPS:,} operations")
            return
        external = as_int(args.get("External id"))
        call = trace.calls.get(external) if kernel and external is not None else None
        meta = {**call.args, **args} if call else args
        if call is not None and external is not None:
            trace.used.add(external)
        spelled = meta.get("Collective name")
        op_name = spelled if isinstance(spelled, str) and spelled else name.partition("(")[0]
        kind = op_kind(op_name)
        algo, proto = kernel_shape(name)
        dtype = meta.get("dtype")
        dtype = dtype if isinstance(dtype, str) else None
        in_numel, out_numel = as_int(meta.get("In msg nelems")), as_int(meta.get("Out msg nelems"))
        width = dtype_bytes(dtype)
        numel = max((n for n in (in_numel, out_numel) if n is not None and n >= 0), default=None)
        peer = (
            as_int(meta.get("Dst Rank")) if kind == "send" else as_int(meta.get("Src Rank")) if kind == "recv" else None
        )
        group = meta.get("Process Group Name")
        trace.ops.append(
            {
                "group": group if isinstance(group, str) else None,
                "desc": meta.get("Process Group Description"),
                "ranks": group_ranks(meta),
                "op_seq": as_int(meta.get("Seq")),
                "op_kind": kind,
                "op_name": clip(op_name),
                "start": ts,
                "enq": call.ts if call else None if kernel else ts,
                "dur": dur if kernel else None,
                "kernel": kernel,
                "is_p2p": kind in ("send", "recv"),
                "peer": peer,
                "in_numel": in_numel,
                "out_numel": out_numel,
                "bytes": numel * width if numel is not None and width else None,
                "dtype": dtype,
                "algo": algo,
                "proto": proto,
                "stream": as_int(args.get("stream")),
            }
        )

    def _finish(self, trace: _Trace, context: LoadContext) -> None:
        """Give names to groups, numbers to operations that have none, and hand everything over."""
        report, info = trace.report, trace.distributed
        for key, call in trace.calls.items():
            # A call that launched nothing we saw: either the trace has no GPU side, or the kernel never started.
            if key not in trace.used and isinstance(call.args.get("Collective name"), str):
                self._op(trace, call.args, "", ts=call.ts, dur=None, kernel=False)
        rank = info.rank if info.rank is not None and info.rank >= 0 else rank_of_name(trace.file.name)
        report.rank = rank
        host = _FILE_HOST.search(trace.file.name)
        host_id = context.host(host[1]) if host else None
        pid = trace.pid if trace.pid is not None else int(host[2]) if host and len(host[2]) < 10 else None
        if rank is not None:
            facts: dict[str, int | str | None] = {"pid": pid}
            if host:
                facts["host"] = host[1]
            context.rank(rank, **{k: v for k, v in facts.items() if v is not None})
        events = RowBuffer(context, "events", report)
        for kind, name, ts, dur, value in trace.phases:
            events.add(
                ts=trace.base_ns + ts,
                time_quality="exact",
                rank=rank,
                host_id=host_id,
                pid=pid,
                level="info",
                kind=kind,
                source=self.name,
                name=clip(name),
                value=float(value) if value is not None else None,
                dur_ms=dur / 1e6 if dur is not None else None,
                file_id=trace.file.file_id,
            )
        if info.nccl_version:
            events.add(
                rank=rank,
                kind="nccl_version",
                level="info",
                source=self.name,
                name=clip(info.nccl_version),
                text=clip(f"NCCL version {info.nccl_version}"),
                file_id=trace.file.file_id,
            )
        events.flush()
        if not trace.ops:
            return
        if rank is None:
            report.drop(
                "operation of an unknown rank: no distributedInfo, and no rank in the file name", len(trace.ops)
            )
            return
        self._emit_ops(trace, rank, context)

    def _emit_ops(self, trace: _Trace, rank: int, context: LoadContext) -> None:
        groups = {g.pg_name: g for g in trace.distributed.pg_config}
        comms: dict[tuple[str, tuple[int, ...]], int] = {}
        trace.ops.sort(key=lambda op: op["start"])
        numbers: dict[tuple[int, Any], int] = {}
        streams: dict[tuple[int, int], int] = {}
        rows: list[dict[str, Any]] = []
        for op in trace.ops:
            known = groups.get(op["group"] or "")
            ranks = known.ranks if known and known.ranks else op["ranks"]
            # Without metadata the stream tells groups apart: torch gives each group its own.
            name = op["group"] if op["group"] is not None else f"stream {op['stream']}"
            key = (name, tuple(ranks or ()))
            comm = comms.get(key)
            if comm is None:
                desc = known.pg_desc if known else op["desc"]
                comm = context.comm(
                    name,
                    ranks=ranks or None,
                    desc=desc if isinstance(desc, str) and desc else None,
                    backend=trace.distributed.backend or "nccl",
                    source="trace",
                )
                comms[key] = comm
            seq = op["op_seq"]
            if seq is None:
                # Older traces have no Seq: the n-th operation of a group here is the n-th on its other members,
                # as far as the profiler was switched on at the same step everywhere.
                slot = (comm, ("p2p", op["peer"], op["op_kind"]) if op["is_p2p"] else "coll")
                seq = numbers.get(slot, 0)
                numbers[slot] = seq + 1
            start, dur = trace.base_ns + op["start"], op["dur"]
            stream = op["stream"]
            before = streams.get((comm, stream)) if stream is not None else None
            if op["kernel"] and stream is not None and dur is not None:
                streams[(comm, stream)] = start + dur
            rows.append(
                {
                    "rank": rank,
                    "comm_id": comm,
                    "op_seq": seq,
                    "op_kind": op["op_kind"],
                    "op_name": op["op_name"],
                    "start_ts": start,
                    "enq_ts": trace.base_ns + op["enq"] if op["enq"] is not None else None,
                    "kstart_ts": start if op["kernel"] else None,
                    "dep_end_ts": before,
                    "dur_ns": dur,
                    "end_is_derived": False,
                    # A kernel in the trace has ended: the profiler writes it when it is complete.
                    "state": "completed" if op["kernel"] else "scheduled",
                    "is_p2p": op["is_p2p"],
                    "peer": op["peer"],
                    "bytes": op["bytes"],
                    "in_numel": op["in_numel"],
                    "out_numel": op["out_numel"],
                    "dtype": op["dtype"],
                    "algo": op["algo"],
                    "proto": op["proto"],
                    "stream": stream,
                    "file_id": trace.file.file_id,
                }
            )
        buffer = RowBuffer(context, "coll_ops", trace.report)
        for row in rows:
            buffer.add(**row)
        buffer.flush()


def kernel_shape(name: str) -> tuple[str | None, str | None]:
    """Return algorithm and protocol that an NCCL kernel's name carries (`…_RING_LL…`); None where it has none."""
    match = _NEW_ALGO.search(name) or _ALGO.search(name)
    return (match[1], match[2]) if match else (None, None)


def phase_name(annotation: str) -> str:
    """Return one word for what the program does in a user annotation; the annotation itself where we know none."""
    text = annotation.lower()
    if "dataloader" in text or "data_load" in text or "load_batch" in text or "wait_for_batch" in text:
        return "dataloader"
    if "checkpoint" in text or "save" in text:
        return "checkpoint"
    return annotation.strip("# ")


def rank_of_name(name: str) -> int | None:
    """Return the rank that a file name gives (`rank_3.json`, `trace_r12.json.gz`); None where it gives none or two."""
    found = {int(m) for m in _FILE_RANK.findall(name.rpartition("/")[2]) if len(m) < 8}
    return found.pop() if len(found) == 1 else None
