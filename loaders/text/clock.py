"""Times as logs write them: full dates, month and day without a year, with and without a zone.

All results are ns since 1970-01-01 UTC beside a time quality of `schema.TIME_QUALITIES`. A time without a zone is
taken as UTC (`zone_assumed`): the offset of a machine is not in its log. A time without a year gets the year of
the full date nearest to it in the same bundle (`year_assumed`).
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * NS

# Where nothing in the bundle names a year. Any fixed year keeps the order and the distances, which is all that is
# used of such times, and the same evidence must always give the same trace.
FALLBACK_YEAR: Final = 2026

MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}

# In every time there is one of these; looking for it first is what makes lines without a time cheap.
CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d")
# 2026-03-02T04:11:09.123456789Z, 2026-03-02 04:11:09,123, 2026/03/02 04:11:09, 2026-03-02_04:11:09
ISO: Final = re.compile(
    r"(?P<year>(?:19|20)\d\d)[-/](?P<mon>[01]\d)[-/](?P<day>[0-3]\d)[T _](?P<h>[0-2]\d):(?P<m>[0-5]\d):(?P<s>[0-6]\d)"
    r"(?:[.,](?P<frac>\d{1,9}))?\d*\s?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?"
)
# 03/02/2026 04:11:09
US: Final = re.compile(
    r"(?P<mon>[01]\d)/(?P<day>[0-3]\d)/(?P<year>20\d\d) (?P<h>[0-2]\d):(?P<m>[0-5]\d):(?P<s>[0-6]\d)"
    r"(?:[.,](?P<frac>\d{1,9}))?\d*(?P<zone>)"
)
# Mar  2 04:11:09 and Mon Mar  2 04:11:09 2026
UNIX: Final = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}"
    r"(?P<day>[ 0-3]?\d) (?P<h>[0-2]\d):(?P<m>[0-5]\d):(?P<s>[0-6]\d)(?:[.,](?P<frac>\d{1,9}))?\d*"
    r"(?: (?:[A-Z]{3,4} )?(?P<year>(?:19|20)\d\d)\b)?"
)
# 03-02 04:11:09 (vLLM) and [03/02 04:11:09 (detectron2): no year
MONTH_DAY: Final = re.compile(
    r"(?<![\d/-])(?P<mon>[01]\d)[-/](?P<day>[0-3]\d) (?P<h>[0-2]\d):(?P<m>[0-5]\d):(?P<s>[0-6]\d)"
    r"(?:[.,](?P<frac>\d{1,9}))?"
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time and how sure it is: `ns` since 1970 UTC, `quality` one of `schema.TIME_QUALITIES`."""

    ns: int
    quality: str


def epoch_ns(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None) -> int | None:
    """Return ns since 1970 UTC; `fraction` are the digits after the point. None: no such date."""
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    seconds = _day_s(year, month, day) + hour * 3600 + minute * 60 + second
    return seconds * NS + (int((fraction + "000000000")[:9]) if fraction else 0)


@lru_cache(maxsize=4_096)
def _day_s(year: int, month: int, day: int) -> int:
    return timegm((year, month, day, 0, 0, 0))


def zone_ns(zone: str) -> int:
    """Return the offset of `+02:00`, `-0530`, `Z` in ns."""
    if zone in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "")
    offset = (int(digits[:2]) * 3600 + int(digits[2:4]) * 60) * NS
    return -offset if zone[0] == "-" else offset


def moment_of(match: re.Match[str]) -> Moment | None:
    """Return the time of a match of `ISO` or `US`."""
    ns = epoch_ns(
        int(match["year"]),
        int(match["mon"]),
        int(match["day"]),
        int(match["h"]),
        int(match["m"]),
        int(match["s"]),
        match["frac"],
    )
    if ns is None:
        return None
    zone = match["zone"]
    return Moment(ns - zone_ns(zone), "exact") if zone else Moment(ns, "zone_assumed")


class Years:
    """Gives times without a year the year that fits the full dates of the bundle."""

    def __init__(self, known_ns: Iterable[int] = ()) -> None:
        self._known = sorted(set(known_ns))
        self._cache: dict[tuple[int, int], int] = {}

    def of(self, month: int, day: int) -> int:
        """Return the year of `month` and `day`: the nearest to a full date, else `FALLBACK_YEAR`."""
        year = self._cache.get((month, day))
        if year is None:
            year = self._cache[month, day] = self._nearest(month, day)
        return year

    def _nearest(self, month: int, day: int) -> int:
        best = FALLBACK_YEAR
        least: int | None = None
        for known in self._known:
            around = 1970 + known // (365 * DAY_NS + DAY_NS // 4)
            for year in (around - 1, around, around + 1):
                ns = epoch_ns(year, month, day, 12, 0, 0, None)
                distance = abs(ns - known) if ns is not None else None
                if distance is not None and (least is None or distance < least):
                    best, least = year, distance
        return best

    def moment(self, month: int, day: int, hms: tuple[int, int, int], fraction: str | None) -> Moment | None:
        """Return the time of a stamp without a year."""
        ns = epoch_ns(self.of(month, day), month, day, *hms, fraction)
        return None if ns is None else Moment(ns, "year_assumed")


def full_dates(text: str, limit: int = 64) -> list[int]:
    """Return the first full dates of a text, at most `limit`, in ns."""
    found: list[int] = []
    for pattern in (ISO, US):
        for match in pattern.finditer(text):
            moment = moment_of(match)
            if moment is not None:
                found.append(moment.ns)
            if len(found) >= limit:
                return found
    for match in UNIX.finditer(text):
        if match["year"]:
            ns = epoch_ns(
                int(match["year"]),
                MONTHS[match["name"].lower()],
                int(match["day"]),
                int(match["h"]),
                int(match["m"]),
                int(match["s"]),
                None,
            )
            if ns is not None:
                found.append(ns)
        if len(found) >= limit:
            break
    return found


def first_moment(text: str, years: Years) -> Moment | None:
    """Return the first time that stands in `text`, whatever its form."""
    if CLOCK.search(text) is None:
        return None
    best: re.Match[str] | None = None
    for pattern in (ISO, US, UNIX, MONTH_DAY):
        match = pattern.search(text)
        if match is not None and (best is None or match.start() < best.start()):
            best = match
    return None if best is None else any_moment(best, years)


def any_moment(match: re.Match[str], years: Years) -> Moment | None:
    """Return the time of a match of any pattern of this module."""
    if match.re in (ISO, US):
        return moment_of(match)
    month = MONTHS[match["name"].lower()] if match.re is UNIX else int(match["mon"])
    hms = (int(match["h"]), int(match["m"]), int(match["s"]))
    if match.re is UNIX and match["year"]:
        ns = epoch_ns(int(match["year"]), month, int(match["day"]), *hms, match["frac"])
        return None if ns is None else Moment(ns, "zone_assumed")
    return years.moment(month, int(match["day"]), hms, match["frac"])
