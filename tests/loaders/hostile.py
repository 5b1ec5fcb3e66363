"""Pickles that somebody made in order to harm: byte by byte, since no pickler writes them."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

PROTO = b"\x80\x02"


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def put(slot: int) -> bytes:
    return b"r" + struct.pack("<I", slot)


def get(slot: int) -> bytes:
    return b"j" + struct.pack("<I", slot)


class Runs:
    """An object whose pickle calls `os.system` when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


def executing(marker: Path) -> dict[str, bytes]:
    """Pickles of every shape that make the file `marker` when an ordinary unpickler loads them."""
    command = f"touch {marker}"
    shapes: dict[str, bytes] = {
        f"REDUCE, protocol {protocol}": pickle.dumps(Runs(command), protocol=protocol) for protocol in range(6)
    }
    entry = {"profiling_name": "nccl:all_reduce", "collective_seq_id": 1, "frames": Runs(command)}
    shapes["inside an entry"] = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [entry]}, protocol=2)
    shapes["as a key"] = pickle.dumps({"version": "2.10", "entries": []}, protocol=2)[:-2] + (
        b"(cos\nsystem\nX" + struct.pack("<I", len(command)) + command.encode() + b"\x85RNu."
    )
    shapes["INST"] = f"(S'{command}'\nios\nsystem\n.".encode()
    shapes["OBJ"] = PROTO + b"(cos\nsystem\n" + text(command) + b"o."
    shapes["STACK_GLOBAL"] = b"\x80\x04\x8c\x02os\x8c\x06system\x93" + text(command) + b"\x85R."
    shapes["NEWOBJ"] = PROTO + b"csubprocess\nPopen\n" + text(command) + b"\x85\x81."
    shapes["BUILD"] = PROTO + b"cos\nsystem\n}(" + text("a") + text(command) + b"ub."
    shapes["EXT1"] = PROTO + b"\x82\x01."
    shapes["PERSID"] = b"P" + command.encode() + b"\n."
    shapes["BINPERSID"] = PROTO + text(command) + b"Q."
    return shapes


def laughs(levels: int) -> bytes:
    """Lists of ten references to the list before: a few hundred bytes that stand for 10**levels values."""
    parts = [PROTO, b"]", put(0), b"(", b"K\x01" * 10, b"e"]
    for level in range(1, levels):
        parts += [b"]", put(level), b"(", get(level - 1) * 10, b"e"]
    return b"".join(parts)


def dump_with(field: str, value: bytes, *, entries: int = 1) -> bytes:
    """A dump of which one field of each entry is `value`, opcodes as they are."""
    entry = b"}(" + text("profiling_name") + text("nccl:all_reduce") + text(field) + value + b"u"
    return PROTO + b"}(" + text("version") + text("2.10") + text("entries") + b"](" + entry * entries + b"eu."


def bombs() -> dict[str, bytes]:
    """Small files that make an ordinary reader take gigabytes or run for ever."""
    long_list = b"](" + b"K\x01" * 200_000 + b"e"
    shared = b"]" + put(7) + long_list[1:]
    return {
        "nine bytes, three gigabytes": PROTO + b"Nr" + struct.pack("<I", 200_000_000) + b".",
        "rising memo slots": PROTO + b"".join(b"N" + put(slot * 1_000_000) for slot in range(1, 200)) + b".",
        "billion laughs as root": laughs(60) + b"0" * 0 + b".",
        "billion laughs as sizes": dump_with("input_sizes", laughs(50)[2:]),
        "one long list in every tensor": PROTO
        + b"}("
        + text("entries")
        + b"](}("
        + text("profiling_name")
        + text("x:y")
        + text("input_sizes")
        + b"]("
        + shared
        + get(7) * 100_000
        + b"eueu.",
        "one entry a million times": PROTO
        + b"}("
        + text("entries")
        + b"](}"
        + put(1)
        + b"("
        + text("profiling_name")
        + text("x:y")
        + b"u"
        + get(1) * 300_000
        + b"eu.",
        "length of four gigabytes": PROTO + b"X\xff\xff\xff\xff",
        "length of eight exabytes": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f",
        "frame of eight exabytes": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f}.",
        "open marks": PROTO + b"(" * 2_000_000 + b".",
        "nested lists": PROTO + b"]" * 1_000_000 + b"a" * 999_999 + b".",
        "nested tuples": PROTO + b")" + b"\x85" * 1_000_000 + b".",
        "two million empty dicts": PROTO + b"](" + b"}" * 2_000_000 + b"e.",
        "one long text in every frame": PROTO
        + b"}("
        + text("entries")
        + b"](}("
        + text("profiling_name")
        + text("x:y")
        + text("frames")
        + b"](}("
        + text("name")
        + text("x" * 100_000)
        + put(3)
        + b"u"
        + b"".join(
            b"}(" + text("name") + get(3) + text("line") + b"J" + struct.pack("<i", i) + b"u" for i in range(20_000)
        )
        + b"eueu.",
    }


def shared_by_rows() -> dict[str, bytes]:
    """Dumps whose rows share what is long, so that each row would be long when it is written out."""
    name = text("profiling_name") + text("nccl:all_reduce")
    entries = 100_000
    long_sizes = b"](](" + b"K\x01" * 30_000 + b"ee"
    row = b"}(" + name + text("input_sizes")
    long_frame = b"}(" + text("name") + text("f" * 200_000) + b"u"
    stacks = b"".join(b"}(" + name + text("frames") + b"](" + get(5) * (100 + i) + b"eu" for i in range(2000))
    head = PROTO + b"}(" + text("version") + text("2.10")
    groups = b"".join(text(str(i)) + b"}(" + text("ranks") + text(f"[{i}]") + b"u" for i in range(200_000))
    every = b"".join(
        b"}("
        + name
        + text("pg_id")
        + b"J"
        + struct.pack("<i", i)
        + text("process_group")
        + text(str(i))
        + text("d")
        + b"\x86u"
        for i in range(150_000)
    )
    return {
        "long sizes in every row": head
        + text("entries")
        + b"]("
        + row
        + long_sizes
        + put(5)
        + b"u"
        + (row + get(5) + b"u") * entries
        + b"eu.",
        "long frame in every stack": head
        + text("junk")
        + long_frame
        + put(5)
        + text("entries")
        + b"]("
        + stacks
        + b"eu.",
        "two hundred thousand groups": head + text("pg_config") + b"}(" + groups + b"u" + text("entries") + b"]u.",
        "a group for every entry": head + text("entries") + b"](" + every + b"eu.",
    }


def recursive() -> dict[str, bytes]:
    """Values that contain themselves."""
    return {
        "list in itself": PROTO + b"]" + put(0) + b"(" + get(0) + b"e.",
        "list appended to itself": PROTO + b"]" + put(0) + get(0) + b"a.",
        "dict in itself": PROTO + b"}" + put(0) + b"(" + text("entries") + get(0) + b"u.",
        "filled after it was stored": PROTO
        + b"]"
        + put(0)
        + b"(]"
        + put(1)
        + b"("
        + get(1)
        + b"ee"
        + get(1)
        + b"("
        + get(0)
        + b"ee.",
    }


def malformed() -> dict[str, bytes]:
    """What no pickler writes."""
    return {
        "empty stack at STOP": PROTO + b".",
        "values left at STOP": PROTO + b"NN.",
        "APPENDS without MARK": PROTO + b"]e.",
        "SETITEMS without dict": PROTO + b"](NNu.",
        "APPENDS without list": PROTO + b"}(Ne.",
        "SETITEMS with odd count": PROTO + b"}(" + text("a") + b"u.",
        "key that is a list": PROTO + b"}(]Nu.",
        "TUPLE2 of one": PROTO + b"N\x86.",
        "TUPLE3 over a MARK": PROTO + b"(NN\x87.",
        "BINGET of nothing": PROTO + b"h\x05.",
        "BINPUT of nothing": PROTO + b"q\x00.",
        "BINPUT of a MARK": PROTO + b"(q\x00.",
        "MEMOIZE of nothing": b"\x80\x04\x94.",
        "PROTO twice": PROTO + PROTO + b"N.",
        "protocol 6": b"\x80\x06N.",
        "protocol 1": b"](K\x01e.",
        "unknown opcode": PROTO + b"\xfe.",
        "POP": PROTO + b"N0.",
        "DUP": PROTO + b"]2a.",
        "bytes": b"\x80\x03C\x01a.",
        "set": b"\x80\x04\x8f.",
    }
