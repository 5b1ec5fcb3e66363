"""The one LoadContext: names things for the whole trace, collects rows, and writes the store at the end.

Ids that are handed out while loading are provisional. Only at the end, when everything is known, do communicators and
hosts get their numbers, by what they are and not by who spoke first: the same evidence makes the same trace,
whatever its files are called and in whatever order they come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

import polars as pl

from mycroft.errors import MycroftError
from mycroft.loaders import schema
from mycroft.loaders.groups import Claim, Group, GroupRegistry, world_size
from mycroft.loaders.identity import IdentityResolver
from mycroft.loaders.jobs import JobFinder, Jobs

_SCHEMAS: Final = {table.name: schema.polars_schema(table) for table in schema.TABLES}
_COMM_COLUMNS: Final = ("comm_id", "last_comm_id")
_RANK_COLUMNS: Final = ("local_rank", "gpu", "pid", "dp", "tp", "pp", "ep")
# Columns whose times have a full date.
_DATED: Final = {"rank_dumps": ("first_ts", "last_ts"), "coll_ops": ("start_ts",)}
# Facts of `rank()` that say where a claim comes from, and are none themselves.
_ORIGIN: Final = ("reason", "file_id", "line")


class SchemaMismatchError(MycroftError):
    """A loader handed over rows that its table cannot hold: a mistake of ours, not of the evidence."""


class RowsWriter(Protocol):
    """What takes the rows of a trace, table by table."""

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Take rows of a table in the order given; columns that the frame lacks are NULL."""
        ...

    def append_pieces(self, table: str, pieces: Iterable[pl.DataFrame]) -> None:
        """Take rows that do not fit into memory together; the writer puts them into the order of the table."""
        ...


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` with the types of `table`.

    Raises:
        SchemaMismatchError: for a column that the table lacks or a value that its type cannot hold.
    """
    wanted = _SCHEMAS[table]
    strange = [name for name in frame.columns if name not in wanted]
    if strange:
        raise SchemaMismatchError(f"{table} has no column {', '.join(strange)}")
    casts = [pl.col(name).cast(wanted[name]) for name, dtype in frame.schema.items() if dtype != wanted[name]]
    try:
        return frame.with_columns(casts)
    except pl.exceptions.PolarsError as error:
        raise SchemaMismatchError(f"{table}: {' '.join(str(error).split())[:300]}") from error


class TraceContext:
    """Implements `LoadContext`; one per load, used by one thread."""

    def __init__(self, spill: Path, *, buffer_bytes: int = 1 << 30) -> None:
        """Rows beyond `buffer_bytes` (as held in memory) are parked in the folder `spill` until the end."""
        self._groups = GroupRegistry()
        self._identity = IdentityResolver()
        self._finder = JobFinder()
        self._dates: set[int] = set()
        self._hosts: dict[str, int] = {}
        self._stacks: dict[int, list[str]] = {}
        self._ranks: dict[int, dict[str, int | str]] = {}
        self._claims: dict[tuple[int, str, str], dict[str, int | str | None]] = {}
        self._job: dict[str, int | str] = {}
        self._buffers: dict[str, list[pl.DataFrame]] = {}
        self._parts: dict[str, list[Path]] = {}
        self._buffered = 0
        self._buffer_bytes = buffer_bytes
        self._spill = spill

    def comm(
        self,
        name: str,
        *,
        ranks: Sequence[int] | None = None,
        desc: str | None = None,
        hash_: int | None = None,
        backend: str | None = None,
        source: str = "dump",
        of_rank: int | None = None,
    ) -> int:
        """Return the provisional id of a communicator; see `LoadContext.comm`."""
        members = tuple(ranks) if ranks else None
        return self._groups.add(Claim(name, desc, members, hash_, backend, source, of_rank))

    def seen(self, comm_id: int, rank: int) -> None:
        """Note that a rank left a trace of a communicator, by its provisional id."""
        self._groups.see(comm_id, rank)

    def members(self, name: str, *, desc: str | None = None, of_rank: int | None = None) -> tuple[int, ...] | None:
        """Return the members of a group as far as any source has listed them by now; None: not known or not sure."""
        return self._groups.members(name, desc=desc, of_rank=of_rank)

    def listed_groups(self, source: str) -> list[tuple[str, str | None, tuple[int, ...]]]:
        """Return name, description and members of the groups that a source has listed by now."""
        return self._groups.listed(source)

    def host(self, name: str) -> int:
        """Return the provisional id of a host."""
        return self._hosts.setdefault(name, len(self._hosts))

    def stack(self, frames: Sequence[str]) -> int:
        """Return the id of a stack: a hash of its frames, the same in every trace."""
        digest = hashlib.blake2b("\0".join(frames).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        stack_id = int.from_bytes(digest, "little")
        self._stacks.setdefault(stack_id, list(frames))
        return stack_id

    def rank(self, rank: int, **facts: int | str | None) -> None:
        """Add what is known of a rank; see `LoadContext.rank`."""
        row = self._ranks.setdefault(rank, {})
        origin = {name: facts.get(name) for name in _ORIGIN}
        for name, value in facts.items():
            if value is None or name in _ORIGIN:
                continue
            if name == "host":
                self.host(str(value))
            if name == "host" or name in _RANK_COLUMNS:
                row.setdefault(name, value)
            self._claims.setdefault((rank, name, str(value)), origin)
        pid, file_id = facts.get("pid"), origin["file_id"]
        if isinstance(pid, int) and isinstance(file_id, int):
            self._finder.process(file_id, rank, pid)

    def job(self, **facts: int | str | None) -> None:
        """Add what is known of the job: columns of `jobs`. The first word wins."""
        for name, value in facts.items():
            if value is not None:
                self._job.setdefault(name, value)

    def emit(self, table: str, frame: pl.DataFrame) -> None:
        """Take rows of a table; see `LoadContext.emit`."""
        if frame.is_empty():
            return
        ready = conform(table, frame)
        self._identity.see(table, ready)
        self._finder.see(table, ready)
        self._note_dates(table, ready)
        self._buffers.setdefault(table, []).append(ready)
        self._buffered += int(ready.estimated_size())
        while self._buffered > self._buffer_bytes:
            self._park(max(self._buffers, key=lambda name: sum(f.estimated_size() for f in self._buffers[name])))

    def _note_dates(self, table: str, frame: pl.DataFrame) -> None:
        """Remember the ends of what a frame of operations spans."""
        for name in _DATED.get(table, ()):
            if name in frame.columns and len(self._dates) < 1_024:
                ends = frame.select(
                    pl.col(name).min().cast(pl.Int64).alias("first"), pl.col(name).max().cast(pl.Int64).alias("last")
                ).row(0)
                self._dates.update(int(end) for end in ends if end is not None)

    def dates(self) -> list[int]:
        """Return some times with a full date that sources have given by now, ns UTC."""
        return sorted(self._dates)

    def _park(self, table: str) -> None:
        """Move the rows of one table to disk."""
        frames = self._buffers.pop(table)
        self._buffered -= sum(int(f.estimated_size()) for f in frames)
        self._spill.mkdir(parents=True, exist_ok=True)
        parts = self._parts.setdefault(table, [])
        path = self._spill / f"{table}-{len(parts)}.arrow"
        pl.concat(frames, how="diagonal").write_ipc(path, compression="lz4")
        parts.append(path)

    # ---- the end -------------------------------------------------------------------

    def jobs(self, files: Mapping[int, str]) -> Jobs:
        """Return which files belong to one job, by their ids and names; see `jobs`."""
        return self._finder.jobs(files, list(self._hosts))

    def write(self, writer: RowsWriter, *, files: pl.DataFrame, meta: dict[str, str]) -> int | None:
        """Give everything its final number and write all tables; return the world size, None where unknown."""
        paths = dict(files.select("file_id", "path").iter_rows())
        self._identity.solve(self, hosts=list(self._hosts), ranks=self._ranks, files=paths)
        groups, comm_map = self._groups.resolve()
        host_names = sorted(self._hosts)
        host_number = {name: i for i, name in enumerate(host_names)}
        host_map = [host_number[name] for name in self._hosts]
        size = self._job.get("world_size") or world_size(groups)
        self._emit_dimensions(groups, host_names, files, meta, size if isinstance(size, int) else None)
        maps = {name: pl.Series(comm_map, dtype=pl.UInt32) for name in _COMM_COLUMNS}
        maps["host_id"] = pl.Series(host_map, dtype=pl.UInt32)
        for table in schema.TABLES:
            self._write_table(writer, table, maps if table.name not in _FINAL else {})
        return size if isinstance(size, int) else None

    def _write_table(self, writer: RowsWriter, table: schema.Table, maps: dict[str, pl.Series]) -> None:
        parts = self._parts.pop(table.name, [])
        frames = self._buffers.pop(table.name, [])
        if not parts:
            if frames:
                whole = pl.concat(frames, how="diagonal") if len(frames) > 1 else frames[0]
                frames.clear()
                writer.append(table.name, _sorted(table, self._final(table, whole, maps)))
            return
        writer.append_pieces(
            table.name,
            chain(
                (self._final(table, pl.read_ipc(path), maps) for path in parts),
                (self._final(table, frame, maps) for frame in frames),
            ),
        )

    def _final(self, table: schema.Table, frame: pl.DataFrame, maps: dict[str, pl.Series]) -> pl.DataFrame:
        """Return rows with what became known after they were handed over."""
        return _renumbered(self._identity.apply(table.name, frame), maps)

    def _emit_dimensions(
        self,
        groups: list[Group],
        host_names: list[str],
        files: pl.DataFrame,
        meta: dict[str, str],
        size: int | None,
    ) -> None:
        self.emit("trace_meta", pl.DataFrame({"key": list(meta), "value": list(meta.values())}))
        self.emit("files", files)
        self.emit("jobs", pl.DataFrame([{"job_id": 0, "source": "evidence", **self._job, "world_size": size}]))
        self.emit("hosts", pl.DataFrame({"host_id": range(len(host_names)), "name": host_names}))
        self._emit_groups(groups)
        self._emit_ranks({name: i for i, name in enumerate(host_names)}, groups)
        self.emit(
            "stack_texts",
            pl.DataFrame(
                {"stack_id": list(self._stacks), "frames": list(self._stacks.values())},
                schema=_SCHEMAS["stack_texts"],
            ),
        )

    def _emit_groups(self, groups: list[Group]) -> None:
        self.emit(
            "communicators",
            _frame(
                "communicators",
                [
                    {
                        "comm_id": i,
                        "job_id": 0,
                        "key": group.key,
                        "name": group.name,
                        "desc": group.desc,
                        "hash": group.hash_,
                        "kind": group.kind,
                        "backend": group.backend,
                        "size": len(group.ranks) if group.ranks else None,
                        "seen_size": len(group.seen),
                    }
                    for i, group in enumerate(groups)
                ],
            ),
        )
        members = [
            (i, rank, comm_rank, group.source)
            for i, group in enumerate(groups)
            if group.ranks
            for comm_rank, rank in enumerate(group.ranks)
        ] + [
            (i, rank, None, "entries")
            for i, group in enumerate(groups)
            if not group.ranks
            for rank in sorted(group.seen)
        ]
        self.emit("members", pl.DataFrame(members, schema=_SCHEMAS["members"], orient="row"))

    def _emit_ranks(self, host_number: dict[str, int], groups: list[Group]) -> None:
        for group in groups:
            for rank in (*(group.ranks or ()), *group.seen):
                self._ranks.setdefault(rank, {})
        rows: list[dict[str, object]] = []
        for rank, facts in sorted(self._ranks.items()):
            host = facts.get("host")
            row: dict[str, object] = {name: facts.get(name) for name in _RANK_COLUMNS}
            if row["gpu"] is not None:
                row["gpu"] = str(row["gpu"])
            rows.append({"job_id": 0, "rank": rank, "host_id": host_number[str(host)] if host else None, **row})
        self.emit("ranks", _frame("ranks", rows))
        values: dict[tuple[int, str], int] = {}
        for rank, name, _ in self._claims:
            values[rank, name] = values.get((rank, name), 0) + 1
        claims: list[dict[str, object]] = [
            {
                "rank": rank,
                "attribute": name,
                "value": value,
                "ambiguous": values[rank, name] > 1,
                **{k: v for k, v in origin.items() if v is not None},
            }
            for (rank, name, value), origin in sorted(self._claims.items(), key=lambda item: item[0])
        ]
        self.emit("identity", _frame("identity", claims))


# Tables that `write` makes itself: their ids are final already.
_FINAL: Final = frozenset({"communicators", "members", "hosts", "ranks"})


def _frame(table: str, rows: Iterable[dict[str, object]]) -> pl.DataFrame:
    """Return rows as a frame of the columns that occur in them."""
    listed = list(rows)
    names = {name for row in listed for name in row}
    wanted = {name: dtype for name, dtype in _SCHEMAS[table].items() if name in names}
    return pl.DataFrame(listed, schema=wanted)


def _renumbered(frame: pl.DataFrame, maps: dict[str, pl.Series]) -> pl.DataFrame:
    """Replace provisional ids by final ones."""
    present = [name for name in maps if name in frame.columns]
    return frame.with_columns(maps[name].gather(frame[name]).alias(name) for name in present)


def _sorted(table: schema.Table, frame: pl.DataFrame) -> pl.DataFrame:
    keys = [name for name in table.sort if name in frame.columns]
    # Stable: rows that are equal in the keys stay as the loader gave them.
    return frame.sort(keys, maintain_order=True) if keys else frame
