"""CoMMA, Google's NCCL profiler: one JSON object per operation, with the network steps of its proxies.

`dur` of a collective is often only the time to enqueue it; `child_start_ts` and `child_dur` are its execution.
`reclaimed` says that the operation had not ended when the plug-in gave up on it: direct evidence of a stuck one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mycroft.loaders import json_values as jv
from mycroft.loaders import profiled_ops
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.byte_stream import split_lines
from mycroft.loaders.comm_ranks import CommRanks
from mycroft.loaders.profiled_ops import ProfiledOp
from mycroft.loaders.wrapped_json import plain_head, plain_pieces

_WORDS: Final = (b'"comm_hash"',)
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_HOST: Final = re.compile(r"([A-Za-z][\w.]*(?:-[\w.]+)*?)[-_.](?:pid)?(\d{2,})\b")
_MAX_OPS: Final = 2_000_000


class CommaLoader:
    """Reads the latency files of CoMMA."""

    name = "comma"
    title = "CoMMA operation records (JSON lines)"
    recognised_by = "JSON objects with comm_hash, seq_num or proxyops, and cat COLL, P2P or PROXY"
    yields = "coll_ops and op_perf events; operations that never ended"

    def sniff(self, file: EvidenceFile) -> bool:
        """Look for the record's own words."""
        head = plain_head(file)
        return b'"comm_hash"' in head and b'"cat"' in head and (b'"COLL"' in head or b'"P2P"' in head)

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all files, then put their clocks together."""
        ranks, ops = CommRanks(), list[ProfiledOp]()
        reports = {file.file_id: LoadReport(file.file_id, self.name) for file in files}
        for file in files:
            report = reports[file.file_id]
            for number, line in split_lines(plain_pieces(file, report, _WORDS), report):
                text = line.strip().rstrip(b",")
                if text in (b"", b"[", b"]"):
                    continue
                try:
                    record = _DECODER.decode(text)
                except (msgspec.MsgspecError, RecursionError, ValueError):
                    report.drop("record cut short or broken")
                    continue
                if len(ops) >= _MAX_OPS:
                    report.drop(f"more than {_MAX_OPS:,} operations")
                    continue
                op = _op(file, number, record, ranks)
                if op is not None:
                    ops.append(op)
                elif record.get("cat") not in ("GROUP", "PROXY"):
                    report.drop("record without communicator, rank or name")
        profiled_ops.emit(ops, ranks, context, reports, self.name)
        return list(reports.values())


def _op(file: EvidenceFile, number: int, record: dict[str, Any], ranks: CommRanks) -> ProfiledOp | None:
    hash_, rank = jv.as_int(record.get("comm_hash")), jv.as_int(record.get("rank"))
    name, cat = jv.as_text(record.get("name")), record.get("cat")
    if hash_ is None or not 0 <= hash_ < 2**64 or rank is None or rank < 0 or name is None:
        return None
    if cat not in ("COLL", "P2P"):
        return None
    proxies = [jv.as_dict(p) for p in jv.as_list(record.get("proxyops"))]
    pid = jv.as_int(record.get("pid")) or next((p for x in proxies if (p := jv.as_int(x.get("pid")))), None)
    named = _HOST.search(file.name.rpartition("/")[2])
    process = (named[1], pid) if named and pid is not None else ("", file.file_id)
    ranks.see(hash_, jv.as_int(record.get("n_ranks")), rank, process)
    start, dur = jv.as_int(record.get("ts")), jv.as_int(record.get("dur"))
    child, child_dur = jv.as_int(record.get("child_start_ts")), jv.as_int(record.get("child_dur"))
    if child is None and child_dur is not None:
        child = min((t for p in proxies if (t := jv.as_int(p.get("ts")))), default=start)
    begun = child if child is not None else start
    length = child_dur if child_dur is not None else dur
    stuck = record.get("reclaimed") is True
    end = begun + length if begun is not None and length is not None and not stuck else None
    return ProfiledOp(
        file_id=file.file_id,
        line=number,
        clock=file.file_id,
        hash=hash_,
        comm_rank=rank,
        seq=jv.as_int(record.get("seq_num")),
        name=name,
        start_ns=begun * 1000 if begun is not None else None,
        end_ns=end * 1000 if end is not None else None,
        enq_ns=start * 1000 if start is not None else None,
        bytes=jv.as_int(jv.as_dict(record.get("args")).get("size")),
        algo=jv.as_text(record.get("algo")),
        proto=jv.as_text(record.get("proto")),
        channels=jv.as_int(record.get("n_max_channel")),
        peer=jv.as_int(record.get("peer")) if cat == "P2P" else None,
        stuck=stuck,
    )
