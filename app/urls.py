"""The addresses of the dashboard: one table of pages, and a pure pair `parse` and `build`.

The same pair exists in JavaScript; both are held together by `tests/data/url_vectors.json`. An address is a page
with path parameters, a *view* (the query keys below, all optional) and whatever other keys were there, which are
ignored and kept. What cannot be read is dropped and said in `problems`; what is out of range is clamped and said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

MAX_INT: Final = 2**53 - 1
"""Largest whole number that JavaScript holds exactly; sequence numbers and times in an address end there."""

TEMPLATES: Final[tuple[tuple[str, str], ...]] = (
    ("traces", "/"),
    ("overview", "/t/<trace>"),
    ("diagnosis", "/t/<trace>/d/<incident>"),
    ("timeline", "/t/<trace>/timeline"),
    ("op", "/t/<trace>/op/<comm>/<seq>"),
    ("rank", "/t/<trace>/rank/<rank>"),
    ("comm", "/t/<trace>/comm/<comm>"),
    ("host", "/t/<trace>/host/<host>"),
    ("stacks", "/t/<trace>/stacks"),
    ("links", "/t/<trace>/links"),
    ("sql", "/t/<trace>/sql"),
    ("files", "/t/<trace>/files"),
    ("file", "/t/<trace>/files/<file>"),
    ("compare", "/compare"),
    ("job", "/jobs/<job>"),
    ("fleet", "/fleet"),
    ("live", "/live"),
    ("live_job", "/live/<job>"),
    ("live_incident", "/live/<job>/d/<incident>"),
)
_BY_NAME: Final[dict[str, str]] = dict(TEMPLATES)
INTEGER_PARAMS: Final = frozenset({"seq", "rank", "file"})
"""Path parameters that are whole numbers; all others are text."""

VIEW_INTEGERS: Final = ("op", "r", "ch", "at", "rev", "g")
VIEW_RANGES: Final = ("t", "y")
VIEW_TEXTS: Final = ("c", "m", "o", "a", "b")
VIEW_ORDER: Final = ("a", "b", "c", "op", "r", "ch", "t", "at", "y", "m", "o", "rev", "g")
"""Query keys in the order in which `build` writes them."""

# Characters that stay as they are in a path segment or query value, besides letters, digits and `_.-~`.
_SAFE: Final = ":@!$,"

ViewValue = int | str | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Address:
    """One parsed address.

    `page` is a name of `TEMPLATES`, None for a path that is no page. `view` holds only the keys that were there and
    could be read: whole numbers, (from, to) pairs, or text. `extra` holds the other keys in their order.
    """

    page: str | None
    params: dict[str, int | str] = field(default_factory=dict[str, "int | str"])
    view: dict[str, ViewValue] = field(default_factory=dict[str, ViewValue])
    extra: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def trace(self) -> str | None:
        """Trace that the page is of; None on pages of no single trace."""
        value = self.params.get("trace")
        return None if value is None else str(value)

    @property
    def generation(self) -> int | None:
        """Generation that the address pins; None: the newest."""
        value = self.view.get("g")
        return value if isinstance(value, int) else None


def _whole(text: str) -> int | None:
    """Return a whole number from decimal digits, clamped to `MAX_INT`; None for anything else."""
    if not text.isascii() or not text.isdigit():
        return None
    return min(int(text[:32]), MAX_INT)


def _path_params(path: str) -> tuple[str | None, dict[str, int | str]]:
    segments = [segment for segment in path.split("/") if segment]
    for name, template in TEMPLATES:
        parts = [part for part in template.split("/") if part]
        if len(parts) != len(segments):
            continue
        params: dict[str, int | str] = {}
        for part, segment in zip(parts, segments, strict=True):
            if not part.startswith("<"):
                if part != segment:
                    break
                continue
            key = part[1:-1]
            if key in INTEGER_PARAMS:
                number = _whole(segment)
                if number is None:
                    break
                params[key] = number
            else:
                params[key] = unquote(segment, errors="replace")
        else:
            return name, params
    return None, {}


def _range(text: str) -> tuple[int, int] | None:
    first, dash, last = text.partition("-")
    start, end = _whole(first), _whole(last)
    if not dash or start is None or end is None:
        return None
    return (start, end) if start <= end else (end, start)


def parse(address: str) -> Address:
    """Read an address: path and query, no scheme, host or fragment. Never raises."""
    path, _, query = address.partition("#")[0].partition("?")
    page, params = _path_params(path)
    view: dict[str, ViewValue] = {}
    extra: list[tuple[str, str]] = []
    problems: list[str] = []
    for key, text in parse_qsl(query, keep_blank_values=True, errors="replace"):
        if key not in VIEW_ORDER:
            extra.append((key, text))
            continue
        value: ViewValue | None = text or None
        if key in VIEW_INTEGERS:
            value = _whole(text)
        elif key in VIEW_RANGES:
            value = _range(text)
        if value is None:
            problems.append(f"{key}={text[:40]} cannot be read and is ignored")
        else:
            view[key] = value
    return Address(page, params, view, tuple(extra), tuple(problems))


def path_of(page: str, **params: int | str) -> str:
    """Return the path of a page. Raises KeyError for a page or a parameter that is missing."""
    template = _BY_NAME[page]
    parts = [
        quote(str(params[part[1:-1]]), safe=_SAFE) if part.startswith("<") else part for part in template.split("/")
    ]
    return "/".join(parts) or "/"


def build(address: Address) -> str:
    """Write an address so that `parse` gives it back; keys in one order, so that equal views are equal text."""
    if address.page is None:
        raise KeyError("an address without a page has no path")
    pairs: list[tuple[str, str]] = []
    for key in VIEW_ORDER:
        value = address.view.get(key)
        if isinstance(value, tuple):
            pairs.append((key, f"{value[0]}-{value[1]}"))
        elif value is not None:
            pairs.append((key, str(value)))
    pairs += address.extra
    query = "&".join(f"{quote(key, safe=_SAFE)}={quote(value, safe=_SAFE)}" for key, value in pairs)
    return path_of(address.page, **address.params) + (f"?{query}" if query else "")


def clamp(address: Address, *, extents: dict[str, tuple[int, int]]) -> Address:
    """Return the address with its numbers inside `extents` (key: least and greatest value); changes go to `problems`.

    A range keeps its part inside; one wholly outside becomes the whole extent.
    """
    view = dict(address.view)
    problems = list(address.problems)
    for key, (least, most) in extents.items():
        value = view.get(key)
        if isinstance(value, int):
            inside: ViewValue = min(max(value, least), most)
        elif isinstance(value, tuple):
            apart = value[1] < least or value[0] > most
            inside = (least, most) if apart else (max(value[0], least), min(value[1], most))
        else:
            continue
        if inside != value:
            shown = inside if isinstance(inside, int) else f"{inside[0]}-{inside[1]}"
            problems.append(f"{key} is outside the trace; shown is {shown}")
            view[key] = inside
    return Address(address.page, address.params, view, address.extra, tuple(problems))
