"""nccl-tests tables: bandwidth of hosts against each other, wrong results, runs that never came to an end.

For runs on pairs of hosts the table at the greatest common size is a matrix: a slow row is that host, a single slow
cell the path between the two. A cluster of slow pairs names a host only if its *other* pairs are slow as well.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Final

from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.machine import Machine, Row, some

# A pair below this share of the pairs without the host is slow.
SLOW: Final = 0.6
_LEAST_PAIRS: Final = 3


@dataclass(frozen=True, slots=True)
class Run:
    """One table at one size: hosts and bus bandwidth, GB/s."""

    hosts: tuple[str, ...]
    bandwidth: float
    row: Row


def runs(machine: Machine) -> tuple[list[Run], int | None]:
    """Return every run at the greatest size that all runs of an operation have, and that size."""
    by_run: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in machine.of("bench_row"):
        if row.bytes is not None and row.value is not None and row.detail == "out-of-place" and row.group_desc:
            by_run[row.group][row.bytes] = row
    if not by_run:
        return [], None
    tables = list(by_run.values())
    common = {size for size in tables[0] if all(size in other for other in tables)}
    if not common:
        return [], None
    size = max(common)
    found = [
        Run(tuple(rows[size].group_desc.split(",")), rows[size].value or 0.0, rows[size]) for rows in by_run.values()
    ]
    return sorted(found, key=lambda run: (run.hosts, run.row.group)), size


def suspicions(machine: Machine) -> list[Suspicion]:
    """Return the slow host or path, and hosts that computed wrong results."""
    found = _wrong(machine)
    tables, size = runs(machine)
    pairs = [run for run in tables if len(run.hosts) == 2]
    single = [run for run in tables if len(run.hosts) == 1]
    chosen = pairs if len(pairs) >= _LEAST_PAIRS else single if len(single) >= _LEAST_PAIRS else []
    if chosen and size is not None:
        slow = _slow(chosen, size)
        if slow is not None:
            found.append(slow)
    return found


def _slow(tables: list[Run], size: int) -> Suspicion | None:
    hosts = sorted({h for run in tables for h in run.hosts})
    guilty: list[tuple[float, str, list[float], list[float]]] = []
    for host in hosts:
        mine = [run.bandwidth for run in tables if host in run.hosts]
        rest = [run.bandwidth for run in tables if host not in run.hosts]
        if rest and max(mine) < SLOW * median(rest) and len(mine) >= min(2, len(hosts) - 1):
            guilty.append((median(mine) / median(rest), host, mine, rest))
    unit = f"{size / (1 << 20):g} MiB"
    if guilty:
        guilty.sort()
        # A pair of one slow host is slow on both sides; the host that is slow with everybody is the one.
        _ratio, host, mine, rest = guilty[0]
        text = (
            f"at {unit} every run with {host} reaches {min(mine):.1f}-{max(mine):.1f} GB/s, "
            f"runs without it {min(rest):.1f}-{max(rest):.1f} GB/s"
        )
        rows = [run.row for run in tables if host in run.hosts]
        refs = tuple(row.ref(f"{row.group_desc}: {row.value:.2f} GB/s at {unit}", "nccl_tests") for row in rows[:4])
        others = tuple(h for h in hosts if h != host)
        doubts = () if len(guilty) == 1 and len(mine) > 1 else (("medium", "few runs to compare with"),)
        return Suspicion(
            rule="",
            ranks=(),
            claims=(Claim("nccl_tests", "slow_host", (), "strong", text, refs, None, (host,), detail=text),),
            hosts=(host,),
            doubts=doubts,
            passed_over=(("slow_nic", (), f"{some(others)} are fast with each other"),),
        )
    usual = median(run.bandwidth for run in tables)
    slow = [run for run in tables if run.bandwidth < SLOW * usual]
    if len(slow) == 1 and len(slow[0].hosts) == 2:
        run = slow[0]
        text = (
            f"only the pair {' and '.join(run.hosts)} is slow: {run.bandwidth:.1f} GB/s at {unit}, others {usual:.1f}"
        )
        ref = run.row.ref(text, "nccl_tests")
        return Suspicion(
            rule="",
            ranks=(),
            claims=(Claim("nccl_tests", "slow_path", (), "strong", text, (ref,), None, run.hosts, detail=text),),
            one_of=True,
            hosts=run.hosts,
            doubts=(("medium", "both hosts are fast with others: it is the path between them"),),
        )
    return None


def _wrong(machine: Machine) -> list[Suspicion]:
    rows = [r for r in machine.of("bench_row") if r.level == "error" and (r.name == "wrong" or (r.code or 0) > 0)]
    if not rows:
        return []
    hosts = tuple(sorted({h for row in rows for h in row.group_desc.split(",") if h}))
    text = f"{sum(r.code or 0 for r in rows)} wrong results in runs of {some(hosts)}: data are corrupted on the way"
    refs = tuple(row.ref(text, "nccl_tests") for row in rows[:4])
    return [
        Suspicion(
            rule="",
            ranks=(),
            claims=(Claim("nccl_tests", "wrong_results", (), "strong", text, refs, None, hosts, detail=text),),
            one_of=len(hosts) > 1,
            hosts=hosts,
        )
    ]
