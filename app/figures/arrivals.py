"""The order of arrival at one collective: a bar per rank from its arrival to its end, the absent ones marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mycroft.app import words
from mycroft.app.figures import svg

State = Literal["finished", "open", "coalesced", "not_entered", "no_dump"]

LABEL_WIDTH: Final = 150
NOTE_WIDTH: Final = 190
PLOT_WIDTH: Final = 860
ROW: Final = 18
TOP: Final = 24
MAX_ROWS: Final = 48
"""Rows drawn; what is left out is counted under the picture."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One member of the collective. Times are ns of its own clock; None where it did not arrive or no time is kept."""

    rank: int
    host: str | None
    state: State
    start_ns: int | None
    end_ns: int | None
    is_culprit: bool = False
    is_odd: bool = False


_ORDER: Final = {"not_entered": 0, "no_dump": 1, "open": 2, "coalesced": 2, "finished": 2}


def ordered(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Return the members in the order of the picture: the absent first, then the latest arrivals."""

    def key(arrival: Arrival) -> tuple[int, int, int]:
        return (_ORDER[arrival.state], -(arrival.start_ns if arrival.start_ns is not None else -1), arrival.rank)

    return sorted(arrivals, key=key)


def arrivals_svg(arrivals: Sequence[Arrival], *, rank_href: Callable[[int], str]) -> str:
    """Return the picture; the scale begins at the first arrival and ends at the last end or arrival that is known."""
    rows = ordered(arrivals)
    drawn = rows[:MAX_ROWS]
    starts = [a.start_ns for a in arrivals if a.start_ns is not None]
    ends = [t for a in arrivals for t in (a.start_ns, a.end_ns) if t is not None]
    first = min(starts, default=0)
    last = max(ends, default=first)
    # An operation that nobody finished has no end: the scale is then that of the arrivals, with room to go on.
    is_open = any(a.state == "open" for a in arrivals)
    span = max(last - first, 1) * (1.18 if is_open else 1.0)
    height = TOP + ROW * len(drawn) + 22
    parts = [_axis(span, TOP + ROW * len(drawn))]
    for index, arrival in enumerate(drawn):
        parts.append(_row(arrival, TOP + ROW * index, first, span, rank_href))
    counts = {
        state: sum(a.state == state for a in arrivals) for state in ("finished", "open", "not_entered", "no_dump")
    }
    label = (
        f"Order of arrival of {words.plural(len(arrivals), 'rank')}: {counts['finished']} finished, {counts['open']} "
        f"entered and did not finish, {counts['not_entered']} did not enter, {counts['no_dump']} left no dump"
    )
    return svg.picture(LABEL_WIDTH + PLOT_WIDTH + NOTE_WIDTH, height, _hatch(), *parts, label=label)


def _hatch() -> str:
    line = svg.element("path", d="M0 6 L6 0", class_="hatch-line")
    return svg.element(
        "defs",
        svg.element("pattern", line, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse"),
    )


def ticks(span: float, *, wanted: int = 6) -> list[int]:
    """Return round times in ns from 0 to `span`, about `wanted` of them."""
    step = 1
    while span / step > wanted * 2.5:
        step *= 10
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= wanted:
            step *= factor
            break
    return list(range(0, int(span) + 1, step))


def _axis(span: float, bottom: float) -> str:
    parts: list[str] = []
    for tick in ticks(span):
        x = LABEL_WIDTH + tick / span * PLOT_WIDTH
        parts.append(svg.element("line", x1=x, y1=TOP - 4, x2=x, y2=bottom, class_="axis-line"))
        parts.append(
            svg.text(x, TOP - 9, "0" if tick == 0 else f"+{words.duration(tick)}", "axis-label", anchor="middle")
        )
    return svg.element("g", *parts)


def _row(arrival: Arrival, y: float, first: int, span: float, rank_href: Callable[[int], str]) -> str:
    name_class = "arrival-name arrival-name--cause" if arrival.is_culprit else "arrival-name"
    name = f"{'▲ ' if arrival.is_culprit else ''}rank {arrival.rank}"
    host = f"  {arrival.host}" if arrival.host else ""
    shapes = [
        svg.text(LABEL_WIDTH - 10, y + 13, svg.fit(name + host, LABEL_WIDTH - 14, 11.5), name_class, anchor="end")
    ]
    middle = y + 3
    note, note_class = "", "arrival-note"
    if arrival.state == "no_dump":
        shapes.append(_band(middle, "arrival-nolog"))
        note, note_class = "no dump: unknown", "arrival-note arrival-note--nolog"
    elif arrival.state == "not_entered":
        shapes.append(_band(middle, "arrival-absent arrival-absent--cause" if arrival.is_culprit else "arrival-absent"))
        note, note_class = "did not enter", name_class.replace("name", "note")
    elif arrival.start_ns is None:
        shapes.append(_band(middle, "arrival-notime"))
        note = "entered, no time kept"
    else:
        x = LABEL_WIDTH + (arrival.start_ns - first) / span * PLOT_WIDTH
        right = LABEL_WIDTH + PLOT_WIDTH
        end = right if arrival.end_ns is None else LABEL_WIDTH + (arrival.end_ns - first) / span * PLOT_WIDTH
        kind = "arrival-bar--done" if arrival.state == "finished" else "arrival-bar--open"
        odd = " arrival-bar--odd" if arrival.is_odd else ""
        shapes.append(
            svg.element("rect", x=x, y=middle, width=max(end - x, 2.0), height=12, class_=f"arrival-bar {kind}{odd}")
        )
        shapes.append(svg.element("line", x1=x, y1=middle - 2, x2=x, y2=middle + 14, class_="arrival-start"))
        note = "first" if arrival.start_ns == first else f"+{words.duration(arrival.start_ns - first)}"
        note += {"open": ", not finished", "coalesced": ", in a coalesced group"}.get(arrival.state, "")
        note += ", differs" if arrival.is_odd else ""
    shapes.append(svg.text(LABEL_WIDTH + PLOT_WIDTH + 10, y + 13, note, note_class))
    return svg.anchor(
        rank_href(arrival.rank),
        svg.element("rect", x=0, y=y, width=LABEL_WIDTH + PLOT_WIDTH + NOTE_WIDTH, height=ROW, class_="arrival-hit"),
        *shapes,
        svg.title(f"rank {arrival.rank}{', ' + arrival.host if arrival.host else ''}: {note}"),
    )


def _band(y: float, kind: str) -> str:
    return svg.element("rect", x=LABEL_WIDTH, y=y, width=PLOT_WIDTH, height=12, class_=kind)
