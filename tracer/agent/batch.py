"""The batch: what an agent sends at a time, and its form on the wire, in the spool and in the collector's log.

    MYB2 | u32 crc32 of all that follows | u32 length of the key | key, JSON | u32 length of the content | content

The key `(host, boot, seq)` can be read without unpacking the content. `boot` is drawn at every start of an agent, `seq`
rises by one or more within it, so that no batch is ever taken for another. The content is one zstd frame: a JSON header
(the processes, what is missing, what the host's devices say) and per kind of record one Arrow IPC message, a record
batch, with the column `ring`: an index into the header's list. Its schema is not sent but named by a hash: to read one
a thousand times a second costs more than the rows. Codes stay codes; the reader names them. A relay sends summaries in
place of all these: one more message.

The checksum tells what was damaged on its way. What was made up on purpose is met by what follows it: every size is
checked before anything of that size is unpacked.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec
import zstandard

from mycroft.errors import MycroftError
from mycroft.tracer import _core
from mycroft.tracer.agent.summary import COLUMNS, MEASURES, RELAY_PREFIX, Head, Summary, problem_of
from mycroft.tracer.arrow import RecordBatch, Schema, Table, ipc, pa
from mycroft.tracer.export import plain_type
from mycroft.tracer.trace import FOREIGN_COMM, TABLES, Communicator, Number, Number32, Process, ProcessState, Text

MAGIC: Final = b"MYB2"
_U32: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<4sII")
MOST_KEY_BYTES: Final = 4096
MOST_WIRE_BYTES: Final = 8 << 20
MOST_CONTENT_BYTES: Final = 64 << 20
# A million of its smallest things are in memory at once, for a moment.
MOST_HEADER_BYTES: Final = 12 << 20
MOST_RINGS: Final = 1024
MOST_FACTS: Final = 4096
MOST_GAPS: Final = 4096
# A trace file has room for a thousand, those that are gone among them.
MOST_COMMUNICATORS: Final = 1024
_MOST_LOSSES: Final = 64


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class BatchError(MycroftError):
    """Bytes that are no batch, or one that was damaged: says what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKey:
    """Whose batch it is and which; `rows` and `made_ns` (UTC) tell what is lost with it."""

    host: str
    boot: str
    seq: int
    made_ns: Number = 0
    rows: Number32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that did not get through: rows where they were counted, else batches. Times are UTC ns, 0: unknown."""

    why: Text
    since_ns: Number = 0
    until_ns: Number = 0
    rows: Number = 0
    batches: Number = 0
    ring: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFact:
    """One reading of a device of the host, or one line of its kernel log. `ts_ns` is UTC.

    `device`: name or PCI address; empty: the host itself. `number`: the value where it is one. `text`: its words.
    """

    ts_ns: Number
    kind: str
    device: str = ""
    number: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingStatus:
    """One process as the agent sees it. `key` names the process for ever; `next` is the position after the last row.

    `state` None: it lives in another pid namespace, nobody can say. `job` is what its launcher calls it.
    """

    key: Name
    process: Process
    communicators: tuple[Communicator, ...] = ()
    closed: bool = False
    last_tick_ns: Number | None = None
    interval_ms: Number32 = 100
    state: ProcessState | None = None
    job: Text = ""
    losses: Mapping[Text, Number] = field(default_factory=lambda: dict[str, int]())
    next: Number = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one agent saw in one turn. `tables` has coded columns of each kind and `ring`; kinds without rows lack."""

    key: BatchKey
    rings: tuple[RingStatus, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=lambda: dict[str, Table]())
    gaps: tuple[Gap, ...] = ()
    facts: tuple[HostFact, ...] = ()
    agent: str = ""
    summary: Summary | None = None
    """Of a relay only."""

    @property
    def rows(self) -> int:
        """Records of all kinds."""
        return sum(table.num_rows for table in self.tables.values())


class _Header(msgspec.Struct):
    rings: tuple[RingStatus, ...]
    gaps: tuple[Gap, ...]
    tables: list[tuple[str, int, str]]
    """Kind, bytes of its message, hash of its schema; the messages follow in this order."""
    agent: str = ""
    facts: tuple[HostFact, ...] = ()
    summary: Head | None = None


_READ_HEADER: Final = msgspec.json.Decoder(_Header)
_READ_KEY: Final = msgspec.json.Decoder(BatchKey)


@functools.cache
def schema_of(kind: str) -> Schema:
    """Return the schema of one kind of records in a batch."""
    columns = [pa.field(name, plain_type(fmt)) for name, fmt, _ in _core.batch_columns()[kind]]
    return pa.schema([pa.field("ring", pa.uint16()), *columns])


def _hash_of(schema: Schema) -> str:
    said = ",".join(f"{column.name}:{column.type}" for column in schema)
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


@functools.cache
def _known_hash(kind: str) -> str:
    return _hash_of(schema_of(kind))


@functools.cache
def _summary_hash() -> str:
    return _hash_of(pa.schema([*COLUMNS, *MEASURES]))


def key_of(wire: bytes) -> BatchKey:
    """Return the key of a batch without unpacking it; the bytes are those that were sent.

    Raises:
        BatchError: if it is no whole batch.
    """
    return _split(wire)[0]


def _split(wire: bytes) -> tuple[BatchKey, memoryview]:
    if wire[:4] != MAGIC:
        raise BatchError(f"no batch: begins with {wire[:4]!r}, expected {MAGIC!r}")
    if len(wire) < _HEAD.size + 4:
        raise BatchError("a batch that ends after its first bytes")
    view = memoryview(wire)
    _, checksum, size = _HEAD.unpack_from(wire)
    if zlib.crc32(view[8:]) != checksum:
        raise BatchError("a batch that is damaged or cut: its bytes are not those of its checksum")
    at = _HEAD.size + size
    if size > MOST_KEY_BYTES or len(wire) < at + 4:
        raise BatchError(f"a batch whose key has {size} bytes, of {len(wire)} in all")
    try:
        key = _READ_KEY.decode(view[_HEAD.size : at])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchError(f"a batch without a readable key: {error}") from error
    if not key.host or not key.boot or len(key.host) > 255 or len(key.boot) > 64 or not 0 <= key.seq < 1 << 63:
        raise BatchError("a batch whose key names no host, no boot or no number")
    if "/" in key.boot or not key.host.isprintable():
        raise BatchError("a batch whose key has signs that no name has")
    expected = _U32.unpack_from(wire, at)[0]
    content = view[at + 4 :]
    if expected > MOST_CONTENT_BYTES:
        raise BatchError(f"a batch of {expected} bytes; at most {MOST_CONTENT_BYTES} are taken")
    try:
        announced = zstandard.frame_content_size(content)
    except zstandard.ZstdError as error:
        raise BatchError(f"a batch whose content is no zstd frame: {error}") from error
    if announced != expected:
        raise BatchError("a batch whose content is not of the announced size")
    return key, content


def encode(batch: Batch) -> bytes:
    """Return the bytes of a batch."""
    messages: list[bytes] = []
    tables: list[tuple[str, int, str]] = []
    for kind, table in batch.tables.items():
        parts = table.combine_chunks().to_batches()
        if not parts:
            continue
        message = parts[0].serialize().to_pybytes()
        messages.append(message)
        tables.append((kind, len(message), _hash_of(table.schema)))
    head = None
    if batch.summary is not None:
        told = batch.summary
        rows = told.rows.select(COLUMNS.names).cast(COLUMNS).combine_chunks().to_batches()
        message = rows[0].serialize().to_pybytes() if rows else b""
        measures = told.measures.select(MEASURES.names).cast(MEASURES).combine_chunks().to_batches()
        measured = measures[0].serialize().to_pybytes() if measures else b""
        messages += [message, measured]
        head = Head(
            at_ns=told.at_ns,
            length=len(message),
            schema=_summary_hash(),
            parts=tuple(told.parts),
            every_s=told.every_s,
            measured=len(measured),
            window_ns=told.window_ns,
        )
    header = msgspec.json.encode(_Header(batch.rings, batch.gaps, tables, batch.agent, batch.facts, head))
    content = b"".join((_U32.pack(len(header)), header, *messages))
    packed = zstandard.ZstdCompressor(level=3).compress(content)
    return sealed(msgspec.json.encode(batch.key), len(content), packed)


def sealed(key: bytes, size: int, packed: bytes) -> bytes:
    """Return a batch of its parts: the key as JSON, the bytes of its content, and the content as a zstd frame."""
    rest = b"".join((_U32.pack(len(key)), key, _U32.pack(size), packed))
    return b"".join((MAGIC, _U32.pack(zlib.crc32(rest)), rest))


_OF_THREAD: Final = threading.local()


def _unpacker() -> zstandard.ZstdDecompressor:
    """Return this thread's: one must not be used by two, and making one costs more than to unpack a batch."""
    found = getattr(_OF_THREAD, "unpacker", None)
    if found is None:
        found = _OF_THREAD.unpacker = zstandard.ZstdDecompressor()
    return found


def decode(wire: bytes) -> Batch:
    """Return a batch; every row names a ring of the header, every column has its type.

    Raises:
        BatchError: if it is none, or damaged.
    """
    key, packed = _split(wire)
    try:
        # Bounded by the size of the frame, which `_split` has checked.
        content = _unpacker().decompress(packed)
    except zstandard.ZstdError as error:
        raise BatchError(f"a batch of {key.host} that cannot be unpacked: {error}") from error
    size = _U32.unpack_from(content)[0] if len(content) >= 4 else -1
    if not 0 <= size <= min(len(content) - 4, MOST_HEADER_BYTES):
        raise BatchError(f"a batch of {key.host} without a header, or with one of {size} bytes")
    view = memoryview(content)
    try:
        header = _READ_HEADER.decode(view[4 : 4 + size])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchError(f"a batch of {key.host} whose header cannot be read: {error}") from error
    if problem := _problem_of(header):
        raise BatchError(f"a batch of {key.host} with {problem}")
    at = 4 + size
    tables: dict[str, Table] = {}
    for kind, length, schema in header.tables:
        if kind not in TABLES or kind in tables or not 0 < length <= len(content) - at:
            raise BatchError(f"a batch of {key.host} with {length} bytes of {kind[:20]!r}")
        if schema != _known_hash(kind):
            raise BatchError(f"{kind} rows of {key.host} have other columns than this build; use one release")
        rows = _read_rows(key.host, kind, view[at : at + length], len(header.rings))
        tables[kind] = pa.Table.from_batches([rows])
        at += length
    told = None if header.summary is None else _read_summary(key.host, header.summary, view[at:])
    return Batch(
        key=key,
        rings=header.rings,
        tables=tables,
        gaps=header.gaps,
        facts=header.facts,
        agent=header.agent,
        summary=told,
    )


def _problem_of(header: _Header) -> str:
    """Return what no agent tells, in words; empty: nothing. That numbers are some, the decoder has seen to."""
    if len(header.rings) > MOST_RINGS:
        return f"{len(header.rings)} processes"
    if len(header.facts) > MOST_FACTS:
        return f"{len(header.facts)} readings of its devices"
    if len(header.gaps) > MOST_GAPS:
        return f"{len(header.gaps)} gaps"
    for ring in header.rings:
        if len(ring.communicators) > MOST_COMMUNICATORS or len(ring.losses) > _MOST_LOSSES:
            return f"a process of {len(ring.communicators)} communicators and {len(ring.losses)} kinds of losses"
        if any(comm.hash >> 64 or comm.comm > FOREIGN_COMM for comm in ring.communicators):
            return "a communicator whose number or hash is none"
    return ""


def _read_rows(host: str, kind: str, data: memoryview, rings: int) -> RecordBatch:
    rows = _read_message(host, kind, data, schema_of(kind))
    ring = rows.column(0)
    if ring.null_count or (rows.num_rows and ring.to_numpy().max() >= rings):
        raise BatchError(f"{kind} rows of {host} that belong to no process of the batch")
    return rows


def _read_message(host: str, kind: str, data: memoryview, schema: Schema) -> RecordBatch:
    try:
        message = ipc.read_message(data)
        if message.type != "record batch" or _packs_columns(memoryview(message.metadata)):
            raise BatchError(f"{kind} rows of {host} are packed in a way that agents do not pack them")
        rows = ipc.read_record_batch(message, schema)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError, IndexError, struct.error, MemoryError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise BatchError(f"{kind} rows of {host} are damaged: {said}") from error
    return rows


def _read_summary(host: str, head: Head, data: memoryview) -> Summary:
    if not host.startswith(RELAY_PREFIX):
        raise BatchError(f"summaries of {host}: only relays send them, whose names begin with {RELAY_PREFIX!r}")
    if head.schema != _summary_hash():
        raise BatchError(f"summaries of {host} have other columns than this build; use one release")
    if min(head.length, head.measured) < 0 or head.length + head.measured > len(data):
        raise BatchError(f"summaries of {host} with {head.length} and {head.measured} bytes")
    rows = pa.Table.from_batches([], schema=COLUMNS)
    if head.length:
        rows = pa.Table.from_batches([_read_message(host, "summary", data[: head.length], COLUMNS)])
    measures = pa.Table.from_batches([], schema=MEASURES)
    if head.measured:
        message = data[head.length : head.length + head.measured]
        measures = pa.Table.from_batches([_read_message(host, "measures", message, MEASURES)])
    if problem := problem_of(rows.combine_chunks(), measures.combine_chunks(), head):
        raise BatchError(f"summaries of {host}: {problem}")
    return Summary(
        at_ns=head.at_ns,
        rows=rows,
        parts=head.parts,
        every_s=head.every_s,
        measures=measures,
        window_ns=head.window_ns,
    )


_I32: Final = struct.Struct("<i")
_U16: Final = struct.Struct("<H")
# Arrow's Message.fbs: fields of the tables Message and RecordBatch by their place.
_MESSAGE_HEADER: Final = 2
_BATCH_COMPRESSION: Final = 3


def _packs_columns(metadata: memoryview) -> bool:
    """Say whether the columns of a record batch are compressed one by one.

    They are not by us, for the content is one frame; and a few bytes that announce a column of a terabyte would have
    Arrow ask for it. Bytes that are no message are an IndexError or a struct.error.
    """

    def field_at(table: int, number: int) -> int:
        # A flatbuffer table begins with the distance back to its list of fields; 0 there: the field is absent.
        fields = table - _I32.unpack_from(metadata, table)[0]
        if fields < 0:
            raise IndexError("a list of fields before the message")
        if 4 + 2 * number >= _U16.unpack_from(metadata, fields)[0]:
            return 0
        offset = _U16.unpack_from(metadata, fields + 4 + 2 * number)[0]
        return table + offset if offset else 0

    root = _U32.unpack_from(metadata)[0]
    header = field_at(root, _MESSAGE_HEADER)
    return header != 0 and field_at(header + _U32.unpack_from(metadata, header)[0], _BATCH_COMPRESSION) != 0


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
