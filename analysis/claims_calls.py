"""The collective calls that NCCL's log lists, rank against rank: who called another one, who did not call.

The number of a call counts the launches on its communicator, so equal numbers meet. Communicators with sends and
receives are left out: their numbers differ lawfully. A call is printed when the host makes it, so the last one of a
waiting rank is where it waits; the one whose last number is lower has not come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.machine import Machine, some

Call = Mapping[str, Any]
_UNEVEN: Final = ("all_to_all", "gather", "scatter")
MOST_BEHIND: Final = 4


def suspicions(machine: Machine) -> list[Suspicion]:
    """Return who called something else, else who did not call; for jobs in trouble: a healthy job is uneven too."""
    calls = machine.calls
    if calls.is_empty():
        return []
    paired = calls.filter(pl.col("op").is_in(["send", "recv"]))["comm"].unique()
    calls = calls.filter(~pl.col("comm").is_in(paired.implode()))
    for _comm, rows in calls.group_by("comm", maintain_order=True):
        odd = _odd(rows)
        if odd is not None:
            return [odd]
    return _behind(calls)


def _odd(rows: pl.DataFrame) -> Suspicion | None:
    """At the first number where the members differ: the minority."""
    meetings: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for row in rows.iter_rows(named=True):
        meetings[row["seq"], row["place"]].append(row)
    for _number, calls in sorted(meetings.items()):
        for aspect, kind in (("op", "odd_type"), ("shape", "odd_size")):
            values = {call["rank"]: _value(call, aspect) for call in calls}
            counts = Counter(values.values()).most_common()
            if len(values) < 2 or len(counts) < 2 or (aspect == "shape" and calls[0]["op"] in _UNEVEN):
                continue
            tie = counts[0][1] == counts[1][1]
            odd = tuple(sorted(rank for rank, value in values.items() if tie or value != counts[0][0]))
            return _odd_suspicion(calls, odd, kind, tie=tie)
    return None


def _value(call: Call, aspect: str) -> object:
    return call["op"] if aspect == "op" else (call["numel"], call["dtype"], call["root"])


def _words(call: Call) -> str:
    return f"{call['name']} of {call['numel']} {call['dtype'] or ''}".rstrip()


def _ref(call: Call, text: str) -> Ref:
    return Ref(text, call["file"], call["line"], "events", (("kind", "coll_call"),), "nccl_log")


def _odd_suspicion(calls: Sequence[Call], odd: tuple[int, ...], kind: str, *, tie: bool) -> Suspicion:
    first = next(call for call in calls if call["rank"] in odd)
    other = next((call for call in calls if call["rank"] not in odd), calls[-1])
    text = f"rank {some([str(r) for r in odd])} called {_words(first)} as number {first['seq']} of {first['title']}"
    text += f", the others {_words(other)}" if not tie else ""
    refs = tuple(_ref(call, f"rank {call['rank']} called {_words(call)}") for call in (first, other))
    return Suspicion(
        rule="",
        ranks=odd,
        claims=(Claim("nccl_log", kind, odd, "strong", text, refs),),
        one_of=tie,
        comm=first["comm"],
        seq=first["seq"],
        op=other["op"],
        waiting=tuple(sorted(call["rank"] for call in calls if call["rank"] not in odd)),
        doubts=(("medium", "the members disagree in equal numbers"),) if tie else (),
    )


def _behind(calls: pl.DataFrame) -> list[Suspicion]:
    """Return the ranks whose last call on a communicator lies before that of all others, who call nothing after it."""
    last = calls.sort("order").group_by("comm", "rank", maintain_order=True).last()
    final = {row["rank"]: row for row in calls.sort("order").group_by("rank", maintain_order=True).last().to_dicts()}
    found: list[Suspicion] = []
    for (comm,), rows in last.sort("comm").group_by(["comm"], maintain_order=True):
        by_rank = {row["rank"]: row for row in rows.iter_rows(named=True)}
        top = max(row["seq"] for row in by_rank.values())
        waiting = [r for r, row in by_rank.items() if row["seq"] == top and final[r]["comm"] == comm]
        slow = sorted(r for r, row in by_rank.items() if row["seq"] < top)
        size = max(int(row["size"] or 0) for row in by_rank.values())
        if not slow or len(slow) > min(MOST_BEHIND, len(waiting)) or len(waiting) + len(slow) < len(by_rank):
            continue
        where = by_rank[waiting[0]]
        text = (
            f"rank {some([str(r) for r in slow])} last called {by_rank[slow[0]]['name']} {by_rank[slow[0]]['seq']} of "
            f"{where['title']}, {len(waiting)} ranks have called {where['name']} {top} and nothing since"
        )
        refs = (*(_ref(by_rank[r], text) for r in slow[:2]), _ref(where, f"rank {waiting[0]} called {_words(where)}"))
        claims = [Claim("nccl_log", "absent", tuple(slow), "strong", text, refs)]
        elsewhere = [r for r in slow if final[r]["comm"] != comm]
        if elsewhere == slow and all(_leads(last, final[r], r) for r in slow):
            other = final[slow[0]]
            words = f"rank {some([str(r) for r in slow])} has called {other['name']} {other['seq']} of {other['title']}"
            claims[0] = Claim("nccl_log", "alone", tuple(slow), "strong", f"{words}, where nobody else is", refs)
            claims.append(Claim("nccl_log", "crossed_groups", tuple(slow), "strong", text))
        doubts = () if len(by_rank) >= size else (("medium", "the logs of some members are missing"),)
        found.append(
            Suspicion(
                rule="",
                ranks=tuple(slow),
                claims=tuple(claims),
                comm=int(str(comm)),
                seq=int(top),
                op=str(where["op"]),
                missing=tuple(slow),
                waiting=tuple(sorted(waiting)),
                doubts=doubts,
            )
        )
    found.sort(key=lambda s: (-len(s.waiting), s.comm or 0))
    return found[:1]


def _leads(last: pl.DataFrame, call: Call, rank: int) -> bool:
    """Say whether nobody else has called as much on the communicator of a rank's last call."""
    others = last.filter((pl.col("comm") == call["comm"]) & (pl.col("rank") != rank))
    return not others.is_empty() and bool((others["seq"] < call["seq"]).all())
