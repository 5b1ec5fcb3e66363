"""The log of acknowledged batches: files of records `u32 length, u32 crc32, bytes`, written in order, never changed.

A record counts once `fdatasync` has returned. A file that ends in the middle of a record was cut by a crash: the rest
is dropped, for nobody was told that it is safe.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct("<II")
MOST_RECORD: Final = 16 << 20
_PREFIX: Final = "log-"


def log_path(folder: Path, number: int) -> Path:
    """Return the path of one file of the log."""
    return folder / f"{_PREFIX}{number:012}"


def log_numbers(folder: Path) -> list[int]:
    """Return the numbers of the files that are there, rising."""
    found = (path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in found if name.isdigit())


def read_log(path: Path, start: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield each whole record from offset `start` on, with the offset after it; ends before the first that is not.

    Raises:
        OSError: if the file cannot be read.
    """
    with path.open("rb") as source:
        source.seek(start)
        at = start
        while len(head := source.read(_HEAD.size)) == _HEAD.size:
            size, crc = _HEAD.unpack(head)
            if size > MOST_RECORD:
                return
            body = source.read(size)
            if len(body) < size or zlib.crc32(body) != crc:
                return
            at += _HEAD.size + size
            yield body, at


class LogFile:
    """One file of the log that is being written; one thread."""

    def __init__(self, folder: Path, number: int) -> None:
        """Make the file; its name is on disk when this returns.

        Raises:
            OSError: if it cannot be made.
        """
        self.number = number
        self.path = log_path(folder, number)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.size = 0
        self._broken = False
        try:
            sync_folder(folder)
        except OSError:
            self.close()
            raise

    def append(self, bodies: list[bytes]) -> None:
        """Write records and wait until they are on disk.

        Raises:
            OSError: if the disk does not take them; then none of them is in the log.
        """
        if self._broken:
            raise OSError(5, "an earlier write to this log could not be undone")
        data = b"".join(part for body in bodies for part in (_HEAD.pack(len(body), zlib.crc32(body)), body))
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            os.fdatasync(self._fd)
        except OSError:
            try:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            except OSError:
                self._broken = True
            raise
        self.size += len(data)

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


def cut_torn_tail(path: Path) -> int:
    """Cut what follows the last whole record, and return how many bytes that was.

    Raises:
        OSError: if the file cannot be read or changed.
    """
    end = max((after for _, after in read_log(path)), default=0)
    torn = path.stat().st_size - end
    if torn:
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return torn


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
