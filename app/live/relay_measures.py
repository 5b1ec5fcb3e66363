"""Own service on a relay: rows of operations and flows as they come, and what they say of each window of time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mycroft.analysis.fleet.own_windows import COMPLETED, FLOWS, OPS, WHO, measure
from mycroft.loaders.collector import Process
from mycroft.tracer.agent.summary import MEASURES

# Rows are kept of so many windows beside the newest, for hosts that tell late, and of so many rows in all.
_WINDOWS: Final = 3
MOST_ROWS: Final = 8_000_000
# A window shorter than this says nothing of a job.
LEAST_WINDOW_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: pl.DataFrame
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class JobWindow:
    """A window of a job that is complete. `part`: of the summary; `places`: the least rank of each host."""

    part: int
    number: int
    processes: Sequence[Process]
    places: dict[str, int]


class Measures:
    """What came in lately, and which windows have been told."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns = max(window_ns, LEAST_WINDOW_NS)
        self._kept: dict[str, list[_Rows]] = {"op": [], "flow": []}
        self._newest_ns = 0
        self._told: dict[int, int] = {}

    def take(self, kind: str, rows: Any) -> None:
        """Take rows as the window gets them; the same may come again."""
        if kind not in self._kept or not rows.num_rows:
            return
        made = _ops(pl.DataFrame(rows)) if kind == "op" else _flows(pl.DataFrame(rows))
        if made.is_empty():
            return
        ends = made["end"]
        first, last = ends.min(), ends.max()
        assert isinstance(first, int) and isinstance(last, int)
        self._kept[kind].append(_Rows(made, first, last))
        self._newest_ns = max(self._newest_ns, last)
        # A host whose clock is ahead must not make the rows of all others old.
        oldest = min(self._newest_ns, time.time_ns()) - _WINDOWS * self.window_ns
        for name, parts in self._kept.items():
            self._kept[name] = parts = [part for part in parts if part.last_ns >= oldest]
            while sum(len(part.rows) for part in parts) > MOST_ROWS and len(parts) > 1:
                del parts[0]

    def due(self, part: int, comm: int, at_ns: int, processes: Sequence[Process]) -> JobWindow | None:
        """Return the newest window of a job that is complete, and was not told of.

        Args:
            part: its number in the summary.
            comm: by which the job is known.
            at_ns: up to when all its hosts have told what happened.
            processes: of it, one per rank, of hosts that speak.
        """
        number = at_ns // self.window_ns - 1
        if number <= self._told.get(comm, 0):
            return None
        self._told[comm] = number
        places: dict[str, int] = {}
        for process in processes:
            rank = process.status.process.rank
            if rank is not None:
                places[process.host] = min(rank, places.get(process.host, rank))
        return JobWindow(part, number, processes, places)

    def forget(self, comms: Iterable[int]) -> None:
        """Forget the jobs that are not among some."""
        kept = set(comms)
        self._told = {comm: number for comm, number in self._told.items() if comm in kept}

    def measured(self, windows: Iterable[JobWindow]) -> Any:
        """Return rows of `MEASURES` of some windows."""
        by_number: dict[int, list[JobWindow]] = {}
        for window in windows:
            by_number.setdefault(window.number, []).append(window)
        tables: list[Any] = []
        for number, same in by_number.items():
            since, until = number * self.window_ns, (number + 1) * self.window_ns
            # What a process was in before the window says when it was free.
            ops = self._between("op", OPS, since - self.window_ns, until)
            flows = self._between("flow", FLOWS, since, until)
            tables.append(measure(ops, flows, _who(same), since_ns=since, until_ns=until))
        if not tables:
            return MEASURES.empty_table()
        whole: Any = pl.concat([pl.DataFrame(table) for table in tables]).select(MEASURES.names).to_arrow()
        return whole.cast(MEASURES)

    def _between(self, kind: str, schema: pl.Schema, since_ns: int, until_ns: int) -> pl.DataFrame:
        found = [
            part.rows.filter(pl.col("end").is_between(since_ns, until_ns, closed="left"))
            for part in self._kept[kind]
            if part.last_ns >= since_ns and part.first_ns < until_ns
        ]
        return pl.concat(found).cast({"process": pl.String}) if found else pl.DataFrame(schema=schema)


def _ops(rows: pl.DataFrame) -> pl.DataFrame:
    enq = pl.col("enq_ts").cast(pl.Int64)
    done = (pl.col("op_state") == COMPLETED) & pl.col("dur_ns").is_not_null() & pl.col("enq_ts").is_not_null()
    return rows.filter(done).select(
        pl.col("process").cast(pl.Categorical),
        "position",
        "comm",
        "op_kind",
        "p2p",
        "bytes",
        enq.alias("enq"),
        pl.col("kstart_ts").cast(pl.Int64).alias("kstart"),
        (enq + pl.col("dur_ns")).alias("end"),
    )


def _flows(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("end_ts").is_not_null()).select(
        pl.col("process").cast(pl.Categorical),
        "position",
        "comm",
        "op_kind",
        "channel",
        "send",
        "peer",
        "slices",
        pl.col("net_busy_ns").alias("net_busy"),
        pl.col("flush_ns").alias("flush"),
        pl.col("end_ts").cast(pl.Int64).alias("end"),
    )


def _who(windows: Iterable[JobWindow]) -> pl.DataFrame:
    rows = [
        (window.part, process.key, process.status.process.rank, comm.comm, comm.hash, window.places[process.host])
        for window in windows
        for process in window.processes
        if process.status.process.rank is not None
        for comm in process.status.communicators
        if comm.hash
    ]
    return pl.DataFrame(rows, schema=WHO, orient="row")
