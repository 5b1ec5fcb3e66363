"""Chakra execution traces: protocol buffers (`.et`) and the JSON of torch's execution trace observer.

The protobuf file is a run of length-delimited messages: one GlobalMetadata, then Nodes. What we take are the
communication nodes with their process group, kind and size. Start times are rare in them (the format describes a
dependency graph); without one a node gives the order and the duration only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mycroft.loaders import json_values as jv
from mycroft.loaders import protobuf as pb
from mycroft.loaders._core import JsonElements
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.byte_stream import pieces
from mycroft.loaders.op_names import dtype_bytes, op_kind
from mycroft.loaders.rows import RowBuffer, clip

_MAX_NODE: Final = 16 << 20
_SEND, _RECV, _COLL = 5, 6, 7
_COLLECTIVES: Final = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter",
    "barrier",
)
_RANK: Final = re.compile(r"(?:rank|npu)?[._-]?(\d+)(?:\.json)?(?:\.et)?(?:\.json)?$")
# AttributeProto: name 1, then one of the scalar fields.
_SCALARS: Final = {7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27}


class ChakraLoader:
    """Reads Chakra traces in both encodings."""

    name = "chakra"
    title = "Chakra execution trace (.et protobuf, or JSON of torch's observer)"
    recognised_by = "a length-delimited GlobalMetadata with version or schema; JSON with schema …chakra… and nodes"
    yields = "coll_ops in program order, sizes, process groups"

    def sniff(self, file: EvidenceFile) -> bool:
        """JSON by its schema; protobuf by its first message."""
        head = file.head
        if head.lstrip()[:1] == b"{":
            return (
                b'"schema"' in head
                and b'"nodes"' in head
                and (b'"ctrl_deps"' in head or b'"rf_id"' in head or b"chakra" in head)
            )
        return file.name.endswith((".et", ".chakra", ".eg")) and _first_message(head) is not None

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read each file; one rank each."""
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.file_id, self.name)
            report.rank = _rank(file.name)
            buffer = RowBuffer(context, "coll_ops", report)
            nodes = _json_nodes(file, report) if file.head.lstrip()[:1] == b"{" else _proto_nodes(file, report)
            numbers: dict[tuple[int, str], int] = {}
            for node in nodes:
                rank = report.rank if report.rank is not None else node.get("rank")
                if rank is None:
                    report.drop("node of an unknown rank: put the rank into the file name")
                    continue
                report.rank = rank
                comm = context.comm(
                    node["group"] or "unknown", ranks=node["ranks"], desc=node["desc"], backend="nccl", source="trace"
                )
                slot = (comm, node["kind"] if node["kind"] in ("send", "recv") else "coll")
                seq = node["seq"]
                if seq is None:
                    seq = numbers.get(slot, 0)
                    numbers[slot] = seq + 1
                start = node["start_ns"]
                buffer.add(
                    rank=rank,
                    comm_id=comm,
                    op_seq=seq,
                    op_kind=node["kind"],
                    op_name=clip(node["name"]),
                    start_ts=start,
                    enq_ts=start,
                    dur_ns=node["dur_ns"],
                    state="completed" if node["dur_ns"] is not None else "scheduled",
                    is_p2p=node["kind"] in ("send", "recv"),
                    bytes=node["bytes"],
                    in_numel=node["in_numel"],
                    out_numel=node["out_numel"],
                    dtype=node["dtype"],
                    record_id=node["id"],
                    file_id=file.file_id,
                    line=node["line"],
                )
            buffer.flush()
            reports.append(report)
        return reports


def _rank(name: str) -> int | None:
    match = _RANK.search(name.rpartition("/")[2].removesuffix(".gz"))
    return int(match[1]) if match and len(match[1]) < 8 else None


def _first_message(head: bytes) -> bytes | None:
    try:
        size, at = pb.varint(head, 0)
        if not 0 < size <= len(head) - at:
            return None
        data = head[at : at + size]
        known = [(number, wire) for number, wire, _value in pb.fields(data)]
    except pb.WireError:
        return None
    return data if known and all(number in (1, 2) and wire == pb.BYTES for number, wire in known) else None


def _proto_nodes(file: EvidenceFile, report: LoadReport) -> Iterator[dict[str, Any]]:
    held = b""
    count = 0
    for piece in pieces(file.path, report):
        held += piece
        at = 0
        while True:
            try:
                size, body = pb.varint(held[at : at + 10], 0)
            except pb.WireError:
                break
            if size > _MAX_NODE:
                report.problems.append(f"node {count} announces {size:,} bytes; stopped there")
                return
            if at + body + size > len(held):
                break
            data = held[at + body : at + body + size]
            at += body + size
            count += 1
            if count == 1:
                continue
            try:
                node = _proto_node(data, count)
            except pb.WireError:
                report.drop("node broken")
                continue
            if node is not None:
                yield node
        held = held[at:]
    if held:
        report.problems.append("the trace ends in the middle of a node; kept what came before")


def _proto_node(data: bytes, line: int) -> dict[str, Any] | None:
    values: dict[int, int | bytes] = {}
    attrs: dict[str, int | str] = {}
    for number, _wire, value in pb.fields(data):
        if number == 10:
            name, found = _attribute(pb.message(value))
            if found is not None:
                attrs[name] = found
        else:
            values[number] = value
    node_type = pb.number(values.get(3, 0))
    if node_type not in (_SEND, _RECV, _COLL):
        return None
    start, dur = pb.number(values.get(6, 0)), pb.number(values.get(7, 0))
    code = attrs.get("comm_type")
    name = pb.text(values.get(2, b""))
    kind = "send" if node_type == _SEND else "recv" if node_type == _RECV else op_kind(name)
    if node_type == _COLL and isinstance(code, int) and 0 <= code < len(_COLLECTIVES):
        kind = _COLLECTIVES[code]
    size = attrs.get("comm_size")
    group = attrs.get("pg_name")
    return {
        "id": pb.number(values.get(1, 0)),
        "line": line,
        "name": name,
        "kind": kind,
        "group": str(group) if group is not None else None,
        "desc": None,
        "ranks": None,
        "seq": None,
        "rank": None,
        "start_ns": start * 1000 if start else None,
        "dur_ns": dur * 1000 if dur else None,
        "bytes": size if isinstance(size, int) else None,
        "in_numel": None,
        "out_numel": None,
        "dtype": None,
    }


def _attribute(data: bytes) -> tuple[str, int | str | None]:
    name, found = "", None
    for number, wire, value in pb.fields(data):
        if number == 1:
            name = pb.text(value)
        elif number == 29:
            found = pb.text(value)
        elif number in _SCALARS and wire == pb.VARINT:
            found = pb.signed(value)
            if number in (15, 17):
                found = (pb.number(value) >> 1) ^ -(pb.number(value) & 1)
    return name, found


def _json_nodes(file: EvidenceFile, report: LoadReport) -> Iterator[dict[str, Any]]:
    scanner = JsonElements(["nodes"], ["record_param_comms", "nccl"], _MAX_NODE)
    count = 0
    for piece in pieces(file.path, report):
        for is_member, _key, raw, _offset in scanner.feed(piece):
            if is_member:
                continue
            count += 1
            node = _json_node(jv.as_dict(jv.decode(raw)), count)
            if node is not None:
                yield node
    counts = scanner.finish()
    if counts["open"]:
        report.problems.append("the trace ends in the middle; kept what came before")


def _json_node(node: dict[str, Any], line: int) -> dict[str, Any] | None:
    if node.get("name") != "record_param_comms":
        return None
    attrs = {
        str(a.get("name")): a.get("value") for a in map(jv.as_dict, jv.as_list(node.get("attrs"))) if "name" in a
    } or node
    spelled = jv.as_text(attrs.get("collective_name"))
    if spelled is None or spelled in ("wait", "init"):
        return None
    start, stride, size = (jv.as_int(attrs.get(k)) for k in ("global_rank_start", "global_rank_stride", "pg_size"))
    ranks = None
    if start is not None and stride and size and start >= 0 and stride > 0 and 0 < size <= 1 << 20:
        ranks = list(range(start, start + stride * size, stride))
    dtype = jv.as_text(attrs.get("dtype"))
    numels = (jv.as_int(attrs.get("in_msg_nelems")), jv.as_int(attrs.get("out_msg_nelems")))
    width = dtype_bytes(dtype)
    most = max((n for n in numels if n is not None and n >= 0), default=None)
    ts, dur = jv.as_float(node.get("ts")), jv.as_float(node.get("dur"))
    return {
        "id": jv.as_int(node.get("id")),
        "line": line,
        "name": spelled,
        "kind": op_kind(spelled),
        "group": jv.as_text(attrs.get("pg_name")),
        "desc": jv.as_text(attrs.get("pg_desc")),
        "ranks": ranks,
        "seq": jv.as_int(attrs.get("seq")),
        "rank": None,
        "start_ns": round(ts * 1000) if ts is not None else None,
        "dur_ns": round(dur * 1000) if dur is not None else None,
        "bytes": most * width if most is not None and width else None,
        "in_numel": numels[0],
        "out_numel": numels[1],
        "dtype": dtype,
    }
