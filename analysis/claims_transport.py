"""The graph of blame of transport errors: who accuses whom, and who alone has a fault of its own.

An error completion, a refused connection or a lost peer is an edge between the host that prints it and the host it
names. The reporter is one end, never the culprit by that. The host that touches all edges and alone has a *local*
event (its port lost the link, its device is gone) is the cause; without a local event it is named with less
confidence; two hosts that accuse each other leave the link between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.machine import Machine, Row, some

HOUR_NS: Final = 3_600_000_000_000
# A link that came back and stayed up this long before the trouble is background.
FRESH_NS: Final = HOUR_NS
# Completion codes of verbs. 5 (flushed) follows another error; 4 is the program's or the driver's memory.
CODES: Final[Mapping[int, str]] = {
    4: "local protection error",
    5: "flushed after another error",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    12: "retry exceeded",
    13: "receiver not ready",
}


@dataclass(frozen=True, slots=True)
class Accusation:
    """One host says that it cannot reach another."""

    reporter: str
    target: str
    row: Row


def accusations(machine: Machine) -> list[Accusation]:
    """Return who names whom. Flushed completions are left out.

    A peer that no source can place stands for a host of its own where several hosts name it: its log is not here.
    """
    found: list[Accusation] = []
    unplaced: dict[str, list[Accusation]] = defaultdict(list)
    for row in machine.of("ib_error", "connect_failed"):
        if row.code == 5 or not row.peer:
            continue
        reporter, target = machine.host_of(row), machine.host_at(row.peer)
        if reporter and target and reporter != target:
            found.append(Accusation(reporter, target, row))
        elif reporter and not target and row.kind == "ib_error":
            unplaced[row.peer].append(Accusation(reporter, row.peer, row))
    for named in unplaced.values():
        if len({accusation.reporter for accusation in named}) > 1:
            found += named
    return found


def local_faults(machine: Machine, around: int | None) -> dict[str, list[Row]]:
    """Return by host what its own devices say: a port that lost its link or is down.

    `around` is the time of the trouble, ns; a link that was up again well before it does not count.
    """
    faults: dict[str, list[Row]] = defaultdict(list)
    for row in machine.of("link_down"):
        host = machine.host_of(row)
        if host and row.level == "error" and not _recovered(machine, row, around):
            faults[host].append(row)
    for row in machine.of("nic_state"):
        host = machine.host_of(row)
        if host and row.level == "error" and _is_used(machine, host, row.device):
            faults[host].append(row)
    return faults


def _recovered(machine: Machine, down: Row, around: int | None) -> bool:
    """Say whether a link came up again long before the trouble, and stayed up."""
    if down.ts is None or around is None:
        return False
    if around - down.ts <= FRESH_NS:
        return False
    later = [
        row
        for row in machine.of("link_up", "link_down")
        if row.host == down.host and row.device == down.device and row.ts is not None and row.ts > down.ts
    ]
    last = max(later, key=lambda row: row.ts or 0, default=None)
    return last is not None and last.kind == "link_up"


def _came_back(machine: Machine, down: Row) -> bool:
    """Say whether the last word of a link that went down is that it is up."""
    if down.kind != "link_down" or down.ts is None:
        return False
    words = [row for row in machine.of("link_up", "link_down") if (row.host, row.device) == (down.host, down.device)]
    last = max(words, key=lambda row: row.ts or 0)
    return last.kind == "link_up" and (last.ts or 0) > down.ts


def _is_used(machine: Machine, host: str, device: str) -> bool:
    """Say whether a device may carry the job's traffic: NCCL lists it, or nothing says which it uses or which it is."""
    listed = {row.device for row in machine.of("identity") if row.name == "nic" and row.host == host}
    listed |= {d for d in _carriers(machine, host) if d}
    # The kernel gives an address where NCCL gives a name: whether it is one of those is not shown.
    return not listed or device in listed or not device or ":" in device


def _carriers(machine: Machine, host: str) -> set[str]:
    ranks = set(machine.ranks_on(host))
    used: set[str] = set()
    for _comm, _channel, src, dst, _transport, nic, dst_nic in machine.edges.iter_rows():
        if src in ranks and nic:
            used.add(nic)
        if dst in ranks and dst_nic:
            used.add(dst_nic)
    return used


def touched_ranks(machine: Machine, host: str, devices: Sequence[str]) -> tuple[int, ...]:
    """Return the ranks of a host whose network traffic goes over one of these devices."""
    ranks = set(machine.ranks_on(host))
    found: set[int] = set()
    for _comm, _channel, src, dst, _transport, nic, dst_nic in machine.edges.iter_rows():
        if src in ranks and nic in devices:
            found.add(src)
        if dst in ranks and dst_nic in devices:
            found.add(dst)
    return tuple(sorted(found))


def suspicions(machine: Machine, around: int | None) -> list[Suspicion]:
    """Return the host whose link is at fault, with its device."""
    accused = accusations(machine)
    faults = local_faults(machine, around)
    runtime = [a for a in accused if a.row.kind == "ib_error" or a.row.name == "modify_qp"]
    edges = runtime or [a for a in accused if a.row.kind == "ib_error"]
    ends: dict[str, int] = defaultdict(int)
    for edge in edges:
        for host in {edge.reporter, edge.target}:
            ends[host] += 1
    if edges:
        return _from_edges(machine, edges, ends, faults)
    return _from_faults(machine, faults)


def _from_edges(
    machine: Machine, edges: Sequence[Accusation], ends: Mapping[str, int], faults: Mapping[str, list[Row]]
) -> list[Suspicion]:
    total = len(edges)
    at_all = sorted(h for h, n in ends.items() if n == total)
    with_fault = sorted(h for h in ends if faults.get(h))
    doubts: list[tuple[str, str]] = []
    alone = [h for h in with_fault if h in at_all] or with_fault
    one_of = False
    if len(alone) == 1:
        hosts = alone
        if hosts[0] not in at_all:
            doubts.append(("medium", f"{total - ends[hosts[0]]} of {total} failed connections do not touch {hosts[0]}"))
    elif alone:
        hosts, one_of = alone, True
        doubts.append(("medium", "more than one host of these connections has a link fault of its own"))
    elif len(at_all) == 1 and total > 1:
        hosts = at_all
        doubts.append(
            ("medium", "no log of its own device says so: told from the ends of the failed connections alone")
        )
    else:
        best = max(ends.values())
        hosts = at_all or sorted(h for h, n in ends.items() if n == best)
        one_of = len(hosts) > 1
        doubts.append(("low", "neither end has a fault of its own in the evidence: it may be the link between them"))
    if len(hosts) > 4:
        return []
    return [_suspicion(machine, tuple(hosts), edges, faults, tuple(doubts), one_of=one_of)]


def _from_faults(machine: Machine, faults: Mapping[str, list[Row]]) -> list[Suspicion]:
    """A port that is down, without an error that names it: enough to look at, not to be sure."""
    down = sorted(h for h, rows in faults.items() if any(not _came_back(machine, row) for row in rows))
    if len(down) != 1:
        return []
    doubts = (("medium", "no failed connection in the evidence points at it"),)
    return [_suspicion(machine, (down[0],), (), faults, doubts, one_of=False)]


def _suspicion(
    machine: Machine,
    hosts: tuple[str, ...],
    edges: Sequence[Accusation],
    faults: Mapping[str, list[Row]],
    doubts: tuple[tuple[str, str], ...],
    *,
    one_of: bool,
) -> Suspicion:
    rows = [row for host in hosts for row in faults.get(host, [])]
    devices = tuple(sorted({row.device for row in rows if row.device}))
    claims: list[Claim] = []
    for host in hosts:
        mine = faults.get(host, [])
        if mine:
            claims.append(_fault_claim(host, mine))
    if edges:
        claims.append(_edges_claim(hosts, edges))
    others = sorted({h for e in edges for h in (e.reporter, e.target)} - set(hosts))
    passed: list[tuple[str, tuple[int, ...], str]] = []
    if others:
        ranks = tuple(sorted({e.row.rank for e in edges if e.row.rank is not None and e.reporter in others}))
        passed.append(("link_fault", ranks, f"{some(others)} report errors and have no fault of their own"))
    for host in hosts:
        touched = touched_ranks(machine, host, devices)
        if touched and devices:
            text = f"the traffic of ranks {some([str(r) for r in touched], 12)} on {host} goes over {some(devices)}"
            claims.append(Claim("nccl_log", "uses_device", (), "weak", text, (), None, (host,), devices))
    since = min((row.ts for row in rows if row.ts is not None), default=None)
    waiting = tuple(sorted(r for r in machine.hosts if machine.hosts[r] not in hosts))
    return Suspicion(
        rule="",
        ranks=(),
        claims=tuple(claims),
        one_of=one_of,
        hosts=hosts,
        devices=devices,
        waiting=waiting,
        since=since,
        doubts=doubts,
        passed_over=tuple(passed),
    )


def _fault_claim(host: str, rows: Sequence[Row]) -> Claim:
    words: list[str] = []
    refs: list[Ref] = []
    for row in rows:
        source = {"nic_state": "nic_state", "link_down": "kernel_log"}.get(row.kind, "nccl_log")
        if row.kind == "link_down" and row.name == "async_event":
            source = "nccl_log"
            text = f"{host}: its own port reports {row.detail or 'an error'}" + (
                f" ({row.device})" if row.device else ""
            )
        elif row.kind == "nic_state":
            text = f"{host}: {row.device} is {row.detail} ({row.name.replace('_', ' ')})"
        else:
            text = f"{host}: link down of {row.device}" + (f" ({row.detail})" if row.detail else "")
        if text not in words:
            words.append(text)
            refs.append(row.ref(text, source))
    since = min((row.ts for row in rows if row.ts is not None), default=None)
    devices = tuple(sorted({row.device for row in rows if row.device}))
    return Claim("links", "link_down", (), "strong", "; ".join(words[:4]), tuple(refs[:6]), since, (host,), devices)


def _edges_claim(hosts: Sequence[str], edges: Sequence[Accusation]) -> Claim:
    refs: list[Ref] = []
    for edge in edges[:6]:
        code = edge.row.code
        what = f"{CODES.get(code, 'error')} (status {code})" if code is not None else edge.row.name
        who = f"rank {edge.row.rank} " if edge.row.rank is not None else ""
        text = f"{who}({edge.reporter}) cannot reach {edge.target}: {what}"
        refs.append(edge.row.ref(text, "nccl_log"))
    codes = sorted({e.row.code for e in edges if e.row.code is not None})
    words = ", ".join(f"{CODES.get(c, 'error')} (status {c})" for c in codes) or "no connection"
    touching = sum(1 for e in edges if {e.reporter, e.target} & set(hosts))
    text = f"{touching} of {len(edges)} failed connections have {some(hosts)} at one end: {words}"
    return Claim("nccl_log", "at_all_ends", (), "strong", text, tuple(refs), None, tuple(hosts))
