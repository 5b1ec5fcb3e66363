"""The evidence bundle: paths, folders, archives and standard input become files on disk, ready to be recognised.

Names inside archives are data: content is unpacked under numbers into a folder of our own, so no member can leave it.
Files that lie on disk as they are stay where they are. Everything that is not taken is listed with the reason.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mycroft.loaders.base import LoadError
from mycroft.loaders.streams import PIECE, ByteSource, Decompressed, Peekable, TarReader, container_kind

STDIN: Final = "-"
_PEEK: Final = 1024
# As much as loaders are shown of a file to recognise it.
_SMALL: Final = 64 << 10
_NOWHERE: Final = Path(os.devnull)
# Below this much output the ratio says nothing: a log of blanks may shrink a thousandfold.
_RATIO_FREE: Final = 16 << 20
_DEVICE_NAMES: Final = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
_IGNORED: Final = frozenset({"truth.json"})
# A checkpoint is a zip too, and nothing in it is evidence.
_CHECKPOINT: Final = re.compile(rb"PK\x03\x04.{26}[^/\n]{1,200}/(?:data\.pkl|\.format_version|\.data/)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one bundle may cost. Sizes are in bytes after unpacking."""

    members: int = 2_000_000
    total_bytes: int = 256 << 30
    file_bytes: int = 64 << 30
    ratio: int = 1000
    depth: int = 8
    name_length: int = 1024


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file known under another name than that of its path, such as an upload; the name is data."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the bundle; `problem` is what is wrong with it although it is there.

    `sha256` is set for a member of an archive that nobody wanted: it lies nowhere, and `path` is the empty device.
    """

    name: str
    path: Path
    size_bytes: int
    problem: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Something of the bundle that was not taken."""

    name: str
    why: str


@dataclass(slots=True)
class Bundle:
    """What was found, in no particular order."""

    files: list[Found] = field(default_factory=lambda: list[Found]())
    refused: list[Refused] = field(default_factory=lambda: list[Refused]())


class _OverLimitError(LoadError):
    """One archive asked for more than the limits allow."""


class _BundleFullError(LoadError):
    """The bundle as a whole is over its limits: nothing more is taken."""


def unpack(
    sources: Sequence[str | Path | NamedFile],
    folder: Path,
    *,
    limits: Limits,
    tick: Callable[[int, str], None] = lambda count, name: None,
    wanted: Callable[[str, bytes], bool] = lambda name, content: True,
) -> Bundle:
    """Find every file of `sources`; archives are unpacked below `folder`, which must exist and be ours.

    `tick` is called with the number of files so far and the name of the latest. `wanted` is asked about the name and
    the whole content of each small member of an archive: what nobody wants is hashed and never put on disk.

    Raises:
        LoadError: if a source does not exist.
    """
    unpacker = _Unpacker(folder, limits, tick, wanted)
    several = len(sources) > 1
    for source in sources:
        unpacker.source(source, several=several)
    return unpacker.bundle


class _Unpacker:
    def __init__(
        self, folder: Path, limits: Limits, tick: Callable[[int, str], None], wanted: Callable[[str, bytes], bool]
    ) -> None:
        self.bundle = Bundle()
        self._folder = folder
        self._limits = limits
        self._tick = tick
        self._wanted = wanted
        self._made = 0
        self._subfolder = folder
        self._total = 0
        self._full = False

    # ---- sources on disk ---------------------------------------------------------------

    def source(self, source: str | Path | NamedFile, *, several: bool) -> None:
        if isinstance(source, NamedFile):
            self._file(source.path, _printable(source.name))
            return
        if str(source) == STDIN:
            self._guarded("stdin", lambda: self._stream("stdin", sys.stdin.buffer, None, 0))
            return
        path = Path(source)
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise LoadError(f"{source}: {error.strerror}; give a file, a folder or an archive") from error
        if stat.S_ISDIR(mode):
            # With one folder its own name is no information; with several it tells them apart.
            self._walk(path, f"{path.resolve().name}/" if several else "")
        elif stat.S_ISREG(mode):
            self._file(path, path.name)
        elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            with path.open("rb") as pipe:
                self._guarded(path.name, lambda: self._stream(path.name, pipe, None, 0))
        else:
            raise LoadError(f"{source}: is a device; give a file, a folder or an archive")

    def _walk(self, root: Path, prefix: str) -> None:
        """Take every file below `root`. Links are not followed: what they lead to is not what was handed over."""
        folders = [(os.fspath(root), prefix)]
        while folders:
            folder, shown = folders.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self._refuse(shown or folder, f"the folder cannot be read: {error.strerror}")
                continue
            for entry in entries:
                name = shown + _printable(entry.name)
                if entry.is_symlink():
                    self._refuse(name, "a link; links are not followed")
                elif entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, f"{name}/"))
                elif entry.is_file(follow_symlinks=False):
                    self._file(Path(entry.path), name)
                else:
                    self._refuse(name, "neither a file nor a folder")

    def _file(self, path: Path, name: str) -> None:
        def take() -> None:
            with path.open("rb") as content:
                self._stream(name, content, path, 0)

        self._guarded(name, take)

    def _guarded(self, name: str, take: Callable[[], object]) -> None:
        """One broken file never takes the others down."""
        if self._full:
            self._refuse(name, "not read: the limits of the bundle are reached")
            return
        try:
            take()
        except _BundleFullError as error:
            self._full = True
            self._refuse(name, str(error))
        except (LoadError, OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
            self._refuse(name, str(error) or type(error).__name__)

    # ---- streams -----------------------------------------------------------------------

    def _stream(self, name: str, source: ByteSource, on_disk: Path | None, depth: int) -> str | None:
        """Take one file or archive; `on_disk` is where it lies as it is. Returns what was wrong, None: nothing."""
        if name.rsplit("/", 1)[-1].rsplit("!", 1)[-1] in _IGNORED:
            return None
        peekable = Peekable(source)
        kind = container_kind(peekable.peek(_PEEK))
        if kind is None:
            return self._plain(name, peekable, on_disk)
        if depth >= self._limits.depth:
            raise _OverLimitError(f"nested deeper than {self._limits.depth} archives")
        if kind == "tar":
            return self._tar(name, TarReader(peekable), depth)
        if kind == "zip":
            return self._zip(name, peekable, on_disk, depth)
        inner = _Watched(Decompressed(peekable, kind), self._limits.ratio)
        damage = self._stream(name, inner, None, depth + 1)
        return damage or inner.damage

    def _plain(self, name: str, source: Peekable, on_disk: Path | None) -> str | None:
        self._count(name)
        if on_disk is not None:
            self.bundle.files.append(Found(name, on_disk, on_disk.stat().st_size))
            return None
        head = source.peek(_SMALL)
        if len(head) < _SMALL and not self._wanted(name, head):
            self._spend(len(head), len(head))
            damage = getattr(source.source, "damage", None)
            digest = hashlib.sha256(head).hexdigest()
            self.bundle.files.append(Found(name, _NOWHERE, len(head), damage, digest))
            return None
        path = self._new_path()
        size = 0
        try:
            with path.open("xb") as out:
                while piece := source.read(PIECE):
                    size += len(piece)
                    self._spend(len(piece), size)
                    out.write(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        damage = getattr(source.source, "damage", None)
        self.bundle.files.append(Found(name, path, size, damage))
        return None

    def _tar(self, name: str, tar: TarReader, depth: int) -> str | None:
        while True:
            try:
                member = tar.next_member()
            except LoadError as error:
                self._refuse(name, f"{error}; what came before is read")
                return None
            if member is None:
                break
            if member.kind == "folder":
                continue
            shown = f"{name}!{_printable(member.name)}"
            why = self._bad_name(member.name)
            if member.kind != "file":
                why = {"link": "a link inside an archive", "device": "a device inside an archive"}.get(
                    member.kind, "an entry of a tar that is no file"
                )
            if why:
                self._refuse(shown, why)
                continue
            self._member(shown, tar, depth)
        if tar.damage:
            self._refuse(name, f"{tar.damage}; what came before is read")
        return None

    def _zip(self, name: str, source: Peekable, on_disk: Path | None, depth: int) -> str | None:
        if _CHECKPOINT.match(source.peek(_PEEK)):
            raise LoadError("a PyTorch checkpoint, which is no evidence")
        path = on_disk or self._spooled(source)
        try:
            _check_directory(path, self._limits.members)
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    if info.is_dir():
                        continue
                    shown = f"{name}!{_printable(info.filename)}"
                    mode = info.external_attr >> 16
                    why = self._bad_name(info.filename)
                    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                        why = "a link inside an archive" if stat.S_ISLNK(mode) else "an entry of a zip that is no file"
                    elif info.flag_bits & 1:
                        why = "encrypted"
                    if why:
                        self._refuse(shown, why)
                        continue
                    self._guarded(shown, lambda info=info, shown=shown: self._zip_member(archive, info, shown, depth))
        finally:
            if on_disk is None:
                path.unlink(missing_ok=True)
        return None

    def _zip_member(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, shown: str, depth: int) -> None:
        with archive.open(info) as content:
            watched = _Watched(_ZipContent(content, info.compress_size), self._limits.ratio)
            self._stream(shown, watched, None, depth + 1)

    def _member(self, shown: str, tar: TarReader, depth: int) -> None:
        self._guarded(shown, lambda: self._stream(shown, tar, None, depth + 1))

    def _spooled(self, source: ByteSource) -> Path:
        """A zip can only be read from its end: put it on disk first."""
        path = self._new_path()
        size = 0
        with path.open("xb") as out:
            while piece := source.read(PIECE):
                size += len(piece)
                self._spend(len(piece), size)
                out.write(piece)
        return path

    # ---- limits ------------------------------------------------------------------------

    def _bad_name(self, name: str) -> str | None:
        """Return why the name of a member is refused. It would not be used as a path; it shows what the archive is."""
        if not name or len(name.encode("utf-8", "surrogatepass")) > self._limits.name_length:
            return f"a name that is empty or longer than {self._limits.name_length} bytes"
        if "\0" in name or any(ord(c) < 32 for c in name):
            return "a name with control characters"
        parts = re.split(r"[/\\]", name)
        if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or ".." in parts:
            return "a name that leads out of the archive"
        if any(_DEVICE_NAMES.fullmatch(part) for part in parts):
            return "the name of a device"
        return None

    def _count(self, name: str) -> None:
        if len(self.bundle.files) >= self._limits.members:
            raise _BundleFullError(f"more than {self._limits.members} files; the rest is not read")
        self._tick(len(self.bundle.files) + 1, name)

    def _spend(self, count: int, size: int) -> None:
        self._total += count
        if size > self._limits.file_bytes:
            raise _OverLimitError(f"more than {self._limits.file_bytes} bytes after unpacking")
        if self._total > self._limits.total_bytes:
            raise _BundleFullError(f"more than {self._limits.total_bytes} bytes after unpacking; the rest is not read")

    def _refuse(self, name: str, why: str) -> None:
        # A hostile archive may hold endless entries of which each is refused.
        if len(self.bundle.refused) < self._limits.members:
            self.bundle.refused.append(Refused(name, why))

    def _new_path(self) -> Path:
        if self._made % 1000 == 0:
            self._subfolder = self._folder / f"{self._made // 1000:06d}"
            self._subfolder.mkdir(exist_ok=True)
        self._made += 1
        return self._subfolder / f"{self._made:09d}"


class _Watched:
    """A source that must not grow out of proportion to what feeds it."""

    def __init__(self, source: Decompressed | _ZipContent, ratio: int) -> None:
        self._source = source
        self._ratio = ratio

    @property
    def damage(self) -> str | None:
        return self._source.damage

    def read(self, size: int, /) -> bytes:
        piece = self._source.read(size)
        out, fed = self._source.bytes_out, self._source.bytes_in
        if out > _RATIO_FREE and out > self._ratio * max(fed, 1):
            raise _OverLimitError(f"grows more than {self._ratio}-fold when unpacked")
        return piece


class _ZipContent:
    """The content of one member; what is broken in it ends it."""

    def __init__(self, source: ByteSource, compressed: int) -> None:
        self._source = source
        self.bytes_in = compressed
        self.bytes_out = 0
        self.damage: str | None = None

    def read(self, size: int, /) -> bytes:
        try:
            piece = self._source.read(size)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
            self.damage = f"broken after {self.bytes_out} bytes of content: {error}"
            return b""
        self.bytes_out += len(piece)
        return piece


def _check_directory(path: Path, members: int) -> None:
    """Refuse a zip whose directory alone would fill the memory: it is read whole."""
    size = path.stat().st_size
    with path.open("rb") as content:
        content.seek(max(0, size - 66_000))
        tail = content.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0:
        raise LoadError("a zip without its directory; it is cut short or damaged")
    directory = int.from_bytes(tail[at + 12 : at + 16], "little")
    if directory == 0xFFFFFFFF:
        end = tail.rfind(b"PK\x06\x06")
        directory = int.from_bytes(tail[end + 40 : end + 48], "little") if end >= 0 else 0
    if directory > min(members * 200, 512 << 20):
        raise LoadError(f"a zip with a directory of {directory} bytes; unpack it and hand over the folder")


def _printable(name: str) -> str:
    """Return a name that can be stored and shown: bytes that are no text and control characters become signs."""
    clean = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in clean)[:4096]


def iter_names(bundle: Bundle) -> Iterator[str]:
    """Return the names of everything that was found, taken or not."""
    for found in bundle.files:
        yield found.name
    for refused in bundle.refused:
        yield refused.name
