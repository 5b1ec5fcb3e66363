"""Byte streams inside byte streams: decompression and archives, with nothing believed and nothing held in memory.

Every reader here takes an object with `read(n)` that returns at most n bytes and b"" at the end. A stream that is cut
short ends early and says so in `damage`: what came out before is good.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final, Protocol, cast

import zstandard

from mycroft.loaders.base import LoadError

PIECE: Final = 1 << 18
_BLOCK: Final = 512
_MAX_META: Final = 1 << 20
_XZ_MEMORY: Final = 256 << 20
_ZSTD_WINDOW: Final = 1 << 27


class ByteSource(Protocol):
    """Anything that hands out bytes in order."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, b"" at the end."""
        ...


class Peekable:
    """A source whose first bytes can be looked at before they are read."""

    def __init__(self, source: ByteSource) -> None:
        self.source: Final = source
        self._head = b""

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the end, and leave them in place."""
        while len(self._head) < size:
            more = self.source.read(size - len(self._head))
            if not more:
                break
            self._head += more
        return self._head[:size]

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        if self._head:
            piece, self._head = self._head[:size], self._head[size:]
            return piece
        return self.source.read(size)


class _Codec(Protocol):
    """One compressed stream: what `zlib`, `lzma` and `bz2` have in common."""

    @property
    def eof(self) -> bool:
        """The stream has ended."""
        ...

    @property
    def unused_data(self) -> bytes:
        """Input after that end."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Take input (none: go on with what is left) and return at most PIECE bytes of output."""
        ...

    def hungry(self) -> bool:
        """Say whether only more input can bring more output."""
        ...


class _Zlib:
    def __init__(self) -> None:
        self._codec = zlib.decompressobj(wbits=31)
        self._most = PIECE

    def feed(self, data: bytes) -> bytes:
        data = self._codec.unconsumed_tail + data
        while True:
            # A call that fails gives nothing, not even what came before the damage: go back and take smaller steps.
            before = self._codec.copy()
            try:
                return self._codec.decompress(data, self._most)
            except zlib.error:
                if self._most == 1:
                    raise
                self._codec = before
                self._most = max(self._most // 64, 1)

    def hungry(self) -> bool:
        return not self._codec.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._codec.eof

    @property
    def unused_data(self) -> bytes:
        return self._codec.unused_data


class _Limited:
    """`lzma` and `bz2`, whose objects limit their output in the same way."""

    def __init__(self, codec: lzma.LZMADecompressor | bz2.BZ2Decompressor) -> None:
        self._codec = codec

    def feed(self, data: bytes) -> bytes:
        return self._codec.decompress(data, PIECE)

    def hungry(self) -> bool:
        return self._codec.needs_input

    @property
    def eof(self) -> bool:
        return self._codec.eof

    @property
    def unused_data(self) -> bytes:
        return self._codec.unused_data


def _codec(kind: str) -> _Codec:
    if kind == "gzip":
        return _Zlib()
    if kind == "xz":
        return _Limited(lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY))
    return _Limited(bz2.BZ2Decompressor())


class Decompressed:
    """The content of a compressed stream; `bytes_in` and `bytes_out` count what passed."""

    def __init__(self, source: ByteSource, kind: str) -> None:
        self._source = source
        self._kind = kind
        self.bytes_in = 0
        self.bytes_out = 0
        self.damage: str | None = None
        self._pieces = self._zstd_pieces() if kind == "zstd" else self._codec_pieces()
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes of the content; b"" at its end, or where the stream is broken: see `damage`."""
        while not self._rest:
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                return b""
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, zstandard.ZstdError) as error:
                self.damage = f"{self._kind} stream broken after {self.bytes_out} bytes of content: {error}"
                return b""
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def _input(self) -> bytes:
        data = self._source.read(PIECE)
        self.bytes_in += len(data)
        return data

    def _codec_pieces(self) -> Iterator[bytes]:
        """Also several streams one after the other, as `cat a.gz b.gz` makes them."""
        data = self._input()
        while data:
            codec = _codec(self._kind)
            while not codec.eof:
                piece = codec.feed(data)
                data = b""
                if piece:
                    self.bytes_out += len(piece)
                    yield piece
                elif codec.hungry() and not codec.eof:
                    data = self._input()
                    if not data:
                        self.damage = f"{self._kind} stream cut short after {self.bytes_out} bytes of content"
                        return
            data = codec.unused_data or self._input()
            # Padding with zeros is allowed after the end.
            while data and not data.strip(b"\0"):
                data = self._input()
            if data and self._kind == "gzip" and not data.startswith(b"\x1f\x8b"):
                self.damage = "something else follows the end of the gzip stream"
                return

    def _zstd_pieces(self) -> Iterator[bytes]:
        context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        source = cast("IO[bytes]", _Counted(self))  # only `read` is used
        reader = context.stream_reader(source, read_size=PIECE, read_across_frames=True)
        while piece := reader.read(PIECE):
            self.bytes_out += len(piece)
            yield piece

    def raw(self) -> bytes:
        """Return the next compressed bytes."""
        return self._input()


class _Counted:
    def __init__(self, owner: Decompressed) -> None:
        self._owner = owner
        self._rest = b""

    def read(self, size: int = -1, /) -> bytes:
        if not self._rest:
            self._rest = self._owner.raw()
        if size < 0:
            size = len(self._rest)
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


# ---- tar -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TarMember:
    """One header of a tar; `kind` is `file`, `folder`, `link`, `device` or `other`."""

    name: str
    kind: str
    size: int


_TAR_KINDS: Final = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"5": "folder",
    b"1": "link",
    b"2": "link",
    b"3": "device",
    b"4": "device",
    b"6": "device",
}


def is_tar(head: bytes) -> bool:
    """Say whether the first 512 bytes are a tar header with a right checksum."""
    return len(head) >= _BLOCK and head[257:262] == b"ustar" and _checksum_fits(head[:_BLOCK])


def _checksum_fits(block: bytes) -> bool:
    try:
        said = _number(block[148:156])
    except LoadError:
        return False
    return said == sum(block[:148]) + 8 * 32 + sum(block[156:])


def _number(raw: bytes) -> int:
    """Return a number of a header: octal text, or base 256 for large ones."""
    if raw[0] & 0x80:
        return int.from_bytes(bytes([raw[0] & 0x7F]) + raw[1:], "big")
    text = raw.strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]*", text):
        raise LoadError("a tar header with a number that is none")
    return int(text, 8) if text else 0


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


class TarReader:
    """Reads a tar from a stream: `next_member`, then `read` its content. Never writes, never follows a link."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._left = 0  # of the current member's content
        self._padding = 0
        self.damage: str | None = None

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes of the current member."""
        piece = self._source.read(min(size, self._left)) if self._left else b""
        if not piece and self._left:
            self.damage = f"cut short: {self._left} bytes of the last member are missing"
            self._left = self._padding = 0
        self._left -= len(piece)
        return piece

    def next_member(self) -> TarMember | None:
        """Go to the next member; None at the end.

        Raises:
            LoadError: for a header that is none.
        """
        name: str | None = None
        size: int | None = None
        while True:
            self._skip()
            block = self._exactly(_BLOCK)
            if len(block) < _BLOCK or not block.strip(b"\0"):
                if 0 < len(block) < _BLOCK or (not block and self.damage is None):
                    self.damage = self.damage or "cut short: the end mark is missing"
                return None
            if not _checksum_fits(block):
                raise LoadError("a tar header with a wrong checksum")
            self._left = _number(block[124:136])
            self._padding = -self._left % _BLOCK
            kind = block[156:157]
            if kind in (b"x", b"g", b"L", b"K"):
                meta = self._meta()
                if kind == b"L":
                    name = _text(meta)
                elif kind == b"x":
                    pax = _pax(meta)
                    name = pax.get("path", name)
                    if (said := pax.get("size", "")).isdecimal() and len(said) < 20:
                        size = int(said)
                continue
            if size is not None:
                self._left = size
                self._padding = -size % _BLOCK
            if name is None:
                prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
                name = f"{prefix}/{_text(block[:100])}" if prefix else _text(block[:100])
            what = _TAR_KINDS.get(kind, "other")
            if what == "file" and name.endswith("/"):
                what = "folder"
            if what in ("link", "device", "folder"):
                self._left = self._padding = 0
            return TarMember(name, what, self._left)

    def _meta(self) -> bytes:
        if self._left > _MAX_META:
            raise LoadError(f"a tar header of {self._left} bytes, at most {_MAX_META} are read")
        return self._exactly(self._left, content=True)

    def _skip(self) -> None:
        while self._left:
            self.read(PIECE)
        while self._padding:
            piece = self._source.read(self._padding)
            if not piece:
                break
            self._padding -= len(piece)
        self._padding = 0

    def _exactly(self, size: int, *, content: bool = False) -> bytes:
        parts: list[bytes] = []
        while size:
            piece = self.read(size) if content else self._source.read(size)
            if not piece:
                break
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)


def _pax(data: bytes) -> dict[str, str]:
    """Return the records of a pax header: `length key=value` lines."""
    found: dict[str, str] = {}
    at = 0
    while match := re.compile(rb"(\d{1,7}) ").match(data, at):
        end = at + int(match[1])
        record = data[match.end() : end]
        if end <= match.end() or end > len(data) or not record.endswith(b"\n"):
            break
        key, _, value = record[:-1].partition(b"=")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        at = end
    return found


def container_kind(head: bytes) -> str | None:
    """Return `gzip`, `zstd`, `xz`, `bzip2`, `tar` or `zip` by the first bytes; None for anything else."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    return "tar" if is_tar(head) else None
