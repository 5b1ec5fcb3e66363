"""Rules over what NCCL, the kernel and the machines say; they stand in `culprits.RULES` beside those over the dumps.

Each takes the case and the sinks that nobody has explained yet. A rule that needs the job to be in trouble says so:
an old Xid or a link that once flapped is no finding on a healthy job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from mycroft.analysis import (
    claims_bench,
    claims_calls,
    claims_counters,
    claims_device,
    claims_host,
    claims_init,
    claims_links,
    claims_peers,
    claims_perf,
    claims_ras,
    claims_reports,
    claims_transport,
    claims_watchdog,
)
from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.link_matrix import read_matrices
from mycroft.analysis.machine import Machine, some

if TYPE_CHECKING:
    from mycroft.analysis.case import Case

Explained = tuple[list[Suspicion], set[int]]

# Claims that say why a rank does not come.
_REASONS: Final = (
    "in_dataloader",
    "in_checkpoint",
    "in_evaluation",
    "in_exception",
    "in_code",
    "exception",
    "killed",
    "out_of_memory",
    "finished",
    "gpu_fault",
    "killed_by_ras",
)
# Claims that say how a process ended.
_ENDED: Final = ("killed", "out_of_memory", "exception", "gpu_fault")
# A job is slow when the last third of its steps takes so many times what the first took.
_STEPS_SLOWER: Final = 1.3
_LEAST_STEPS: Final = 5
_SYMPTOMS: Final = ("connection_closed", "ib_error", "cuda_error", "exception", "connect_failed")


def symptom_time(machine: Machine, first_wait: int | None) -> int | None:
    """Return when the trouble began, ns UTC: the first wait, the call behind the first timeout, or the first error.

    The watchdog's line comes as long after the stop as the timeout; its time less `ran for` is when the rank called.
    """
    times = [first_wait] if first_wait is not None else []
    for row in machine.of("watchdog_timeout"):
        if row.ts is not None and row.quality != "order_only":
            times.append(row.ts - round((row.dur_ms or 0) * 1e6))
    for row in machine.of(*_SYMPTOMS):
        if row.ts is not None and row.quality != "order_only":
            times.append(row.ts)
    return min(times, default=None)


def in_trouble(case: Case) -> bool:
    """Say whether the job itself shows that something went wrong, or says nothing of itself at all."""
    failed = any(life.victim_error or life.own_error or life.killed for life in case.lives.values())
    failed = failed or bool(case.machine.of(*_SYMPTOMS))
    silent = not case.facts.dumps and not case.lives and case.facts.steps.is_empty() and case.machine.perf.is_empty()
    return bool(case.graph.waiting) or failed or silent


def gpu_fault(case: Case, left: set[int]) -> Explained:
    """A GPU that reported a fatal error in time: its rank is gone, whatever the others print."""
    if not in_trouble(case):
        return [], set()
    found = claims_device.suspicions(case.machine, case.since)
    if not found:
        return [], set()
    ranks = {r for s in found for r in s.ranks}
    explained = {
        i for i in left if case.graph.sinks[i].kind in ("stuck", "device") or ranks & set(case.graph.sinks[i].ranks)
    }
    results: list[Suspicion] = []
    for item in found:
        sinks = tuple(i for i in sorted(explained) if set(item.ranks) & set(case.graph.sinks[i].ranks))
        results.append(replace(item, claims=(*item.claims, *case.life_signs(item.ranks)), sinks=sinks))
    return results, explained


def transport(case: Case, left: set[int]) -> Explained:
    """Errors of connections: the host at all ends of them that has a fault of its own."""
    if not in_trouble(case):
        return [], set()
    found = claims_transport.suspicions(case.machine, case.since)
    ended = any(c.kind in _ENDED for c in case.signs)
    if ended:
        # A peer that died breaks its connections too: only a port's own words stand against that.
        found = [s for s in found if any(c.kind == "link_down" for c in s.claims) and not s.doubts]
    return found, {i for i in left if found and case.graph.sinks[i].kind in ("stuck", "waits", "unseen")}


def start_up(case: Case, left: set[int]) -> Explained:
    """The job never came up: an address that nobody can reach."""
    if case.facts.dumps or case.graph.waiting:
        return [], set()
    return claims_init.suspicions(case.machine) or claims_init.missing_clients(case.machine, case.lives), set()


def reports(case: Case, left: set[int]) -> Explained:
    """No dump, but the program itself compared its ranks and says who differs or did not join."""
    if case.graph.waiting or case.facts.dumps:
        return [], set()
    found = claims_reports.suspicions(case.machine)
    return [
        replace(s, claims=(*s.claims, *case.place_claims(s.ranks), *case.life_signs(s.ranks))) for s in found
    ], set()


def gone(case: Case, left: set[int]) -> Explained:
    """The launcher lost a node, or every closed connection leads to one host, and nothing says more of it."""
    lost = any(row.name == "task" for row in case.machine.of("oom_kill"))
    lost = lost or any(row.name == "node_failure" for row in case.machine.of("host_fault"))
    if case.graph.waiting or any(c.kind in _ENDED for c in case.signs) or not (in_trouble(case) or lost):
        return [], set()
    if case.machine.of("ib_error") or any(life.ended_well for life in case.lives.values()):
        return [], set()
    # Who reports a timeout was there until its own watchdog took it down, and closed its connections by that.
    timed_out = {row.rank for row in case.machine.of("watchdog_timeout")}
    found = claims_peers.suspicions(case.machine)
    return [s for s in found if s.has("node_failed") or not s.ranks or not set(s.ranks) <= timed_out], set()


def watchdog(case: Case, left: set[int]) -> Explained:
    """No dump, but the watchdogs of the ranks say who waits and how far each has come, or NCCL lists their calls."""
    if case.graph.waiting or case.facts.dumps:
        return [], set()
    found = claims_watchdog.suspicions(case.machine, case.facts)
    if not found and in_trouble(case):
        found = claims_calls.suspicions(case.machine)
    dead = claims_ras.dead(case.machine)
    return [
        _narrowed(
            case,
            replace(
                s,
                claims=(
                    *s.claims,
                    *(c for c in dead if set(c.ranks) <= set(s.ranks)),
                    *case.place_claims(s.ranks),
                    *case.life_signs(s.ranks),
                ),
            ),
        )
        for s in found
    ], set()


def _narrowed(case: Case, item: Suspicion) -> Suspicion:
    """Of several that print nothing, name those of which something says what they do instead.

    Else those that do not even report that others stopped: whoever reports that was in an operation with them.
    """
    unproven = only_silent(item)
    reasons = {c.ranks[0] for c in item.claims if len(c.ranks) == 1 and c.kind in _REASONS}
    mute = {r for r in item.ranks if not case.is_victim(r)}
    if unproven and not reasons and mute and mute < set(item.ranks):
        rest = some([str(r) for r in item.ranks if r not in mute])
        doubt = ("medium", f"rank {rest} prints nothing of it either, but reports a lost connection")
        return replace(item, ranks=tuple(sorted(mute)), doubts=(*item.doubts, doubt))
    if not unproven or not reasons or not reasons < set(item.ranks):
        return item
    rest = some([str(r) for r in item.ranks if r not in reasons])
    doubt = ("medium", f"rank {rest} prints nothing either, and nothing says what it does")
    kept = tuple(c for c in item.claims if len(c.ranks) != 1 or c.ranks[0] in reasons)
    return replace(item, ranks=tuple(sorted(reasons)), claims=kept, doubts=(*item.doubts, doubt))


def only_silent(item: Suspicion) -> bool:
    """Say whether all that is known of ranks is that no line of theirs speaks of the operation."""
    return any(c.kind == "absent" and "prints nothing" in c.text for c in item.claims)


def ras(case: Case, left: set[int]) -> Explained:
    """NCCL's own count of launched operations: who is behind and stays behind."""
    named = {r for i in left for r in case.graph.sinks[i].ranks if case.graph.sinks[i].kind in ("absent", "no_dump")}
    if named:
        # The dumps name somebody already; what RAS says of that rank is attached to it.
        return [], set()
    found = [
        replace(s, claims=(*s.claims, *case.place_claims(s.ranks), *case.life_signs(s.ranks)))
        for s in claims_ras.suspicions(case.machine)
    ]
    return found, {i for i in left if found and case.graph.sinks[i].kind in ("stuck", "waits", "unseen")}


def slow(case: Case, left: set[int]) -> Explained:
    """Nothing stands still and nothing failed: who arrives late, or which transfer became slow."""
    if case.graph.waiting or any(life.victim_error or life.killed for life in case.lives.values()):
        return [], set()
    found: list[Suspicion] = []
    for item in claims_perf.suspicions(case.machine):
        found.append(_located(case, item) if not item.ranks else item)
    found += claims_links.suspicions(read_matrices(case.facts.store))
    alone = case.machine.perf.is_empty() and not case.facts.dumps
    if not found and alone and (slowed := steps_slowed(case.machine.steps_ms)):
        doubt = (("medium", f"{slowed}; that this machine is why is told from its state alone"),)
        found = [replace(s, doubts=doubt) for s in _state_alone(case.machine, also=("slow_clock",))]
    elif not found and alone and not case.lives:
        found = _state_alone(case.machine)
    return found, set()


def benchmarks(case: Case, left: set[int]) -> Explained:
    """What a benchmark shows of hosts and paths holds whatever becomes of the job."""
    return claims_bench.suspicions(case.machine), set()


def _located(case: Case, item: Suspicion) -> Suspicion:
    """Say where a slow transfer is slow, if a counter or a device says so."""
    machine = case.machine
    congested = [c for c in claims_counters.congested(machine) if c.kind in ("congested", "paused")]
    main = next((c for c in congested if c.kind == "congested"), None)
    if main is not None:
        return replace(
            item,
            ranks=main.ranks,
            hosts=main.hosts,
            devices=main.devices,
            claims=(*item.claims, *congested),
            waiting=tuple(r for r in item.waiting if r not in main.ranks),
        )
    for claim in (*claims_host.narrow_links(machine), *claims_counters.bad_links(machine)):
        if claim.hosts:
            return replace(
                item,
                ranks=machine.ranks_on(claim.hosts[0]),
                hosts=claim.hosts,
                devices=claim.devices,
                claims=(*item.claims, claim),
            )
    doubt = ("low", "nothing in the evidence says where the transfer is slow: counters of the NICs would")
    return replace(item, doubts=(*item.doubts, doubt))


def steps_slowed(times: Sequence[float]) -> str:
    """Return in words that steps became slower and stayed so; empty: they did not."""
    third = len(times) // 3
    if third < _LEAST_STEPS:
        return ""
    was, now = median(times[:third]), median(times[-third:])
    return f"steps take {now:.0f} ms instead of {was:.0f} ms" if now >= _STEPS_SLOWER * was else ""


def _state_alone(machine: Machine, also: tuple[str, ...] = ()) -> list[Suspicion]:
    """Only the state of machines was handed over: what is out of order there, without knowing that it matters."""
    doubt = (("medium", "the evidence does not show that the job was slow because of it"),)
    found: list[Suspicion] = []
    for claim in (
        *claims_host.throttled(machine),
        *claims_host.narrow_links(machine),
        *claims_counters.congested(machine),
    ):
        if claim.kind in ("throttled", "narrow_link", "congested", *also):
            found.append(Suspicion("", claim.ranks, (claim,), hosts=claim.hosts, devices=claim.devices, doubts=doubt))
    return found if len(found) <= 4 else []


def enrich(case: Case, item: Suspicion) -> Suspicion:
    """Add what the machines say of the ranks and hosts of a suspicion that other rules made."""
    machine = case.machine
    if item.has("link_down"):
        item = replace(item, hosts=tuple(_pod_of(machine, host) for host in item.hosts))
    hosts = set(item.hosts) | {h for r in item.ranks if (h := machine.hosts.get(r))}
    hosts |= {machine.nodes[h] for h in hosts if h in machine.nodes}
    extra: list[Claim] = []
    if item.ranks:
        extra += [c for c in claims_device.claims(machine, case.since) if set(c.ranks) & set(item.ranks)]
    slow_kind = item.has("late", "slow_host", "slow_transfer", "slow_path")
    if slow_kind:
        extra += _about(claims_host.throttled(machine), item.ranks, hosts, by_host=not item.ranks)
        extra += _about(claims_host.narrow_links(machine), item.ranks, hosts, by_host=True)
        extra += _about(claims_host.memory_faults(machine), item.ranks, hosts, by_host=False)
    if item.has("in_checkpoint", "in_dataloader", "checkpoint_announced", "absent", "silent"):
        extra += [c for c in claims_host.storage(machine) if not c.hosts or set(c.hosts) & hosts or not hosts]
    new = [c for c in dict.fromkeys(extra) if c not in item.claims]
    if not new:
        return item
    devices = item.devices
    if slow_kind or item.has("gpu_fault") or any(c.kind == "gpu_fault" for c in new):
        devices = tuple(dict.fromkeys((*devices, *(d for c in new for d in c.devices))))
    return replace(item, claims=(*item.claims, *new), devices=devices)


def _pod_of(machine: Machine, host: str) -> str:
    """Return the pod that stands for a node: the job knows its pods, the kernel the nodes below them."""
    return host if machine.ranks_on(host) else machine.pods.get(host, host)


def _about(claims: Sequence[Claim], ranks: Sequence[int], hosts: set[str], *, by_host: bool) -> list[Claim]:
    wanted = set(ranks)
    return [c for c in claims if wanted & set(c.ranks) or (by_host and hosts & set(c.hosts))]
