"""The trace of NCCL's example profiler plug-in: a Chrome trace array, one file per process or thread.

Every event is a pair `b` and `e` with one id; a `b` without its `e` was in flight when the file was written. Early
versions write names and pointers without quotes, and a process that dies leaves the array open: both are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mycroft.loaders import json_values as jv
from mycroft.loaders import profiled_ops
from mycroft.loaders._core import JsonElements
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.byte_stream import pieces
from mycroft.loaders.comm_ranks import CommRanks
from mycroft.loaders.op_names import dtype_bytes
from mycroft.loaders.profiled_ops import ProfiledOp

_FILE: Final = re.compile(r"-([A-Za-z][\w.-]*?)-(\d+)\.(?:txt|json)$")
_MAX_OPS: Final = 2_000_000


class _Event(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ph: str = ""
    id: int = -1
    pid: int | None = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    args: dict[str, Any] = {}


_EVENT: Final = msgspec.json.Decoder(_Event, strict=False)


class ExampleProfilerLoader:
    """Reads the output of the profiler that comes with NCCL as an example."""

    name = "example_profiler"
    title = "NCCL example profiler (Chrome trace array)"
    recognised_by = "JSON array of events with cat COLL, GROUP_API, PROXY and args CommHash or SeqNum"
    yields = "coll_ops and op_perf events; operations that never ended"

    def sniff(self, file: EvidenceFile) -> bool:
        """An array that speaks of NCCL's event categories."""
        head = file.head
        if head.lstrip()[:1] != b"[":
            return False
        return b'"CommHash"' in head or (b'"cat"' in head and (b'"GROUP_API"' in head or b'"COLL_API"' in head))

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all files, then put their clocks together."""
        ranks, ops = CommRanks(), list[ProfiledOp]()
        reports = {file.file_id: LoadReport(file.file_id, self.name) for file in files}
        for file in files:
            ops += self._read(file, reports[file.file_id], ranks)
        profiled_ops.emit(ops, ranks, context, reports, self.name)
        return list(reports.values())

    def _read(self, file: EvidenceFile, report: LoadReport, ranks: CommRanks) -> list[ProfiledOp]:
        scanner = JsonElements([], ['"COLL"', '"P2P"', '"GPU"'], 1 << 20)
        done: list[ProfiledOp] = []
        live: dict[tuple[str, int], ProfiledOp] = {}
        last: ProfiledOp | None = None
        number = 0
        for piece in pieces(file.path, report):
            for is_member, _key, raw, _offset in scanner.feed(piece):
                if is_member:
                    continue
                number += 1
                event = _decode(raw)
                if event is None:
                    report.drop("event not understood")
                    continue
                ts = jv.micros_to_ns(bytes(event.ts))
                if event.cat == "GPU":
                    # The kernel's channel events stand inside their collective's pair.
                    if event.ph == "b" and last is not None and ts:
                        _kernel_start(last, ts)
                    continue
                if event.ph == "b" and len(done) < _MAX_OPS:
                    op = _begin(file, number, event, ts, ranks)
                    if op is None:
                        report.drop("operation without communicator or rank")
                        continue
                    live[event.cat, event.id] = last = op
                    done.append(op)
                elif event.ph == "e":
                    op = live.pop((event.cat, event.id), None)
                    if op is None:
                        report.drop("end without a beginning")
                    elif ts:
                        op.end_ns, op.stuck = ts, False
        counts = scanner.finish()
        if counts["oversized"]:
            report.drop("event longer than 1 MiB", counts["oversized"])
        return done


def _kernel_start(op: ProfiledOp, ts: int) -> None:
    """Take the earliest kernel start for the arrival; before the call itself there is none."""
    if op.enq_ns is not None and ts < op.enq_ns:
        return
    if op.start_ns == op.enq_ns or op.start_ns is None or ts < op.start_ns:
        op.start_ns = ts


def _decode(raw: bytes) -> _Event | None:
    try:
        return _EVENT.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass
    try:
        return _EVENT.decode(jv.repaired(raw))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _begin(file: EvidenceFile, number: int, event: _Event, ts: int | None, ranks: CommRanks) -> ProfiledOp | None:
    args = event.args
    hash_, rank = jv.as_int(args.get("CommHash")), jv.as_int(args.get("Rank"))
    if hash_ is None or not 0 <= hash_ < 2**64 or rank is None or rank < 0:
        return None
    named = _FILE.search(file.name.rpartition("/")[2])
    process = (named[1], event.pid) if named and event.pid is not None else ("", file.file_id)
    ranks.see(hash_, jv.as_int(args.get("nRanks")), rank, process)
    dtype = jv.as_text(args.get("Datatype"))
    count, width = jv.as_int(args.get("Count")), dtype_bytes(dtype)
    return ProfiledOp(
        file_id=file.file_id,
        line=number,
        clock=file.file_id,
        hash=hash_,
        comm_rank=rank,
        seq=jv.as_int(args.get("SeqNum")),
        name=event.name,
        start_ns=ts,
        end_ns=None,
        enq_ns=ts,
        bytes=count * width if count is not None and width else None,
        count=count,
        dtype=dtype,
        algo=jv.as_text(args.get("Algorithm")),
        proto=jv.as_text(args.get("Protocol")),
        channels=jv.as_int(args.get("nChannels")),
        peer=jv.as_int(args.get("Peer")) if event.cat == "P2P" else None,
        stuck=True,
    )
