"""Find anything: what a few typed words may mean in a trace, the most exact first.

Nothing is guessed: a word is looked for among ranks, hosts, groups, operations, times, incidents, files and the lines
of logs, each up to a limit, and the answer says which of them had more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from mycroft.app import words
from mycroft.app.pages.links import TraceLinks
from mycroft.app.queries import TraceReader
from mycroft.app.reads.extent import extent_of
from mycroft.app.urls import Address, build
from mycroft.loaders.store import Store

CHARS_MAX: Final = 200
OF_A_KIND: Final = 8
"""Places of each kind that are answered; what is more is said."""
LINE_CHARS: Final = 160
LINES_SEARCHED: Final = 2_000_000
"""Lines of logs that are searched, in the order of the files: about a second's work."""
WINDOW_NS: Final = 5_000_000_000
"""Half the width of the window that a time opens on the timeline, ns."""

_WORD: Final = re.compile(r"[^\s]+")
_CLOCK: Final = re.compile(r"(?:(\d{4}-\d\d-\d\d)[T ])?(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?Z?")
_OFFSET: Final = re.compile(r"\+(\d{1,9})(?:\.(\d{1,9}))?\s*(ms|s|min|h)?")
_RANK: Final = re.compile(r"(?:rank\s*[:=#]?\s*|r)?(\d{1,9})", re.IGNORECASE)
_UNIT_NS: Final = {"ms": 10**6, "s": 10**9, None: 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}

_RANKS: Final = """
WITH known AS (
    SELECT rank FROM ranks
    UNION
    SELECT rank FROM members
    UNION
    SELECT range FROM range((SELECT coalesce(max(world_size), 0) FROM jobs))
)
SELECT known.rank::BIGINT AS rank, h.name AS host
FROM known
LEFT JOIN ranks r ON r.rank = known.rank
LEFT JOIN hosts h USING (host_id)
WHERE starts_with(known.rank::VARCHAR, ?)
ORDER BY length(known.rank::VARCHAR), known.rank
LIMIT ?
"""
_HOSTS: Final = """
SELECT h.name, count(r.rank)::BIGINT AS ranks
FROM hosts h
LEFT JOIN ranks r USING (host_id)
WHERE contains(lower(h.name), ?1)
GROUP BY h.name
ORDER BY lower(h.name) <> ?1, length(h.name), h.name
LIMIT ?2
"""
# What a group may be called: its key, its description, its name, and its role with its number among those of the role.
_GROUPS: Final = """
WITH named AS (
    SELECT comm_id, key, coalesce("desc", name, key) AS shown, kind, size, [
        lower(key),
        lower(coalesce("desc", '')),
        lower(coalesce(name, '')),
        lower(coalesce(kind, '') || '_' || coalesce(name, '')),
        lower(coalesce(kind, '') || '_' || (row_number() OVER (PARTITION BY kind ORDER BY comm_id) - 1))
    ] AS names
    FROM communicators
)
SELECT comm_id::BIGINT AS comm_id, key, shown, kind, size::BIGINT AS size,
    list_contains([regexp_replace(name, '[-_ ]+', '_', 'g') FOR name IN names], ?1) AS is_exact
FROM named
WHERE len([name FOR name IN names IF contains(regexp_replace(name, '[-_ ]+', '_', 'g'), ?1)]) > 0
ORDER BY is_exact DESC, comm_id
LIMIT ?2
"""
_OPERATIONS: Final = """
SELECT c.key, coalesce(c."desc", c.name, c.key) AS shown, o.op_seq::BIGINT AS seq,
    any_value(o.op_kind::VARCHAR) AS kind, count(DISTINCT o.rank)::BIGINT AS entered,
    count(*) FILTER (WHERE o.state <> 'completed' AND NOT coalesce(o.retired, FALSE))::BIGINT AS open
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE o.op_seq = ?1 AND (?2 IS NULL OR o.comm_id IN (SELECT unnest(?2::UINTEGER[])))
GROUP BY ALL
ORDER BY open DESC, c.key
LIMIT ?3
"""
_NEAREST: Final = """
SELECT c.key, coalesce(c."desc", c.name, c.key) AS shown, o.op_seq::BIGINT AS seq, o.op_kind::VARCHAR AS kind,
    o.rank::BIGINT AS rank, epoch_ns(coalesce(o.start_ts, o.enq_ts)) AS at_ns
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE coalesce(o.start_ts, o.enq_ts) <= make_timestamp_ns(?1::BIGINT)
ORDER BY coalesce(o.start_ts, o.enq_ts) DESC, o.rank
LIMIT 3
"""
_FILES: Final = """
SELECT file_id::BIGINT AS file_id, path, loader
FROM files
WHERE contains(lower(path), ?)
ORDER BY length(path), path
LIMIT ?
"""
_LINES: Final = """
SELECT e.file_id::BIGINT AS file_id, f.path, e.line::BIGINT AS line, e.rank::BIGINT AS rank, e.text,
    e.level::VARCHAR AS level
FROM (SELECT file_id, line, rank, text, level, kind FROM events LIMIT ?1) e
JOIN files f USING (file_id)
WHERE contains(lower(e.text), ?2) AND e.line IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY e.file_id, e.line ORDER BY e.kind) = 1
ORDER BY e.level DESC NULLS LAST, e.file_id, e.line
LIMIT ?3
"""
_LINES_COUNT: Final = "SELECT count(*) FROM events"


@dataclass(frozen=True, slots=True)
class Hit:
    """One place: `kind` is a word for readers, `title` its name, `detail` what else is known of it."""

    kind: str
    title: str
    detail: str
    href: str


@dataclass(frozen=True, slots=True)
class Found:
    """The places that words may mean.

    `more` names the kinds of which there are more than are answered; `limits` says what was not searched at all.
    """

    hits: tuple[Hit, ...]
    more: tuple[str, ...]
    limits: tuple[str, ...] = ()


class _Search:
    """One search: gathers the places of each kind, and which kinds had more."""

    def __init__(self, reader: TraceReader, store: Store, links: TraceLinks) -> None:
        self.reader = reader
        # Words are typed once and by one: their answers would push from the cache what all look at.
        self.store = store
        self.links = links
        self.hits: list[Hit] = []
        self.more: list[str] = []
        self.limits: list[str] = []

    def rows(self, kind: str, sql: str, *params: Any) -> list[dict[str, Any]]:
        """Return up to `OF_A_KIND` rows; that there are more is kept."""
        found = self.store.frame(sql, [*params, OF_A_KIND + 1]).to_dicts()
        if len(found) > OF_A_KIND:
            self.more.append(kind)
        return found[:OF_A_KIND]

    def add(self, kind: str, title: str, detail: str, href: str) -> None:
        self.hits.append(Hit(kind, title, detail, href))


def find(
    reader: TraceReader, text: str, links: TraceLinks, *, verdict: Mapping[str, Any] | None, has_timeline: bool
) -> Found:
    """Return what `text` may mean; empty for no text.

    Args:
        reader: the trace.
        text: what was typed, such as `37`, `rank 37`, `dp_2 1412`, `04:10:41`, `+61.2s`, a host, a word of a log.
        links: makes the addresses.
        verdict: its verdict, for incidents.
        has_timeline: whether a time may lead to the timeline; else it leads to the operations before it.
    """
    wanted = text.strip()[:CHARS_MAX]
    if not wanted:
        return Found((), ())
    with reader.store() as store:
        search = _Search(reader, store, links)
        _incidents(search, wanted, verdict)
        _times(search, wanted, has_timeline)
        number = _RANK.fullmatch(wanted)
        if number:
            _ranks(search, str(int(number[1])))
            _operations(search, int(number[1]), None)
        else:
            _operation_of_group(search, wanted)
            _groups(search, wanted)
        _hosts(search, wanted.lower())
        _files(search, wanted.lower())
        _lines(search, wanted.lower())
    return Found(tuple(dict.fromkeys(search.hits)), tuple(dict.fromkeys(search.more)), tuple(search.limits))


def _incidents(search: _Search, wanted: str, verdict: Mapping[str, Any] | None) -> None:
    for finding in verdict["findings"] if verdict else ():
        if wanted.lower() in {finding["id"], f"incident {finding['id']}"}:
            search.add("Incident", finding["id"], finding["summary"], search.links.incident(finding["id"]))


def _ranks(search: _Search, digits: str) -> None:
    for row in search.rows("Rank", _RANKS, digits):
        search.add("Rank", f"rank {row['rank']}", row["host"] or "host unknown", search.links.rank(row["rank"]))


def _operations(search: _Search, seq: int, comms: Sequence[int] | None) -> None:
    for row in search.rows("Operation", _OPERATIONS, seq, None if comms is None else list(comms)):
        state = f"{row['open']:,} open" if row["open"] else "finished"
        detail = f"{row['key']}, {row['kind']}, {words.plural(row['entered'], 'rank')}, {state}"
        search.add("Operation", f"{row['shown']} {row['seq']}", detail, search.links.op(row["key"], row["seq"]))


def _operation_of_group(search: _Search, wanted: str) -> None:
    """Find `dp_2 1412`: the words of a group, and a number."""
    parts = _WORD.findall(wanted)
    if len(parts) < 2 or not parts[-1].isascii() or not parts[-1].isdigit():
        return
    groups = search.store.frame(_GROUPS, [_plain(" ".join(parts[:-1])), 1000]).to_dicts()
    exact = [row["comm_id"] for row in groups if row["is_exact"]]
    found = exact or [row["comm_id"] for row in groups]
    if found:
        _operations(search, int(parts[-1][:18]), found)


def _plain(text: str) -> str:
    return re.sub(r"[-_\s]+", "_", text.strip().lower())


def _groups(search: _Search, wanted: str) -> None:
    for row in search.rows("Group", _GROUPS, _plain(wanted)):
        size = words.plural(row["size"], "member") if row["size"] is not None else "size unknown"
        search.add(
            "Group", row["shown"], f"{row['key']}, {words.role(row['kind'])}, {size}", search.links.comm(row["key"])
        )


def _hosts(search: _Search, wanted: str) -> None:
    for row in search.rows("Host", _HOSTS, wanted):
        search.add("Host", row["name"], words.plural(row["ranks"], "rank"), search.links.host(row["name"]))


def _files(search: _Search, wanted: str) -> None:
    for row in search.rows("File", _FILES, wanted):
        detail = words.source(row["loader"]) if row["loader"] else "not read"
        search.add("File", row["path"], detail, search.links.file(row["file_id"]))


def _lines(search: _Search, wanted: str) -> None:
    if len(wanted) < 3:
        return
    if search.store.frame(_LINES_COUNT).item() > LINES_SEARCHED:
        search.limits.append(f"only the first {LINES_SEARCHED:,} lines of logs were searched")
    for row in search.rows("Log line", _LINES, LINES_SEARCHED, wanted):
        at = max(0, row["text"].lower().find(wanted) - 40)
        shown = (
            ("…" if at else "")
            + row["text"][at : at + LINE_CHARS]
            + ("…" if at + LINE_CHARS < len(row["text"]) else "")
        )
        detail = f"{row['path']}:{row['line']}" + (f", rank {row['rank']}" if row["rank"] is not None else "")
        search.add("Log line", shown, detail, search.links.file(row["file_id"], row["line"]))


def time_of(text: str, first_ns: int) -> int | None:
    """Return the moment that a text names, ns UTC; None: it names none.

    `04:10:41.5` is on the day that the trace begins, or the next where that would be before it; with a date, on that
    day; `+61.2s` counts from the beginning.
    """
    offset = _OFFSET.fullmatch(text)
    if offset:
        fraction = int((offset[2] or "").ljust(9, "0")[:9] or 0)
        return first_ns + (int(offset[1]) * 10**9 + fraction) * _UNIT_NS[offset[3]] // 10**9
    clock = _CLOCK.fullmatch(text)
    if not clock:
        return None
    start = datetime.fromtimestamp(first_ns // 10**9, tz=UTC)
    try:
        day = datetime.fromisoformat(clock[1]) if clock[1] else start
        moment = datetime(day.year, day.month, day.day, int(clock[2]), int(clock[3]), int(clock[4] or 0), tzinfo=UTC)
    except ValueError:
        return None
    at_ns = int(moment.timestamp()) * 10**9 + int((clock[5] or "").ljust(9, "0"))
    is_before = not clock[1] and at_ns < first_ns - 3600 * 10**9
    return at_ns + 24 * 3600 * 10**9 if is_before else at_ns


def _times(search: _Search, wanted: str, has_timeline: bool) -> None:
    if not _CLOCK.fullmatch(wanted) and not _OFFSET.fullmatch(wanted):
        return
    extent = extent_of(search.reader)
    at_ns = None if extent is None else time_of(wanted, extent[0])
    if extent is None or at_ns is None:
        return
    first_ns, last_ns = extent
    shown = f"{words.time_of(at_ns)} {words.date_of(at_ns)}"
    outside = "" if first_ns <= at_ns <= last_ns else ", outside the operations of this trace"
    if has_timeline:
        start, end = (max(0, (at_ns + by - first_ns) // 1000) for by in (-WINDOW_NS, WINDOW_NS))
        view: dict[str, Any] = {"t": (start, end)}
        if search.links.generation is not None:
            view["g"] = search.links.generation
        href = build(Address("timeline", {"trace": search.links.trace}, view))
        search.add("Time", shown, f"the timeline around it{outside}", href)
    for row in search.store.frame(_NEAREST, [at_ns]).to_dicts():
        detail = f"{row['key']}, last before that time, rank {row['rank']} at {words.time_of(row['at_ns'])}{outside}"
        search.add("Operation", f"{row['shown']} {row['seq']}", detail, search.links.op(row["key"], row["seq"]))
