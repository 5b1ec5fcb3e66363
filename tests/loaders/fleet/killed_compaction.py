"""Compactions that are killed with SIGKILL: each at another of the moments at which it touches a file.

`python -m tests.loaders.fleet.killed_compaction STORE FOLDER` copies the store once for each of these moments. It is a
process of its own, of one thread, that forks: a fresh interpreter for each would take a second each.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from mycroft.loaders.fleet import FleetStore, compact, open_place


def compact_until(folder: Path, moment: int) -> None:
    """Die at the `moment`th touch of a file below the folder."""
    touched = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal touched
        if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir") and str(folder) in str(arguments[0]):
            touched += 1
            if touched == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    compact(FleetStore(open_place(str(folder))), at_least=2)


def main() -> None:
    template, root = Path(sys.argv[1]), Path(sys.argv[2])
    moment, killed = 0, True
    while killed:
        moment += 1
        folder = root / f"{moment:03}"
        shutil.copytree(template, folder)
        child = os.fork()
        if not child:
            code = 1
            try:
                compact_until(folder, moment)
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code > 0:
            sys.exit(f"the compaction of {folder} failed")
        killed = code == -signal.SIGKILL


if __name__ == "__main__":
    main()
