"""The batch: what an agent sends at a time, and its form on the wire, in the spool and in the collector's log.

    MYB1 | u32 length of the key | key, JSON | u32 length of the content | content, one zstd frame

The key `(host, boot, seq)` can be read without unpacking the content. `boot` is drawn at every start of an agent, `seq`
rises by one or more within it, so that no batch is ever taken for another. The content is a JSON header (the processes,
what is missing) and one Arrow IPC stream per kind of record, with the column `ring`: an index into the header's list.
Codes stay codes; the reader names them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import zstandard

from mycroft.errors import MycroftError
from mycroft.tracer import _core
from mycroft.tracer.arrow import Schema, Table, ipc, pa, pc
from mycroft.tracer.export import plain_type
from mycroft.tracer.trace import TABLES, Communicator, Process, ProcessState

MAGIC: Final = b"MYB1"
_U32: Final = struct.Struct("<I")
MOST_KEY_BYTES: Final = 4096
MOST_WIRE_BYTES: Final = 8 << 20
MOST_CONTENT_BYTES: Final = 64 << 20
MOST_RINGS: Final = 1024


class BatchError(MycroftError):
    """Bytes that are no batch, or one that was damaged: says what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKey:
    """Whose batch it is and which; `rows` and `made_ns` (UTC) tell what is lost with it."""

    host: str
    boot: str
    seq: int
    made_ns: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that did not get through: rows where they were counted, else batches. Times are UTC ns, 0: unknown."""

    why: str
    since_ns: int = 0
    until_ns: int = 0
    rows: int = 0
    batches: int = 0
    ring: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingStatus:
    """One process as the agent sees it. `key` names the process for ever; `next` is the position after the last row.

    `state` None: it lives in another pid namespace, nobody can say. `job` is what its launcher calls it.
    """

    key: str
    process: Process
    communicators: tuple[Communicator, ...] = ()
    closed: bool = False
    last_tick_ns: int | None = None
    interval_ms: int = 100
    state: ProcessState | None = None
    job: str = ""
    losses: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())
    next: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one agent saw in one turn. `tables` has coded columns of each kind and `ring`; kinds without rows lack."""

    key: BatchKey
    rings: tuple[RingStatus, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=lambda: dict[str, Table]())
    gaps: tuple[Gap, ...] = ()
    agent: str = ""

    @property
    def rows(self) -> int:
        """Records of all kinds."""
        return sum(table.num_rows for table in self.tables.values())


class _Header(msgspec.Struct):
    rings: tuple[RingStatus, ...]
    gaps: tuple[Gap, ...]
    tables: list[tuple[str, int]]
    agent: str = ""


def schema_of(kind: str) -> Schema:
    """Return the schema of one kind of records in a batch."""
    columns = [pa.field(name, plain_type(fmt)) for name, fmt, _ in _core.batch_columns()[kind]]
    return pa.schema([pa.field("ring", pa.uint16()), *columns])


def key_of(wire: bytes) -> BatchKey:
    """Return the key of a batch without unpacking it; checks the lengths of what follows.

    Raises:
        BatchError: if it is no whole batch.
    """
    return _split(wire)[0]


def _split(wire: bytes) -> tuple[BatchKey, bytes]:
    if wire[:4] != MAGIC:
        raise BatchError(f"no batch: begins with {wire[:4]!r}, expected {MAGIC!r}")
    if len(wire) < 8:
        raise BatchError("a batch that ends after its first bytes")
    size = _U32.unpack_from(wire, 4)[0]
    if size > MOST_KEY_BYTES or len(wire) < 12 + size:
        raise BatchError(f"a batch whose key has {size} bytes, of {len(wire)} in all")
    try:
        key = msgspec.json.decode(wire[8 : 8 + size], type=BatchKey)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchError(f"a batch without a readable key: {error}") from error
    if not key.host or not key.boot or len(key.host) > 255 or len(key.boot) > 64 or not 0 <= key.seq < 1 << 63:
        raise BatchError("a batch whose key names no host, no boot or no number")
    if "/" in key.boot or not key.host.isprintable():
        raise BatchError("a batch whose key has signs that no name has")
    expected = _U32.unpack_from(wire, 8 + size)[0]
    content = wire[12 + size :]
    if expected > MOST_CONTENT_BYTES:
        raise BatchError(f"a batch of {expected} bytes; at most {MOST_CONTENT_BYTES} are taken")
    if zstandard.frame_content_size(content) != expected:
        raise BatchError("a batch whose content is not of the announced size")
    return key, content


def encode(batch: Batch) -> bytes:
    """Return the bytes of a batch."""
    streams: list[tuple[str, bytes]] = []
    for kind, table in batch.tables.items():
        sink = io.BytesIO()
        with ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        streams.append((kind, sink.getvalue()))
    header = msgspec.json.encode(
        _Header(batch.rings, batch.gaps, [(kind, len(data)) for kind, data in streams], batch.agent)
    )
    content = b"".join((_U32.pack(len(header)), header, *(data for _, data in streams)))
    key = msgspec.json.encode(batch.key)
    packed = zstandard.ZstdCompressor(level=3).compress(content)
    return b"".join((MAGIC, _U32.pack(len(key)), key, _U32.pack(len(content)), packed))


def decode(wire: bytes) -> Batch:
    """Return a batch; every row names a ring of the header, every column has its type.

    Raises:
        BatchError: if it is none, or damaged.
    """
    key, packed = _split(wire)
    try:
        content = zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise BatchError(f"a batch of {key.host} that cannot be unpacked: {error}") from error
    size = _U32.unpack_from(content)[0] if len(content) >= 4 else -1
    if not 0 <= size <= len(content) - 4:
        raise BatchError(f"a batch of {key.host} without a header")
    try:
        header = msgspec.json.decode(content[4 : 4 + size], type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchError(f"a batch of {key.host} whose header cannot be read: {error}") from error
    if len(header.rings) > MOST_RINGS:
        raise BatchError(f"a batch of {key.host} with {len(header.rings)} processes")
    at = 4 + size
    tables: dict[str, Table] = {}
    for kind, length in header.tables:
        if kind not in TABLES or kind in tables or not 0 < length <= len(content) - at:
            raise BatchError(f"a batch of {key.host} with {length} bytes of {kind[:20]!r}")
        tables[kind] = _read_table(key.host, kind, content[at : at + length], len(header.rings))
        at += length
    return Batch(key=key, rings=header.rings, tables=tables, gaps=header.gaps, agent=header.agent)


def _read_table(host: str, kind: str, data: bytes, rings: int) -> Table:
    wanted = schema_of(kind)
    try:
        with ipc.open_stream(data) as stream:
            if not stream.schema.equals(wanted):
                raise BatchError(f"{kind} rows of {host} have other columns than this build; use one release")
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BatchError(f"{kind} rows of {host} are damaged: {str(error).splitlines()[0]}") from error
    column = table.column("ring")
    if column.null_count or (table.num_rows and pc.max(column).as_py() >= rings):
        raise BatchError(f"{kind} rows of {host} that belong to no process of the batch")
    return table


def tables_of(parts: Mapping[str, Sequence[tuple[int, Any]]]) -> dict[str, Table]:
    """Return the tables of a batch from record batches per kind, each with the index of its ring."""
    tables: dict[str, Table] = {}
    for kind, batches in parts.items():
        schema = schema_of(kind)
        found = [
            pa.table([pa.repeat(pa.scalar(ring, pa.uint16()), part.num_rows), *part.columns], schema=schema)
            for ring, part in batches
            if part.num_rows
        ]
        if found:
            tables[kind] = pa.concat_tables(found).combine_chunks()
    return tables
