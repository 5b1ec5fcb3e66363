"""Chakra traces, both encodings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.chakra import ChakraLoader
from tests.loaders.proto_bytes import field, varint
from tests.loaders.sources import columns, dropped, load_with, ns, problems

META = field(1, "0.0.4")


def attribute(name: str, value: int | str) -> bytes:
    return field(10, field(1, name) + (field(29, value) if isinstance(value, str) else field(9, value)))


def node(
    kind: int = 7, code: int | None = 0, *, start: int = 100, dur: int = 30, group: str = "2", id_: int = 5
) -> bytes:
    body = field(1, id_) + field(2, "ncclDevKernel_X") + field(3, kind) + field(6, start) + field(7, dur)
    body += attribute("comm_size", 4096) + attribute("pg_name", group)
    return body + (attribute("comm_type", code) if code is not None else b"")


def trace(*messages: bytes) -> bytes:
    return b"".join(varint(len(message)) + message for message in (META, *messages))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(0, "all_reduce"), (2, "all_gather"), (5, "broadcast"), (6, "all_to_all"), (7, "reduce_scatter"), (9, "barrier")],
)
def test_kinds_of_collectives(tmp_path: Path, code: int, kind: str) -> None:
    found = load_with(ChakraLoader(), tmp_path, {"job.3.et": trace(node(code=code))})
    (op,) = found.rows("coll_ops")
    wanted = {"rank": 3, "op_kind": kind, "bytes": 4096, "dur_ns": 30_000, "state": "completed", "record_id": 5}
    assert {key: op[key] for key in wanted} == wanted
    assert ns(found, "start_ts") == [100_000]
    assert list(found.comms) == [("2", None)]


def test_sends_are_numbered_apart_from_collectives(tmp_path: Path) -> None:
    content = trace(node(), node(5, None), node(6, None), node(), node(3), node(5, None, group="4"))
    found = load_with(ChakraLoader(), tmp_path, {"rank_1.et": content})
    assert columns(found, "op_kind", "op_seq", "is_p2p", "line") == [
        ("all_reduce", 0, False, 2),
        ("send", 0, True, 3),
        ("recv", 0, True, 4),
        ("all_reduce", 1, False, 5),
        ("send", 0, True, 7),
    ]


def test_without_times_a_node_has_only_its_place(tmp_path: Path) -> None:
    (op,) = load_with(ChakraLoader(), tmp_path, {"rank_1.et": trace(node(start=0, dur=0))}).rows("coll_ops")
    assert op["state"] == "scheduled"
    assert "start_ts" not in op


def test_a_trace_cut_short_or_broken(tmp_path: Path) -> None:
    found = load_with(ChakraLoader(), tmp_path, {"rank_1.et": trace(node(), b"\x0b", node())[:-9]})
    assert len(found.rows("coll_ops")) == 1
    assert dropped(found) == {"node broken": 1}
    assert "in the middle of a node" in problems(found)


def test_a_node_that_announces_too_much(tmp_path: Path) -> None:
    found = load_with(ChakraLoader(), tmp_path, {"rank_1.et": trace(node()) + varint(1 << 40)})
    assert "announces" in problems(found)


def test_a_trace_of_nobody(tmp_path: Path) -> None:
    found = load_with(ChakraLoader(), tmp_path, {"trace.et": trace(node())})
    assert dropped(found) == {"node of an unknown rank: put the rank into the file name": 1}


def observed(**more: Any) -> dict[str, Any]:
    values = {
        "collective_name": "allreduce",
        "pg_name": "9",
        "pg_desc": "mesh_tp",
        "seq": 12,
        "dtype": "BFloat16",
        "in_msg_nelems": 1000,
        "out_msg_nelems": 1000,
        "global_rank_start": 4,
        "global_rank_stride": 2,
        "pg_size": 3,
        **more,
    }
    return {
        "id": 40,
        "name": "record_param_comms",
        "ctrl_deps": 3,
        "inputs": {},
        "attrs": [{"name": "rf_id", "type": "uint64", "value": 7}]
        + [{"name": key, "type": "x", "value": value} for key, value in values.items()],
    }


def json_trace(*nodes: dict[str, Any]) -> bytes:
    return json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "x", "nodes": list(nodes)}).encode()


def test_torch_s_observer(tmp_path: Path) -> None:
    other = {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "attrs": []}
    content = json_trace(other, observed(), observed(collective_name="wait"), observed(collective_name="init"))
    found = load_with(ChakraLoader(), tmp_path, {"rank-4.json": content})
    (op,) = found.rows("coll_ops")
    wanted = {"rank": 4, "op_kind": "all_reduce", "op_seq": 12, "bytes": 2000, "in_numel": 1000, "record_id": 40}
    assert {key: op[key] for key in wanted} == wanted
    assert list(found.comms) == [("9", "mesh_tp")]


def test_a_json_trace_cut_short(tmp_path: Path) -> None:
    content = json_trace(observed(), observed())
    found = load_with(ChakraLoader(), tmp_path, {"rank-4.json": content[: len(content) * 3 // 4]})
    assert len(found.rows("coll_ops")) == 1
    assert "ends in the middle" in problems(found)


@pytest.mark.parametrize("value", ["x", [1], None, -1, 2**70, 1e300])
def test_members_of_a_wrong_kind_do_no_harm(tmp_path: Path, value: Any) -> None:
    for key in ("collective_name", "pg_name", "seq", "dtype", "in_msg_nelems", "global_rank_start", "pg_size"):
        content = json_trace(observed(), observed(**{key: value}))
        found = load_with(ChakraLoader(), tmp_path / key, {"rank-4.json": content})
        assert (4, 12) in [(row["rank"], row.get("op_seq")) for row in found.rows("coll_ops")], key


@pytest.mark.parametrize(
    ("name", "head", "taken"),
    [
        ("a.et", trace(node())[:40], True),
        ("a.bin", trace(node())[:40], False),
        ("a.et", b"\xff\xff", False),
        ("a.json", b'{"schema": "1.0", "nodes": [{"ctrl_deps": 1', True),
        ("a.json", b'{"nodes": [{"ctrl_deps": 1', False),
    ],
)
def test_what_is_taken(tmp_path: Path, name: str, head: bytes, taken: bool) -> None:
    assert ChakraLoader().sniff(EvidenceFile(0, name, tmp_path, len(head), "", head)) is taken
