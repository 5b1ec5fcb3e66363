"""A trace written by hand: a few ranks, groups and operations, as the loaders would have stored them.

trace = TraceBuilder(world=4)
dp = trace.group("dp_0", [0, 1, 2, 3], kind="dp")
for rank in range(4):
    trace.call(rank, dp, 1)
trace.call(0, dp, 2, done=False)
verdict = diagnose(trace.store(tmp_path))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.store import Store, StoreWriter, open_store

START_NS = 1_760_000_000 * 1_000_000_000
MS = 1_000_000


class TraceBuilder:
    """Collects rows; operations of one rank are in the order in which they are added.

    `events`: the recorder sees starts and ends (nccl); else only `retired` shows an end (gloo). Every call of a rank
    is 10 ms after its last one, unless `at_ms` says otherwise.
    """

    def __init__(self, *, world: int, events: bool = True, timing: bool = False) -> None:
        self.world, self.events, self.timing = world, events, timing
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.members: dict[int, list[int]] = {}
        self._record: dict[int, int] = defaultdict(int)
        self._clock: dict[int, int] = defaultdict(lambda: START_NS)
        self._pairs: dict[tuple[int, int, int, str], int] = defaultdict(int)
        self._stacks: dict[tuple[str, ...], int] = {}
        self.dumps = set(range(world))
        self.first_record = 0
        self.only_active = False
        self.problems: dict[int, str] = {}
        """What the loader says of a rank's dump."""

    # ---- groups ------------------------------------------------------------------------------

    def group(
        self, desc: str, ranks: Sequence[int], *, kind: str = "other", declared: bool = True, name: str | None = None
    ) -> int:
        """Add a group and return its id. Not declared: only those with operations are listed as members."""
        comm = len(self.members)
        self.members[comm] = list(ranks)
        self.rows["communicators"].append(
            {
                "comm_id": comm,
                "job_id": 0,
                "key": f"{kind}-{comm}",
                "name": name or str(comm),
                "desc": desc,
                "kind": kind,
                "size": len(ranks) if declared else None,
            }
        )
        if declared:
            for place, rank in enumerate(ranks):
                self.rows["members"].append({"comm_id": comm, "rank": rank, "comm_rank": place, "source": "dump"})
        return comm

    # ---- operations --------------------------------------------------------------------------

    def call(
        self,
        rank: int,
        comm: int,
        seq: int,
        *,
        kind: str = "all_reduce",
        done: bool = True,
        started: bool = False,
        size: int = 64,
        out: int | None = None,
        dtype: str = "Float",
        at_ms: float | None = None,
        dur_ms: float | None = None,
        coalesced: bool = False,
        **more: Any,
    ) -> None:
        """Add one collective of one rank."""
        self._add(
            rank, comm, seq, kind, done, started, size, out, dtype, at_ms, dur_ms, {"coalesced": coalesced, **more}
        )

    def send(self, src: int, dst: int, comm: int, **more: Any) -> None:
        """Add the sender's half of a pair."""
        self._pair(src, dst, comm, "send", **more)

    def recv(self, dst: int, src: int, comm: int, **more: Any) -> None:
        """Add the receiver's half of a pair."""
        self._pair(dst, src, comm, "recv", **more)

    def _pair(self, rank: int, peer: int, comm: int, kind: str, *, done: bool = True, **more: Any) -> None:
        key = (rank, peer, comm, kind)
        pair = self._pairs[key]
        self._pairs[key] += 1
        size, at_ms = more.pop("size", 64), more.pop("at_ms", None)
        extra = {"is_p2p": True, "peer": peer, "pair_seq": pair, **more}
        self._add(rank, comm, pair, kind, done, False, size, None, "Float", at_ms, None, extra)

    def _add(
        self,
        rank: int,
        comm: int,
        seq: int,
        kind: str,
        done: bool,
        started: bool,
        size: int,
        out: int | None,
        dtype: str,
        at_ms: float | None,
        dur_ms: float | None,
        more: dict[str, Any],
    ) -> None:
        self._clock[rank] = self._clock[rank] + 10 * MS if at_ms is None else START_NS + round(at_ms * MS)
        state = "completed" if done and self.events else "started" if started else "scheduled"
        self.rows["coll_ops"].append(
            {
                "rank": rank,
                "comm_id": comm,
                "op_seq": seq,
                "op_kind": kind,
                "op_name": kind,
                "enq_ts": self._clock[rank],
                "start_ts": self._clock[rank],
                "dur_ns": None if dur_ms is None else round(dur_ms * MS),
                "state": state,
                "retired": done,
                "is_p2p": False,
                "coalesced": False,
                "in_numel": size,
                "out_numel": size if out is None else out,
                "in_sizes": f"[[{size}]]",
                "out_sizes": f"[[{size if out is None else out}]]",
                "dtype": dtype,
                "out_dtype": dtype,
                "record_id": self._record[rank],
                "file_id": rank,
                "line": self._record[rank],
                **more,
            }
        )
        self._record[rank] += 1

    # ---- everything else ---------------------------------------------------------------------

    def without_dump(self, *ranks: int) -> None:
        """Take the dumps of these ranks away, with everything in them."""
        self.dumps -= set(ranks)

    def stack(self, rank: int, *frames: str, state: str = "idle", thread: str = "MainThread") -> None:
        """Add one thread's stack; frames are `function (file:line)`, innermost first."""
        stack = self._stacks.setdefault(frames, len(self._stacks) + 1)
        self.rows["stacks"].append(
            {
                "rank": rank,
                "thread": thread,
                "is_main": thread == "MainThread",
                "state": state,
                "stack_id": stack,
                "tool": "py_spy",
                "file_id": 100 + rank,
                "line": 4,
            }
        )

    def event(self, rank: int | None, kind: str, *, at_ms: float | None = None, **more: Any) -> None:
        """Add one event."""
        ts = None if at_ms is None else START_NS + round(at_ms * MS)
        line = len(self.rows["events"]) + 1
        file = 200 + (rank or 0)
        self.rows["events"].append({"rank": rank, "kind": kind, "ts": ts, "file_id": file, "line": line, **more})

    def store(self, folder: Path) -> Store:
        """Write the trace and open it."""
        self._finish()
        path = folder / f"trace-{len(list(folder.iterdir()))}.duckdb"
        writer = StoreWriter(path)
        for table, rows in self.rows.items():
            wanted = schema.polars_schema(schema.BY_NAME[table])
            names = sorted({name for row in rows for name in row})
            columns: dict[str, pl.Series] = {}
            for name in names:
                values = [row.get(name) for row in rows]
                kind = wanted[name]
                if isinstance(kind, pl.Datetime):
                    columns[name] = pl.Series(name, values, dtype=pl.Int64).cast(kind)
                else:
                    columns[name] = pl.Series(name, values, dtype=kind, strict=False)
            writer.append(table, pl.DataFrame(columns))
        writer.finish()
        return open_store(path)

    def _finish(self) -> None:
        kept = [row for row in self.rows["coll_ops"] if row["rank"] in self.dumps]
        self.rows["coll_ops"] = kept
        declared = {(row["comm_id"], row["rank"]) for row in self.rows["members"]}
        for row in kept:
            if (row["comm_id"], row["rank"]) not in declared:
                declared.add((row["comm_id"], row["rank"]))
                self.rows["members"].append({"comm_id": row["comm_id"], "rank": row["rank"], "source": "entries"})
        self.rows["files"] = []
        self.rows["trace_meta"] = [{"key": "schema_version", "value": str(schema.SCHEMA_VERSION)}]
        self.rows["jobs"] = [{"job_id": 0, "world_size": self.world}]
        for rank in sorted(self.dumps):
            own = [row for row in kept if row["rank"] == rank]
            self.rows["rank_dumps"].append(
                {
                    "rank": rank,
                    "file_id": rank,
                    "kind": "flight_recorder",
                    "version": "2.10",
                    "backend": "nccl" if self.events else "gloo",
                    "entries": len(own),
                    "first_record": self.first_record if own else None,
                    "last_record": own[-1]["record_id"] if own else None,
                    "first_ts": min((row["enq_ts"] for row in own), default=None),
                    "last_ts": max((row["enq_ts"] for row in own), default=None),
                    "has_events": self.events,
                    "has_timing": self.timing,
                    "only_active": self.only_active,
                }
            )
        files = {row["file_id"] for rows in self.rows.values() for row in rows if row.get("file_id") is not None}
        for file in sorted(files):
            row = {"file_id": file, "path": f"file-{file}", "loader": "flight_recorder", "problems": None}
            self.rows["files"].append({**row, "problems": self.problems.get(file)})
        for frames, stack in self._stacks.items():
            self.rows["stack_texts"].append({"stack_id": stack, "frames": list(frames)})
        for table in ("coll_ops", "members"):
            if not self.rows[table]:
                del self.rows[table]
