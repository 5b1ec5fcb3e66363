"""What NCCL, the kernel and the machines say, as the rules look at it: rows of events with host, device and peer.

`facts` holds what the job's own recorders say. Here is everything around it: links, GPUs, PCIe, counters, RAS, the
profilers' durations, benchmark tables. Nothing judges here; what a source does not say is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from mycroft.analysis.claims import Ref
from mycroft.analysis.facts import Frames

KINDS: Final = (
    "launcher_failure",
    "connection_closed",
    "connect_failed",
    "join_timeout",
    "comm_init",
    "nccl_env",
    "nccl_error",
    "nccl_version",
    "nccl_abort",
    "ras_comm",
    "ras_member",
    "ras_peer",
    "xid",
    "link_down",
    "link_up",
    "ib_error",
    "pcie_error",
    "storage_error",
    "host_fault",
    "gpu_state",
    "nic_state",
    "nic_counter",
    "pcie_state",
    "bench_row",
    "identity",
    "pod_state",
    "finished",
    "watchdog_timeout",
    "pg_status",
    "dump_signal",
    "phase",
    "exception",
    "cuda_error",
    "desync_report",
    "fingerprint_mismatch",
    "fr_analysis",
    "oom_kill",
)
ROWS: Final = """
SELECT
    epoch_ns(e.ts) AS ts,
    CAST(e.time_quality AS VARCHAR) AS quality,
    CAST(e.kind AS VARCHAR) AS kind,
    e.rank,
    e.comm_rank,
    h.name AS host,
    e.pid,
    CAST(e.level AS VARCHAR) AS level,
    e.source,
    e.code,
    e.comm_id AS comm,
    e.group_name AS "group",
    e.group_desc,
    e.seq,
    CAST(e.op_kind AS VARCHAR) AS op,
    CAST(e.bytes AS BIGINT) AS bytes,
    CAST(e.in_numel AS BIGINT) AS in_numel,
    CAST(e.out_numel AS BIGINT) AS out_numel,
    e.dtype,
    e.last_enqueued,
    e.last_completed,
    e.dur_ms,
    e.device,
    e.peer,
    e.name,
    e.detail,
    e.value,
    left(e.text, 400) AS text,
    e.file_id AS file,
    e.line
FROM events AS e
LEFT JOIN hosts AS h USING (host_id)
WHERE CAST(e.kind AS VARCHAR) IN (SELECT unnest(?))
ORDER BY e.file_id, e.line, e.kind, e.name, e.value
LIMIT 500000
"""
# One row per rank and operation that a profiler measured, whichever it was.
PERF: Final = """
SELECT comm, seq, rank, op, bytes, dur_ms, busbw, host, file, line
FROM (
    SELECT
        e.comm_id AS comm,
        e.seq,
        coalesce(e.rank, e.comm_rank) AS rank,
        CAST(e.op_kind AS VARCHAR) AS op,
        CAST(e.bytes AS BIGINT) AS bytes,
        e.dur_ms,
        e.value AS busbw,
        h.name AS host,
        e.file_id AS file,
        e.line,
        1 AS preference
    FROM events AS e
    LEFT JOIN hosts AS h USING (host_id)
    WHERE e.kind = 'op_perf' AND e.comm_id IS NOT NULL AND e.seq IS NOT NULL AND e.dur_ms IS NOT NULL
      AND e.peer IS NULL AND coalesce(e.rank, e.comm_rank) IS NOT NULL
    UNION ALL
    SELECT
        c.comm_id,
        CAST(c.op_seq AS BIGINT),
        c.rank,
        CAST(c.op_kind AS VARCHAR),
        CAST(c.bytes AS BIGINT),
        c.dur_ns / 1e6,
        NULL,
        h.name,
        c.file_id,
        CAST(c.line AS BIGINT),
        2
    FROM coll_ops AS c
    LEFT JOIN ranks AS r USING (rank)
    LEFT JOIN hosts AS h ON h.host_id = r.host_id
    WHERE c.dur_ns IS NOT NULL AND c.kstart_ts IS NOT NULL AND NOT coalesce(c.is_p2p, FALSE)
)
QUALIFY row_number() OVER (PARTITION BY comm, seq, rank ORDER BY preference, file, line) = 1
ORDER BY comm, seq, rank
LIMIT 4000000
"""
EDGES: Final = """
SELECT comm_id AS comm, channel, src, dst, CAST(transport AS VARCHAR) AS transport, nic, dst_nic
FROM edges
WHERE transport IN ('net_ib', 'net_socket', 'net_other')
ORDER BY comm_id, channel, src, dst
LIMIT 1000000
"""
# The last calls on every communicator as NCCL's log lists them.
CALLS: Final = """
SELECT
    e.comm_id AS comm,
    e.rank,
    e.seq,
    row_number() OVER (PARTITION BY e.comm_id, e.rank, e.seq ORDER BY e.file_id, e.line) AS place,
    row_number() OVER (ORDER BY e.file_id, e.line) AS "order",
    CAST(e.op_kind AS VARCHAR) AS op,
    e.name,
    CAST(e.in_numel AS BIGINT) AS numel,
    e.dtype,
    e.code AS root,
    e.value AS size,
    coalesce(c."desc", c.name, e.group_name) AS title,
    e.file_id AS file,
    e.line
FROM events AS e LEFT JOIN communicators AS c USING (comm_id)
WHERE e.kind = 'coll_call' AND e.comm_id IS NOT NULL AND e.rank IS NOT NULL AND e.seq IS NOT NULL
QUALIFY e.seq >= max(e.seq) OVER (PARTITION BY e.comm_id) - 64
ORDER BY "order"
LIMIT 1000000
"""
# How long the steps of the job took, in the order of its log, whoever printed them.
STEP_TIMES: Final = """
SELECT dur_ms FROM events WHERE kind = 'step' AND dur_ms > 0 ORDER BY file_id, line LIMIT 100000
"""
PLACES: Final = """
SELECT r.rank, h.name AS host, r.pid, r.gpu, r.local_rank
FROM ranks AS r LEFT JOIN hosts AS h USING (host_id)
ORDER BY r.rank
"""
IDENTITY: Final = "SELECT rank, attribute, value FROM identity WHERE rank IS NOT NULL ORDER BY rank, attribute, value"


@dataclass(frozen=True, slots=True)
class Row:
    """One event; see the table `events`."""

    kind: str
    ts: int | None
    quality: str
    rank: int | None
    comm_rank: int | None
    host: str | None
    pid: int | None
    level: str
    code: int | None
    comm: int | None
    group: str
    group_desc: str
    seq: int | None
    op: str
    bytes: int | None
    in_numel: int | None
    out_numel: int | None
    dtype: str
    last_enqueued: int | None
    last_completed: int | None
    dur_ms: float | None
    device: str
    peer: str
    name: str
    detail: str
    value: float | None
    text: str
    file: int | None
    line: int | None

    def ref(self, claim: str, source: str) -> Ref:
        """Return where this row can be opened, with what it shows."""
        return Ref(claim, self.file, self.line, "events", (("kind", self.kind),), source)


@dataclass(frozen=True)
class Machine:
    """Everything around the job."""

    rows: Mapping[str, tuple[Row, ...]]
    perf: pl.DataFrame
    edges: pl.DataFrame
    hosts: Mapping[int, str]
    """Host of each rank."""
    nodes: Mapping[str, str]
    """Node that a pod runs on."""
    pids: Mapping[int, int]
    files: Mapping[int, str]
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Host that alone uses an address."""
    gpus: Mapping[int, str] = field(default_factory=dict[int, str])
    """PCI address of the GPU of each rank."""
    pods: Mapping[str, str] = field(default_factory=dict[str, str])
    """The only pod that a table of pods shows on a node."""
    steps_ms: tuple[float, ...] = ()
    calls: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The last collective calls of NCCL's log."""

    def of(self, *kinds: str) -> list[Row]:
        """Return the rows of these kinds in file order."""
        return [row for kind in kinds for row in self.rows.get(kind, ())]

    def ranks_on(self, host: str) -> tuple[int, ...]:
        """Return the ranks of a host, also where it is the node of their pod."""
        return tuple(sorted(r for r, h in self.hosts.items() if h == host or self.nodes.get(h) == host))

    def host_of(self, row: Row) -> str | None:
        """Return the host of a row, through its rank where it names none."""
        return row.host or (self.hosts.get(row.rank) if row.rank is not None else None)

    def host_at(self, address: str) -> str | None:
        """Return the host that an address or a name belongs to."""
        if address in self.addresses:
            return self.addresses[address]
        known = set(self.hosts.values()) | set(self.addresses.values())
        short = address.partition(".")[0]
        return next((h for h in sorted(known) if h in (address, short) or h.partition(".")[0] == address), None)


def read_machine(store: Frames, files: Mapping[int, str]) -> Machine:
    """Read what there is."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for raw in store.frame(ROWS, [list(KINDS)]).to_dicts():
        row = _row(raw)
        rows[row.kind].append(row)
    places = store.frame(PLACES).to_dicts()
    hosts = {int(p["rank"]): str(p["host"]) for p in places if p["host"]}
    identity = store.frame(IDENTITY).to_dicts()
    nodes: dict[str, str] = {}
    for claim in identity:
        if claim["attribute"] == "node" and (host := hosts.get(int(claim["rank"]))) is not None:
            nodes[host] = str(claim["value"])
    return Machine(
        rows={kind: tuple(found) for kind, found in rows.items()},
        perf=store.frame(PERF),
        calls=store.frame(CALLS),
        edges=store.frame(EDGES),
        hosts=hosts,
        nodes=nodes,
        pids={int(p["rank"]): int(p["pid"]) for p in places if p["pid"] is not None},
        files=files,
        addresses=_addresses(rows["identity"]),
        steps_ms=tuple(store.frame(STEP_TIMES)["dur_ms"].to_list()),
        pods=_pods(rows["pod_state"]),
        gpus={int(p["rank"]): str(p["gpu"]) for p in places if p["gpu"]},
    )


def _row(raw: Mapping[str, Any]) -> Row:
    return Row(
        kind=str(raw["kind"]),
        ts=raw["ts"],
        quality=raw["quality"] or "",
        rank=raw["rank"],
        comm_rank=raw["comm_rank"],
        host=raw["host"],
        pid=raw["pid"],
        level=raw["level"] or "",
        code=raw["code"],
        comm=raw["comm"],
        group=raw["group"] or "",
        group_desc=raw["group_desc"] or "",
        seq=raw["seq"],
        op=raw["op"] or "",
        bytes=raw["bytes"],
        in_numel=raw["in_numel"],
        out_numel=raw["out_numel"],
        dtype=raw["dtype"] or "",
        last_enqueued=raw["last_enqueued"],
        last_completed=raw["last_completed"],
        dur_ms=raw["dur_ms"],
        device=raw["device"] or "",
        peer=raw["peer"] or "",
        name=raw["name"] or "",
        detail=raw["detail"] or "",
        value=raw["value"],
        text=raw["text"] or "",
        file=raw["file"],
        line=raw["line"],
    )


def _addresses(rows: Iterable[Row]) -> dict[str, str]:
    owners: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.name == "address" and row.peer and row.host:
            owners[row.peer].add(row.host)
    return {address: hosts.pop() for address, hosts in owners.items() if len(hosts) == 1}


def _pods(rows: Iterable[Row]) -> dict[str, str]:
    on: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.host and row.name:
            on[row.host].add(row.name)
    return {node: pods.pop() for node, pods in on.items() if len(pods) == 1}


def some(names: Sequence[str], most: int = 6) -> str:
    """Return names in words, shortened."""
    ordered = list(dict.fromkeys(names))
    rest = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + rest
