"""Own service of a simulated job, window by window, as relays of some hosts tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa

from mycroft.analysis.fleet import merge
from mycroft.analysis.fleet.own_windows import COMPLETED, MEASURED, measure
from mycroft.analysis.fleet.slow_windows import Accused, ServiceSeries, judge
from tests.analysis.fleet.simulated_fleet import Fleet
from tests.app.live.simulated import coded


class Windows:
    """The windows of a fleet. Ranks of a host are never parted."""

    def __init__(self, fleet: Fleet, *, window_s: float) -> None:
        self.fleet = fleet
        self.window_ns = int(window_s * 1e9)
        ends = self.ops["end"]
        first, last = ends.min(), ends.max()
        assert isinstance(first, int) and isinstance(last, int)
        self.numbers = range(first // self.window_ns, last // self.window_ns)

    @property
    def hosts(self) -> list[int]:
        """The least rank on each."""
        return list(range(0, self.fleet.world, self.fleet.simulated.config.ranks_per_host))

    def _rows(self, kind: str) -> pl.DataFrame:
        table, owners = self.fleet.tables[kind]
        rows = pl.DataFrame(coded(kind, table, 0))
        return rows.with_columns(
            pl.format("p{}", pl.Series(owners)).alias("process"),
            pl.Series("position", table.column("position").to_numpy()),
            pl.Series("owner", owners).cast(pl.UInt32),
        )

    @cached_property
    def ops(self) -> pl.DataFrame:
        enq = pl.col("enq_ts").cast(pl.Int64)
        kstart = pl.col("kstart_ts").cast(pl.Int64)
        done = self._rows("op").filter((pl.col("op_state") == COMPLETED) & pl.col("dur_ns").is_not_null())
        return done.with_columns(enq.alias("enq"), kstart.alias("kstart"), (enq + pl.col("dur_ns")).alias("end"))

    @cached_property
    def flows(self) -> pl.DataFrame:
        return self._rows("flow").with_columns(
            pl.col("net_busy_ns").alias("net_busy"),
            pl.col("flush_ns").alias("flush"),
            pl.col("end_ts").cast(pl.Int64).alias("end"),
        )

    @cached_property
    def who(self) -> pl.DataFrame:
        per_host = self.fleet.simulated.config.ranks_per_host
        place = (pl.col("rank") // per_host * per_host).cast(pl.UInt32).alias("place")
        known = pl.DataFrame(self.fleet.dimensions(range(self.fleet.world)))
        return known.with_columns(place, pl.lit(0, pl.UInt16).alias("part"))

    @cached_property
    def members(self) -> pl.DataFrame:
        return self.who.select(pl.col("hash").alias("comm"), "comm_rank", "rank")

    def told(self, number: int, hosts: Sequence[int]) -> pa.Table:
        """What the relay of some hosts tells of a window."""
        since, until = number * self.window_ns, (number + 1) * self.window_ns
        on = pl.col("owner") // self.fleet.simulated.config.ranks_per_host
        mine = on.is_in([host // self.fleet.simulated.config.ranks_per_host for host in hosts])
        columns = ["part", "process", "rank", "comm", "hash", "place"]
        ops = self.ops.filter(mine & pl.col("end").is_between(since - self.window_ns, until))
        flows = self.flows.filter(mine & pl.col("end").is_between(since, until))
        found = measure(ops, flows, self.who.select(columns), since_ns=since, until_ns=until)
        return found.select(MEASURED.schema.names)

    def judged(self) -> Iterator[tuple[int, ServiceSeries, Accused | None]]:
        """Each window in its turn, as the centre judges it."""
        series = ServiceSeries(self.window_ns)
        for number in self.numbers:
            assert series.take(number, merge(MEASURED, [self.told(number, self.hosts)]))
            accused = judge(series, self.members)
            series.holds = accused is not None and accused.doubts
            yield number, series, accused


def columns_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Measures of one window from a few rows."""
    return pa.Table.from_pylist(list(rows), schema=MEASURED.schema)
