"""Why a stall is what it is said to be: what else shares its pattern and is excluded, and how sure that leaves one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mycroft.analysis.certainty import (
    ACCUSED_SILENT,
    AGREES,
    LOST_CREDIT,
    LOST_CREDIT_WORDS,
    NEVER_HEARD,
    OP_LEVEL_ABSENT,
    OP_LEVEL_DEVICE,
    SEND_ONLY,
    UNHEARD,
    UNHEARD_SINCE,
    UNHEARD_SINCE_NS,
    Certainty,
)
from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.facts import Frames
from mycroft.analysis.flow import FlowKey, Snapshot
from mycroft.analysis.progress import pattern_of
from mycroft.analysis.verdict import Alternative

# What devices, drivers and kernels said of themselves.
DEVICE_EVENTS: Final = """
SELECT CASE WHEN kind = 'other' THEN name ELSE CAST(kind AS VARCHAR) END AS kind, rank, host_id
FROM events
WHERE (
        kind IN ('xid', 'link_down', 'ib_error', 'pcie_error', 'gpu_state', 'nic_state', 'oom_kill', 'signal')
        OR (kind = 'other' AND name = 'unheard')
    )
    AND (rank IS NOT NULL OR host_id IS NOT NULL)
    AND (level IS NULL OR level <> 'info')
ORDER BY file_id, line
LIMIT 2000
"""
HOST_NAMES: Final = "SELECT host_id, name FROM hosts ORDER BY host_id"
_AGREEING: Final[Mapping[str, tuple[str, ...]]] = {
    "net": ("link_down", "ib_error", "nic_state"),
    "gpu": ("xid", "gpu_state"),
    "nvlink": ("xid", "gpu_state"),
    "flush": ("pcie_error",),
    "crash": ("oom_kill", "signal"),
    "silent": ("oom_kill", "signal"),
}
_CATEGORY: Final[Mapping[str, str]] = {
    "app": "absent",
    "crash": "process_died",
    "proxy": "proxy_stall",
    "recv_proxy": "proxy_stall",
    "net": "link_fault",
    "flush": "pcie_degraded",
    "gpu": "device_hang",
}
# A stage that the counters alone name, in a circle of two orders: neither is wrong by itself.
MINORITY: Final = 0.6


@dataclass(frozen=True, slots=True)
class Said:
    """What other sources say of devices: by kind, the ranks and hosts."""

    ranks: Mapping[str, frozenset[int]]
    hosts: Mapping[str, frozenset[str]]

    def agrees(self, sink: str, rank: int, host: str | None) -> bool:
        """Say whether another source names this rank's device, or its host's."""
        kinds = _AGREEING.get(sink, ())
        return any(rank in self.ranks.get(k, ()) or (host is not None and host in self.hosts.get(k, ())) for k in kinds)

    def unheard(self, rank: int) -> bool:
        """Say whether the agent beside this rank had fallen silent when its rows were taken."""
        return rank in self.ranks.get("unheard", ())


def unheard_words(hosts: Iterable[str]) -> str:
    """Return why silence of processes on these hosts says little: their agents are silent as well."""
    named = ", ".join(sorted(hosts)[:4])
    return f"nothing is heard of {named}: it may be the host, or only its agent or the way from there"


def said_by_devices(store: Frames) -> Said:
    """Read what other sources say."""
    ranks: dict[str, set[int]] = {}
    hosts: dict[str, set[str]] = {}
    rows = store.frame(DEVICE_EVENTS)
    # Most traces have none of them.
    names = dict(store.frame(HOST_NAMES).iter_rows()) if rows.height else {}
    for kind, rank, host in rows.iter_rows():
        if rank is not None:
            ranks.setdefault(kind, set()).add(int(rank))
        elif (name := names.get(host)) is not None:
            hosts.setdefault(kind, set()).add(str(name))
    return Said({k: frozenset(v) for k, v in ranks.items()}, {k: frozenset(v) for k, v in hosts.items()})


def excluded(snapshot: Snapshot, flow: FlowKey, sink: str) -> tuple[Alternative, ...]:
    """Return every row of the table that shares the sender's pattern with the one found, and what speaks against it.

    What the rows do not exclude is said as such: absence of a half excludes nothing.
    """
    send, recv = snapshot.send.get(flow), snapshot.recv.get(flow)
    slots = snapshot.slots(flow.op)
    no_recv = f"not excluded: no rows of rank {flow.dst} for this flow"
    no_send = f"not excluded: no rows of rank {flow.src} for this flow"
    heard = {r: (snapshot.at_ns - ts) / NS_PER_S for r, ts in snapshot.heard.items()}
    rows: list[tuple[str, int, str]] = []

    def add(name: str, rank: int, words: str) -> None:
        if name != sink or rank not in (flow.src, flow.dst):
            rows.append((name, rank, words))

    def alive(rank: int) -> None:
        add(
            "crash",
            rank,
            f"its sampler was heard {heard[rank]:.1f} s ago" if rank in heard else "not excluded: no trace of it",
        )

    pattern = pattern_of(send)
    if send is None:
        alive(flow.src)
        add("net", flow.src, no_send)
    elif pattern == "2>3":
        alive(flow.dst)
        add("app", flow.dst, no_recv if recv is None else f"it has entered: its half shows {recv.posted} posted")
        add("proxy", flow.src, f"it has handed over {send.moved}, more than the {send.done} acknowledged")
        posted = no_recv if recv is None else f"it has posted {recv.posted}, more than the {send.done} acknowledged"
        add("recv_proxy", flow.dst, posted)
        add("gpu", flow.dst, no_recv if recv is None else f"{recv.ready} are there, {recv.done} of them consumed")
        add("flush", flow.dst, no_recv if recv is None else f"{recv.moved} received, {recv.ready} of them flushed")
    elif pattern == "1>2":
        add("app", flow.dst, no_recv if recv is None else f"it has entered: its half shows {recv.posted} posted")
        if recv is not None and recv.posted > send.moved:
            add("net", flow.dst, "not excluded: a link that loses the receiver's word of what it posted looks the same")
        else:
            add("net", flow.src, f"all that was handed over is acknowledged ({send.done} of {send.moved})")
        if recv is None:
            for name, rank in (("proxy", flow.src), ("recv_proxy", flow.dst), ("gpu", flow.dst)):
                add(name, rank, no_recv)
        else:
            add("proxy", flow.src, f"the receiver has posted {recv.posted}, no more than the {send.moved} handed over")
            free = recv.done + slots - recv.posted
            add("recv_proxy", flow.dst, f"posted {recv.posted}, {max(free, 0)} of {slots} slots free")
            add("gpu", flow.dst, f"{recv.ready} are there, {recv.done} of them consumed")
            add("flush", flow.dst, f"{recv.moved} received, {recv.ready} of them flushed")
    elif pattern == "1=2=3<N":
        add("app", flow.src, "it has entered: its half of the flow is there")
        add("net", flow.src, f"all that was handed over is acknowledged ({send.done} of {send.moved})")
        add("proxy", flow.src, f"all that the GPU filled was handed over ({send.moved} of {send.ready})")
        inputs = [snapshot.recv[k] for k in snapshot.recvs_of(flow.op, flow.channel, flow.src) if k in snapshot.recv]
        if inputs:
            words = ", ".join(f"{h.moved} received and {h.ready} flushed" for h in inputs)
            add("flush", flow.src, f"of its inputs {words}")
    else:
        add("net", flow.src, "all of it is acknowledged" if recv is None else f"{recv.moved} of {recv.total} received")
        if recv is not None:
            add("flush", flow.dst, f"{recv.moved} received, {recv.ready} of them flushed")
    return tuple(Alternative(_CATEGORY[name], (rank,), words) for name, rank, words in rows)


@dataclass(frozen=True, slots=True)
class Weight:
    """What the certainty of one cause is made of."""

    sink: str
    ranks: tuple[int, ...]
    one_of: bool
    blocked: int
    all_blocked: int
    own: int
    """How many of the accused are blocked themselves, by what they are accused of."""
    runner_up: int
    flow: FlowKey | None
    """The flow that the walk ended at; None: it ended at an operation or a rank."""
    age_ns: int
    limit_ns: int
    host_answers: bool
    agrees: bool
    unheard: tuple[str, ...] = ()
    """Hosts of accused ranks from whose agents nothing came any more when the rows were taken."""
    minority: bool = False


def certainty_of(snapshot: Snapshot, w: Weight) -> Certainty:
    """Multiply the terms of the design."""
    found = Certainty()
    candidates = max(1, len(w.ranks)) if w.one_of else 1
    fits = f"the evidence fits {candidates} ranks equally" if candidates > 1 else "the evidence fits nobody else"
    found.add("set size", 1 / candidates, fits)
    share = w.blocked / w.all_blocked if w.all_blocked else 1.0
    found.add("blame", share, f"{w.blocked - w.own} of {w.all_blocked - w.own} other blocked ranks wait for it")
    margin = 1 - w.runner_up / max(w.blocked, w.runner_up + 1) if w.runner_up else 1.0
    found.add("margin", margin, f"the next cause blocks {w.runner_up}" if w.runner_up else "no other cause")
    value, words = _sides(snapshot, w)
    found.add("sides", value, words)
    old = min(1.0, w.age_ns / w.limit_ns) if w.limit_ns else 1.0
    found.add("age", old, f"stands for {w.age_ns / NS_PER_S:.1f} s, told from {w.limit_ns / NS_PER_S:.0f} s on")
    traced = {r for m in snapshot.members.values() for r in m}
    seen = len(traced & snapshot.traced - snapshot.lost) / len(traced) if traced else 1.0
    data = seen * (1 - min(snapshot.loss, 1.0))
    lost = len(traced - snapshot.traced)
    words = f"{lost} ranks left no trace" if lost else f"{snapshot.loss:.0%} of the heartbeats are missing"
    if snapshot.lost:
        words = f"nothing is heard of {len(snapshot.lost)} ranks"
    found.add("data", data, words)
    if w.sink == "proxy":
        found.add("credit", LOST_CREDIT, LOST_CREDIT_WORDS)
    if w.unheard:
        fell = max((snapshot.heard[r] for r in w.ranks if r in snapshot.heard), default=0)
        since = w.sink in ("crash", "silent") and fell >= snapshot.at_ns - w.age_ns - UNHEARD_SINCE_NS
        words = unheard_words(w.unheard) + ("; it fell silent as the job stopped" if since else "")
        found.add("heard", UNHEARD_SINCE if since else UNHEARD, words)
    if w.minority:
        found.add("order", MINORITY, "of two orders the one of fewer ranks is named: neither is wrong by itself")
    found.add("corroboration", AGREES if w.agrees else 1.0, "a device says so too" if w.agrees else "no other source")
    return found


def _sides(snapshot: Snapshot, w: Weight) -> tuple[float, str]:
    accused_traced = any(r in snapshot.traced for r in w.ranks)
    if w.sink in ("crash", "silent", "stopped"):
        if w.sink == "silent" and not any(r in snapshot.heard for r in w.ranks):
            return NEVER_HEARD, "its trace holds no row: it ended at once, never began, or was not traced"
        if w.sink == "silent" and not w.host_answers:
            return ACCUSED_SILENT, "nothing comes from it or its host: process, host and tracer cannot be told apart"
        return 1.0, "others of its host are heard" if w.host_answers else "its process was looked at"
    if not accused_traced:
        return ACCUSED_SILENT, "nothing comes from the accused itself"
    if w.flow is not None and w.sink != "app":
        sides = (w.flow in snapshot.send) + (w.flow in snapshot.recv)
        return (
            (1.0, "both halves of the flow were seen")
            if sides > 1
            else (SEND_ONLY, "only one half of the flow was seen")
        )
    if not snapshot.send and not snapshot.recv and not any(o.started for ops in snapshot.open.values() for o in ops):
        value = OP_LEVEL_ABSENT if w.sink == "app" else OP_LEVEL_DEVICE
        return value, "only operations were seen, no flows and no kernels"
    return 1.0, "the accused's own rows were seen"


def minority(inside: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Return the ranks of a circle that took the order of fewer; empty: as many took either.

    `inside`: communicator -> ranks of the circle that are inside an operation of it.
    """
    sizes = sorted((len(set(r)), c) for c, r in inside.items())
    if len(sizes) < 2 or sizes[0][0] == sizes[1][0]:
        return ()
    return tuple(sorted(set(inside[sizes[0][1]])))
