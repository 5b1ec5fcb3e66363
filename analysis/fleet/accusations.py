"""What is said of a job that became slow, from summaries alone: who, since when, how sure, and whose rows would decide.

Never more than medium: no operation was seen, only what was usual in each window. Rows of the accused and of their
peers are fetched, and what the ordinary rules make of those counts for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mycroft.analysis.attribution import Culprit
from mycroft.analysis.case import count_words
from mycroft.analysis.findings import iso
from mycroft.analysis.fleet.own_windows import GPU
from mycroft.analysis.fleet.slow_windows import PACE_LOST, Accused, ServiceSeries
from mycroft.analysis.fleet.summaries import FEW, MOST_RANKS, MOST_SHARE, chosen_of
from mycroft.analysis.slow_findings import BUS_ALONE, DAY_H, KINDS, METRIC_WORDS
from mycroft.analysis.verdict import Alternative, Confidence, Cost, Evidence, Finding, Flow, RootCause

# Several are told only where each costs much; a job has one reason, as a rule.
MOST_FINDINGS: Final = 4
# Neighbours of flows whose hosts are fetched for comparison.
_MOST_NEAR: Final = 16


def accusations(accused: Accused, names: Mapping[int, str]) -> tuple[Finding, ...]:
    """Return a finding for each of those who are accused, the most costly first.

    Args:
        accused: what `judge` returned.
        names: of hosts, by the least rank on each.
    """
    ranks_on: dict[int, list[int]] = {}
    for rank, place in accused.found.service.hosts.items():
        ranks_on.setdefault(place, []).append(rank)
    return tuple(
        _finding(accused, one, accused.culprits, names, ranks_on, number)
        for number, one in enumerate(accused.culprits[:MOST_FINDINGS], 1)
    )


def _finding(
    accused: Accused,
    one: Culprit,
    every: Sequence[Culprit],
    names: Mapping[int, str],
    ranks_on: Mapping[int, Sequence[int]],
    number: int,
) -> Finding:
    kind = BUS_ALONE if one.metrics == ("FL",) else KINDS[one.component]
    service = accused.found.service
    one_of = len(one.ranks) > 1
    places = {one.host} if one.host is not None else {service.hosts.get(rank, -1) for rank in one.ranks}
    hosts = tuple(sorted(names.get(p, f"the host of rank {p}") for p in places if p >= 0))
    who = _who(one, hosts)
    window_s = float(service.ends[-1] - service.starts[-1]) / 1e9
    since = int(service.starts[one.begun])
    share = min(1.0, max(0.0, one.cost_s / window_s))
    what = kind.what.format(who=who, ratio=one.ratio, channel=one.channel)
    confidence, doubts = _confidence(accused, one, every)
    windows = len(service.ends) - one.begun
    metric = METRIC_WORDS[one.metrics[0]]
    on = one.ranks or tuple(sorted(ranks_on.get(one.host, ()) if one.host is not None else ()))
    world = max(len(service.hosts), 1)
    return Finding(
        id=f"f{number}",
        status="slow",
        category=kind.category,
        component=kind.component,
        confidence=confidence,
        root_cause=RootCause(
            ranks=one.ranks,
            hosts=hosts,
            flow=Flow(channel=one.channel, dir="send") if one.channel is not None else None,
            one_of=one_of,
        ),
        summary=f"{what}, since {iso(since)}. It costs {share:.1%} of the time, as summaries of all ranks show.",
        why=(
            f"{metric}: {one.ratio:.2f} times the usual ratio to {one.peers} peers over {windows} windows of "
            f"{window_s:.0f} s (usual scatter {one.scatter:.1%})"
        ),
        confidence_why=tuple(doubts),
        since=iso(since),
        evidence=(
            Evidence(
                id="e1",
                claim=f"{metric} of {who}: {one.ratio:.2f} times the usual, in summaries of {windows} windows",
                table="summary",
                key={"rank": on[0]} if on else {},
                source="relay",
            ),
        ),
        alternatives=tuple(Alternative(category, one.ranks, words) for category, words in kind.twins),
        next_steps=(f"{kind.decides}   # on {', '.join(hosts) or who}",),
        cost=Cost(
            seconds_per_iteration=round(one.cost_s, 4),
            share=round(share, 4),
            gpu_hours_per_day=round(share * world * DAY_H, 1),
            assumption=f"all {world} ranks wait for it and it is left for {DAY_H:.0f} hours; seconds of each window",
        ),
    )


def _confidence(accused: Accused, one: Culprit, every: Sequence[Culprit]) -> tuple[Confidence, list[str]]:
    doubts = ["only what was usual in each window is known, and no operation: rows of these ranks would decide"]
    usual, recent = accused.pace(one.begun)
    sure = True
    if len(one.ranks) > 1:
        sure = False
        doubts.append(f"the evidence fits {len(one.ranks)} ranks")
    if any(o is not one and o.cost_s > one.cost_s / 2 for o in every):
        sure = False
        doubts.append("somebody else costs as much or nearly so")
    if usual <= 0:
        doubts.append("how much the job gets done is not told")
    elif recent >= usual * (1 - PACE_LOST):
        sure = False
        doubts.append(f"the job gets as much done as before: {recent:.3g} operations a second of {usual:.3g}")
    else:
        doubts.append(f"the job gets less done: {recent:.3g} operations a second of {usual:.3g}")
    return ("medium" if sure else "low"), doubts


def _who(one: Culprit, hosts: Sequence[str]) -> str:
    if one.host is not None:
        return hosts[0] if hosts else "a host"
    if len(one.ranks) == 2:
        return f"rank {one.ranks[0]} or rank {one.ranks[1]}"
    return f"{count_words(one.ranks)} ({hosts[0]})" if len(hosts) == 1 else count_words(one.ranks)


def to_fetch(
    accused: Accused, series: ServiceSeries, told: int, *, most_ranks: int | None = None
) -> tuple[tuple[int, ...], int]:
    """Return the ranks of whom to fetch rows, and how many of the accused are not among them.

    Args:
        accused: what `judge` returned.
        series: of the same job.
        told: ranks of which something is told.
        most_ranks: to be fetched at most; None: a hundredth of all, and a few in small jobs.
    """
    service = accused.found.service
    on: dict[int, set[int]] = {}
    for rank, place in service.hosts.items():
        on.setdefault(place, set()).add(rank)
    blamed: list[set[int]] = []
    near: set[int] = set()
    for one in accused.culprits[:MOST_FINDINGS]:
        blamed.append(set(one.ranks) or set(on.get(one.host, ()) if one.host is not None else ()))
        for rank in sorted(blamed[-1]):
            near |= service.peers.get(rank, frozenset())
    first = set[int]().union(*blamed)
    # Who works on the same data, the host, who shares a flow, their hosts; and a few of all others.
    groups = [*blamed, *_same_data(series, first), *(on.get(service.hosts.get(r, -1), set()) for r in sorted(first))]
    groups += [near, *(on.get(service.hosts.get(r, -1), set()) for r in sorted(near)[:_MOST_NEAR])]
    every = sorted(on)
    groups += [on[every[int(place)]] for place in np.linspace(0, len(every) - 1, 8)] if every else []
    limit = most_ranks if most_ranks is not None else max(FEW, min(MOST_RANKS, int(told * MOST_SHARE)))
    chosen, left_out = chosen_of([group for group in groups if group], limit, must=len(blamed))
    return tuple(sorted(chosen)), left_out


def _same_data(series: ServiceSeries, ranks: set[int]) -> list[set[int]]:
    gpu = series.keys.filter(series.keys["what"] == GPU).select("rank", "comm")
    near = gpu.filter(gpu["rank"].is_in(sorted(ranks)))["comm"].unique()
    found: dict[int, set[int]] = {}
    for rank, comm in gpu.filter(gpu["comm"].is_in(near.to_list())).iter_rows():
        found.setdefault(comm, set()).add(rank)
    return sorted(found.values(), key=lambda members: (len(members), min(members)))
