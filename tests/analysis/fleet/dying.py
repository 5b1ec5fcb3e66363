"""Work for executors that dies on the way; what it needs to know lies in files, for it may run in any process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa


def square(number: int) -> pa.Table:
    return pa.table({"square": [number * number], "process": [os.getpid()]})


def dies_once(item: tuple[Path, int]) -> pa.Table:
    """Kill the process the first time that item 3 is worked on, anywhere."""
    marker, number = item
    if number == 3:
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return square(number)
        os.kill(os.getpid(), signal.SIGKILL)
    return square(number)


def dies(_number: int) -> pa.Table:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed processes go on")
