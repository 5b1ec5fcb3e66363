"""The relay: beside a collector of some hundred hosts, tells an upper collector of all their ranks in a few bytes each.

Reads what its collector has acknowledged, as a watch does, and every ten seconds spools one sealed batch of summaries
for the upper collector. The answer to one may ask for rows of some ranks: those it fetches from its window and brings
as evidence. Nothing of a request is executed; the upper collector never connects to a relay.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import msgspec
import polars as pl

from mycroft.analysis.fleet import Window as Span
from mycroft.analysis.fleet import merge, partial
from mycroft.analysis.fleet.summaries import DIMENSIONS, OP_STATES, STANDS_NS, summarise
from mycroft.app.config import ConfigError, read_token
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.ranks import newest_of_each_rank
from mycroft.app.live.relay_measures import JobWindow, Measures
from mycroft.app.live.watch import PATIENCE_S
from mycroft.loaders.collector import Process, Window, fresh_until, traces_of
from mycroft.loaders.collector.segments import TIME_OF
from mycroft.loaders.store import aggregate
from mycroft.tracer import export_bytes
from mycroft.tracer.agent.agent import lock_folder
from mycroft.tracer.agent.batch import MOST_WIRE_BYTES, Batch, BatchKey, encode
from mycroft.tracer.agent.requests import Requests, Trouble
from mycroft.tracer.agent.sender import Answer, Collector, Request, Sender
from mycroft.tracer.agent.spool import Spool
from mycroft.tracer.agent.summary import (
    COLUMNS,
    MOST_MEASURES,
    MOST_NAMES,
    MOST_PARTS,
    MOST_PLACES,
    MOST_ROWS,
    RELAY_PREFIX,
    Part,
    Summary,
)
from mycroft.tracer.arrow import pa, pc

if TYPE_CHECKING:
    from mycroft.tracer.trace import Trace

LOG: Final = logging.getLogger("mycroft.relay")
# What is kept of rows for those who ask, and of how many processes of all in memory: 100 bytes each.
WINDOW_S: Final = 120.0
_MOST_IN_ALL: Final = 8_000_000
_LOOK_S: Final = 0.5
# While something stands, for so long, summaries come more often: what is asked for is asked in the answer to one.
_HASTE_S: Final = 2.0
_IN_HASTE_FOR_S: Final = 120.0
_SPOOL_BYTES: Final = 64 << 20
# Of one request: what an answer has room for.
MOST_PULLED: Final = 2000
MOST_PULLED_BYTES: Final = 256 << 20
_AT_ONCE: Final = 128
_TRIES: Final = 5
_MOST_OPEN: Final = 64
_OP_COLUMNS: Final = ("process", "position", "enq_ts", "comm", "op_seq", "op_kind", "p2p", "op_state", "peer", "op_id")
_ALWAYS: Final = Span(0, 1 << 62)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in memory, as a piece of the seam."""

    rows: Any

    def reduce(self, sql: str, params: Mapping[str, object], *, threads: int) -> Any:
        return aggregate(sql, {"rows": self.rows}, params, threads=threads)


class Operations:
    """What is open in every process, and how far each has come: kept up to date with each row, so that none waits."""

    def __init__(self) -> None:
        self._state: Any = OP_STATES.schema.empty_table()
        self._new: list[Any] = []

    def take(self, kind: str, rows: Any) -> None:
        """Take rows as the window gets them; the same may come again."""
        if kind == "op" and rows.num_rows:
            place = rows.schema.get_field_index("process")
            plain = rows.set_column(place, "process", rows.column("process").cast(pa.string()))
            self._new.append(plain.select(_OP_COLUMNS))

    def state(self, known: Sequence[str]) -> Any:
        """Return the operations that count, as `OP_STATES` has them; of processes that are not known any more none."""
        new, self._new = self._new, []
        if new:
            made = partial(OP_STATES, _Rows(pa.concat_tables(new)), _ALWAYS)
            self._state = merge(OP_STATES, [self._state, made])
        kept: Any = _what_counts(pl.DataFrame(self._state), known).to_arrow()
        self._state = kept.cast(OP_STATES.schema)
        return self._state


def _what_counts(ops: pl.DataFrame, known: Sequence[str]) -> pl.DataFrame:
    """Keep what is open, and of each communicator the newest collective."""
    ops = ops.filter(pl.col("process").is_in(list(known)))
    # Operations of one kind on a communicator end in their order: of one that a later one has overtaken, the record
    # of its end was lost.
    like = ["process", "comm", "p2p", pl.when(pl.col("p2p") == 1).then(pl.struct("peer", "op_kind"))]
    overtaken = pl.col("op_seq") < pl.col("op_seq").filter(pl.col("ended") == 1).max().over(like)
    is_open = (pl.col("ended") == 0) & ~overtaken.fill_null(value=False)
    newest = (pl.col("p2p") == 0) & (pl.col("op_seq") == pl.col("op_seq").max().over("process", "comm", "p2p"))
    kept = ops.filter(is_open | newest.fill_null(value=False))
    return (
        kept.sort("process", "comm", "enq", "position")
        .group_by("process", "comm", maintain_order=True)
        .tail(_MOST_OPEN)
    )


class Relay:
    """One relay. `look` is what it does all the time, `turn` what it does every `summary_s`; `run` does both."""

    def __init__(self, config: LiveConfig) -> None:
        """Take over what an earlier relay left; nothing is sent yet.

        Raises:
            ConfigError: the token cannot be read.
            AgentError: the address is none, another relay has the spool, or it cannot be used.
        """
        self.config = config
        token = read_token(config.upstream_token_file) if config.upstream_token_file else None
        self.collector = Collector(config.upstream, token=token)
        folder = config.data_dir / "live" / "relay"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = lock_folder(folder)
        self.spool = Spool(folder / "spool", most_bytes=_SPOOL_BYTES)
        self.name = RELAY_PREFIX + (config.relay_name or socket.gethostname())
        self.boot = secrets.token_hex(8)
        self._seq = 0
        self._operations = Operations()
        self._measures = Measures(int(config.summary_s * 1e9))
        self.window = Window(config.store_dir, span_s=WINDOW_S, most_in_all=_MOST_IN_ALL, follow=self._follow)
        self.requests = Requests(LOG, what="rows")
        self.sender = Sender(self.collector, self.spool, on_request=self.requests.take)
        self._version = metadata.version("mycroft-trace")
        self._stopping = threading.Event()
        self._stood_since: float | None = None
        self._trouble = Trouble(LOG)

    def _follow(self, kind: str, rows: Any) -> None:
        self._operations.take(kind, rows)
        self._measures.take(kind, rows)

    # ---- summaries -----------------------------------------------------------------

    def turn(self) -> Summary:
        """Spool the summaries of this moment, and return them."""
        summary = self.summary()
        self._seq += 1
        key = BatchKey(
            host=self.name, boot=self.boot, seq=self._seq, made_ns=time.time_ns(), rows=summary.rows.num_rows
        )
        wire = encode(Batch(key=key, agent=self._version, summary=summary))
        if len(wire) > MOST_WIRE_BYTES:
            self._trouble.say(f"summaries of {len(wire)} bytes; at most {MOST_WIRE_BYTES} can be sent: use more relays")
            return summary
        try:
            self.spool.put(key, wire)
        except OSError as error:
            # The next one says all of it anew.
            self._trouble.say(f"the spool cannot be written ({error.strerror or error}); summaries are left out")
            return summary
        self._trouble.say("")
        self.sender.wake()
        return summary

    def summary(self) -> Summary:
        """Return how far every rank has come, what it stands in, and what its own service took."""
        parts: list[Part] = []
        windows: list[JobWindow] = []
        who: list[tuple[str, int, int, int, int | None, int | None]] = []
        part_of: list[int] = []
        for group in self.window.jobs()[:MOST_PARTS]:
            at_ns, silent = fresh_until(group, patience_s=PATIENCE_S)
            gone = set(silent)
            processes = newest_of_each_rank(group)
            told = [process.status.process.world_size for process in processes]
            comm = min(c.hash for process in processes for c in process.status.communicators if c.hash)
            speaking = [process for process in processes if process.host not in gone]
            window = self._measures.due(len(parts), comm, at_ns, speaking)
            if window is not None:
                windows.append(window)
            parts.append(
                Part(
                    at_ns=at_ns,
                    comm=comm,
                    job=next((process.status.job for process in processes if process.status.job), "")[:200],
                    world_size=max((size for size in told if size), default=None),
                    processes=len(processes),
                    ended=sum(process.ended for process in processes),
                    hosts=len({process.host for process in processes}),
                    silent=tuple(silent[:MOST_NAMES]),
                    silent_count=len(silent),
                    window=window.number if window is not None else 0,
                    places=_places(window) if window is not None else (),
                )
            )
            for process in processes:
                rank = process.status.process.rank
                if rank is None or process.host in gone:
                    continue
                mine = [
                    (process.key, rank, comm.comm, comm.hash, comm.rank, comm.size)
                    for comm in process.status.communicators
                    if comm.hash and comm.closed_ns is None
                ]
                who += mine
                part_of += [len(parts) - 1] * len(mine)
        # After it is known who is silent: it may take a while.
        operations = self._operations.state(list(self.window.processes))
        rows = _rows_of(operations, who[:MOST_ROWS], part_of[:MOST_ROWS])
        if len(who) > MOST_ROWS:
            self._trouble.say(f"{len(who)} summaries; {MOST_ROWS} are sent: use more relays")
        self._measures.forget(part.comm for part in parts)
        measures = self._measures.measured(windows)
        if measures.num_rows > MOST_MEASURES:
            self._trouble.say(f"{measures.num_rows} measures; {MOST_MEASURES} are sent: use more relays")
            measures = measures.slice(0, MOST_MEASURES)
        return Summary(
            at_ns=max((part.at_ns for part in parts), default=0),
            rows=rows,
            parts=parts,
            every_s=self.config.summary_s,
            measures=measures,
            window_ns=self._measures.window_ns,
        )

    def _stands(self, summary: Summary) -> bool:
        old = pc.less_equal(summary.rows.column("open_enq"), summary.at_ns - STANDS_NS)
        return bool(pc.any(old, min_count=0).as_py())

    def _pause_s(self, summary: Summary) -> float:
        now = time.monotonic()
        if not self._stands(summary):
            self._stood_since = None
        elif self._stood_since is None:
            self._stood_since = now
        hasty = self._stood_since is not None and now - self._stood_since < _IN_HASTE_FOR_S
        return min(_HASTE_S, self.config.summary_s) if hasty else self.config.summary_s

    # ---- pulls ---------------------------------------------------------------------

    def serve_request(self, request: Request) -> list[str]:
        """Bring the rows of the ranks that are asked for, and return what could not be had."""
        about = {"X-Mycroft-Request": request.id, "X-Mycroft-Host": self.name}
        found, problems = self._asked_for(request)
        LOG.info("brings rows of %d ranks for incident %s", len(found), request.incident[:40])
        size = 0
        for first in range(0, len(found), _AT_ONCE):
            traces = [cut(trace, request.until_ns) for trace in traces_of(found[first : first + _AT_ONCE])]
            data = export_bytes(traces)
            size += len(data)
            if size > MOST_PULLED_BYTES:
                problems.append(f"the rows of {len(found) - first} ranks are left out: more than {MOST_PULLED_BYTES} B")
                break
            name = f"{self.name}.rows-{first // _AT_ONCE:03}.parquet"
            answer = self._post("/api/v1/evidence", data, {**about, "X-Mycroft-Name": name})
            if not answer.taken:
                problems.append(f"{name}: not taken ({answer.status} {answer.text})")
                break
        self._post("/api/v1/evidence/end", msgspec.json.encode(problems[:100]), about)
        return problems

    def _asked_for(self, request: Request) -> tuple[list[Process], list[str]]:
        wanted = set(request.processes[:MOST_PULLED])
        found: list[Process] = []
        for group in self.window.jobs():
            for process in newest_of_each_rank(group):
                names = {name_of(process.status.process.rank, c.hash) for c in process.status.communicators if c.hash}
                if names & wanted:
                    found.append(process)
                    wanted -= names
        problems = [f"{len(wanted)} ranks are not known here"] if wanted else []
        if len(request.processes) > MOST_PULLED:
            problems.append(f"{len(request.processes)} ranks asked for; rows of {MOST_PULLED} are brought")
        return found, problems

    def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send, and try again what may pass."""
        answer = Answer(0)
        for turn in range(_TRIES):
            answer = self.collector.post(path, body, headers)
            if answer.taken or (400 <= answer.status < 500 and answer.status != 429):
                return answer
            if self._stopping.wait(min(4.0, 0.5 * 2**turn)):
                return answer
        return answer

    # ---- life ----------------------------------------------------------------------

    def run(self) -> None:
        """Tell and fetch until `stop`."""
        self.sender.start()
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                self.window.refresh()
                if time.monotonic() >= due:
                    due = time.monotonic() + self._pause_s(self.turn())
                self._serve_waiting()
            except Exception:
                # What breaks one summary must not end the relay.
                LOG.exception("a turn failed")
                due = time.monotonic() + self.config.summary_s
            self._stopping.wait(_LOOK_S)
        self.sender.stop(patience_s=2.0)
        self.close()

    def _serve_waiting(self) -> None:
        while (request := self.requests.next()) is not None:
            self.serve_request(request)

    def stop(self) -> None:
        """Ask `run` to end; from any thread or a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        """Give the spool back."""
        self.collector.close()
        os.close(self._lock)


def _rows_of(
    operations: Any, who: Sequence[tuple[str, int, int, int, int | None, int | None]], part_of: Sequence[int]
) -> Any:
    """Return the rows of a summary; `who` in the columns of `DIMENSIONS`, `part_of` of each."""
    if not who:
        return COLUMNS.empty_table()
    columns: list[Any] = [list(column) for column in zip(*who, strict=True)]
    dimensions = pa.table([pa.array(c, f.type) for c, f in zip(columns, DIMENSIONS, strict=True)], schema=DIMENSIONS)
    made = pl.DataFrame(summarise(operations, dimensions, at_ns=0))
    parts = pl.DataFrame(
        {"rank": columns[1], "comm": columns[3], "part": list(part_of)},
        schema={"rank": pl.UInt32, "comm": pl.UInt64, "part": pl.UInt16},
    ).unique(["rank", "comm"], keep="first")
    # In the order in which neighbours are alike: it packs best.
    told = made.join(parts, on=["rank", "comm"], how="inner").sort("part", "rank", "comm_size", "comm")
    rows: Any = told.select(COLUMNS.names).to_arrow()
    return rows.cast(COLUMNS)


def _places(window: JobWindow) -> tuple[tuple[int, str], ...]:
    return tuple(sorted((rank, host[:200]) for host, rank in window.places.items()))[:MOST_PLACES]


def name_of(rank: int | None, comm: int) -> str:
    """Return how a request calls a process: by its rank and one of its communicators, which only its job has."""
    return f"{rank}@{comm:x}"


def cut(trace: Trace, until_ns: int) -> Trace:
    """Return a trace without what was written after a moment: relays are asked at different ones. 0: all of it."""
    if not until_ns:
        return trace
    tables: dict[str, Any] = {}
    for kind, table in trace.tables.items():
        times = table.column(TIME_OF[kind]).cast(pa.int64())
        tables[kind] = table.filter(pc.fill_null(pc.less_equal(times, until_ns), True))
    last = trace.last_tick_ns
    return replace(trace, tables=tables, last_tick_ns=None if last is None else min(last, until_ns))


def check(config: LiveConfig) -> None:
    """See to it that a relay can be started with these settings.

    Raises:
        ConfigError: its name is none, or the token cannot be read.
        AgentError: the address is none.
    """
    name = config.relay_name
    if name and (not name.isascii() or not name.replace("-", "").replace(".", "").replace("_", "").isalnum()):
        raise ConfigError(f"--relay-name {name!r}: letters, digits, `.`, `_` and `-` only")
    if len(name) > 80:
        raise ConfigError("--relay-name: at most 80 characters")
    if config.upstream_token_file:
        read_token(config.upstream_token_file)
    Collector(config.upstream).close()
