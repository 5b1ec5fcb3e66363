"""Who is who: rank, host, process, pod, GPU, NIC and rank inside a group, joined from whatever the sources say.

Loaders write what their source knows: a process id, a PCI address, a rank inside a communicator. When everything has
been read, the resolver joins these with what other sources said, fills in the rank of events and stacks that name
only a process or a device, and turns the ranks of edges into global ones. Every join is a claim with its reason; what
fits more than one is left open and marked.

How ranks are found, the sure ways first:

1. a source says rank and process in one breath (a launcher's summary, a prefix with the rank before an NCCL line);
2. NCCL's init line, RAS and profilers give a process its rank inside a communicator; the greatest communicator that
   holds every process is the world, and its ranks are the global ones (`comm_ranks`);
3. a device belongs to the rank whose init line named it: by host and PCI address, or by the index the driver gives;
4. a process id without a host belongs to the rank that has it, if only one rank of the job has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import polars as pl

from mycroft.loaders.comm_ranks import CommRanks, Names
from mycroft.loaders.host_names import hosts_of_files
from mycroft.loaders.machines import Device, Machines, Process, Row, gpus_in_order

DEVICE_KINDS: Final = ("xid", "gpu_state", "pcie_error", "pcie_state")
# Their ranks are not the job's, or they are about something that is no rank.
_NOT_A_RANK: Final = ("bench_row", "ras_comm", "nic_counter", "nic_state", "unparsed")
# What a table of pods says of one.
_POD_KINDS: Final = ("pod_state", "oom_kill", "exit")
_FACT_KINDS: Final = ("comm_init", "nccl_abort", "identity", "ras_member", "ras_comm", "pod_state")
_COLUMNS: Final = (
    "kind",
    "name",
    "rank",
    "comm_rank",
    "local_rank",
    "host_id",
    "pid",
    "value",
    "code",
    "seq",
    "group_name",
    "device",
    "peer",
    "detail",
    "file_id",
    "line",
)
_MAX_FACTS: Final = 4_000_000


_K = TypeVar("_K")


@dataclass(slots=True)
class _Joins:
    """What was found, ready to be looked up; hosts by provisional id."""

    by_process: dict[tuple[int, int], int] = field(default_factory=lambda: dict[tuple[int, int], int]())
    by_pid: dict[int, int] = field(default_factory=lambda: dict[int, int]())
    by_device: dict[tuple[int, str], int] = field(default_factory=lambda: dict[tuple[int, str], int]())
    by_local: dict[tuple[int, int], int] = field(default_factory=lambda: dict[tuple[int, int], int]())
    by_member: dict[tuple[str, int], int] = field(default_factory=lambda: dict[tuple[str, int], int]())
    host_of_file: dict[int, int] = field(default_factory=lambda: dict[int, int]())
    by_comm: dict[tuple[int, int], int] = field(default_factory=lambda: dict[tuple[int, int], int]())
    by_pid_anywhere: dict[int, int] = field(default_factory=lambda: dict[int, int]())
    """The same where no line ties any process to a host."""
    by_pod: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    """Hosts that have one rank, by name: most are pods."""
    passed_on: dict[tuple[int, int], int] = field(default_factory=lambda: dict[tuple[int, int], int]())
    """(file, host that only passed its lines on) -> host that the file is of."""


class IdentityResolver:
    """Collects claims while rows arrive; `solve` joins them; `apply` completes the rows."""

    def __init__(self) -> None:
        self._facts: list[pl.DataFrame] = []
        self._rows = 0
        self._told: list[pl.DataFrame] = []
        self._comm_names: dict[str, set[int]] = defaultdict(set)
        self._unplaced: set[tuple[int, int]] = set()
        self._hosts_in: dict[int, set[int]] = defaultdict(set)
        self._joins = _Joins()

    # -- while rows arrive ---------------------------------------------------------------------------------------

    def see(self, table: str, frame: pl.DataFrame) -> None:
        """Take what rows of `table` say of identities; host and communicator ids are provisional."""
        if table != "events" or self._rows >= _MAX_FACTS:
            return
        if {"file_id", "host_id"} <= set(frame.columns):
            for file_id, host in frame.select("file_id", "host_id").drop_nulls().unique().iter_rows():
                if len(self._hosts_in[file_id]) < 2:
                    self._hosts_in[file_id].add(host)
        columns = [name for name in _COLUMNS if name in frame.columns]
        facts = frame.lazy().select(columns).filter(pl.col("kind").is_in(_FACT_KINDS)).collect()
        if facts.height:
            self._facts.append(facts)
            self._rows += facts.height
        if {"rank", "pid"} <= set(frame.columns):
            for pid, rank in frame.filter(_no_host(frame)).select("pid", "rank").drop_nulls().unique().iter_rows():
                if len(self._unplaced) < _MAX_FACTS:
                    self._unplaced.add((pid, rank))
        if {"rank", "pid", "host_id"} <= set(frame.columns):
            said = frame.select("rank", "pid", "host_id").drop_nulls().unique()
            if said.height:
                self._told.append(said)
                self._rows += said.height
        if "comm_id" in frame.columns and "group_name" in frame.columns:
            named = frame.select("comm_id", "group_name").drop_nulls().unique()
            for comm, name in named.iter_rows():
                self._comm_names[name].add(comm)

    # -- when all have arrived -----------------------------------------------------------------------------------

    def solve(
        self,
        context: Names,
        *,
        hosts: Sequence[str],
        ranks: Mapping[int, Mapping[str, int | str]],
        files: Mapping[int, str],
    ) -> None:
        """Join everything.

        Args:
            context: takes communicators with their members and facts of ranks.
            hosts: names of hosts; the position is the provisional id.
            ranks: what loaders said of ranks themselves: `host`, `pid`, `local_rank`.
            files: names of files by id.
        """
        facts = _rows_of(self._facts)
        self._facts.clear()
        host_of_file = hosts_of_files(files, hosts)
        said_to_run = {said.get("host") for said in ranks.values()}
        at_work = {i for i, name in enumerate(hosts) if name in said_to_run}
        at_work |= {row["host_id"] for row in facts if row["kind"] in ("comm_init", "ras_member") and row["pid"]}
        passed_on = _passed_on(self._hosts_in, host_of_file, at_work)
        for row in facts:
            if row["host_id"] is None or (row["file_id"], row["host_id"]) in passed_on:
                row["host_id"] = host_of_file.get(row["file_id"])
        machines = Machines(hosts, facts)
        members = CommRanks()
        for rank, said in ranks.items():
            host, pid = said.get("host"), said.get("pid")
            if isinstance(host, str) and isinstance(pid, int):
                members.told((machines.one(host), pid), rank)
        for row in _rows_of(self._told):
            members.told((machines.of(row["host_id"]), row["pid"]), row["rank"])
        self._told.clear()
        if ranks:
            members.at_least(max(ranks) + 1)
        _see_members(members, machines, facts)
        _see_unnamed(members, machines, facts)
        solved = members.ranks()
        for name in members.world():
            context.job(world_size=len(members.members(name) or ()) or None)
        self._tell(context, machines, members, facts)
        by_order = gpus_in_order(machines, solved, facts, ranks)
        for rank, device in by_order:
            why = "n-th rank of its host and n-th GPU of it, in order: not confirmed by a line of NCCL"
            context.rank(rank, gpu=device.bus, bus_id=device.bus, uuid=machines.uuid_at(device), reason=why)
        self._joins = self._index(machines, members, solved, [*by_order], facts, ranks, hosts)
        self._joins.host_of_file, self._joins.passed_on = host_of_file, passed_on
        for name in members.names():
            for comm in self._comm_names.get(name, ()):
                inside = members.members(name)
                if inside is not None:
                    self._joins.by_comm.update({(comm, i): rank for i, rank in enumerate(inside)})
            members.comm_id(context, name)

    def _tell(self, context: Names, machines: Machines, members: CommRanks, facts: Sequence[Row]) -> None:
        """Write what is known of each rank, with the line that says so."""
        networks: dict[Process, list[str]] = defaultdict(list)
        addresses: dict[Process, set[str]] = defaultdict(set)
        for row in facts:
            if row["kind"] != "identity" or row["pid"] is None:
                continue
            process = (machines.of(row["host_id"]), row["pid"])
            if row["name"] == "nic" and row["device"] and row["device"] not in networks[process]:
                networks[process].append(row["device"])
            elif row["name"] == "address" and row["detail"] == "bootstrap" and row["peer"]:
                addresses[process].add(row["peer"])
        done: set[tuple[int, int]] = set()
        for row in facts:
            if row["pid"] is None or row["kind"] not in ("comm_init", "ras_member", "identity"):
                continue
            process = (machines.of(row["host_id"]), row["pid"])
            rank = members.rank_of(process)
            if rank is None:
                continue
            origin = {"file_id": row["file_id"], "line": row["line"]}
            if row["kind"] == "identity":
                if row["name"] == "local_rank" and row["local_rank"] is not None:
                    context.rank(rank, local_rank=row["local_rank"], reason="NCCL's layout line", **origin)
                continue
            first = (rank, row["pid"]) not in done
            bus = row["device"] if row["kind"] == "comm_init" else None
            if not first and not bus:
                continue
            done.add((rank, row["pid"]))
            why = "rank in NCCL's world communicator" if row["kind"] == "comm_init" else "member listed by NCCL RAS"
            host = machines.name(row["host_id"])
            context.rank(
                rank,
                host=host,
                pid=row["pid"],
                gpu=bus or row["device"],
                bus_id=bus,
                uuid=machines.uuid(row["host_id"], bus),
                pod=host if host in machines.node_of_pod else None,
                node=machines.node_of_pod.get(host or ""),
                nic=",".join(networks[process]) or None,
                address=",".join(sorted(addresses[process])) or None,
                reason=why,
                **origin,
            )

    def _index(
        self,
        machines: Machines,
        members: CommRanks,
        solved: Mapping[Process, int],
        by_order: Sequence[tuple[int, Device]],
        facts: Sequence[Row],
        ranks: Mapping[int, Mapping[str, int | str]],
        hosts: Sequence[str],
    ) -> _Joins:
        joins = _Joins()
        ids: dict[str, list[int]] = defaultdict(list)
        for host_id, name in enumerate(hosts):
            ids[machines.one(name)].append(host_id)
        for (host, pid), rank in solved.items():
            for host_id in ids.get(host, ()):
                joins.by_process[host_id, pid] = rank
        joins.by_pid = _single((pid, rank) for (_host, pid), rank in solved.items())
        # Some prefixes give a process without its host: a number that is used once is known by that alone.
        for pid, rank in _single(self._unplaced).items():
            joins.by_pid.setdefault(pid, rank)
            if len(solved) == 0:
                joins.by_pid_anywhere[pid] = rank
        on_host = {(hosts[i], rank) for (host, _pid), rank in solved.items() for i in ids.get(host, ())}
        on_host |= {(host, rank) for rank, said in ranks.items() if isinstance(host := said.get("host"), str)}
        joins.by_pod = _single(sorted(on_host))
        joins.by_device = _single(
            ((host_id, device), rank)
            for host, device, rank in machines.devices(members, facts, by_order)
            for host_id in ids.get(host, ())
        )
        joins.by_local = _single(
            ((host_id, local), rank)
            for rank, said in ranks.items()
            if isinstance(host := said.get("host"), str) and isinstance(local := said.get("local_rank"), int)
            for host_id in ids.get(machines.one(host), ())
        )
        for name, comm_rank, _process in members.processes():
            rank = members.global_rank(name, comm_rank)
            if rank is not None:
                joins.by_member[name, comm_rank] = rank
        for name in members.world():
            size = len(members.members(name) or ())
            joins.by_member.update({(name, i): i for i in range(size)})
        return joins

    # -- completing the rows -------------------------------------------------------------------------------------

    def apply(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return `frame` with host and rank filled in where they were found; edges in global ranks."""
        if table == "edges":
            return self._edges(frame)
        if table == "events":
            return self._events(frame)
        if table == "stacks" and "pid" in frame.columns:
            return self._stacks(frame)
        return frame

    def _events(self, frame: pl.DataFrame) -> pl.DataFrame:
        j = self._joins
        for name, dtype in (("host_id", pl.UInt32), ("rank", pl.UInt32), ("file_id", pl.UInt32)):
            if name not in frame.columns:
                frame = frame.with_columns(pl.lit(None, dtype).alias(name))
        if j.host_of_file:
            named = _lookup(frame, ["file_id"], {(k,): v for k, v in j.host_of_file.items()})
            own = _lookup(frame, ["file_id", "host_id"], j.passed_on)
            frame = frame.with_columns(pl.coalesce(own, "host_id", named).alias("host_id"))
        found: list[pl.Series] = []
        have = set(frame.columns)
        if "pid" in have:
            found.append(_lookup(frame, ["host_id", "pid"], j.by_process))
        if {"group_name", "comm_rank"} <= have:
            found.append(_lookup(frame, ["group_name", "comm_rank"], j.by_member))
        if "pid" in have:
            alone = _lookup(frame, ["pid"], {(pid,): rank for pid, rank in j.by_pid.items()})
            # With a host that is known not to have it, the number is another process.
            found.append(pl.select(pl.when(frame["host_id"].is_null()).then(alone)).to_series())
            found.append(_lookup(frame, ["pid"], {(pid,): rank for pid, rank in j.by_pid_anywhere.items()}))
        if "local_rank" in have:
            found.append(_lookup(frame, ["host_id", "local_rank"], j.by_local))
        if {"kind", "name"} <= have:
            pod = _lookup(frame, ["name"], {(name,): rank for name, rank in j.by_pod.items()})
            found.append(pl.select(pl.when(frame["kind"].is_in(_POD_KINDS)).then(pod)).to_series())
        if "device" in have and "kind" in have:
            device = _lookup(frame, ["host_id", "device"], j.by_device)
            found.append(pl.select(pl.when(frame["kind"].is_in(DEVICE_KINDS)).then(device)).to_series())
        if not found or "kind" not in have:
            return frame
        bench = pl.col("kind").is_in(_NOT_A_RANK)
        if "name" in have:
            bench = bench | ((pl.col("kind") == "identity") & (pl.col("name") == "bench_rank").fill_null(False))
        return frame.with_columns(
            pl.when(bench).then(pl.col("rank")).otherwise(pl.coalesce("rank", *found)).alias("rank")
        )

    def _stacks(self, frame: pl.DataFrame) -> pl.DataFrame:
        if "rank" not in frame.columns:
            frame = frame.with_columns(pl.lit(None, pl.UInt32).alias("rank"))
        j = self._joins
        hosts = _lookup(frame, ["file_id"], {(k,): v for k, v in j.host_of_file.items()})
        with_host = frame.with_columns(hosts.alias("host_id"))
        exact = _lookup(with_host, ["host_id", "pid"], j.by_process)
        alone = _lookup(frame, ["pid"], {(pid,): rank for pid, rank in j.by_pid.items()})
        return frame.with_columns(pl.coalesce("rank", exact, alone).alias("rank"))

    def _edges(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Turn ranks inside into global ones; the two sides of an edge, and its patterns, become one row each."""
        source = _lookup(frame, ["comm_id", "src"], self._joins.by_comm)
        target = _lookup(frame, ["comm_id", "dst"], self._joins.by_comm)
        keys = ["comm_id", "channel", "pattern", "src", "dst"]
        whole = frame.with_columns(source.alias("src"), target.alias("dst")).drop_nulls(["src", "dst"])
        if whole.is_empty():
            return whole
        merged = whole.group_by(keys, maintain_order=True).agg(
            pl.col(name).drop_nulls().first() for name in ("transport", "nic", "dst_nic")
        )
        # A tree that runs over a connection of the ring does not name it again.
        over = merged.group_by("comm_id", "channel", "src", "dst", maintain_order=True).agg(
            pl.col(name).drop_nulls().first().alias(f"_{name}") for name in ("transport", "nic", "dst_nic")
        )
        return merged.join(over, on=["comm_id", "channel", "src", "dst"], how="left").select(
            *keys, *(pl.coalesce(name, f"_{name}").alias(name) for name in ("transport", "nic", "dst_nic"))
        )


def _see_unnamed(members: CommRanks, machines: Machines, facts: Sequence[Row]) -> None:
    """Take the greatest communicator of a log that names none (NCCL up to 2.15) for one.

    It is one where each process has one rank in it and each rank is one process: else there are several of that size.
    """
    rows = [row for row in facts if row["kind"] == "comm_init" and row["comm_rank"] is not None and row["value"]]
    size = max((int(row["value"]) for row in rows), default=0)
    mine = [r for r in rows if not r["group_name"] and int(r["value"]) == size and r["pid"] is not None]
    pairs = {((machines.of(row["host_id"]), row["pid"]), row["comm_rank"]) for row in mine}
    if not pairs or len({p for p, _ in pairs}) != len(pairs) or len({rank for _, rank in pairs}) != len(pairs):
        return
    for row in mine:
        process = (machines.of(row["host_id"]), row["pid"])
        members.see(f"nranks {size}", size, row["comm_rank"], process, device=row["device"])


def _see_members(members: CommRanks, machines: Machines, facts: Sequence[Row]) -> None:
    sizes: dict[tuple[int, int | None, str], int] = {}
    groups: dict[tuple[int, int | None, str], str] = {}
    for row in facts:
        # RAS prints the size of its groups in a table and the hash of a communicator further down.
        if row["kind"] == "ras_comm" and row["group_name"]:
            key = (row["file_id"] or 0, row["code"], row["group_name"])
            if row["value"]:
                sizes[key] = int(row["value"])
            elif row["detail"] and row["detail"].startswith("group "):
                groups[key] = f"#{row['detail'][6:]}"
    for row in facts:
        if row["comm_rank"] is None or not row["group_name"]:
            continue
        process = (machines.of(row["host_id"]), row["pid"]) if row["pid"] is not None else None
        if row["kind"] == "comm_init":
            size = int(row["value"]) if row["value"] else None
            members.see(row["group_name"], size, row["comm_rank"], process, device=row["device"])
        elif row["kind"] == "ras_member":
            key = (row["file_id"] or 0, row["code"], row["group_name"])
            size = sizes.get(key) or sizes.get((*key[:2], groups.get(key, "")))
            members.see(row["group_name"], size, row["comm_rank"], process)


def _rows_of(frames: Sequence[pl.DataFrame]) -> list[Row]:
    if not frames:
        return []
    whole = pl.concat(frames, how="diagonal").unique(maintain_order=True)
    missing = [name for name in _COLUMNS if name not in whole.columns]
    return whole.with_columns(pl.lit(None).alias(name) for name in missing).to_dicts()


def _single(pairs: Iterable[tuple[_K, int]]) -> dict[_K, int]:
    """Return the keys that have one value only."""
    found: dict[_K, int] = {}
    several: set[_K] = set()
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            several.add(key)
    return {key: value for key, value in found.items() if key not in several}


def _lookup(frame: pl.DataFrame, keys: Sequence[str], table: Mapping[tuple[Any, ...], int]) -> pl.Series:
    """Return for each row the value of its keys in `table`, NULL where a key is NULL or not there."""
    if not table or any(key not in frame.columns for key in keys):
        return pl.Series("_found", [None] * frame.height, dtype=pl.UInt32)
    width = len(keys)
    rows: list[tuple[Any, ...]] = [(*key, value) for key, value in table.items()]
    schema = {name: frame.schema[name] for name in keys} | {"_found": pl.UInt32}
    known = pl.DataFrame(rows, schema=schema, orient="row")
    assert known.width == width + 1, "keys and table do not fit"
    return frame.select(keys).join(known, on=list(keys), how="left", maintain_order="left")["_found"]


def _no_host(frame: pl.DataFrame) -> pl.Expr:
    return pl.col("host_id").is_null() if "host_id" in frame.columns else pl.lit(value=True)


def _passed_on(
    seen: Mapping[int, set[int]], host_of_file: Mapping[int, int], at_work: Container[int]
) -> dict[tuple[int, int], int]:
    """Return by (file, host in it) the host a file is of, where the one in it only passed the lines on.

    A collector may put its own name before every line. It does where one name is the only one in files that are named
    after two hosts or more, and it is none of those; or where ranks run on the host that the file is named after, and
    none on the other. `at_work`: hosts of which a line says that a rank runs there.
    """
    of: dict[int, dict[int, int]] = defaultdict(dict)
    for file_id, hosts in seen.items():
        named = host_of_file.get(file_id)
        if len(hosts) == 1 and named is not None:
            (host,) = hosts
            of[host][file_id] = named
    return {
        (file_id, host): named
        for host, files in of.items()
        if host not in files.values()
        for file_id, named in files.items()
        if len(set(files.values())) > 1 or (named in at_work and host not in at_work)
    }
