"""Prometheus text exposition: one sample per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mycroft.loaders.base import LoadReport
from mycroft.loaders.byte_stream import lines
from mycroft.loaders.json_values import as_float

_SAMPLE: Final = re.compile(r"\s*([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*$")
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one gauge; `ts_ns` is UTC and None where the line has no time."""

    line: int
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    ts_ns: int | None


def samples(path: Path, report: LoadReport) -> Iterator[Sample]:
    """Yield the samples of a file; what is neither sample nor comment is counted in `report`."""
    for number, raw in lines(path, report):
        text = raw.decode("utf-8", "replace").strip()
        if not text or text.startswith("#"):
            continue
        match = _SAMPLE.match(text)
        value = as_float(match[3]) if match else None
        if match is None or value is None:
            report.drop("line is no sample")
            continue
        labels = tuple(
            sorted(
                (key, re.sub(r'\\[n"\\]', lambda m: _ESCAPES[m[0]], text_))
                for key, text_ in _LABEL.findall(match[2] or "")
            )
        )
        yield Sample(number, match[1], labels, value, int(match[4][:16]) * 1_000_000 if match[4] else None)
