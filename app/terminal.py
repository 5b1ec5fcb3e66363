"""What the commands say while they work: progress on a terminal, warnings on standard error."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

BAR_WIDTH = 24
REDRAW_S = 0.1


class Progress:
    """One line at the bottom of a terminal, redrawn in place; says nothing where the stream is no terminal.

    `show` may be called as often as one likes. Not for several threads.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`, by default standard error."""
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._drawn_at = 0.0
        self._last = ""

    def show(self, stage: str, done: int | float, total: int | float | None, unit: str = "") -> None:
        """Show how far a stage is: a bar where the total is known, a count where it is not."""
        if not self._is_terminal:
            return
        is_end = total is not None and done >= total
        tick = time.monotonic()
        if tick - self._drawn_at < REDRAW_S and not is_end and stage in self._last:
            return
        self._drawn_at = tick
        self._draw(line(stage, done, total, unit))

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._last = text
        self._stream.write("\r\x1b[K" + text[:width])
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away, so that other text can follow."""
        if self._is_terminal and self._last:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._last = ""

    def warn(self, text: str) -> None:
        """Write a warning on a line of its own."""
        self.clear()
        print(f"mycroft: {text}", file=self._stream)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


def line(stage: str, done: int | float, total: int | float | None, unit: str = "") -> str:
    """Return the text of one progress line."""
    if total is None or total <= 0:
        return f"{stage:<12} {amount(done, unit)}"
    share = min(1.0, max(0.0, done / total))
    filled = round(share * BAR_WIDTH)
    bar = "█" * filled + "░" * (BAR_WIDTH - filled)
    return f"{stage:<12} {bar} {share:4.0%}  {amount(done, unit)} of {amount(total, unit)}"


def amount(value: int | float, unit: str) -> str:
    """Return a number with its unit; bytes in steps of 1024."""
    if unit != "bytes":
        return f"{value:,.0f} {unit}".rstrip()
    size = float(value)
    for name in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {name}" if name == "B" else f"{size:.1f} {name}"
        size /= 1024
    return f"{size:.1f} TiB"
