"""Jobs of relays that became slow: windows of all relays put together, judged, and whose rows are to be fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import polars as pl

from mycroft.analysis.fleet import merge
from mycroft.analysis.fleet.accusations import accusations, to_fetch
from mycroft.analysis.fleet.own_windows import MEASURED
from mycroft.analysis.fleet.slow_windows import KEPT, NO_MEMBERS, ServiceSeries, judge
from mycroft.app.live.judge import Seen
from mycroft.tracer.agent.summary import Part, Summary

# Windows that wait for a relay that lags behind; then they are judged without it.
_MOST_WAITING: Final = 3


@dataclass(frozen=True, slots=True)
class Word:
    """What one relay tells of one job. `newest`: what it told last, which has its communicators."""

    relay: str
    number: int
    summary: Summary
    newest: bool = True

    @property
    def part(self) -> Part:
        """What is said of the job as a whole."""
        return self.summary.parts[self.number]

    @property
    def place(self) -> tuple[str, int]:
        """The relay, and the communicator by which it knows the job."""
        return self.relay, self.part.comm

    def measures(self) -> Any:
        """Return its rows of `MEASURED`."""
        rows = pl.DataFrame(self.summary.measures)
        mine: Any = rows.filter(rows["part"] == self.number).select(MEASURED.schema.names).to_arrow()
        return mine.cast(MEASURED.schema)


@dataclass
class SlowJob:
    """One job, window by window."""

    series: ServiceSeries | None = None
    findings: tuple[dict[str, Any], ...] = ()
    """Of the newest window that was judged."""
    to_fetch: tuple[int, ...] = ()
    left_out: int = 0
    _names: dict[int, str] = field(default_factory=lambda: dict[int, str]())
    _heard: dict[tuple[str, int], int] = field(default_factory=lambda: dict[tuple[str, int], int]())
    _waiting: dict[int, list[Any]] = field(default_factory=lambda: dict[int, list[Any]]())

    def take(self, words: Sequence[Word], *, members: pl.DataFrame | None = None, wrong: bool = False) -> list[Seen]:
        """Take what relays that speak have told, and return who was slow at each window that is complete by it.

        Args:
            words: of each relay the newest, and older ones whose windows may not have been heard, oldest first.
            members: rank of each `comm_rank` of each `comm`; None: as `words` have it.
            wrong: an incident is open, or may be: what was usual is not learnt anew.
        """
        places = {word.place for word in words if word.newest}
        self._heard = {place: self._heard.get(place, 0) for place in places}
        for word in words:
            self._hear(word)
        # A relay that has not told of any window yet will in a moment.
        reached = min(self._heard.values(), default=0)
        found: list[Seen] = []
        for number in sorted(self._waiting):
            if number > reached and len(self._waiting) <= _MOST_WAITING:
                break
            seen = self._judge(number, self._waiting.pop(number), members, words, wrong=wrong)
            found += [seen] if seen is not None else []
        return found

    def _hear(self, word: Word) -> None:
        part, heard = word.part, self._heard.get(word.place, 0)
        if word.newest and 0 < part.window < heard - KEPT:
            # Clocks were set back. What is known lies in a time to come: begin anew.
            self.series, self._waiting, heard = None, {}, 0
            self._heard = dict.fromkeys(self._heard, 0)
        if part.window <= heard:
            return
        self._heard[word.place] = part.window
        window_ns = word.summary.window_ns
        if self.series is None or self.series.window_ns != window_ns:
            # Relays of one job tell of the same windows: with other settings it begins anew.
            self.series, self._waiting = ServiceSeries(window_ns), {}
        known = self.series.numbers
        if not known or part.window > known[-1]:
            self._waiting.setdefault(part.window, []).append(word.measures())
            self._names.update(part.places)

    def _judge(
        self, number: int, tables: Sequence[Any], members: pl.DataFrame | None, words: Sequence[Word], *, wrong: bool
    ) -> Seen | None:
        series = self.series
        if series is None or not series.take(number, merge(MEASURED, tables)):
            return None
        accused = judge(series, members_of(words) if members is None else members)
        at_ns = (number + 1) * series.window_ns
        if accused is None:
            self.findings, self.to_fetch = (), ()
            return Seen(at_ns, ())
        series.holds = wrong or accused.doubts
        self.findings = tuple(msgspec.to_builtins(f) for f in accusations(accused, self._names))
        if self.findings:
            told = len(accused.found.service.hosts)
            self.to_fetch, self.left_out = to_fetch(accused, series, told)
        return Seen(at_ns, self.findings)

    def numbers(self) -> Mapping[str, int]:
        """Return what is held in memory, for the metrics."""
        if self.series is None:
            return {"entities": 0, "bytes": 0}
        return {"entities": len(self.series.keys), "bytes": self.series.size_bytes}


def members_of(words: Sequence[Word]) -> pl.DataFrame:
    """Return the rank of each `comm_rank` of each `comm`, as far as relays tell."""
    tables = [
        pl.DataFrame(word.summary.rows.select(["part", "comm", "comm_rank", "rank"]))
        .filter(pl.col("part") == word.number)
        .drop("part")
        for word in words
        if word.newest
    ]
    return pl.concat(tables).drop_nulls("comm_rank") if tables else NO_MEMBERS
