"""What the evidence of a trace does not cover: records that were overwritten, lines that were no use, clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mycroft.app.queries import TraceReader

_DUMPS: Final = """
SELECT
    count(DISTINCT rank)::BIGINT AS ranks,
    (count(DISTINCT rank) FILTER (first_record > 0))::BIGINT AS overwritten,
    (count(DISTINCT rank) FILTER (only_active))::BIGINT AS only_active,
    (count(DISTINCT rank) FILTER (first_record = 0 AND NOT coalesce(only_active, FALSE)))::BIGINT AS whole
FROM rank_dumps
"""
_FILES: Final = "SELECT count(*) FILTER (dropped > 0)::BIGINT, coalesce(sum(dropped), 0)::BIGINT FROM files"
_CLOCKS: Final = """
SELECT count(*)::BIGINT, count(clock_offset_ns)::BIGINT, max(clock_error_ns)::BIGINT
FROM hosts
"""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of ranks, files, records and hosts; `clock_error_ns` is the worst bound of a host's clock, None: unknown.

    `overwritten` ranks have dumps that begin after their first operation, `only_active` ones hold only
    what was open, `whole` ones begin with the first operation; a dump that does not say is none of them.
    """

    dumped: int
    overwritten: int
    only_active: int
    whole: int
    damaged_files: int
    dropped: int
    hosts: int
    synchronised: int
    clock_error_ns: int | None


def coverage_of(reader: TraceReader) -> Coverage:
    """Return what the evidence of a trace covers."""
    return Coverage(*reader.frame(_DUMPS).row(0), *reader.frame(_FILES).row(0), *reader.frame(_CLOCKS).row(0))
