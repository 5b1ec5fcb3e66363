"""Findings of slowness: who is slower than its peers and than it was, since when, what it costs, what it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mycroft.analysis.attribution import Culprit, Slowness, culprits, slowness, standing
from mycroft.analysis.case import count_words
from mycroft.analysis.certainty import Certainty
from mycroft.analysis.config import FLOW_DEFAULTS, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.findings import iso
from mycroft.analysis.own_service import own_service
from mycroft.analysis.verdict import (
    Alternative,
    Component,
    Cost,
    Evidence,
    Finding,
    Flow,
    RootCause,
    Standing,
)

HOSTS: Final = """
SELECT r.rank, coalesce(r.host_id, 1000000 + r.rank) AS host_id, h.name
FROM ranks r LEFT JOIN hosts h USING (host_id)
ORDER BY r.rank
"""
# Readings that tell one cause of slow compute from another.
DEVICE_EVENTS: Final = """
SELECT DISTINCT rank, CAST(kind AS VARCHAR) AS kind, name, text, file_id, line
FROM events
WHERE rank IS NOT NULL AND kind IN ('gpu_throttle', 'gpu_clock', 'xid')
ORDER BY rank, file_id, line
LIMIT 10000
"""
DAY_H: Final = 24.0


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of slow component is told."""

    category: str
    component: Component
    what: str
    """What is slow; `{who}`."""
    decides: str
    """What would tell it from what looks the same."""
    twins: tuple[tuple[str, str], ...]
    """(category, why not told apart or why rejected)."""


KINDS: Final[dict[str, Kind]] = {
    "gpu": Kind(
        "slow_compute",
        "gpu",
        "The GPU of {who} takes {ratio:.2f} times as long as its peers to get from one operation to the next",
        "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER; nvidia-smi pmon -c 1",
        (
            ("network_congestion", "the time is spent between operations, with all inputs there"),
            ("slow_gpu", "power cap, heat, a bad SM and another program on this GPU look the same without its clocks"),
        ),
    ),
    "host_gpu": Kind(
        "slow_compute",
        "host",
        "All ranks of {who} take {ratio:.2f} times as long as other hosts to get from one operation to the next",
        "top; nvidia-smi pmon -c 1; whether the data of this replica is longer than the others'",
        (("slow_gpu", "not one GPU but all of the host are slow, and equally"),),
    ),
    "app": Kind(
        "slow_compute",
        "process",
        "The process of {who} comes late to its operations: its host part takes {ratio:.2f} times what others take",
        "py-spy record --pid <pid> -d 30: data loader, garbage collection or the interpreter's lock",
        (("dataloader", "data loader, garbage collection and other Python look the same without a stack"),),
    ),
    "qp": Kind(
        "slow_nic",
        "nic",
        "Channel {channel} of {who} takes {ratio:.2f} times as long in the network as its peers, its others do not",
        "perfquery and counters of this queue pair; the path that its hash takes",
        (("slow_nic", "its other channels are as fast as ever: not the whole device"),),
    ),
    "nic": Kind(
        "slow_nic",
        "nic",
        "Everything that {who} sends and receives takes {ratio:.2f} times as long in the network as its peers' data",
        "ethtool <interface>; ibstat; lspci -vv | grep -i lnksta; the switch port",
        (
            ("pcie_degraded", "flushes are as fast as before; a narrower bus without that sign looks the same"),
            ("network_congestion", "the other devices of its host are as fast as ever"),
        ),
    ),
    "pcie": Kind(
        "pcie_degraded",
        "host",
        "Data of {who} takes {ratio:.2f} times as long in the network, and longer still to reach its GPU's memory",
        "lspci -vv | grep -i lnksta; nvidia-smi -q -d PCIE",
        (("slow_nic", "flushes to the GPU's memory became slow as well: the bus, not the wire"),),
    ),
    "host_nic": Kind(
        "network_congestion",
        "network",
        "The network devices of {who} are slow together: their data takes {ratio:.2f} times as long as other hosts'",
        "other traffic of this host; the uplinks of its leaf switch",
        (
            ("slow_nic", "not one device but most of the host's are slow"),
            ("network_congestion", "traffic of the host and of its leaf look the same: no other host is slow"),
        ),
    ),
    "path": Kind(
        "slow_nic",
        "nic",
        "A flow between {who} takes {ratio:.2f} times as long as its peers, and nothing else of either end does",
        "the switch ports and cables between them; another flow over either device",
        (("slow_nic", "nothing tells which end, or what lies between"),),
    ),
}
# The wire keeps up, only what comes after it does not.
BUS_ALONE: Final = Kind(
    "pcie_degraded",
    "host",
    "What arrives at {who} takes {ratio:.0f} times as long as at its peers until its GPU sees it",
    "lspci -vv | grep -i lnksta; nvidia-smi -q -d PCIE",
    (("slow_nic", "its network is as fast as its peers': the bus, not the wire"),),
)
_TABLE: Final = {"G": "coll_ops", "H": "coll_ops", "HG": "coll_ops"}
METRIC_WORDS: Final = {
    "G": "GPU time between operations",
    "H": "host time between operations",
    "HG": "GPU time of the host between operations",
    "S": "network time of what it sends in collectives",
    "Rv": "network time of what it receives in collectives",
    "PS": "network time of its sends",
    "PR": "network time of its receives",
    "ES": "network time of what it sends all-to-all",
    "ER": "network time of what it receives all-to-all",
    "FL": "time until data is visible to the GPU",
}
_STANDING_WORDS: Final = {"G": METRIC_WORDS["G"], "S": METRIC_WORDS["S"], "PS": METRIC_WORDS["PS"]}


def find_slowness(
    store: Frames,
    limits: FlowLimits = FLOW_DEFAULTS,
    *,
    at: int | None = None,
    offsets: Mapping[int, int] | None = None,
) -> Slowness | None:
    """Return every metric of a job under its CUSUM; None where no tracer left finished operations."""
    service = own_service(store, limits, at=at, offsets=offsets)
    return slowness(service, limits) if service is not None else None


def slow_findings(store: Frames, limits: FlowLimits = FLOW_DEFAULTS, *, at: int | None = None) -> tuple[Finding, ...]:
    """Return who slows the job at `at` (ns UTC; None: at the end), the most costly first. Nobody waits in it."""
    found = find_slowness(store, limits, at=at)
    return findings_at(store, found, found.last()) if found is not None else ()


def findings_at(store: Frames, found: Slowness, row: int) -> tuple[Finding, ...]:
    """Return the findings of one iteration."""
    return findings_of(store, found, [row])[0]


def findings_of(store: Frames, found: Slowness, rows: Sequence[int]) -> list[tuple[Finding, ...]]:
    """Return the findings of each of some iterations; what is known of hosts is read once for all of them."""
    blamed = [culprits(found, row) for row in rows]
    places = _Places(store) if any(blamed) else None
    return [
        tuple(
            _Teller(places, found, row).finding(c, [o for o in all_of if o is not c], n)
            for n, c in enumerate(all_of, 1)
        )
        if places is not None
        else ()
        for row, all_of in zip(rows, blamed, strict=True)
    ]


def standing_of(found: Slowness | None) -> tuple[Standing, ...]:
    """Return who differs from its peers all along, for the verdict."""
    if found is None:
        return ()
    return tuple(Standing(_STANDING_WORDS[s.metric], s.rank, s.channel, round(s.ratio, 3)) for s in standing(found))


class _Places:
    """Where ranks run, and what is known of their devices."""

    def __init__(self, store: Frames) -> None:
        rows = store.frame(HOSTS).to_dicts()
        self.host_of: Mapping[int, str | None] = {int(r["rank"]): r["name"] for r in rows}
        self.names: Mapping[int, str] = {int(r["host_id"]): str(r["name"] or f"host {r['host_id']}") for r in rows}
        self.on: dict[int, list[int]] = {}
        for r in rows:
            self.on.setdefault(int(r["host_id"]), []).append(int(r["rank"]))
        self.device = store.frame(DEVICE_EVENTS).to_dicts()


class _Teller:
    def __init__(self, places: _Places, found: Slowness, row: int) -> None:
        self.found = found
        self.row = row
        self.host_of, self.names, self.on, self.device = places.host_of, places.names, places.on, places.device

    def finding(self, one: Culprit, others: Sequence[Culprit], number: int) -> Finding:
        """Compose one finding."""
        kind = BUS_ALONE if one.metrics == ("FL",) else KINDS[one.component]
        one_of = len(one.ranks) > 1
        hosts = self._hosts(one)
        who = self._who(one)
        since = self.found.service.ends[one.begun - 1] if one.begun > 0 else self.found.service.starts[0]
        cost = self._cost(one)
        said = [e for e in self.device if int(e["rank"]) in one.ranks and one.component == "gpu"]
        category = "slow_gpu" if any(e["kind"] == "gpu_throttle" for e in said) else kind.category
        certainty = self._certainty(one, others, agrees=bool(said))
        what = kind.what.format(who=who, ratio=one.ratio, channel=one.channel)
        summary = (
            f"{what}, since {iso(int(since))}. It costs {cost.seconds_per_iteration:.3f} s per iteration "
            f"({cost.share:.1%}), {cost.gpu_hours_per_day:.0f} GPU-hours a day if left."
        )
        metric = one.metrics[0]
        why = (
            f"{METRIC_WORDS[metric]}: {one.ratio:.2f} times the usual ratio to {one.peers} peers "
            f"(5-95 % of iterations: {one.spread[0]:.2f}-{one.spread[1]:.2f}; usual scatter {one.scatter:.1%})."
        )
        return Finding(
            id=f"f{number}",
            status="slow",
            category=category,
            component=kind.component,
            confidence=certainty.word(one_of=one_of),
            certainty=certainty.value,
            root_cause=RootCause(ranks=one.ranks, hosts=hosts, flow=self._flow(one), one_of=one_of),
            summary=summary,
            why=why,
            confidence_why=certainty.told(),
            since=iso(int(since)),
            evidence=self._evidence(one, who),
            alternatives=(
                *(Alternative(c, one.ranks, words) for c, words in kind.twins),
                *(
                    Alternative(
                        KINDS[o.component].category,
                        o.ranks,
                        f"costs {o.cost_s:.3f} s per iteration: a finding of its own",
                    )
                    for o in others
                ),
            ),
            next_steps=(f"{kind.decides}   # on {', '.join(hosts) or who}",),
            cost=cost,
        )

    def _hosts(self, one: Culprit) -> tuple[str, ...]:
        if one.host is not None:
            return (self.names.get(one.host, f"host {one.host}"),)
        return tuple(sorted({h for r in one.ranks if (h := self.host_of.get(r)) is not None}))

    def _who(self, one: Culprit) -> str:
        if one.host is not None:
            return self._hosts(one)[0]
        if len(one.ranks) == 2:
            return f"rank {one.ranks[0]} or rank {one.ranks[1]}"
        hosts = self._hosts(one)
        return f"{count_words(one.ranks)} ({hosts[0]})" if len(hosts) == 1 else count_words(one.ranks)

    def _flow(self, one: Culprit) -> Flow | None:
        return Flow(channel=one.channel, dir="send") if one.channel is not None else None

    def _cost(self, one: Culprit) -> Cost:
        """What is lost: the time above the peers, but no more than the iterations became longer."""
        ends = self.found.service.ends
        lengths = np.diff(ends) / 1e9
        first = max(one.begun, self.row - 9)
        now = float(np.median(lengths[first - 1 : self.row])) if self.row > first - 1 >= 0 else one.cost_s
        learnt = lengths[self.found.limits.warm : one.begun - 1]
        usual = float(np.median(learnt)) if len(learnt) else now
        lost = min(one.cost_s, now)
        share = min(1.0, lost / now) if now > 0 else 0.0
        world = len(self.host_of)
        return Cost(
            seconds_per_iteration=round(lost, 4),
            share=round(share, 4),
            gpu_hours_per_day=round(share * world * DAY_H, 1),
            assumption=(
                f"all {world} ranks wait for it, nothing else changes and it is left for {DAY_H:.0f} hours; an "
                f"iteration takes {now:.3f} s, before it took {usual:.3f} s"
            ),
        )

    def _certainty(self, one: Culprit, others: Sequence[Culprit], *, agrees: bool) -> Certainty:
        found = Certainty()
        candidates = max(1, len(one.ranks))
        found.add("set size", 1 / candidates, f"the evidence fits {candidates} rank{'s' if candidates > 1 else ''}")
        # Another fault elsewhere is a finding of its own; what competes is what could be the same one.
        rivals = [o for o in others if o.host is None and one.host is None and set(o.ranks) & set(one.ranks)]
        best = max((o.cost_s for o in rivals), default=0.0)
        found.add(
            "margin", 1 - best / max(one.cost_s, best, 1e-9) if best < one.cost_s else 0.5, "over the next candidate"
        )
        found.add("run length", one.run, "the sum of deviations over twice its limit")
        seen = self._seen(one)
        found.add("data", seen, f"{seen:.0%} of the iterations of the window were seen")
        found.add(
            "corroboration",
            1.2 if agrees else 1.0,
            "the device says so too" if agrees else "no other source speaks of it",
        )
        return found

    def _seen(self, one: Culprit) -> float:
        w = self.found.watches[one.metrics[0]]
        entities = {e for e in w.metric.entities if (one.host is not None and e == (one.host,)) or e[0] in one.ranks}
        columns = [n for n, e in enumerate(w.metric.entities) if e in entities]
        part = w.deviation[max(one.begun, self.row - 9) : self.row + 1, columns]
        return float(1 - np.isnan(part).mean()) if part.size else 1.0

    def _evidence(self, one: Culprit, who: str) -> tuple[Evidence, ...]:
        rows: list[Evidence] = []
        ranks = one.ranks or tuple(self.on.get(one.host, ()) if one.host is not None else ())
        for metric in one.metrics[:6]:
            table = _TABLE.get(metric, "flow_ops")
            key: dict[str, Any] = {"rank": ranks[0]} if ranks else {}
            if one.channel is not None and table == "flow_ops":
                key |= {"channel": one.channel, "dir": "send"}
            over = self.row - one.begun + 1
            claim = f"{METRIC_WORDS[metric]} of {who}: {one.ratio:.2f} times the usual, over {over} iterations"
            if metric == "FL" and one.metrics[0] != "FL":
                claim = f"{METRIC_WORDS[metric]} of {who} rose as well"
            rows.append(Evidence(id=f"e{len(rows) + 1}", claim=claim, table=table, key=key, source="tracer"))
        return tuple(rows)
