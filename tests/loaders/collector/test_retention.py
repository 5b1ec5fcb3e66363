"""What goes and what stays: by age and table, by bytes, and what incidents keep."""

from __future__ import annotations

from mycroft.loaders.collector.manifest import Segment
from mycroft.loaders.collector.retention import DAY_S, KEEP_S, Pin, leaving, pinned
from mycroft.loaders.collector.segments import ALL_TABLES

NOW = 1_800_000_000.0
S = 10**9


def segment(table: str, *, age_s: float = 0.0, size: int = 100, name: str = "") -> Segment:
    """One whose ten seconds of rows end when it is written."""
    made = NOW - age_s
    return Segment(
        table=table,
        path=f"{table}/{made}{name}",
        first_ns=int((made - 10) * S),
        last_ns=int(made * S),
        rows=1,
        size_bytes=size,
        made=made,
    )


def gone(segments: list[Segment], *, most_bytes: int = 10**9, pins: tuple[Pin, ...] = (), excess: int = 0) -> list[str]:
    found = leaving(segments, now=NOW, most_bytes=most_bytes, keep_s=KEEP_S, pins=pins, excess=excess)
    return [one.path for one in found]


def test_every_table_has_its_time() -> None:
    assert set(KEEP_S) == set(ALL_TABLES)
    for table, keep_s in KEEP_S.items():
        young, old = segment(table, age_s=keep_s - 60), segment(table, age_s=keep_s + 60)
        assert gone([young, old]) == [old.path]


def test_sums_outlive_rows_by_far() -> None:
    day_old = [segment(table, age_s=2 * DAY_S) for table in ("state", "flow", "op", "host_minute", "op_minute")]
    assert gone(day_old) == [day_old[0].path, day_old[1].path]


def test_states_go_before_flows_before_operations_where_there_is_too_much() -> None:
    segments = [segment(table, age_s=10) for table in ("op", "flow", "state", "host_minute")]
    segments += [segment("op", age_s=20, name="older")]
    assert gone(segments, most_bytes=400) == [segments[2].path]
    assert gone(segments, most_bytes=300) == [segments[2].path, segments[1].path]
    assert gone(segments, most_bytes=200)[2:] == [segments[4].path]
    # An operation of this morning goes before a state of now.
    assert gone([segment("op", age_s=8000), segments[2]], most_bytes=100) == [segment("op", age_s=8000).path]


def test_sums_that_outgrow_the_rows_go_like_them() -> None:
    sums = [segment("host_minute", age_s=number, size=100) for number in (5000, 4000, 3000)]
    rows = segment("op", age_s=10, size=100)
    assert gone([*sums, rows], most_bytes=300) == [sums[0].path]
    assert gone([sums[0], rows], most_bytes=1000, excess=50) == [rows.path]


def test_window_of_an_incident_stays_beyond_its_time_and_its_bytes() -> None:
    pin = Pin(name="i", since_ns=int((NOW - 2 * DAY_S - 5) * S), until_ns=int((NOW - 2 * DAY_S + 5) * S))
    inside, before = segment("state", age_s=2 * DAY_S), segment("state", age_s=2 * DAY_S + 100)
    assert gone([inside, before], pins=(pin,)) == [before.path]
    recent = segment("state", age_s=5, size=500)
    assert gone([inside, recent], most_bytes=550, pins=(pin,)) == [recent.path]
    # On a full disk even they go, last.
    assert gone([inside, recent], pins=(pin,), excess=550) == [recent.path, inside.path]


def test_incidents_keep_a_quarter_at_most_the_newest_first() -> None:
    old, new = segment("op", age_s=400, size=100), segment("op", age_s=100, size=100)
    pins = [
        Pin(name=f"{age_s}", since_ns=int((NOW - age_s - 1) * S), until_ns=int((NOW - age_s) * S))
        for age_s in (400, 100)
    ]
    assert pinned([old, new], pins, most_bytes=150) == {new.path}
    assert pinned([old, new], pins, most_bytes=250) == {new.path, old.path}
    assert pinned([old, new], pins, most_bytes=50) == set()


def test_incident_that_would_keep_too_much_takes_nothing_from_the_others() -> None:
    rows = [segment("op", age_s=age_s, size=100) for age_s in (400, 300, 200, 100)]
    pins = [
        Pin(name="open for long", since_ns=int((NOW - 350) * S), until_ns=int(NOW * S)),
        Pin(name="short", since_ns=int((NOW - 401) * S), until_ns=int((NOW - 399) * S)),
    ]
    assert pinned(rows, pins, most_bytes=250) == {rows[0].path}
