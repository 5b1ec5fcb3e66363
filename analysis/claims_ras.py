"""NCCL RAS: who is behind in the counts of launched operations, and who does not answer.

A mismatch that is different at the next query is normal skew; the same counts in two queries are a stop. RAS lists
*small* groups, which may be the ranks that are ahead: the cause is among those with the lower count, listed or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.machine import Machine, Row, some

# Two queries this close say little: a busy job may not have moved either.
APART_NS: Final = 10_000_000_000
_KEY = tuple[str, str]


@dataclass(slots=True)
class Capture:
    """One query of RAS: the counts of one communicator and operation kind."""

    order: tuple[int, str, int]
    ts: int | None
    named: dict[int, tuple[int, Row]] = field(default_factory=lambda: dict[int, tuple[int, Row]]())
    """Rank inside -> count."""
    sizes: dict[int, tuple[int, Row]] = field(default_factory=lambda: dict[int, tuple[int, Row]]())
    """Count -> how many ranks have it, as a line says."""

    def counts(self) -> dict[int, int]:
        """Return how many ranks have which count."""
        found: dict[int, int] = {count: n for count, (n, _row) in self.sizes.items()}
        tally: dict[int, int] = defaultdict(int)
        for count, _row in self.named.values():
            tally[count] += 1
        for count, n in tally.items():
            found[count] = max(found.get(count, 0), n)
        return found


def captures(machine: Machine) -> dict[_KEY, list[Capture]]:
    """Return the queries by (communicator, operation), in order of time, else of file name and place in it."""
    found: dict[_KEY, dict[tuple[int, str, int], Capture]] = defaultdict(dict)
    for row in machine.of("ras_member"):
        if row.name != "count" or row.seq is None:
            continue
        order = (row.ts or 0, machine.files.get(row.file or -1, ""), row.code or 0)
        capture = found[row.group, row.op].setdefault(order, Capture(order, row.ts))
        if row.comm_rank is not None:
            capture.named[row.comm_rank] = (row.seq, row)
        elif row.value is not None:
            capture.sizes[row.seq] = (int(row.value), row)
    return {key: [by[o] for o in sorted(by)] for key, by in found.items()}


def suspicions(machine: Machine) -> list[Suspicion]:
    """Return the ranks that stopped launching, and those that RAS holds for dead."""
    found = _dead(machine)
    for (group, op), queries in sorted(captures(machine).items()):
        behind = _behind(machine, group, op, queries)
        if behind is not None:
            found.append(behind)
    return found


def _behind(machine: Machine, group: str, op: str, queries: Sequence[Capture]) -> Suspicion | None:
    last = queries[-1]
    counts = last.counts()
    if len(counts) < 2:
        return None
    low, high = min(counts), max(counts)
    slow = sorted(rank for rank, (count, _row) in last.named.items() if count == low)
    listed = len(slow) >= counts[low]
    stuck, why = _stuck(queries)
    if stuck is False:
        return None
    doubts: list[tuple[str, str]] = []
    if stuck is None:
        doubts.append(("low" if not listed else "medium", why))
    if not listed:
        return None
    ranks = tuple(sorted({r for i in slow if (r := _global(last.named[i][1], i)) is not None}))
    if not ranks or len(ranks) > max(4, sum(counts.values()) // 2):
        return None
    ahead = sum(n for count, n in counts.items() if count > low)
    text = (
        f"{ahead} ranks have launched {op or 'operations'} up to {high} on {group}, "
        f"rank {some([str(r) for r in ranks])} only up to {low}"
    )
    refs = [last.named[i][1].ref(text, "ras") for i in slow[:3]]
    claims = [Claim("ras", "behind", ranks, "strong", text, tuple(refs), queries[0].ts)]
    if stuck:
        first = queries[0].named.get(slow[0])
        shown = (first[1].ref(why, "ras"),) if first else ()
        claims.append(Claim("ras", "unchanged", ranks, "strong", why, shown, queries[-1].ts))
    comm = last.named[slow[0]][1].comm
    waiting = tuple(r for r in sorted(machine.hosts) if r not in ranks)
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=tuple(claims),
        comm=comm,
        seq=high,
        op=op,
        missing=ranks,
        waiting=waiting,
        since=queries[0].ts,
        doubts=tuple(doubts),
    )


def _global(row: Row, comm_rank: int) -> int | None:
    return row.rank


def _stuck(queries: Sequence[Capture]) -> tuple[bool | None, str]:
    """Say whether the counts stood still: True, False, or None where one query cannot tell."""
    if len(queries) < 2:
        return None, "one query cannot tell a stop from the usual skew: ask again after 10 s"
    first, last = queries[-2], queries[-1]
    same = first.counts() == last.counts() and {r: c for r, (c, _) in first.named.items()} == {
        r: c for r, (c, _) in last.named.items()
    }
    if not same:
        low_before, low_now = min(first.counts(), default=0), min(last.counts(), default=0)
        if low_now > low_before:
            return False, ""
        return True, f"the lowest count stayed at {low_now} between the snapshots"
    if first.ts is not None and last.ts is not None and last.ts - first.ts < APART_NS:
        return None, "the two queries are less than 10 s apart"
    apart = f", {(last.ts - first.ts) / 1e9:.0f} s apart" if first.ts is not None and last.ts is not None else ""
    return True, f"the counts are unchanged between snapshots{apart}"


def _dead(machine: Machine) -> list[Suspicion]:
    """Members and processes that RAS calls dead; unresponsive or missing alone is weaker."""
    gone: dict[int, list[Claim]] = defaultdict(list)
    hosts: dict[int, str] = {}
    for row in machine.of("ras_member", "ras_peer"):
        word = row.name.lower()
        strong = "dead" in word
        if not strong and word not in ("unresponsive", "missing", "peer_unresponsive"):
            continue
        if row.rank is None:
            continue
        kind = "killed_by_ras" if strong else "unresponsive"
        says = "is considered dead by NCCL RAS" if strong else f"does not answer NCCL RAS ({word})"
        text = f"rank {row.rank} (process {row.pid} on {row.host}) {says}"
        strength = "strong" if strong else "weak"
        gone[row.rank].append(Claim("ras", kind, (row.rank,), strength, text, (row.ref(text, "ras"),), row.ts))
        if row.host:
            hosts[row.rank] = row.host
    if not gone or len(gone) > 16:
        return []
    dead = {r: c for r, c in gone.items() if any(x.kind == "killed_by_ras" for x in c)}
    chosen: Mapping[int, list[Claim]] = dead or gone
    ranks = tuple(sorted(chosen))
    claims = tuple(dict.fromkeys(c for r in ranks for c in chosen[r]))
    doubts = () if dead else (("medium", "unresponsive alone may be a stopped process or the out-of-band network"),)
    return [
        Suspicion(
            rule="",
            ranks=ranks,
            claims=claims,
            waiting=tuple(r for r in sorted(machine.hosts) if r not in ranks),
            since=min((c.since for c in claims if c.since is not None), default=None),
            doubts=doubts,
        )
    ]


def dead(machine: Machine) -> list[Claim]:
    """Return the claims on ranks that RAS holds for dead, for suspicions that other rules make."""
    return [c for s in _dead(machine) for c in s.claims if c.kind == "killed_by_ras"]


def unlisted(machine: Machine) -> list[str]:
    """Return what a verbose query would decide: communicators whose lower group is not listed."""
    found: list[str] = []
    for (group, op), queries in sorted(captures(machine).items()):
        counts = queries[-1].counts()
        if len(counts) < 2:
            continue
        low = min(counts)
        listed = sum(1 for count, _row in queries[-1].named.values() if count == low)
        if listed < counts[low]:
            found.append(f"the {counts[low]} ranks of {group} that stand at {op or 'operation'} {low} are not listed")
    return found
