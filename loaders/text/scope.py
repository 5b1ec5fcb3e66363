"""Where the handlers of line formats put what they found in one file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from mycroft.loaders.base import EvidenceFile, LoadContext
from mycroft.loaders.schema import EVENTS, GROUP_STATUS, STACKS, polars_schema
from mycroft.loaders.text.clock import CLOCK, ISO, Moment, Years, first_moment, moment_of
from mycroft.loaders.text.matcher import Block, Line
from mycroft.loaders.text.wrappers import Peeler

TEXT_LIMIT: Final = 2_000
_FLUSH_ROWS: Final = 40_000
_MAX_BLOCKS: Final = 4_096
_MAX_ONCE: Final = 100_000
_SINK_ROWS: Final = 20_000

# Printed in the moment they happen: without a time of their own they are not older than the writer's last stamp.
_PROMPT_KINDS: Final = frozenset(("exception", "signal", "connection_closed", "cuda_error", "out_of_memory"))

# Least and greatest value of the types that columns of whole numbers have.
_BOUNDS: Final[Mapping[type[pl.DataType], tuple[int, int]]] = {
    pl.UInt8: (0, 2**8 - 1),
    pl.UInt16: (0, 2**16 - 1),
    pl.UInt32: (0, 2**32 - 1),
    pl.UInt64: (0, 2**64 - 1),
    pl.Int32: (-(2**31), 2**31 - 1),
    pl.Int64: (-(2**63), 2**63 - 1),
    pl.Datetime: (-(2**63), 2**63 - 1),
}

_SCHEMAS: Final = {table.name: polars_schema(table) for table in (EVENTS, GROUP_STATUS, STACKS)}

# [E217 09:14:03.013057536 file.cpp:629] and E0217 09:14:03.013057 4711 file.cpp:629]; the last two digits of the
# date are the day, and the month is padded only by glog.
C10_STAMP: Final = re.compile(
    r"(?<![\w.])[IWEFC](?P<mon>\d{1,2}?)(?P<day>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)\.(?P<frac>\d{1,9})"
)

Row = dict[str, Any]


class RowSink:
    """Gathers the rows of many files, so that a thousand small logs do not make a thousand small frames."""

    def __init__(self, context: LoadContext) -> None:
        self._context = context
        # Members of groups by their description, as programs list them in any file of the load.
        self.groups: dict[str, list[tuple[int, ...]]] = {}
        self._rows: dict[str, list[Row]] = {}

    def add(self, table: str, rows: list[Row]) -> None:
        """Take rows of a table, complete but for columns that are NULL."""
        waiting = self._rows.setdefault(table, [])
        waiting += rows
        if len(waiting) >= _SINK_ROWS:
            self._emit(table)

    def flush(self) -> None:
        """Hand over what is left; call once at the end."""
        for table in list(self._rows):
            self._emit(table)

    def _emit(self, table: str) -> None:
        rows = self._rows.pop(table, [])
        if not rows:
            return
        present = {name for row in rows for name in row}
        schema = {name: dtype for name, dtype in _SCHEMAS[table].items() if name in present}
        try:
            frame = pl.DataFrame(rows, schema=schema)
        except (pl.exceptions.ComputeError, OverflowError, TypeError):
            # A damaged line may hold a number that no process, rank or line has; the others must not suffer.
            frame = pl.DataFrame([_within(row, schema) for row in rows], schema=schema)
        self._context.emit(table, frame)


def _within(row: Row, schema: Mapping[str, pl.DataType]) -> Row:
    """Return a row without the whole numbers that its columns cannot hold."""
    return {
        name: None
        if isinstance(value, int)
        and (bounds := _BOUNDS.get(type(schema[name])))
        and not bounds[0] <= value <= bounds[1]
        else value
        for name, value in row.items()
    }


class FileScope:
    """Everything a handler may know of the file it reads, and the rows it makes.

    Rows of `events` get `source`, `file_id`, `line`, `text`, the time and the writer's identity from the line unless
    the handler says otherwise. What is known only at the end of a file (which rank it is of) is filled in then.
    """

    def __init__(
        self, file: EvidenceFile, context: LoadContext, peeler: Peeler, years: Years, sink: RowSink, step_rows: int
    ) -> None:
        self.file = file
        self.context = context
        self.peeler = peeler
        self.years = years
        # Rows of kind `step` that one batch of this file may make.
        self.step_rows = step_rows
        self._sink = sink
        self.rank: int | None = None
        self.local_rank: int | None = None
        self.host: str | None = None
        self.rows = 0
        self.claimed = 0
        self.formats: Counter[str] = Counter()
        self.ranks_seen: Counter[int] = Counter()
        # Data-, pipeline- and tensor-parallel rank of every prefix that has the last.
        self.parts: set[tuple[int | None, int | None, int]] = set()
        # Rank that a launcher says the following lines are of, as it passes on what a process had printed.
        self.section_rank: int | None = None
        self.memory: dict[Hashable, Any] = {}
        self._stamped: dict[tuple[object, ...], Line] = {}
        self.event_lines: list[int] = []
        self._once: set[Hashable] = set()
        self._events: list[Row] = []
        self._pending: dict[str, list[Row]] = {"group_status": [], "stacks": []}
        self._blocks: dict[tuple[object, ...], Block] = {}

    def again(self) -> FileScope:
        """Return an empty scope of the same file, for another reading of it."""
        other = FileScope(self.file, self.context, self.peeler, self.years, self._sink, self.step_rows)
        other.rank, other.local_rank, other.host = self.rank, self.local_rank, self.host
        other.parts = set(self.parts)
        return other

    # -- what a line says -------------------------------------------------------------------------------------

    def moment_at(self, line: Line, at: int = 0) -> Moment | None:
        """Return the time of what stands at `at`: an exact prefix, the nearest stamp before it, or the prefix."""
        outer = line.facts.moment
        if outer is not None and outer.quality == "exact":
            return outer
        head = line.text[: max(at, 1)] if at else line.text[:160]
        if CLOCK.search(head) is None:
            return outer
        stamp = _last(C10_STAMP, head)
        if stamp is not None:
            hms = (int(stamp["h"]), int(stamp["m"]), int(stamp["s"]))
            moment = self.years.moment(int(stamp["mon"]), int(stamp["day"]), hms, stamp["frac"])
            if moment is not None:
                return moment
        if outer is not None:
            return outer
        stamp = _last(ISO, head)
        return moment_of(stamp) if stamp is not None else first_moment(head, self.years)

    def passed(self, line: Line) -> None:
        """Note the time of a line, for what the same writer says next without one."""
        if line.facts.moment is None and CLOCK.search(line.text, 0, 160) is None:
            return
        if len(self._stamped) < _MAX_BLOCKS:
            self._stamped[line.facts.key()] = line

    def once(self, key: Hashable) -> bool:
        """Say whether `key` is new in this file: messages are repeated in what() and in tracebacks."""
        if key in self._once:
            return False
        if len(self._once) >= _MAX_ONCE:
            # Repeats lie near each other; what is far back may come again as a row of its own.
            self._once.clear()
        self._once.add(key)
        return True

    # -- rows -------------------------------------------------------------------------------------------------

    def event(self, line: Line, at: int, kind: str, **columns: Any) -> Row:
        """Add a row of `events` for what stands at `at` in `line` and return it.

        The row may be changed until the file ends, also by later lines.
        """
        self.claim(line)
        facts = line.facts
        moment = columns.pop("moment", None) or self.moment_at(line, at)
        if moment is None and kind in _PROMPT_KINDS:
            stamped = self._stamped.get(facts.key())
            last = self.moment_at(stamped) if stamped is not None else None
            moment = Moment(last.ns, "order_only") if last is not None else None
        row: Row = {
            "ts": moment.ns if moment else None,
            "time_quality": moment.quality if moment else "order_only",
            "rank": line.rank_at(at) if self.section_rank is None else self.section_rank,
            "local_rank": facts.local_rank,
            "pid": facts.pid,
            "kind": kind,
            "text": line.text[:TEXT_LIMIT],
            "line": line.number,
            "_host": facts.host,
            "_task": facts.task,
            "_tp": None if facts.dp or facts.pp else facts.tp,
            "_part": facts.tp,
            "_pod": facts.pod,
            "job": facts.job,
        }
        host = columns.pop("host", None)
        if host is not None:
            row["_host"] = host
        row.update(columns)
        if row["rank"] is not None:
            self.ranks_seen[row["rank"]] += 1
        self._events.append(row)
        self.event_lines.append(line.number)
        return row

    def claim(self, line: Line) -> None:
        """Say that `line` is understood, also when nothing is to be written of it."""
        if not line.claimed:
            line.claimed = True
            self.claimed += 1

    def status(self, line: Line, at: int, comm_id: int, **columns: Any) -> None:
        """Add a row of `group_status`; without a rank at the end of the file it is dropped."""
        moment = self.moment_at(line, at)
        row: Row = {
            "rank": line.rank_at(at),
            "comm_id": comm_id,
            "ts": moment.ns if moment else None,
            "line": line.number,
        }
        row.update(columns)
        self._pending["group_status"].append(row)

    def stack(self, line: Line, frames: Sequence[str], **columns: Any) -> int:
        """Add a row of `stacks` for a thread whose header is `line`; frames innermost first."""
        stack_id = self.context.stack(frames)
        moment = self.moment_at(line)
        row: Row = {"rank": line.facts.rank, "pid": line.facts.pid, "stack_id": stack_id, "line": line.number}
        row["ts"] = moment.ns if moment else None
        row.update(columns)
        self._pending["stacks"].append(row)
        return stack_id

    def list_group(self, description: str, members: Sequence[int]) -> None:
        """Note the members of a group, for status lines of any file that name it by its description."""
        lists = self._sink.groups.setdefault(description, [])
        if len(lists) < _MAX_BLOCKS and tuple(members) not in lists:
            lists.append(tuple(members))

    def listed_members(self, description: str | None, rank: int | None) -> tuple[int, ...] | None:
        """Return the members of the group of that description that `rank` is in; without a rank, of the only one."""
        lists = self._sink.groups.get(description, []) if description else []
        fitting = [members for members in lists if rank is None or rank in members]
        return fitting[0] if len(fitting) == 1 else None

    def know(self, rank: int, line: Line | None = None, **facts: int | str | None) -> None:
        """Tell the trace what a line says of a rank."""
        told = {name: value for name, value in facts.items() if value is not None}
        if told:
            told.setdefault("reason", "a line of the log")
            self.context.rank(rank, **told, file_id=self.file.file_id, line=line.number if line else None)

    def events_frame(self, frame: pl.DataFrame) -> None:
        """Add many rows of `events` at once, for bulk handlers; `source` and `file_id` are filled in."""
        if frame.height == 0:
            return
        self.rows += frame.height
        self.context.emit(
            "events",
            frame.with_columns(pl.lit("text").alias("source"), pl.lit(self.file.file_id, pl.UInt32).alias("file_id")),
        )

    # -- blocks -----------------------------------------------------------------------------------------------

    def open(self, line: Line, block: Block, *, loose: bool = False) -> None:
        """Begin a block at `line`; the further lines of the same writer go to it first.

        `loose`: also lines that are the same writer's but for the rank. torch puts `[rankN]:` in front of the first
        line of a message only.
        """
        keys = [line.facts.key()]
        if loose and line.facts.rank is not None:
            keys.append(line.facts.key(with_rank=False))
        if line.facts.tp is not None:
            # A logger's prefix stands before the first line of a message only.
            keys.append(line.facts.key(with_role=False))
        for key in keys:
            old = self._blocks.get(key)
            if old is not None:
                self._close(old)
        if len(self._blocks) >= _MAX_BLOCKS:
            block.close(self)
            return
        for key in keys:
            self._blocks[key] = block

    def _close(self, block: Block) -> None:
        for key in [key for key, other in self._blocks.items() if other is block]:
            del self._blocks[key]
        block.close(self)

    def block_of(self, line: Line) -> Block | None:
        """Return the open block of the writer of `line`."""
        return self._blocks.get(line.facts.key())

    def continues(self, line: Line) -> bool:
        """Say whether the writer of `line` has an open block, which has then taken the line."""
        return line.facts.key() in self._blocks

    def continue_block(self, line: Line) -> bool:
        """Offer `line` to the open block of its writer; True: the block took it."""
        if not self._blocks:
            return False
        block = self._blocks.get(line.facts.key())
        if block is None:
            return False
        if block.feed(self, line):
            self.claim(line)
            return True
        self._close(block)
        return False

    # -- the end ----------------------------------------------------------------------------------------------

    def close_blocks(self) -> None:
        """Close what the file left open."""
        while self._blocks:
            self._close(next(iter(self._blocks.values())))

    def pending_events(self) -> list[Row]:
        """Return the rows of `events` that have not left yet; they may be changed."""
        return self._events

    def flush(self, *, final: bool = False) -> None:
        """Hand the rows over; while the file is being read, only when there are many."""
        if not final and len(self._events) < _FLUSH_ROWS:
            return
        for row in self._events:
            self._finish_row(row)
        self.rows += len(self._events)
        self._sink.add("events", self._events)
        self._events = []
        for table, rows in self._pending.items():
            for row in rows:
                if row["rank"] is None:
                    row["rank"] = self.rank
                row["file_id"] = self.file.file_id
            if table == "group_status":
                rows = [row for row in rows if row["rank"] is not None]
            self.rows += len(rows)
            self._sink.add(table, rows)
            self._pending[table] = []

    def _finish_row(self, row: Row) -> None:
        host = row.pop("_host") or self.host
        row.pop("_task")
        row.pop("_tp")
        row.pop("_part")
        row.pop("_pod")
        if host:
            row["host_id"] = self.context.host(host)
        # A file of one rank: lines without a number of their own are its, except those of a launcher.
        foreign = row.pop("_foreign", False)
        if row["rank"] is None and not foreign:
            row["rank"] = self.rank
            if row["local_rank"] is None:
                row["local_rank"] = self.local_rank
        row["source"] = "text"
        row["file_id"] = self.file.file_id


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None
