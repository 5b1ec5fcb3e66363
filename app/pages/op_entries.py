"""The entries of one operation: who did what, and in what an entry is not like the others. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mycroft.app import words
from mycroft.app.figures import arrivals
from mycroft.app.figures.arrivals import Arrival

Row = Mapping[str, Any]

# What must be equal on every member of a collective.
SIGNATURE: Final = (
    ("kind", "operation"),
    ("in_sizes", "sizes in"),
    ("out_sizes", "sizes out"),
    ("dtype", "type"),
    ("root", "root"),
    ("redop", "reduction"),
)
# Members may rightly have other sizes here: only the root holds all parts, or each sends what it likes to each.
UNEVEN_KINDS: Final = frozenset({"gather", "scatter", "all_to_all", "coalesced", "other"})


def entry_state(entry: Row) -> arrivals.State:
    """Return how far one entry came.

    The state of a member of a coalesced group says nothing: its closing entry has it, and that one has a number of
    its own.
    """
    if entry["state"] == "completed" or entry["retired"]:
        return "finished"
    return "coalesced" if entry["coalesced"] else "open"


def compared(entries: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the fields that must be equal on all members of an operation of this kind."""
    uneven = any(entry["kind"] in UNEVEN_KINDS for entry in entries)
    return [(field, name) for field, name in SIGNATURE if not (uneven and field in {"in_sizes", "out_sizes"})]


def usual(entries: Sequence[Row]) -> dict[str, Any]:
    """Return the value that most entries have, of each field of `SIGNATURE`; a field without a majority is absent."""
    found: dict[str, Any] = {}
    for field, _ in compared(entries):
        counts = Counter(entry[field] for entry in entries).most_common(2)
        if len(counts) == 1 or (len(counts) == 2 and counts[0][1] > counts[1][1]):
            found[field] = counts[0][0]
    return found


def differences(entry: Row, common: Mapping[str, Any]) -> list[str]:
    """Return in what an entry is not like most."""
    return [name for field, name in SIGNATURE if field in common and entry[field] != common[field]]


def split_fields(entries: Sequence[Row]) -> list[str]:
    """Return the fields in which entries differ and no value has a majority: nobody can be called the odd one."""
    common = usual(entries)
    return [name for field, name in SIGNATURE if field not in common and len({entry[field] for entry in entries}) > 1]


def member_states(members: Sequence[Row], entries: Sequence[Row]) -> dict[int, arrivals.State]:
    """Return what each member did with the operation. Without a dump nothing is known, whatever the others say."""
    by_rank = by_rank_of(entries)
    dumps = {member["rank"]: member["dumps"] for member in members}
    found: dict[int, arrivals.State] = {}
    for rank in [*dumps, *by_rank]:
        mine = by_rank.get(rank)
        if mine:
            states = {entry_state(entry) for entry in mine}
            found[rank] = "open" if "open" in states else "coalesced" if "coalesced" in states else "finished"
        else:
            found[rank] = "not_entered" if dumps[rank] else "no_dump"
    return found


def by_rank_of(entries: Sequence[Row]) -> dict[int, list[Row]]:
    """Return the entries of each rank."""
    found: dict[int, list[Row]] = {}
    for entry in entries:
        found.setdefault(entry["rank"], []).append(entry)
    return found


def arrivals_of(
    members: Sequence[Row], entries: Sequence[Row], culprits: Mapping[int, str], odd: frozenset[int]
) -> list[Arrival]:
    """Return the members as the picture shows them; of several entries of a rank, its first arrival and last end."""
    hosts = {member["rank"]: member["host"] for member in members}
    by_rank = by_rank_of(entries)
    made: list[Arrival] = []
    for rank, state in member_states(members, entries).items():
        mine = by_rank.get(rank, [])
        starts = [t for entry in mine if (t := start_of(entry)) is not None]
        ends = [t for entry in mine if (t := end_of(entry)) is not None]
        made.append(
            Arrival(
                rank=rank,
                host=hosts.get(rank),
                state=state,
                start_ns=min(starts, default=None),
                end_ns=max(ends, default=None) if state == "finished" else None,
                is_culprit=rank in culprits,
                is_odd=rank in odd,
            )
        )
    return made


def start_of(entry: Row) -> int | None:
    """Return the arrival of an entry: its start, else its enqueue."""
    return entry["start_ns"] if entry["start_ns"] is not None else entry["enq_ns"]


def end_of(entry: Row) -> int | None:
    """Return the end of an entry as far as it is known: measured, else when a poll saw it."""
    start = start_of(entry)
    if start is not None and entry["dur_ns"] is not None:
        return start + entry["dur_ns"]
    return entry["seen_end_ns"]


def arrival_text(after_ns: int) -> str:
    """Return how long after the first arrival another came."""
    return "first" if after_ns == 0 else f"+{words.duration(after_ns)}"


def sizes_text(entry: Row) -> str:
    """Return the sizes of an entry, what goes in and, where it is not the same, what comes out."""
    left = entry["in_sizes"] or words.UNKNOWN
    right = entry["out_sizes"]
    return left if right is None or right == left else f"{left} → {right}"
