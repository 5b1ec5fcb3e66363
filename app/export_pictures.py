"""What the pictures of an exported file are drawn from: chunk flows, and as much of the timeline as fits in."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mycroft.app.queries import TraceReader
from mycroft.app.reads import flows, operations, timeline
from mycroft.app.redaction import Redactor
from mycroft.loaders.pyramid import SIDE, Plan

FLOWS_MAX: Final = 8
FLOW_BYTES: Final = 250_000
"""Packed bytes of one flow; a larger one stays on the dashboard, and the file says so."""
TILES_BYTES: Final = 450_000
TILES_MAX: Final = 600
BARS_BYTES: Final = 250_000
BARS_RANKS: Final = 50
"""Rows of a picture of this height that are high enough for bars."""
BEFORE_SHARE: Final = 0.25
SHOWN_US: Final = 40_000_000
BASE: Final = "timeline"
"""What addresses of the timeline begin with inside the file."""

Window = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FlowPicture:
    """The chunk flow of the operation of one finding; `flow` is None where it is too large for a file."""

    named: str
    ranks: int
    shape: str
    flow: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Bars:
    """Operations one by one between two moments, µs after the start, as `reads.timeline.bars` writes them."""

    first_us: int
    last_us: int
    body: bytes


@dataclass(frozen=True, slots=True)
class TimelinePicture:
    """A timeline: what it is drawn with, tiles of whole levels (None: an empty one), and bars of some windows."""

    info: Mapping[str, Any]
    tiles: Mapping[str, bytes | None] = field(default_factory=dict[str, "bytes | None"])
    bars: Sequence[Bars] = ()
    windows: Mapping[str, Window] = field(default_factory=dict[str, Window])
    """Incident -> window that its picture begins with."""
    levels_left: int = 0

    @property
    def said(self) -> str:
        """What of the timeline the file does not hold; empty where it can show all that the dashboard can."""
        parts: list[str] = []
        finest_us = self.info["levels"][-1]["bin_us"]
        whole = any(bars.first_us <= 0 and bars.last_us >= self.info["span_us"] for bars in self.bars)
        # Where all operations are held and rows are high enough for them, no finer cell would ever be drawn.
        if self.levels_left and not (whole and len(self.info["ranks"]) <= BARS_RANKS):
            parts.append(f"this file holds cells of {_length(finest_us)} and longer; finer ones are on the dashboard")
        if not whole:
            parts.append(
                "operations one by one only around the incidents"
                if self.bars
                else "no operations one by one: there are too many for a file"
            )
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Pictures:
    """All pictures of an export; flows by incident."""

    flows: Mapping[str, FlowPicture] = field(default_factory=dict[str, FlowPicture])
    timeline: TimelinePicture | None = None
    said: str = ""
    """Why a timeline that the trace has is not in the file."""

    def redacted(self, redactor: Redactor) -> Pictures:
        """Return the pictures with names replaced; tiles and bars hold none."""
        return replace(
            self,
            flows={
                name: replace(picture, named=redactor.text(picture.named), flow=redactor.tree(picture.flow))
                for name, picture in self.flows.items()
            },
            timeline=None
            if self.timeline is None
            else replace(self.timeline, info=redactor.tree(dict(self.timeline.info))),
        )

    def answers(self) -> dict[str, Any]:
        """Return what the script of the file answers its pictures with: packed and as text."""
        json: dict[str, str] = {
            f"flow/{name}": _text(_packed_json(picture.flow))
            for name, picture in self.flows.items()
            if picture.flow is not None
        }
        if self.timeline is None:
            return {"json": json, "tiles": {}, "bars": {}}
        json[f"{BASE}/timeline"] = _text(_packed_json(self.timeline.info))
        return {
            "json": json,
            "tiles": {
                f"{BASE}/{key}": "" if cells is None else _text(cells) for key, cells in self.timeline.tiles.items()
            },
            "bars": {
                BASE: [
                    {"from": bars.first_us, "to": bars.last_us, "body": _text(gzip.compress(bars.body, 9, mtime=0))}
                    for bars in self.timeline.bars
                ]
            },
        }


def _packed_json(value: Any) -> bytes:
    return gzip.compress(msgspec.json.encode(value), 9, mtime=0)


def _text(packed: bytes) -> str:
    return base64.b64encode(packed).decode()


def _length(us: float) -> str:
    return f"{us / 1e6:.3g} s" if us >= 1e6 else f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} µs"


def pictures_of(reader: TraceReader, verdict: Mapping[str, Any]) -> Pictures:
    """Return the flows of the findings and the timeline of a trace, each where there is one."""
    picture, said = _timeline(reader, verdict)
    return Pictures(_flows(reader, verdict), picture, said)


def _flows(reader: TraceReader, verdict: Mapping[str, Any]) -> dict[str, FlowPicture]:
    found: dict[str, FlowPicture] = {}
    for finding in verdict["findings"][:FLOWS_MAX]:
        stalled = flows.stalled_of(reader, finding)
        if stalled is None:
            continue
        comm, number = stalled
        group = operations.communicator(reader, comm)
        flow = None if group is None else flows.flow_of(reader, comm, number)
        if group is None or flow is None:
            continue
        fits = len(_packed_json(flow)) <= FLOW_BYTES
        found[finding["id"]] = FlowPicture(
            named=f"{flow['kind']} {number} · {group['desc'] or comm}",
            ranks=len({rank for half in flow["halves"] for rank in half[1:3]}),
            shape=flow["shape"],
            flow=flow if fits else None,
        )
    return found


def _timeline(reader: TraceReader, verdict: Mapping[str, Any]) -> tuple[TimelinePicture | None, str]:
    if not timeline.has_timeline(reader):
        return None, ""
    plan = timeline.plan_of(reader)
    info = timeline.describe(reader)
    tiles, kept, metrics = _tiles(reader, plan, list(info["metrics"]))
    if not kept:
        return None, f"The timeline of {plan.ranks:,} ranks is too large for a file; it is on the dashboard."
    windows = {
        finding["id"]: window
        for finding, incident in zip(verdict["findings"], info["incidents"], strict=True)
        if (window := _window(incident["since_us"] or _ns_to_us(finding, plan), info["span_us"])) is not None
    }
    shown = {**info, "levels": info["levels"][:kept], "metrics": metrics}
    bars = _bars(reader, plan, info["span_us"], list(dict.fromkeys(windows.values())))
    return TimelinePicture(shown, tiles, bars, windows, len(plan.bins_ns) - kept), ""


def _ns_to_us(finding: Mapping[str, Any], plan: Plan) -> int | None:
    """Return when a finding began, µs after the start; None where that is not known."""
    try:
        moment = datetime.fromisoformat(finding.get("since") or "")
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000) - plan.first_ns // 1000


def _window(since_us: int | None, span_us: int) -> Window | None:
    if since_us is None or not 0 <= since_us <= span_us:
        return None
    length = min(span_us, SHOWN_US)
    first = max(0, min(int(since_us - length * BEFORE_SHARE), span_us - length))
    return first, first + length


def _tiles(reader: TraceReader, plan: Plan, metrics: list[str]) -> tuple[dict[str, bytes | None], int, list[str]]:
    """Return the tiles of whole levels, the coarsest first, how many levels they are, and of which metrics.

    All metrics go in where the coarsest level of all fits; else the first alone, which is the one that is shown.
    """
    bands = -(-plan.ranks // SIDE)
    for wanted in (metrics, metrics[:1]):
        tiles: dict[str, bytes | None] = {}
        size = kept = 0
        for level in range(len(plan.bins_ns)):
            places = [(y, x) for y in range(bands) for x in range(-(-plan.bins(level) // SIDE))]
            if len(tiles) + len(places) * len(wanted) > TILES_MAX:
                break
            made: dict[str, bytes | None] = {}
            for metric, (y, x) in ((metric, place) for metric in wanted for place in places):
                cells = timeline.tile(reader, metric, level, y, x)
                made[f"{metric}/{level}/{y}/{x}"] = cells
                size += len(cells or b"")
                if size > TILES_BYTES:
                    break
            if size > TILES_BYTES:
                break
            tiles |= made
            kept = level + 1
        if kept:
            return tiles, kept, wanted
    return {}, 0, []


def _bars(reader: TraceReader, plan: Plan, span_us: int, windows: Sequence[Window]) -> list[Bars]:
    """Return the operations of the whole trace where they are few, else of what lies around each window."""
    whole = _fitting(reader, plan, 0, span_us, BARS_BYTES)
    if whole is not None:
        return [whole]
    found: list[Bars] = []
    for first, last in windows[:FLOWS_MAX]:
        # A picture asks for a quarter more on each side than it shows.
        middle, half = first + (last - first) * BEFORE_SHARE, (last - first) * 0.75
        while half > 1000:
            low, high = max(0, int(middle - half)), min(span_us, int(middle + half))
            bars = _fitting(reader, plan, low, high, BARS_BYTES // max(len(windows), 1))
            if bars is not None:
                found.append(bars)
                break
            half /= 2
    return found


def _fitting(reader: TraceReader, plan: Plan, first_us: int, last_us: int, most: int) -> Bars | None:
    body = timeline.bars(reader, first_us, last_us, 0, plan.ranks - 1)
    _, written, total, _ = timeline.HEADER.unpack_from(body)
    if written < total or len(gzip.compress(body, 1)) > most:
        return None
    return Bars(first_us, last_us, body)
