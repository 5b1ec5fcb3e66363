"""Who sends to whom in NCCL's own words: rings, trees and the channels with what carries them.

A job of a thousand ranks prints millions of `Channel` lines, so they are taken as frames. They name ranks inside
the communicator that their thread is setting up, which only the init lines before them tell: each line gets the
last communicator that its thread, or else its process, has begun.

The two sides of a network edge print one line each, with their own device; the rows are put together per edge when
the trace is written. In `edges` as it leaves here, `src` and `dst` are ranks inside the communicator.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from mycroft.loaders.op_names import NCCL_DTYPES, op_kind
from mycroft.loaders.text.matcher import BulkMatcher
from mycroft.loaders.text.nccl_log import devices_of
from mycroft.loaders.text.nccl_writer import FORMAT, CommFacts, Process, comms_of, threads_of
from mycroft.loaders.text.scope import FileScope

_PREFIX: Final = (
    r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]*))?:(?P<pid>[0-9]+):(?P<tid>[0-9]+) (?:\[-?[0-9]+\] )?NCCL INFO "
)
_MAX_EDGES: Final = 4_000_000
_TRANSPORTS: Final = (
    ("NET/IB", "net_ib"),
    ("NET/Socket", "net_socket"),
    ("NET/", "net_other"),
    ("P2P", "p2p"),
    ("SHM", "shm"),
    ("direct shared memory", "shm"),
    ("NVLS", "nvls"),
    ("COLLNET", "collnet"),
    ("CollNet", "collnet"),
)


def transport_of(via: str) -> str:
    """Return the word of `schema.TRANSPORTS` for what stands behind `via`."""
    return next((word for start, word in _TRANSPORTS if via.startswith(start)), "other")


def _edges(scope: FileScope) -> list[pl.DataFrame]:
    return scope.memory.setdefault("nccl_edges", [])


def _keep(scope: FileScope, frame: pl.DataFrame) -> None:
    held: int = scope.memory.get("nccl_edge_rows", 0)
    if held < _MAX_EDGES:
        scope.memory["nccl_edge_rows"] = held + frame.height
        _edges(scope).append(frame)


def _common(found: pl.DataFrame) -> list[pl.Expr]:
    return [
        pl.col("host").fill_null(""),
        pl.col("pid").cast(pl.UInt64, strict=False).alias("pid"),
        pl.col("tid").cast(pl.UInt64, strict=False).alias("tid"),
    ]


def _channels(scope: FileScope, found: pl.DataFrame) -> None:
    """`Channel 01/0 : 3[c4000] -> 4[1b000] [send] via NET/IB/3/GDRDMA`."""
    # The same edge is printed again for every connection index; a job prints few different `via`.
    _keep(
        scope,
        found.select(
            "line",
            *_common(found),
            pl.col("channel").cast(pl.UInt32, strict=False),
            pl.col("index").cast(pl.UInt32, strict=False).fill_null(0).alias("index"),
            pl.col("src").cast(pl.UInt32, strict=False),
            pl.col("dst").cast(pl.UInt32, strict=False),
            pl.col("dir"),
            pl.col("via").str.strip_chars().cast(pl.Categorical),
            pl.lit("channel").alias("shape"),
        ).with_columns(pl.col("via").cast(pl.String)),
    )


def _rings(scope: FileScope, found: pl.DataFrame) -> None:
    """`Channel 00/02 :    0   1   2   3`: the order of a ring; the last sends to the first."""
    orders = found.select(
        "line",
        *_common(found),
        pl.col("channel").cast(pl.UInt32, strict=False),
        pl.col("order")
        .str.strip_chars()
        .str.split(" ")
        .list.eval(pl.element().filter(pl.element() != ""))
        .alias("src"),
    )
    pairs = orders.with_columns(
        pl.concat_list(pl.col("src").list.slice(1), pl.col("src").list.slice(0, 1)).alias("dst")
    ).explode("src", "dst")
    _keep(
        scope,
        pairs.select(
            "line",
            "host",
            "pid",
            "tid",
            "channel",
            pl.lit(0, pl.UInt32).alias("index"),
            pl.col("src").cast(pl.UInt32, strict=False),
            pl.col("dst").cast(pl.UInt32, strict=False),
            pl.lit(None, pl.String).alias("dir"),
            pl.lit(None, pl.String).alias("via"),
            pl.lit("ring").alias("shape"),
        ),
    )


def _ring_steps(scope: FileScope, found: pl.DataFrame) -> None:
    """`Ring 00 : 2 -> 3 -> 4`: previous, own, next."""
    base = found.select("line", *_common(found), pl.col("channel").cast(pl.UInt32, strict=False), "prev", "me", "next")
    for source, target in (("prev", "me"), ("me", "next")):
        _keep(scope, _shaped(base, source, target, "ring"))


def _shaped(base: pl.DataFrame, source: str, target: str, shape: str) -> pl.DataFrame:
    return base.select(
        "line",
        "host",
        "pid",
        "tid",
        "channel",
        pl.lit(0, pl.UInt32).alias("index"),
        pl.col(source).cast(pl.UInt32, strict=False).alias("src"),
        pl.col(target).cast(pl.UInt32, strict=False).alias("dst"),
        pl.lit(None, pl.String).alias("dir"),
        pl.lit(None, pl.String).alias("via"),
        pl.lit(shape).alias("shape"),
    ).filter(pl.col("src").is_not_null() & pl.col("dst").is_not_null())


def _trees(scope: FileScope, found: pl.DataFrame) -> None:
    """`Trees [0] 4/-1/-1->3->2 [1] …`: children, own, parent of each tree; data go up and come down."""
    each = (
        found.select(
            "line", *_common(found), pl.col("trees").str.extract_all(r"\[[0-9]+\] [-0-9/]+->-?[0-9]+->-?[0-9]+")
        )
        .explode("trees")
        .with_columns(
            pl.col("trees").str.extract_groups(
                r"\[(?P<channel>[0-9]+)\] (?P<kids>[-0-9/]+)->(?P<me>[0-9]+)->(?P<up>-?[0-9]+)"
            )
        )
        .unnest("trees")
        .filter(pl.col("me").is_not_null())
        .with_columns(pl.col("channel").cast(pl.UInt32, strict=False))
    )
    kids = each.with_columns(pl.col("kids").str.split("/")).explode("kids")
    for frame, source, target in (
        (each, "me", "up"),
        (each, "up", "me"),
        (kids, "kids", "me"),
        (kids, "me", "kids"),
    ):
        _keep(scope, _shaped(frame, source, target, "tree"))


def _tree_steps(scope: FileScope, found: pl.DataFrame) -> None:
    """`Tree 0 : 2 -> 3 -> 4/-1/-1`: parent, own, children."""
    base = found.select("line", *_common(found), pl.col("channel").cast(pl.UInt32, strict=False), "up", "me", "kids")
    kids = base.with_columns(pl.col("kids").str.split("/")).explode("kids")
    for frame, source, target in ((base, "me", "up"), (base, "up", "me"), (kids, "kids", "me"), (kids, "me", "kids")):
        _keep(scope, _shaped(frame, source, target, "tree"))


def _calls(scope: FileScope, found: pl.DataFrame) -> None:
    """`AllGather: opCount 1a6 … count … datatype … comm 0x… [nranks=4]`: one event each; opCount is hexadecimal."""
    kinds = {name: op_kind(name) for name in found["op"].unique().to_list()}
    comms = {
        (host, pid, pointer): facts for ((host, pid), pointer), facts in comms_of(scope).items() if pid is not None
    }
    known = pl.DataFrame(
        [
            {
                "host": host,
                "pid": pid,
                "comm": pointer,
                "comm_id": _comm_id(scope, facts),
                "comm_rank": facts.rank,
                "group_name": facts.name,
            }
            for (host, pid, pointer), facts in comms.items()
        ],
        schema={
            "host": pl.String,
            "pid": pl.UInt64,
            "comm": pl.String,
            "comm_id": pl.UInt32,
            "comm_rank": pl.UInt32,
            "group_name": pl.String,
        },
    )
    hosts = {name: scope.context.host(name) for name in found["host"].drop_nulls().unique().to_list() if name}
    default = scope.context.host(scope.host) if scope.host else None
    frame = (
        found.with_columns(*_common(found))
        .join(known, on=["host", "pid", "comm"], how="left")
        .select(
            pl.lit("order_only").alias("time_quality"),
            pl.col("host").replace_strict(hosts, default=default, return_dtype=pl.UInt32).alias("host_id"),
            pl.col("pid").cast(pl.UInt32, strict=False),
            "comm_rank",
            "comm_id",
            pl.coalesce("group_name", "comm").alias("group_name"),
            pl.lit("info").alias("level"),
            pl.lit("coll_call").alias("kind"),
            pl.col("count_hex").str.to_integer(base=16, strict=False, dtype=pl.Int64).alias("seq"),
            pl.col("op").replace_strict(kinds, return_dtype=pl.String).alias("op_kind"),
            pl.col("op").alias("name"),
            pl.col("count").cast(pl.UInt64, strict=False).alias("in_numel"),
            pl.col("datatype")
            .cast(pl.Int32, strict=False)
            .replace_strict(dict(enumerate(NCCL_DTYPES)), default=None, return_dtype=pl.String)
            .alias("dtype"),
            pl.col("root").cast(pl.Int32, strict=False).alias("code"),
            pl.col("nranks").cast(pl.Float64, strict=False).alias("value"),
            "line",
        )
    )
    scope.events_frame(frame)


def _comm_id(scope: FileScope, facts: CommFacts) -> int:
    return scope.context.comm(facts.name, hash_=facts.hash, backend="nccl", source="log")


def finish(scope: FileScope) -> None:
    """Give the edges of a file their communicators and devices and hand them over."""
    frames = _edges(scope)
    if not frames:
        return
    edges = pl.concat(frames).filter(pl.col("src").is_not_null() & pl.col("dst").is_not_null()).sort("line")
    frames.clear()
    begun = threads_of(scope)
    if not begun:
        return
    table: list[dict[str, Any]] = []
    comms: list[CommFacts] = []
    for ((host, pid), tid), starts in begun.items():
        if pid is None:
            continue
        for line, facts in starts:
            comms.append(facts)
            table.append({"host": host, "pid": pid, "tid": tid, "line": line, "comm": len(comms) - 1})
    schema = {"host": pl.String, "pid": pl.UInt64, "tid": pl.UInt64, "line": pl.UInt32, "comm": pl.UInt32}
    starts_frame = pl.DataFrame(table, schema=schema).sort("line")
    by_thread = starts_frame.filter(pl.col("tid").is_not_null())
    by_process = starts_frame.filter(pl.col("tid").is_null()).drop("tid").rename({"comm": "comm_process"})
    edges = edges.join_asof(by_thread, on="line", by=["host", "pid", "tid"], check_sortedness=False)
    edges = edges.join_asof(by_process, on="line", by=["host", "pid"], check_sortedness=False)
    rings: list[tuple[Process, int | None, int]] = scope.memory.get("nccl_rings_done", [])
    done = pl.DataFrame(
        [{"host": p[0], "pid": p[1], "tid": tid, "line": line, "rings": True} for p, tid, line in rings if p[1]],
        schema={"host": pl.String, "pid": pl.UInt64, "tid": pl.UInt64, "line": pl.UInt32, "rings": pl.Boolean},
    ).sort("line")
    edges = edges.join_asof(done, on="line", by=["host", "pid", "tid"], check_sortedness=False)
    edges = edges.with_columns(pl.coalesce("comm", "comm_process").alias("comm")).filter(pl.col("comm").is_not_null())
    if edges.is_empty():
        return
    ids = {i: _comm_id(scope, facts) for i, facts in enumerate(comms)}
    sizes = {i: facts.size for i, facts in enumerate(comms)}
    scope.context.emit("edges", _final(scope, edges, ids, sizes))
    scope.rows += edges.height


def _final(scope: FileScope, edges: pl.DataFrame, ids: dict[int, int], sizes: dict[int, int]) -> pl.DataFrame:
    vias = {via: transport_of(via) for via in edges["via"].drop_nulls().unique().to_list()}
    names = pl.DataFrame(
        [
            {"host": host, "pid": pid, "net": net, "device": index, "nic_name": name}
            for ((host, pid), net), devices in devices_of(scope).items()
            for index, name in devices.items()
            if pid is not None
        ],
        schema={"host": pl.String, "pid": pl.UInt64, "net": pl.String, "device": pl.UInt32, "nic_name": pl.String},
    )
    # NET/<net>/<dev>[(<proxyrank>)][/GDRDMA][/Shared]
    placed = (
        edges.with_columns(pl.col("via").str.extract_groups(r"^NET/(?P<net>[^/]+)/(?P<device>\d+)").alias("_v"))
        .unnest("_v")
        .with_columns(pl.col("device").cast(pl.UInt32, strict=False))
        .join(names, on=["host", "pid", "net", "device"], how="left")
        .with_columns(
            pl.coalesce(
                "nic_name", pl.when(pl.col("net").is_not_null()).then(pl.format("{}/{}", "net", "device"))
            ).alias("nic_name"),
            pl.col("comm").replace_strict(ids, return_dtype=pl.UInt32).alias("comm_id"),
            pl.col("comm").replace_strict(sizes, return_dtype=pl.UInt32).alias("size"),
        )
        .filter((pl.col("src") < pl.col("size")) & (pl.col("dst") < pl.col("size")) & (pl.col("channel") < 256))
    )
    receiving = pl.col("dir") == "receive"
    return (
        placed.select(
            "comm_id",
            pl.col("channel").cast(pl.UInt8),
            pl.when(pl.col("shape") != "channel")
            .then(pl.col("shape"))
            .when(pl.col("index") > 0)
            .then(pl.lit("p2p"))
            .when(pl.col("rings").fill_null(False))
            .then(pl.lit("tree"))
            .otherwise(pl.lit("ring"))
            .alias("pattern"),
            "src",
            "dst",
            pl.col("via").replace_strict(vias, default=None, return_dtype=pl.String).alias("transport"),
            pl.when(~receiving.fill_null(False)).then(pl.col("nic_name")).alias("nic"),
            pl.when(receiving).then(pl.col("nic_name")).alias("dst_nic"),
        )
        .group_by("comm_id", "channel", "pattern", "src", "dst", maintain_order=True)
        .agg(
            pl.col("transport").drop_nulls().first(),
            pl.col("nic").drop_nulls().first(),
            pl.col("dst_nic").drop_nulls().first(),
        )
    )


MATCHERS: Final[tuple[BulkMatcher, ...]] = (
    BulkMatcher(
        "nccl_channel",
        FORMAT,
        (" via NET/", " via P2P/", " via SHM/", " via direct shared", " via NVLS", " via COLLNET", " via CollNet"),
        _PREFIX + r"Channel (?P<channel>[0-9]+)(?:/(?P<index>[0-9]+))? ?: (?P<src>[0-9]+)\[[^\]]+\] -> "
        r"(?P<dst>[0-9]+)\[[^\]]+\](?: \[(?P<dir>send|receive)\])? via (?P<via>.+)",
        _channels,
    ),
    BulkMatcher(
        "nccl_ring_order",
        FORMAT,
        ("NCCL INFO Channel ",),
        _PREFIX + r"Channel (?P<channel>[0-9]+)/[0-9]+ ?:(?P<order>(?: +[0-9]+)+)\s*$",
        _rings,
    ),
    BulkMatcher(
        "nccl_ring_step",
        FORMAT,
        ("NCCL INFO Ring ",),
        _PREFIX + r"Ring (?P<channel>[0-9]+) ?: (?P<prev>[0-9]+) -> (?P<me>[0-9]+) -> (?P<next>[0-9]+)",
        _ring_steps,
    ),
    BulkMatcher(
        "nccl_trees",
        FORMAT,
        ("NCCL INFO Trees ",),
        _PREFIX + r"Trees (?P<trees>\[[0-9]+\] .+)",
        _trees,
    ),
    BulkMatcher(
        "nccl_tree_step",
        FORMAT,
        ("NCCL INFO Tree ",),
        _PREFIX + r"Tree (?P<channel>[0-9]+) ?: (?P<up>-?[0-9]+) -> (?P<me>[0-9]+) -> (?P<kids>[-0-9/]+)",
        _tree_steps,
    ),
    BulkMatcher(
        "nccl_call",
        FORMAT,
        ("opCount ",),
        _PREFIX + r"(?P<op>[A-Za-z]+): opCount (?P<count_hex>[0-9a-fA-F]+) sendbuff \S+ recvbuff \S+ "
        r"count (?P<count>[0-9]+) datatype (?P<datatype>[0-9]+) op (?P<redop>[0-9]+) root (?P<root>-?[0-9]+) "
        r"comm (?P<comm>0x[0-9a-fA-F]+) \[nranks=(?P<nranks>[0-9]+)\]",
        _calls,
    ),
)
