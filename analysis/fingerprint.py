"""The shape of a fault: what two incidents must share to be called the same kind, whatever ranks they hit.

A fingerprint is made of the labels of a finding and of its wait-for chain without names: ranks become roles (to blame,
waiting), groups their kind (tp, dp, ...), operations their kind. Ranks that wait in the same way count once (colours
are refined over *sets* of neighbours, which is bisimulation), so that a hang of 8 ranks and one of 800 that wait alike
have one shape.

Nothing here looks at a store: a fingerprint is made from a verdict in its JSON form and kept beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

VERSION: Final = 1
"""Version of the rules below; fingerprints of different versions are never compared."""
ROUNDS_MAX: Final = 64
"""Steps of a chain that tell shapes apart; longer chains that agree so far are of one shape."""
HOSTS_MAX: Final = 64
"""Hosts and devices that are kept of a finding."""
ALIKE: Final = 0.5
"""Least share of common edges for two incidents of one category to be called alike."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One finding without the names of its ranks.

    `shape` is a hash of the labelled wait-for graph; empty where the verdict gives no chain, which is then no shape to
    compare. `edges` are its distinct labels, `kind of group/operation`. `hosts` and `devices` are those to blame.
    """

    incident: str
    status: str
    category: str
    component: str
    shape: str
    edges: tuple[str, ...]
    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    since: str | None
    summary: str
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return it as it is kept: plain lists and texts."""
        fields: dict[str, Any] = asdict(self)
        texts = {
            key: [str(item) for item in getattr(self, key)] for key, value in fields.items() if type(value) is tuple
        }
        return {**fields, **texts}


@dataclass(frozen=True, slots=True)
class Likeness:
    """How two incidents are alike; `share` is that of their common edges, 0 to 1 (1 where neither has any)."""

    same_shape: bool
    same_category: bool
    share: float
    hosts: tuple[str, ...]
    devices: tuple[str, ...]

    @property
    def order(self) -> tuple[int, int, int, float]:
        """Return what sorts the most telling first: same device, same host, same shape, common edges."""
        return (len(self.devices), len(self.hosts), int(self.same_shape), self.share)


def fingerprint_of(finding: Mapping[str, Any]) -> Fingerprint:
    """Return the fingerprint of a finding of a verdict (`mycroft.verdict/1`)."""
    cause = finding["root_cause"]
    chain: Sequence[Mapping[str, Any]] = finding["chain"]
    return Fingerprint(
        incident=str(finding["id"]),
        status=str(finding["status"]),
        category=str(finding["category"]),
        component=str(finding["component"]),
        shape=_shape(chain, cause["ranks"]),
        edges=tuple(sorted({_label(link) for link in chain})),
        hosts=tuple(sorted(map(str, cause["hosts"]))[:HOSTS_MAX]),
        devices=tuple(sorted(map(str, cause["devices"]))[:HOSTS_MAX]),
        since=finding.get("since"),
        summary=str(finding["summary"]),
    )


def from_dict(kept: Mapping[str, Any]) -> Fingerprint | None:
    """Return a fingerprint as it was kept; None where it is of another version or is none."""
    try:
        if kept["version"] != VERSION:
            return None
        known = {name: kept[name] for name in Fingerprint.__slots__}
        for name in ("edges", "hosts", "devices"):
            known[name] = tuple(str(value) for value in known[name])
        return Fingerprint(**known)
    except (KeyError, TypeError):
        return None


def likeness(one: Fingerprint, other: Fingerprint) -> Likeness | None:
    """Return how two incidents are alike; None where calling them so would say nothing.

    Alike are those of one category that wait in the same shape or share at least half of the labels of their edges;
    and those that blame the same host or device for something of the same component.
    """
    same_category = (one.status, one.category) == (other.status, other.category)
    same_shape = bool(one.shape) and one.shape == other.shape
    share = _jaccard(one.edges, other.edges)
    hosts = tuple(sorted(set(one.hosts) & set(other.hosts)))
    # The same bus id or name of a NIC on another host is another device.
    devices = tuple(sorted(set(one.devices) & set(other.devices))) if hosts else ()
    is_alike = same_category and (same_shape or share >= ALIKE)
    is_same_place = bool(hosts or devices) and one.component == other.component
    if not is_alike and not is_same_place:
        return None
    return Likeness(same_shape, same_category, share, hosts, devices)


def _jaccard(one: Iterable[str], other: Iterable[str]) -> float:
    left, right = set(one), set(other)
    return len(left & right) / len(left | right) if left | right else 1.0


def _label(link: Mapping[str, Any]) -> str:
    """Return the label of a link: kind of its group and of its operation."""
    # The key of a communicator is its role and a short hash; without one nothing is said of the role.
    role = str(link["comm"]).rpartition("-")[0] if link.get("comm") else ""
    return f"{role or '?'}/{link.get('op') or '?'}"


def _shape(chain: Sequence[Mapping[str, Any]], culprits: Iterable[int]) -> str:
    """Return the hash of the wait-for graph up to bisimulation; empty for no graph."""
    if not chain:
        return ""
    guilty = set(culprits)
    nodes = {int(link[end]) for link in chain for end in ("waiter", "blocker")}
    leads: dict[int, list[tuple[str, int]]] = {node: [] for node in nodes}
    for link in chain:
        leads[int(link["waiter"])].append((_label(link), int(link["blocker"])))
    colours = {node: "cause" if node in guilty else "waits" for node in nodes}
    for _ in range(min(len(nodes), ROUNDS_MAX)):
        refined = {
            node: _digest([colours[node], *sorted({f"{label}>{colours[to]}" for label, to in leads[node]})])
            for node in nodes
        }
        is_stable = len(set(refined.values())) == len(set(colours.values()))
        colours = refined
        if is_stable:
            break
    return _digest(sorted(set(colours.values())))


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]
