"""Who is gone, as told by others: a node that the launcher lost, a host whose connections its peers saw close.

"Connection closed by remote peer" says that the process at the other end ended; it cascades, so only the host that
every reporter names, and that reports nothing itself, is told by it. The reporter is a victim.
"""

from __future__ import annotations

import re
from typing import Final

from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.machine import Machine, Row, some

LEAST_REPORTERS: Final = 2
# Reasons of events with which a cluster ends a pod that did nothing wrong.
_EVICTIONS: Final = ("Evicted", "Preempted", "TaintManagerEviction")
# More hosts than this out of memory at once are the program's fault, and naming them says nothing.
_MOST_STARVED: Final = 4


def suspicions(machine: Machine) -> list[Suspicion]:
    """Return hosts that are gone or out of memory, else the host at the other end of all closed connections."""
    lost = [row for row in machine.of("host_fault") if row.name == "node_failure" and row.host]
    if lost:
        return [_lost(machine, lost)]
    if starved := _starved(machine):
        return [starved]
    if evicted := _evicted(machine):
        return [evicted]
    closed = _closed(machine) or _failed_pod(machine)
    return [closed] if closed is not None else []


def _starved(machine: Machine) -> Suspicion | None:
    """Return the hosts on which, by the launcher, a task of which no line says the rank ran out of memory."""
    missed = {_peer_of(machine, row) for row in machine.of("connection_closed") if row.peer}
    named = {
        row: row.host if row.name == "task" else row.name
        for row in machine.of("oom_kill")
        if row.rank is None and (row.name == "task" or machine.ranks_on(row.name) or row.name in missed)
    }
    rows = [row for row, host in named.items() if host]
    hosts = tuple(sorted({host for host in named.values() if host}))
    if not hosts or len(hosts) > _MOST_STARVED:
        return None
    text = f"the launcher says that a process on {some(hosts)} ran out of memory"
    since = min((row.ts for row in rows if row.ts is not None), default=None)
    refs = tuple(row.ref(text, "launcher") for row in rows[:4])
    return Suspicion(
        rule="",
        ranks=(),
        claims=(Claim("launcher", "out_of_memory", (), "proof", text, refs, since, hosts),),
        hosts=hosts,
        waiting=tuple(r for r, host in sorted(machine.hosts.items()) if host not in hosts),
        since=since,
        doubts=(("medium", "no line says which rank the process is"),),
    )


def _evicted(machine: Machine) -> Suspicion | None:
    """Return the pods with ranks of the job that the cluster took away."""
    rows = [row for row in machine.of("pod_state") if row.peer in _EVICTIONS and machine.ranks_on(row.name)]
    pods = tuple(sorted({row.name for row in rows}))
    if not pods or len(pods) > _MOST_STARVED:
        return None
    ranks = tuple(sorted({r for pod in pods for r in machine.ranks_on(pod)}))
    text = f"the cluster took {some(pods)} away: {some([row.peer for row in rows])}"
    refs = tuple(row.ref(text, "launcher") for row in rows[:4])
    since = min((row.ts for row in rows if row.ts is not None), default=None)
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=(
            Claim("launcher", "node_failed", ranks, "strong", text, refs, since, pods),
            *_closings(machine, {*pods}),
        ),
        hosts=pods,
        waiting=tuple(r for r in sorted(machine.hosts) if r not in ranks),
        since=since,
        doubts=(("medium", "the events of a cluster are kept for an hour: it may be an earlier one"),),
    )


def _job_of(pod: str) -> str:
    """Return what the pods of one job share: the name without the role and the number."""
    return re.sub(r"-(?:master|worker|launcher|chief|head|node|\d+)\b.*$", "", pod)


def _failed_pod(machine: Machine) -> Suspicion | None:
    """Return the one pod that failed, where a table shows all its others at work and ranks report that one stopped."""
    table = [row for row in machine.of("pod_state") if row.name and not row.peer]
    ours = {_job_of(pod) for pod in machine.hosts.values()}
    failed = {row.name: row for row in table if row.level == "error" and _job_of(row.name) in ours}
    well = {row.name for row in table if row.level == "info" and " Running " in row.text}
    if len(failed) != 1 or len(well) < LEAST_REPORTERS or not any(machine.ranks_on(pod) for pod in well):
        return None
    ((pod, row),) = failed.items()
    ranks = machine.ranks_on(pod)
    text = f"the cluster shows {pod} as failed and {len(well)} others running"
    claim = Claim("launcher", "exited", ranks, "strong", text, (row.ref(text, "launcher"),), row.ts, (pod,))
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=(claim,),
        one_of=len(ranks) > 1,
        hosts=(pod,),
        waiting=tuple(r for r in sorted(machine.hosts) if r not in ranks),
        since=row.ts,
        doubts=(("medium", f"what ended {pod} is not shown"),),
    )


def _lost(machine: Machine, rows: list[Row]) -> Suspicion:
    hosts = tuple(sorted({row.host for row in rows if row.host}))
    ranks = tuple(sorted({r for host in hosts for r in machine.ranks_on(host)}))
    text = f"the launcher lost {some(hosts)}: {rows[0].detail or 'node failure'}"
    refs = tuple(row.ref(text, "launcher") for row in rows[:4])
    since = min((row.ts for row in rows if row.ts is not None), default=None)
    claims = [Claim("launcher", "node_failed", ranks, "strong", text, refs, since, hosts)]
    claims += _closings(machine, set(hosts))
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=tuple(claims),
        hosts=hosts,
        waiting=tuple(r for r in sorted(machine.hosts) if r not in ranks),
        since=since,
    )


def _closings(machine: Machine, hosts: set[str]) -> list[Claim]:
    rows = [row for row in machine.of("connection_closed") if row.peer and _peer_of(machine, row) in hosts]
    if not rows:
        return []
    who = sorted({f"rank {row.rank}" if row.rank is not None else str(row.host) for row in rows})
    text = f"{some(who)} saw the connection to {some(sorted(hosts))} close"
    refs = tuple(row.ref(text, "nccl_log") for row in rows[:4])
    ranks = tuple(sorted({r for host in hosts for r in machine.ranks_on(host)}))
    return [Claim("nccl_log", "closed_by", ranks, "strong", text, refs, rows[0].ts, tuple(sorted(hosts)))]


# What Kubernetes puts behind the name of a pod.
_CLUSTER_NAME: Final = re.compile(r"(?:\.[\w-]+){0,2}\.svc(?:\.[\w-]+){0,2}$")


def _peer_of(machine: Machine, row: Row) -> str | None:
    """Return the host at the other end; one of which there is no other line is known by the name in this one."""
    known = machine.host_at(row.peer)
    named = re.match(r"(?P<name>[A-Za-z][\w.-]*?)(?:<\d{1,5}>)?$", row.peer)
    short = _CLUSTER_NAME.sub("", named["name"]) if named is not None else ""
    return known or (short if named is not None and not row.peer.startswith("localRank") else None)


def _closed(machine: Machine) -> Suspicion | None:
    edges = [
        (source, target, row)
        for row in machine.of("connection_closed")
        if row.peer and (source := machine.host_of(row)) and (target := _peer_of(machine, row)) and source != target
    ]
    targets = {target for _source, target, _row in edges}
    reporters = {row.rank if row.rank is not None else source for source, _target, row in edges}
    if len(targets) != 1 or len(reporters) < LEAST_REPORTERS or targets & {source for source, _t, _r in edges}:
        return None
    host = next(iter(targets))
    ranks = machine.ranks_on(host)
    several = len(ranks) > 1
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=tuple(_closings(machine, {host})),
        one_of=several,
        hosts=(host,),
        waiting=tuple(r for r in sorted(machine.hosts) if r not in ranks),
        since=min((row.ts for _s, _t, row in edges if row.ts is not None), default=None),
        doubts=(("medium", f"nothing but its peers' words says what became of {host}"),),
    )
