"""The manifest: which segments exist, and what of the log they hold. One JSON file a version, and `HEAD`.

A version is written whole before `HEAD` names it, so that a reader sees one version or the next. Readers open exactly
the files that the version lists, and never look into the folders.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from mycroft.errors import MycroftError
from mycroft.loaders.collector.log import sync_folder

_KEPT: Final = 8
_MOST_BYTES: Final = 256 << 20


class ManifestError(MycroftError):
    """A manifest that cannot be read: names the file."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable Parquet file. Times are UTC ns of its rows, as their hosts' clocks had them."""

    table: str
    path: str
    """Relative to the folder of the store."""
    first_ns: int
    last_ns: int
    rows: int
    size_bytes: int
    made: float = 0.0
    """When it was written, by the collector's clock, seconds since the epoch: what retention goes by."""
    level: int = 0
    """0: as written from the log; 1: put together from several."""


class Trash(msgspec.Struct, frozen=True, kw_only=True):
    """A file that no version lists any more; it goes once those who read the last version that did are done."""

    path: str
    after: float
    """Seconds since the epoch."""


class Manifest(msgspec.Struct, kw_only=True):
    """One version.

    `log_done`: files of the log up to this number are in the segments. `seqs`: last batch of each `host/boot` in them.
    `positions`: per process the position after its last row. `dropped`: rows that retention has removed, by table.
    """

    version: int = 0
    schema: int = 1
    segments: list[Segment] = []
    log_done: int = 0
    seqs: dict[str, tuple[int, float]] = {}
    positions: dict[str, tuple[int, float]] = {}
    trash: list[Trash] = []
    dropped: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)


def read_manifest(folder: Path) -> Manifest:
    """Return the newest version; an empty one where nothing was written yet.

    Raises:
        ManifestError: if `HEAD` names a version that cannot be read.
    """
    head = folder / "HEAD"
    try:
        name = head.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return Manifest()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{head}: cannot be read ({error})") from error
    if not name.isdigit():
        raise ManifestError(f"{head}: names no version but {name[:40]!r}")
    path = folder / f"{name}.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ManifestError(f"{path}: larger than {_MOST_BYTES >> 20} MiB")
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(
            f"{path}: cannot be read ({error}); put the number of the version before it into {head}"
        ) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a version and let `HEAD` name it; the caller has raised its number.

    Raises:
        OSError: if the disk does not take it; `HEAD` is then as before.
    """
    _write(folder / f"{manifest.version}.json", msgspec.json.encode(manifest))
    _write(folder / "HEAD", f"{manifest.version}\n".encode())
    sync_folder(folder)
    for path in folder.glob("*.json"):
        if path.stem.isdigit() and int(path.stem) <= manifest.version - _KEPT:
            path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".tmp")
    try:
        with part.open("wb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
