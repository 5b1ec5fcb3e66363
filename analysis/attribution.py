"""From alarms of own service time to who is slow: a flow, a network device, a bus, a GPU, a host.

The order is that of the design (section 6): a single slow channel is a queue pair; a device is as slow as the *least*
slow of all that it takes part in, because a slow device slows all of it and its neighbours share only some; a host
whose devices are all slow is one finding. Effects are medians over the window, so that no burst decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mycroft.analysis.config import FlowLimits
from mycroft.analysis.cusum import MEDIAN_ERROR, Floats, Watch, median_over, watch
from mycroft.analysis.own_service import OwnService

FLOW_METRICS: Final = ("S", "Rv", "PS", "PR", "ES", "ER")
# What a rank sends, and the same flows where they are received.
_SENDING: Final = {"S": "Rv", "PS": "PR", "ES": "ER"}
# A host's devices share a cause from this share of its ranks on (5 of 8).
HOST_SHARE: Final = 0.625
HOST_LEAST: Final = 2
# Flushes that take e times what they took.
FLUSH_EFFECT: Final = 1.0
# Effects nearer to each other than this share are equal: counters do not tell the ends of one flow apart.
EQUAL: Final = 0.1
# Window of the effect, iterations.
WINDOW: Final = 10
# A lesser effect of the same rank that one fault brings along.
SIDE_EFFECT: Final = 0.25
# What costs less than this share of the worst is not why the job is slow, whoever it is.
MINOR: Final = 0.05
# Effects of fewer than so many errors may be chance.
CHANCE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who is slower than its peers and than it was. `ranks`: several only where the evidence fits each (`one_of`)."""

    component: str
    """gpu, host_gpu, app, qp, nic, pcie, host_nic or path."""
    ranks: tuple[int, ...]
    host: int | None
    channel: int | None
    metrics: tuple[str, ...]
    ratio: float
    """Time over the usual time against the peers, median over the window."""
    spread: tuple[float, float]
    """The 5th and 95th percentile of that ratio over the window."""
    peers: int
    scatter: float
    """Usual scatter of the metric, as a share."""
    cost_s: float
    """Seconds per iteration above the peers."""
    run: float
    """The sum of the CUSUM over twice its limit, at most 1."""
    begun: int
    """Iteration at which it began."""
    alarmed: int
    """Iteration at which it passed the limits."""

    @property
    def key(self) -> tuple[str, tuple[int, ...], int | None, int | None]:
        """Who it is, whatever the numbers."""
        return self.component, self.ranks, self.host, self.channel


@dataclass(frozen=True, slots=True)
class Standing:
    """An entity that differs from its peers all along: no alarm, but worth knowing."""

    metric: str
    rank: int
    channel: int | None
    ratio: float


@dataclass(frozen=True)
class Slowness:
    """Everything under its CUSUM."""

    service: OwnService
    watches: Mapping[str, Watch]
    limits: FlowLimits

    def first_alarms(self) -> list[int]:
        """Return the iterations at which an entity passed its limits, having been below them before."""
        found: set[int] = set()
        for w in self.watches.values():
            rising = w.alarm & ~np.vstack([np.zeros((1, w.alarm.shape[1]), dtype=bool), w.alarm[:-1]])
            found |= {int(i) for i in np.nonzero(rising.any(axis=1))[0]}
        return sorted(found)

    def last(self) -> int:
        """Return the newest iteration; -1: none."""
        return len(self.service.ends) - 1


def slowness(service: OwnService, limits: FlowLimits) -> Slowness:
    """Put every metric under its CUSUM."""
    least = {"G": limits.eff_gpu, "H": limits.eff_host, "HG": limits.eff_host}
    watches = {
        name: watch(metric, limits, least_effect=least.get(name, limits.eff_flow), of_host=name == "HG")
        for name, metric in service.metrics.items()
        if name != "FL"
    }
    if "FL" in service.metrics:
        watches["FL"] = watch(service.metrics["FL"], limits, least_effect=float(np.e))
    return Slowness(service, watches, limits)


def culprits(found: Slowness, row: int) -> tuple[Culprit, ...]:
    """Return who is to blame at iteration `row`, the most costly first; empty: no alarm is old enough or left.

    Only entities whose alarm has stood for `confirm` iterations count; the others may still be a cause that needs more
    of them to be told apart.
    """
    return _Attribution(found, row).all()


class _Attribution:
    def __init__(self, found: Slowness, row: int) -> None:
        self.found = found
        self.row = row
        self.limits = found.limits
        self.hosts = found.service.hosts
        self.length_s = _length_s(found, row)

    def all(self) -> tuple[Culprit, ...]:
        flows = self._flows()
        # A bus may be slow behind a network that keeps up.
        flows += self._buses({r for c in flows if c.component == "pcie" for r in c.ranks})
        rest = [*self._single("G", "gpu"), *self._single("HG", "host_gpu"), *self._single("H", "app")]
        ordered = sorted(self._costly([*flows, *rest]), key=lambda c: (-c.cost_s, c.key[:2]))
        kept: list[Culprit] = []
        for one in ordered:
            same = [k for k in kept if set(k.ranks) & set(one.ranks) or (k.host is not None and self._on(k.host, one))]
            # A bus that is degraded takes some compute with it, and a slow host its ranks.
            if any(one.cost_s < SIDE_EFFECT * k.cost_s or k.component in ("host_nic", "host_gpu") for k in same):
                continue
            if kept and one.cost_s < MINOR * kept[0].cost_s:
                continue
            kept.append(one)
        return tuple(kept)

    def _costly(self, found: Sequence[Culprit]) -> list[Culprit]:
        least = {"app": self.limits.least_cost_host}
        return [c for c in found if c.cost_s >= least.get(c.component, self.limits.least_cost) * self.length_s]

    def _on(self, host: int, one: Culprit) -> bool:
        return bool(one.ranks) and all(self.hosts.get(r) == host for r in one.ranks)

    # ---- alarms --------------------------------------------------------------------

    def _alarmed(self, name: str) -> list[int]:
        """Return the columns of a metric whose alarm has stood long enough and still does."""
        w = self.found.watches.get(name)
        first = self.row - self.limits.confirm
        if w is None or first < 0:
            return []
        stood = w.alarm[first : self.row + 1]
        ends = self.found.service.ends
        long = ends[self.row] - ends[np.maximum(w.begun[self.row] - 1, 0)] >= self.limits.least_span_ns
        return [int(c) for c in np.nonzero(stood[0] & stood[-1] & long)[0]]

    def _alarmed_since(self, w: Watch, column: int) -> int:
        quiet = np.nonzero(~w.alarm[: self.row + 1, column])[0]
        return int(quiet[-1]) + 1 if len(quiet) else 0

    def _window(self, begun: int) -> tuple[int, int]:
        return max(begun, self.row - WINDOW + 1, 0), self.row

    def _culprit(
        self,
        component: str,
        parts: Sequence[tuple[Watch, int]],
        *,
        ranks: tuple[int, ...] = (),
        host: int | None = None,
        channel: int | None = None,
        ratio: float | None = None,
    ) -> Culprit:
        """Compose one from the columns that show it. Rates are of the first, costs of the most costly."""
        main, column = parts[0]
        # An entity whose own sum has not passed is there because others' have: it began with them.
        begun = min(int(w.begun[self.row, c]) for w, c in parts)
        first, last = self._window(begun)
        dev = main.deviation[first : last + 1, column]
        dev = dev[~np.isnan(dev)]
        low, mid, high = (float(np.exp(v)) for v in np.percentile(dev, [5, 50, 95])) if len(dev) else (1.0, 1.0, 1.0)
        cost = max(float(np.median(w.metric.cost_s[first : last + 1, c])) for w, c in parts)
        return Culprit(
            component=component,
            ranks=ranks,
            host=host,
            channel=channel,
            metrics=tuple(dict.fromkeys(w.metric.name for w, _ in parts)),
            ratio=mid if ratio is None else float(np.exp(ratio)),
            spread=(low, high),
            peers=main.metric.log_ratio.shape[1] - 1,
            scatter=main.sigma,
            cost_s=max(cost, 0.0),
            run=min(1.0, max(float(w.score[self.row, c]) / (2 * w.limit) for w, c in parts)),
            begun=begun,
            alarmed=min((self._alarmed_since(w, c) for w, c in parts if w.alarm[self.row, c]), default=self.row),
        )

    def _single(self, name: str, component: str) -> list[Culprit]:
        found: list[Culprit] = []
        for column in self._alarmed(name):
            w = self.found.watches[name]
            entity = w.metric.entities[column][0]
            if name == "HG":
                found.append(self._culprit(component, [(w, column)], host=entity))
            else:
                found.append(self._culprit(component, [(w, column)], ranks=(entity,), host=None))
        return found

    # ---- flows ---------------------------------------------------------------------

    def _flows(self) -> list[Culprit]:
        alarms = {name: self._alarmed(name) for name in FLOW_METRICS}
        if not any(alarms.values()):
            return []
        begun = min(int(self.found.watches[n].begun[self.row, c]) for n, columns in alarms.items() for c in columns)
        first, last = self._window(begun)
        effects = {n: self.found.watches[n].effect(first, last) for n in FLOW_METRICS if n in self.found.watches}
        scores, parts = self._scores(effects)
        of_hosts, gone = self._host_nics(scores, parts, alarms)
        pairs = self._pairs(effects, alarms, set(gone), last - first + 1)
        doubtful = self._within_scatter(effects, last - first + 1)
        nics = self._nics({r: s for r, s in scores.items() if r not in gone and r not in doubtful}, parts)
        # Who costs next to nothing does not explain the flows that cost something.
        named = self._costly([*of_hosts, *nics, *pairs])
        return named or self._path(alarms)

    def _scores(self, effects: Mapping[str, Floats]) -> tuple[dict[int, float], dict[int, list[tuple[Watch, int]]]]:
        """Rank -> the least effect over all it takes part in, and the columns that show it."""
        per_rank: dict[int, dict[str, float]] = defaultdict(dict)
        parts: dict[int, list[tuple[Watch, int]]] = defaultdict(list)
        for name, effect in effects.items():
            w = self.found.watches[name]
            for column, entity in enumerate(w.metric.entities):
                rank = entity[0]
                # All channels of a slow device are slow.
                per_rank[rank][name] = min(per_rank[rank].get(name, np.inf), float(effect[column]))
                parts[rank].append((w, column))
        return {r: min(by.values()) for r, by in per_rank.items()}, parts

    def _within_scatter(self, effects: Mapping[str, Floats], iterations: int) -> set[int]:
        """Return the ranks of which a part of what they send or receive may be slow by chance.

        What tells the two ends of a slow flow apart is what else each of them does; where that scatters more than it
        has grown, it tells nothing.
        """
        found: set[int] = set()
        for name, effect in effects.items():
            w = self.found.watches[name]
            error = MEDIAN_ERROR * w.sigma / np.sqrt(iterations)
            found |= {
                entity[0] for column, entity in enumerate(w.metric.entities) if float(effect[column]) < CHANCE * error
            }
        return found

    def _host_nics(
        self, scores: Mapping[int, float], parts: Mapping[int, list[tuple[Watch, int]]], alarms: Mapping[str, list[int]]
    ) -> tuple[list[Culprit], list[int]]:
        half = float(np.log(self.limits.eff_nic)) / 2
        alarmed = {self.found.watches[n].metric.entities[c][0] for n, columns in alarms.items() for c in columns}
        members: dict[int, list[int]] = defaultdict(list)
        for rank in scores:
            if rank in self.hosts:
                members[self.hosts[rank]].append(rank)
        found: list[Culprit] = []
        gone: list[int] = []
        for host, ranks in sorted(members.items()):
            slow = [r for r in ranks if scores[r] > half]
            if len(slow) < max(HOST_LEAST, HOST_SHARE * len(ranks)) or not alarmed & set(slow):
                continue
            shown = sorted((p for r in slow for p in parts[r]), key=lambda p: -float(p[0].score[self.row, p[1]]))
            middle = float(np.median([scores[r] for r in slow]))
            found.append(self._culprit("host_nic", shown, host=host, ratio=middle))
            gone += ranks
        return found, gone

    def _pairs(
        self, effects: Mapping[str, Floats], alarms: Mapping[str, list[int]], gone: set[int], iterations: int
    ) -> list[Culprit]:
        """Single slow channels: one queue pair. Only where the rank sends the same on other channels as well.

        They must differ by more than their scatter over so many iterations. What a rank sends to a host whose devices
        are all slow, or from it, is slow because of that.
        """
        found: list[Culprit] = []
        for name in _SENDING:
            if name not in effects:
                continue
            w = self.found.watches[name]
            chance = CHANCE * MEDIAN_ERROR * w.sigma * np.sqrt(2 / iterations)
            channels: dict[int, dict[int, int]] = defaultdict(dict)
            for column, (rank, channel) in enumerate(w.metric.entities):
                channels[rank][channel] = column
            for column in alarms[name]:
                rank, channel = w.metric.entities[column]
                slow = float(effects[name][column])
                others = [float(effects[name][c]) for ch, c in channels[rank].items() if ch != channel]
                explained = rank in gone or not gone.isdisjoint(self.found.service.peers.get(rank, ()))
                if explained or not others or max(others) >= slow / 2 or slow - max(others) < chance:
                    continue
                found.append(self._culprit("qp", [(w, column)], ranks=(rank,), channel=channel))
        return found

    def _nics(self, scores: Mapping[int, float], parts: Mapping[int, list[tuple[Watch, int]]]) -> list[Culprit]:
        least = float(np.log(self.limits.eff_nic))
        over = {r: s for r, s in scores.items() if s > least and self._any_alarm(parts[r])}
        flush = self.found.watches.get("FL")
        groups: list[list[int]] = []
        for rank in sorted(over, key=lambda r: (-over[r], r)):
            for group in groups:
                if abs(over[group[0]] - over[rank]) <= EQUAL * over[group[0]] and self._share_a_flow(group, rank):
                    group.append(rank)
                    break
            else:
                groups.append([rank])
        found: list[Culprit] = []
        for group in groups:
            flushed = [r for r in group if flush is not None and self._flush_effect(flush, r) >= FLUSH_EFFECT]
            ranks = tuple(sorted(flushed or group))
            shown = sorted((p for r in ranks for p in parts[r]), key=lambda p: -float(p[0].score[self.row, p[1]]))
            one = self._culprit("pcie" if flushed else "nic", shown, ranks=ranks, ratio=over[group[0]])
            found.append(replace(one, metrics=(*one.metrics, "FL")) if flushed else one)
        return found

    def _buses(self, named: set[int]) -> list[Culprit]:
        """What arrives at these ranks is seen late by their GPU, whether or not their network shows anything."""
        return [
            one
            for one in self._single("FL", "pcie")
            if not named & set(one.ranks) and self._flush_effect(self.found.watches["FL"], one.ranks[0]) >= FLUSH_EFFECT
        ]

    def _any_alarm(self, parts: Iterable[tuple[Watch, int]]) -> bool:
        return any(bool(w.alarm[self.row, c]) for w, c in parts)

    def _flush_effect(self, flush: Watch, rank: int) -> float:
        if (rank,) not in flush.metric.entities:
            return 0.0
        column = flush.metric.entities.index((rank,))
        first, last = self._window(int(flush.begun[self.row, column]))
        return float(median_over(flush.deviation[first : last + 1, [column]])[0])

    def _share_a_flow(self, group: Sequence[int], rank: int) -> bool:
        peers = self.found.service.peers
        return all(rank in peers.get(other, ()) for other in group)

    def _path(self, alarms: Mapping[str, list[int]]) -> list[Culprit]:
        """Slow flows of which neither end is slow otherwise: one of the ends, or what lies between."""
        found: list[Culprit] = []
        for name, received in _SENDING.items():
            for column in alarms[name]:
                w = self.found.watches[name]
                rank, channel = w.metric.entities[column]
                receive = self.found.watches.get(received)
                ends = [rank]
                if receive is not None:
                    hit = {receive.metric.entities[c][0] for c in alarms[receive.metric.name]}
                    ends += sorted(hit & set(self.found.service.peers.get(rank, ())) - {rank})
                if all(set(ends) != set(c.ranks) for c in found):
                    found.append(self._culprit("path", [(w, column)], ranks=tuple(sorted(ends)), channel=channel))
        return found


def _length_s(found: Slowness, row: int) -> float:
    ends = found.service.ends[max(0, row - WINDOW) : row + 1]
    return float(np.median(np.diff(ends))) / 1e9 if len(ends) > 1 else 0.0


def standing(found: Slowness) -> tuple[Standing, ...]:
    """Return who differs from its peers over the whole job, the most first; nobody is alarmed for it."""
    result: list[Standing] = []
    for name, least in (
        ("G", found.limits.standing_gpu),
        ("S", found.limits.standing_flow),
        ("PS", found.limits.standing_flow),
    ):
        metric = found.service.metrics.get(name)
        if metric is None or len(metric.log_ratio) <= found.limits.warm:
            continue
        usual = median_over(metric.log_ratio[found.limits.warm :])
        for column in np.nonzero(usual > np.log(least))[0]:
            entity = metric.entities[int(column)]
            result.append(
                Standing(name, entity[0], entity[1] if len(entity) > 1 else None, float(np.exp(usual[int(column)])))
            )
    return tuple(sorted(result, key=lambda s: (-s.ratio, s.metric, s.rank, s.channel or 0)))
