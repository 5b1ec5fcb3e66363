"""Folders that last as long as the work in them, and that whoever ends the process can still remove.

`tempfile.TemporaryDirectory` loses sight of its folder where an exception breaks off its own clearing up, as that of a
signal does. Here a folder is known from before it exists until it is gone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ATTEMPTS: Final = 20
PAUSE_S: Final = 0.05

_kept: dict[Path, int] = {}
"""Folder -> the process that made it: a child made by fork has them in its memory and must not remove them."""


@contextmanager
def scratch_folder(prefix: str = "mycroft-", *, within: Path | None = None) -> Generator[Path]:
    """Make a folder of the user's own, and remove it with all in it at the end.

    Args:
        prefix: what its name begins with.
        within: where it lies; None: where temporary files go.

    Raises:
        OSError: if it cannot be made there.
    """
    folder = (within or Path(tempfile.gettempdir())) / f"{prefix}{secrets.token_hex(8)}"
    _kept[folder] = os.getpid()
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder and forget it; what cannot be removed is left, as nobody could do anything about it."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _kept.pop(folder, None)


def remove_all() -> None:
    """Remove every folder that is still there, also one in which another thread still works. From any thread."""
    mine = [folder for folder, process in list(_kept.items()) if process == os.getpid()]
    pause = threading.Event()
    for _ in range(ATTEMPTS):
        for folder in mine:
            remove(folder)
        if not any(folder in _kept for folder in mine):
            return
        pause.wait(PAUSE_S)
