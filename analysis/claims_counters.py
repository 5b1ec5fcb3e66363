"""Counters of network devices, two readings apart: who told others to stop, who dropped, whose link is bad.

A counter means something only as a difference. Pause frames *sent* mean "we told others to stop": that host is the
congested receiver. Pause frames received, and sequence errors at senders, are what it does to others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mycroft.analysis.claims import Claim
from mycroft.analysis.machine import Machine, Row

# What the congested receiver itself counts, with the weight of one.
_RECEIVER: Final = (
    (re.compile(r"^tx_.*pause(?!.*(?:duration|transition))"), 1.0, "pause frames sent"),
    (re.compile(r"^rx_.*discard|^rx_.*drop|^rx_out_of_buffer|^out_of_buffer"), 50.0, "packets dropped"),
    (re.compile(r"^np_cnp_sent|^np_ecn_marked"), 1.0, "congestion notifications sent"),
    (re.compile(r"^out_of_sequence"), 1.0, "packets out of sequence"),
)
_BAD_LINK: Final = re.compile(
    r"symbol|crc|link_down|linkdowned|link_error_recovery|integrity|rcv_?err|port_rcv_errors", re.IGNORECASE
)
# Below this nobody would look into it; the worst host must stand out by this factor.
LEAST: Final = 1_000.0
STANDS_OUT: Final = 10.0
_LEAST_LINK: Final = 10.0


@dataclass(frozen=True, slots=True)
class Change:
    """How much a counter of a device grew between its first and its last reading."""

    host: str
    device: str
    name: str
    grew: float
    row: Row


def changes(machine: Machine) -> list[Change]:
    """Return the growth of every counter that was read at least twice. One that fell was reset and is left out."""
    readings: dict[tuple[str, str, str], list[tuple[tuple[int, str, int, int], Row]]] = defaultdict(list)
    for row in machine.of("nic_counter"):
        if row.host and row.value is not None:
            order = (row.ts or 0, machine.files.get(row.file or -1, ""), row.code or 0, row.line or 0)
            readings[row.host, row.device, row.name].append((order, row))
    found: list[Change] = []
    for (host, device, name), rows in sorted(readings.items()):
        rows.sort(key=lambda pair: pair[0])
        first, last = rows[0][1], rows[-1][1]
        if len(rows) > 1 and first.value is not None and last.value is not None and last.value >= first.value:
            found.append(Change(host, device, name, last.value - first.value, last))
    return found


def congested(machine: Machine) -> list[Claim]:
    """Return the claim on the one host that is the congested receiver."""
    grown = changes(machine)
    scores: dict[str, float] = defaultdict(float)
    reasons: dict[str, list[tuple[float, str, Change]]] = defaultdict(list)
    for change in grown:
        for pattern, weight, words in _RECEIVER:
            if pattern.search(change.name):
                scores[change.host] += weight * change.grew
                reasons[change.host].append((weight * change.grew, f"{change.grew:,.0f} {words}", change))
    if not scores:
        return []
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    (host, score), second = ranked[0], ranked[1][1] if len(ranked) > 1 else 0.0
    if score < LEAST or score < STANDS_OUT * second:
        return []
    mine = sorted(reasons[host], key=lambda r: -r[0])
    device = mine[0][2].device
    shown = ", ".join(words for _score, words, change in mine[:3] if change.grew)
    text = f"{host} is the congested receiver: {shown} between the readings"
    refs = tuple(c.row.ref(f"{c.name} grew by {c.grew:,.0f} on {host}", "nic_counters") for _s, _w, c in mine[:4])
    claims = [
        Claim(
            "nic_counters",
            "congested",
            machine.ranks_on(host),
            "strong",
            text,
            refs,
            None,
            (host,),
            (device,) if device else (),
        )
    ]
    told = [c for c in grown if c.host != host and re.match(r"^rx_.*pause", c.name) and c.grew >= LEAST]
    if told:
        worst = max(told, key=lambda c: c.grew)
        text = f"{worst.host} was told to stop {worst.grew:,.0f} times: it sends to {host}"
        claims.append(
            Claim(
                "nic_counters",
                "paused",
                machine.ranks_on(worst.host),
                "weak",
                text,
                (worst.row.ref(text, "nic_counters"),),
            )
        )
    return claims


def bad_links(machine: Machine) -> list[Claim]:
    """Return claims on devices whose error counters grew while those of their sisters did not."""
    found: list[Claim] = []
    by_name: dict[str, list[Change]] = defaultdict(list)
    for change in changes(machine):
        if _BAD_LINK.search(change.name):
            by_name[change.name].append(change)
    for name, grown in sorted(by_name.items()):
        worst = max(grown, key=lambda c: c.grew)
        rest = [c.grew for c in grown if c is not worst]
        if worst.grew >= _LEAST_LINK and worst.grew >= STANDS_OUT * max(rest, default=0.0):
            text = f"{name} of {worst.device} on {worst.host} grew by {worst.grew:,.0f} between the readings"
            found.append(
                Claim(
                    "nic_counters",
                    "link_errors",
                    (),
                    "strong",
                    text,
                    (worst.row.ref(text, "nic_counters"),),
                    None,
                    (worst.host,),
                    (worst.device,) if worst.device else (),
                )
            )
    return found


def of_host(claims: Sequence[Claim]) -> Mapping[str, list[Claim]]:
    """Return claims by the host they are about."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        for host in claim.hosts:
            found[host].append(claim)
    return found
