"""Where the rank that a finding names stands: its network device, its place in ring or tree, and at which iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mycroft.app import words
from mycroft.app.queries import TraceReader
from mycroft.app.reads import flows, operations

NICS_SHOWN: Final = 3

# Of the channel that is to blame, else of all: a rank may have one device for each of its channels.
_NICS: Final = """
WITH used AS (
    SELECT channel, nic FROM edges WHERE src = $1 AND nic IS NOT NULL
    UNION
    SELECT channel, dst_nic FROM edges WHERE dst = $1 AND dst_nic IS NOT NULL
),
said AS (
    SELECT value AS nic FROM identity WHERE rank = $1 AND attribute = 'nic' AND NOT coalesce(ambiguous, FALSE)
)
SELECT DISTINCT nic FROM used WHERE channel = $2
UNION
SELECT nic FROM used WHERE NOT EXISTS (FROM used WHERE channel = $2)
UNION
SELECT nic FROM said WHERE NOT EXISTS (FROM used)
ORDER BY nic
"""
_RING: Final = """
SELECT DISTINCT coalesce(channel, 0)::BIGINT AS channel, src::BIGINT AS src, dst::BIGINT AS dst
FROM edges
WHERE comm_id = ? AND pattern = 'ring'
ORDER BY ALL
LIMIT ?
"""
_ITERATION: Final = """
SELECT max_by(value, ts)
FROM events
WHERE kind = 'step' AND value IS NOT NULL AND ts IS NOT NULL AND epoch_ns(ts) <= ?
"""


def nics_of(reader: TraceReader, rank: int, channel: int | None) -> str | None:
    """Return the network devices of a rank on a channel, else all that are known of it; None: no source names any."""
    names = reader.frame(_NICS, [rank, channel])["nic"].to_list()
    if not names:
        return None
    more = f" and {len(names) - NICS_SHOWN} more" if len(names) > NICS_SHOWN else ""
    return f"NIC {', '.join(words.shorten(name, 24) for name in names[:NICS_SHOWN])}{more}"


def place_in_flow(reader: TraceReader, comm: str, seq: int, rank: int, channel: int | None) -> str | None:
    """Return the place of a rank in the ring or tree of an operation, in words; None where its edges are not known.

    Of the channel that is to blame, else of the first: others may have another order, and the words name the channel.
    """
    flow = flows.flow_of(reader, comm, seq)
    if flow is not None and flow["shape"] == "tree":
        return _place_in_tree(flow["trees"], rank, channel)
    orders: Mapping[str, list[int]] = flow["orders"] if flow is not None and flow["shape"] == "ring" else {}
    if not orders:
        orders = _orders(reader, comm)
    chosen = _of_channel(orders, channel)
    if chosen is None:
        return None
    name, order = chosen
    if rank not in order or len(order) < 2:
        return None
    at = order.index(rank)
    before, after = order[at - 1], order[(at + 1) % len(order)]
    # Counted from 0, as beside the strips of the flow.
    return f"ring position {at} of 0–{len(order) - 1} on channel {name}: from rank {before}, to rank {after}"


def _of_channel(known: Mapping[str, Any], channel: int | None) -> tuple[str, Any] | None:
    """Return name and value of a channel, of the first where none is named; None where there is none of it."""
    name = str(channel) if channel is not None else min(known, key=int, default=None)
    return (name, known[name]) if name is not None and name in known else None


def _place_in_tree(trees: Mapping[str, Any], rank: int, channel: int | None) -> str | None:
    chosen = _of_channel(trees, channel)
    if chosen is None:
        return None
    name, tree = chosen
    parent = tree["parents"].get(str(rank))
    children: list[int] = [int(child) for child, above in tree["parents"].items() if above == rank]
    children.sort()
    if parent is None and not children:
        return None
    # Without a known direction the picture is hung from some rank: who is above whom is not known.
    if not tree["known"]:
        near: list[int] = [*children, *([] if parent is None else [int(parent)])]
        near.sort()
        return f"tree of channel {name}: beside {words.named_ranks(near)}"
    above = "root" if parent is None else f"below rank {parent}"
    below = f"above {words.named_ranks(children)}" if children else "a leaf"
    return f"tree of channel {name}: {above}, {below}"


def _orders(reader: TraceReader, comm: str) -> dict[str, list[int]]:
    """Return the rings of a group by channel, from what its library said of them."""
    group = operations.communicator(reader, comm)
    if group is None:
        return {}
    edges: dict[int, set[tuple[int, int]]] = {}
    for channel, src, dst in reader.frame(_RING, [group["comm_id"], flows.EDGES_MAX]).iter_rows():
        edges.setdefault(channel, set()).add((src, dst))
    members = [member["rank"] for member in operations.members(reader, group["comm_id"])]
    # Half a ring has no positions: where its two ends meet is not known.
    return {
        str(channel): flows.ring_order(found, members)
        for channel, found in edges.items()
        if len(found) == len({src for src, _ in found}) == len({dst for _, dst in found}) == len(members)
    }


def iteration_before(reader: TraceReader, moment_ns: int) -> int | None:
    """Return the last iteration that a log of the job tells before a moment, ns since the epoch; None: none does."""
    found = reader.frame(_ITERATION, [moment_ns]).item(0, 0)
    return None if found is None else int(found)
