"""Find anything: what typed words lead to, and that no limit is silent."""

from __future__ import annotations

from typing import Any

import pytest

from mycroft.app import urls
from mycroft.app.pages.links import TraceLinks
from mycroft.app.reads import find

LINKS = TraceLinks("job", 1)
VERDICT = {"findings": [{"id": "f1", "summary": "Rank 5 waits for its input"}]}


def places(reader: Any, text: str, *, has_timeline: bool = True) -> list[tuple[str, str]]:
    found = find.find(reader, text, LINKS, verdict=VERDICT, has_timeline=has_timeline)
    return [(hit.kind, hit.href) for hit in found.hits]


@pytest.mark.parametrize("text", ["5", "rank 5", "r5", "Rank 5", "rank:5", "  5 "])
def test_a_number_is_first_of_all_a_rank(job_reader: Any, text: str) -> None:
    assert places(job_reader, text)[0] == ("Rank", "/t/job/rank/5?g=1")


def test_ranks_that_begin_with_the_digits_follow_the_rank_itself(job_reader: Any) -> None:
    ranks = [href for kind, href in places(job_reader, "rank 1") if kind == "Rank"]
    assert ranks == [f"/t/job/rank/{rank}?g=1" for rank in (1, 10, 11, 12, 13, 14, 15)]


@pytest.mark.parametrize("text", ["tp-c345 41", "tp_c345 41", "TP c345 41"])
def test_a_group_and_a_number_are_an_operation(job_reader: Any, text: str) -> None:
    assert places(job_reader, text) == [("Operation", "/t/job/op/tp-c345/41?g=1")]


def test_a_role_with_a_number_is_the_group_of_that_place_or_of_that_name(job_reader: Any) -> None:
    # The first group of tensor parallelism is called 1: both readings of tp_1 are answered.
    assert [href for _, href in places(job_reader, "tp_0 7")] == ["/t/job/op/tp-7e84/7?g=1"]
    assert {href for _, href in places(job_reader, "tp_1 7")} == {
        "/t/job/op/tp-7e84/7?g=1",
        "/t/job/op/tp-c345/7?g=1",
    }


def test_operations_that_are_open_come_first(job_reader: Any) -> None:
    assert next(href for kind, href in places(job_reader, "41") if kind == "Operation") == "/t/job/op/tp-c345/41?g=1"


@pytest.mark.parametrize(
    ("text", "kind", "href"),
    [
        ("hx-a02", "Host", "/t/job/host/hx-a02?g=1"),
        ("HX-A02", "Host", "/t/job/host/hx-a02?g=1"),
        ("default_pg", "Group", "/t/job/comm/world-434b?g=1"),
        ("rank5/stderr", "File", "/t/job/files/17?g=1"),
        ("waiting for shard", "Log line", "/t/job/files/17?g=1#L42"),
        ("f1", "Incident", "/t/job/d/f1?g=1"),
    ],
)
def test_names_and_text_lead_to_their_places(job_reader: Any, text: str, kind: str, href: str) -> None:
    assert (kind, href) in places(job_reader, text)


def test_a_time_opens_the_timeline_around_it_and_the_operations_before_it(job_reader: Any) -> None:
    found = places(job_reader, "04:10:41")
    kind, href = found[0]
    start, end = urls.parse(href).view["t"]  # pyright: ignore[reportGeneralTypeIssues]
    # The first operation of the trace begins one second and 40 ms times its group after 04:10:00.
    assert kind == "Time" and start < 40_000_000 < end  # pyright: ignore[reportOperatorIssue]
    assert [kind for kind, _ in found[1:4]] == ["Operation"] * 3
    assert "Time" not in [kind for kind, _ in places(job_reader, "04:10:41", has_timeline=False)]


FIRST_NS = 1_772_424_600 * 10**9  # 2026-03-02 04:10:00 UTC


@pytest.mark.parametrize(
    ("text", "after_ns"),
    [
        ("04:10:00", 0),
        ("04:10:00.25", 250_000_000),
        ("04:11", 60 * 10**9),
        ("00:10:00", 20 * 3600 * 10**9),
        ("2026-03-02 04:09:59,5", -500_000_000),
        ("2026-03-02T04:10:01Z", 10**9),
        ("+1.5s", 1_500_000_000),
        ("+250ms", 250_000_000),
        ("+2 min", 120 * 10**9),
        ("+1h", 3600 * 10**9),
    ],
)
def test_times_are_read_on_the_day_of_the_trace(text: str, after_ns: int) -> None:
    assert find.time_of(text, FIRST_NS) == FIRST_NS + after_ns


@pytest.mark.parametrize("text", ["24:99", "25:00:00", "2026-13-40 04:10:00", "noon", "1412", "-5s", ""])
def test_what_is_no_time_is_none(text: str) -> None:
    assert find.time_of(text, FIRST_NS) is None


def test_more_places_than_are_answered_are_said_by_kind(job_reader: Any) -> None:
    found = find.find(job_reader, "train step", LINKS, verdict=None, has_timeline=False)
    assert len(found.hits) == find.OF_A_KIND
    assert found.more == ("Log line",)


def test_lines_that_are_not_searched_are_said(job_reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find.find(job_reader, "not markup", LINKS, verdict=None, has_timeline=False).limits == ()
    monkeypatch.setattr(find, "LINES_SEARCHED", 10)
    found = find.find(job_reader, "not markup", LINKS, verdict=None, has_timeline=False)
    assert found.hits == ()
    assert found.limits == ("only the first 10 lines of logs were searched",)


@pytest.mark.parametrize("text", ["", "   ", "no such thing", "'; DROP TABLE ranks; --", "%", "\x00", "9" * 500, "[(*"])
def test_odd_text_finds_nothing_and_breaks_nothing(job_reader: Any, text: str) -> None:
    assert places(job_reader, text) == []
