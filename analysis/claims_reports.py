"""Reports in which the program compares its own ranks: fingerprints, desync, monitored barrier, parameters, dumps.

A report names one partner only, and often the first rank, so it accuses whoever differs from that one. All reports
are put together and the minority is named. "Did not join" is taken at its word; a rank that "joined but didn't
finish" waits. The numbers are ranks inside the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.machine import Machine, Row, some

SOURCE: Final = "torch_report"
_PARAMETERS: Final = ("ddp_params", "ddp_shape")
_NOT_THERE: Final = ("not_joined", "never_joined")
MOST_NAMED: Final = 16


def suspicions(machine: Machine) -> list[Suspicion]:
    """Return whom the reports accuse once they are put together; empty where there is none or they do not tell."""
    for read in (_fingerprints, _parameters, _absent):
        found = read(machine)
        if found is not None:
            return [found]
    return []


def _fingerprints(machine: Machine) -> Suspicion | None:
    """Another operation, size or type at one call: the minority."""
    rows: dict[int, Row] = {}
    for row in machine.of("fingerprint_mismatch"):
        if row.comm_rank is None or row.name in (*_PARAMETERS, "gloo_size"):
            continue
        known = rows.get(row.comm_rank)
        if known is None or (row.seq or 0) < (known.seq or 0):
            rows[row.comm_rank] = row
    for kind, value in (
        ("odd_type", {rank: row.name for rank, row in rows.items()}),
        ("odd_size", {rank: str(row.in_numel) for rank, row in rows.items()}),
        ("odd_dtype", {rank: row.dtype for rank, row in rows.items()}),
        ("left_path", {rank: str(row.seq) for rank, row in rows.items()}),
    ):
        found = _minority(machine, rows, value, kind)
        if found is not None:
            return found
    return None


def _parameters(machine: Machine) -> Suspicion | None:
    """Another number of parameters than the other ranks have."""
    rows: dict[int, Row] = {}
    for row in machine.of("fingerprint_mismatch"):
        if row.comm_rank is not None and row.name == "ddp_params":
            rows.setdefault(row.comm_rank, row)
    return _minority(machine, rows, {rank: f"{row.value:.0f}" for rank, row in rows.items() if row.value}, "odd_size")


def _minority(machine: Machine, rows: Mapping[int, Row], values: Mapping[int, str], kind: str) -> Suspicion | None:
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return None
    tie = counts[0][1] == counts[1][1]
    odd = tuple(sorted(rank for rank, value in values.items() if tie or value != counts[0][0]))
    if len(odd) > MOST_NAMED:
        return None
    usual = next(rank for rank, value in values.items() if value == counts[0][0])
    text = f"rank {some([str(r) for r in odd])} has {_words(rows[odd[0]], kind)}"
    if not tie:
        text += f", {counts[0][1]} others {_words(rows[usual], kind)}"
    shown = dict.fromkeys((*odd[:3], usual))
    refs = tuple(rows[r].ref(f"rank {r} has {_words(rows[r], kind)}", SOURCE) for r in shown)
    doubts = [("medium", "the ranks that the reports compare disagree in equal numbers")] if tie else []
    doubts += _inside(machine)
    first = rows[odd[0]]
    return Suspicion(
        rule="",
        ranks=odd,
        claims=(Claim(SOURCE, kind, odd, "strong", text, refs),),
        one_of=tie,
        seq=first.seq,
        op=rows[usual].name,
        waiting=tuple(sorted(set(values) - set(odd))),
        doubts=tuple(doubts),
    )


def _words(row: Row, kind: str) -> str:
    if row.name == "ddp_params":
        return f"{row.value or 0:.0f} parameters"
    what = f"{row.name or 'an operation'}"
    what += f" of {row.in_numel} elements" if row.in_numel is not None else ""
    what += f" {row.dtype}" if row.dtype and kind == "odd_dtype" else ""
    return what + (f" as number {row.seq}" if row.seq is not None else "")


def _absent(machine: Machine) -> Suspicion | None:
    """Ranks that a desync report, a monitored barrier or the dump analyser say did not come."""
    rows: dict[int, list[Row]] = defaultdict(list)
    for row in machine.of("desync_report"):
        if row.comm_rank is not None and row.name in _NOT_THERE:
            rows[row.comm_rank].append(row)
    for row in machine.of("join_timeout"):
        if row.comm_rank is not None and row.name == "monitored_barrier":
            rows[row.comm_rank].append(row)
    for row in machine.of("fr_analysis"):
        if row.rank is not None and row.name == "missing":
            rows[row.rank].append(row)
    if not rows or len(rows) > MOST_NAMED:
        return None
    ranks = tuple(sorted(rows))
    first = rows[ranks[0]][0]
    what = f"collective #{first.seq}" if first.seq is not None else "the barrier"
    text = f"rank {some([str(r) for r in ranks])} did not join {what}, says torch's own report"
    refs: list[Ref] = [rows[r][0].ref(text, SOURCE) for r in ranks[:4]]
    waiting = {row.rank for row in machine.of("watchdog_timeout") if row.rank is not None}
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=(Claim(SOURCE, "absent", ranks, "strong", text, tuple(refs), detail=what),),
        seq=first.seq,
        op=first.op,
        missing=ranks,
        waiting=tuple(sorted(waiting - set(ranks))),
        doubts=_inside(machine),
    )


def _inside(machine: Machine) -> tuple[tuple[str, str], ...]:
    """Return a doubt where a rank that prints is another number inside the group than in the job."""
    shifted = any(
        row.rank is not None and row.comm_rank is not None and row.rank != row.comm_rank
        for row in machine.of("watchdog_timeout", "pg_status", "dump_signal")
    )
    return (("medium", "the report gives ranks inside a group, which may not be those of the job"),) if shifted else ()
