"""Findings of stalls that were over again: a link that flaps, a proxy that sleeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from mycroft.analysis.case import count_words
from mycroft.analysis.certainty import LOST_CREDIT, LOST_CREDIT_WORDS, Certainty
from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_MS, NS_PER_S, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.findings import iso
from mycroft.analysis.intermittent import Repeated, events, repeated
from mycroft.analysis.slow_findings import HOSTS
from mycroft.analysis.verdict import Alternative, Component, Evidence, Finding, Flow, RootCause

# One event may be an accident; the second one of the same component is a pattern.
ONCE: Final = 0.85
NET_WORDS: Final = "what it sent was not acknowledged for {held:.1f} s, then went on"
PROXY_WORDS: Final = "its proxy thread posted or handed over nothing for {held:.1f} s, then went on"
PROCESS_WORDS: Final = "its sampler, which wakes by the clock, came {late:.1f} s late, and flows stood for {held:.1f} s"
# Whether it was stopped, swapped out, throttled or lacked a processor is not in the trace.
WHY_AWAY: Final = 0.75


def intermittent_findings(
    store: Frames, limits: FlowLimits = FLOW_DEFAULTS, *, at: int | None = None
) -> tuple[Finding, ...]:
    """Return what held the job up for a moment within the last hour before `at`, the most frequent first."""
    found = events(store, limits, until_ns=at)
    if not found:
        return ()
    moment = at if at is not None else max(e.end_ns for e in found)
    hosts = {int(r): h for r, _, h in store.frame(HOSTS).iter_rows()}
    return tuple(_finding(one, hosts) for one in repeated(found, at_ns=moment))


def _finding(one: Repeated, hosts: Mapping[int, str | None]) -> Finding:
    net = one.component == "nic"
    # Processes that were not run are all of them named; of devices that fit the evidence, one is meant.
    one_of = len(one.ranks) > 1 and one.component != "process"
    category, component = _CLASSES[one.component]
    longest = max(one.events, key=lambda e: (e.held_s, -e.began_ns))
    who = f"rank {one.ranks[0]} or rank {one.ranks[1]}" if len(one.ranks) == 2 else count_words(one.ranks)
    names = tuple(sorted({h for r in one.ranks if (h := hosts.get(r)) is not None}))
    times = len(one.events)
    held = longest.held_s
    late = max(e.late_ns for e in one.events) / NS_PER_S
    subject, words, next_step = _TOLD[one.component]
    if one.component == "process" and len(one.ranks) > 1:
        who = f"each of {count_words(one.ranks)}"
    what = words.format(held=held, late=late)
    summary = f"{subject.format(who=who)}: {what} ({times} time{'s' if times > 1 else ''} so far)."
    certainty = Certainty()
    if one.component == "process":
        certainty.add("why", WHY_AWAY, "the trace does not say why the process was not run")
    else:
        certainty.add("set size", 1 / len(one.ranks), f"the evidence fits {count_words(one.ranks)}")
    certainty.add(
        "repetition", 1.0 if times > 1 else ONCE, f"{times} event{'s' if times > 1 else ''} of this component"
    )
    if one.handed_over_late:
        certainty.add("credit", LOST_CREDIT, LOST_CREDIT_WORDS)
    touches: Counter[int] = Counter()
    for event in one.events:
        touches.update(event.touches)
    most = max(touches[r] for r in one.ranks)
    runner = max((n for r, n in touches.items() if r not in one.ranks), default=0)
    if net and not one_of:
        certainty.add("margin", 1 - runner / most / 2, f"touched by {most} held flows, the next rank by {runner}")
    return Finding(
        id="f0",
        status="slow",
        category=category,
        component=component,
        confidence=certainty.word(one_of=one_of),
        certainty=certainty.value,
        root_cause=RootCause(ranks=one.ranks, hosts=names, flow=_flow(one), one_of=one_of),
        summary=summary,
        why=f"{what[:1].upper()}{what[1:]}, on {len(longest.flows)} flow{'s' if len(longest.flows) > 1 else ''}.",
        confidence_why=certainty.told(),
        since=iso(min(e.began_ns for e in one.events)),
        evidence=_evidence(one),
        alternatives=_alternatives(one, net=net),
        next_steps=(next_step,),
    )


_CLASSES: Final[dict[str, tuple[str, Component]]] = {
    "nic": ("link_fault", "nic"),
    "proxy": ("proxy_stall", "process"),
    "process": ("process_stopped", "process"),
}
# Who, what, and what to look at.
_TOLD: Final = {
    "nic": (
        "The network of {who} (device or path) stops for moments",
        NET_WORDS,
        "ibstat; dmesg -T | grep -iE 'link|mlx'; link_downed and symbol errors of the port; then the cable",
    ),
    "proxy": (
        "The communication library of {who} stops for moments",
        PROXY_WORDS,
        "top -H of the process: what keeps the thread NCCL Progress from running; CPU limits and pinning",
    ),
    "process": (
        "The process of {who} is not run for moments",
        PROCESS_WORDS,
        "top; vmstat 1 (swap, steal); nr_throttled in the cpu.stat of its cgroup: what takes its processor",
    ),
}


def _flow(one: Repeated) -> Flow | None:
    flow = one.events[-1].flows[0]
    if len(one.ranks) > 1:
        return None
    sends = flow.src in one.ranks
    channels = {f.channel for e in one.events for f in e.flows}
    return Flow(
        channel=flow.channel if len(channels) == 1 else None,
        peer=flow.dst if sends else flow.src,
        dir="send" if sends else "recv",
    )


def _evidence(one: Repeated) -> tuple[Evidence, ...]:
    rows: list[Evidence] = []
    for event in one.events[-4:]:
        flow = event.flows[0]
        if one.component == "process":
            claim = (
                f"the sampler of rank {event.ranks[0]} came up to {event.late_ns // NS_PER_MS} ms late between "
                f"{iso(event.began_ns)} and {iso(event.end_ns)}"
            )
            key = {"rank": event.ranks[0]}
            rows.append(Evidence(id=f"e{len(rows) + 1}", claim=claim, table="heartbeat", key=key, source="tracer"))
        claim = (
            f"{flow.kind} {flow.seq} from rank {flow.src} to rank {flow.dst} on channel {flow.channel}: "
            f"one slice held for {flow.held_ns // NS_PER_MS} ms, over at {iso(flow.end_ns)}"
        )
        send = flow.rank == flow.src
        key = {
            "rank": flow.rank,
            "comm_id": flow.comm,
            "op_seq": flow.seq,
            "channel": flow.channel,
            "dir": "send" if send else "recv",
            "peer": flow.dst if send else flow.src,
        }
        rows.append(Evidence(id=f"e{len(rows) + 1}", claim=claim, table="flow_ops", key=key, source="tracer"))
    return tuple(rows)


def _alternatives(one: Repeated, *, net: bool) -> tuple[Alternative, ...]:
    if one.component == "process":
        words = "a process that is not run moves no data, whatever its link and its proxy do"
        return (Alternative("link_fault", one.ranks, words), Alternative("proxy_stall", one.ranks, words))
    if not net:
        link = "the slice was not handed to the network, or its buffer not posted"
        if one.handed_over_late:
            link = f"not excluded: {LOST_CREDIT_WORDS}"
        return (
            Alternative("link_fault", one.ranks, link),
            Alternative("device_hang", one.ranks, "the data was there, or the buffer free, while it waited"),
        )
    ends = tuple(sorted({r for e in one.events for f in e.flows for r in (f.src, f.dst)} - set(one.ranks)))
    found = [Alternative("proxy_stall", one.ranks, "the slice was handed over, and the receiver had posted its buffer")]
    if ends:
        found.append(
            Alternative("link_fault", ends, "fewer of the held flows touch it, or it carried others meanwhile")
        )
    return tuple(found)
