"""From the ends of the walk over flows to findings: who, which stage of which flow, how sure, what next."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from mycroft.analysis.case import count_words
from mycroft.analysis.certainty import Certainty
from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_S, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.findings import iso
from mycroft.analysis.flow import FlowKey, OpKey, Snapshot
from mycroft.analysis.flow_graph import Cause, FlowGraph, flow_node, flow_of, op_of
from mycroft.analysis.flow_rows import read_snapshot
from mycroft.analysis.stall_causes import OF_RANKS, ends_of, grouped, kind_of, of_hosts, one_operation, unsent
from mycroft.analysis.stall_reasons import Weight, certainty_of, excluded, minority, said_by_devices
from mycroft.analysis.verdict import (
    Alternative,
    Collective,
    Component,
    Evidence,
    Finding,
    Flow,
    Link,
    RootCause,
    Status,
)
from mycroft.analysis.walk import Node

NAMES: Final = """
SELECT comm_id AS comm, key, coalesce(nullif("desc", ''), name) AS title
FROM communicators
ORDER BY comm_id
"""
HOSTS: Final = "SELECT r.rank, h.name AS host, r.pid FROM ranks r LEFT JOIN hosts h USING (host_id) ORDER BY r.rank"
# What keeps a rank from coming, and looks the same from the others.
_NOT_COMING: Final = ("dataloader", "checkpoint", "exception", "code_divergence")
_OF_DEVICES: Final = ("gpu", "gpus", "nvlink", "circle")
PATH_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a kind of sink means. `{who}`, `{op}`, `{why}`, `{flow}` are filled in."""

    category: str
    component: Component
    limit: str
    summary: str
    next_step: str
    status: Status = "hang"
    stage: str = ""
    step_why: str = ""
    """What the next step shows, where the command does not say it."""


_KINDS: Final[dict[str, _Kind]] = {
    "net": _Kind(
        "link_fault",
        "nic",
        "network_ns",
        "Data {flow} of {op} is handed to the network and not acknowledged ({why}): the network device of {who}, or "
        "the path between them.",
        "ibstat; ethtool -S <interface> | grep -iE 'err|drop|pause'; then the cable and the switch port",
        stage="network: handed over, not acknowledged",
    ),
    "gpu": _Kind(
        "device_hang",
        "gpu",
        "gpu_ns",
        "The GPU of {who} stands still in {op}: {why}.",
        "nvidia-smi -q; dmesg -T | grep -i xid",
        stage="GPU: its kernel neither fills nor consumes",
    ),
    "proxy": _Kind(
        "proxy_stall",
        "process",
        "proxy_ns",
        "Nothing is handed to the network in {op} although data is there ({why}): the sender's proxy thread, or a link "
        "that lost what the receiver said of its buffers; {who}.",
        "gdb -p <pid> -batch -ex 'thread apply all bt'; look for the thread named NCCL Progress",
        stage="sender's proxy: ready, not handed over",
    ),
    "recv_proxy": _Kind(
        "proxy_stall",
        "process",
        "proxy_ns",
        "The proxy thread of {who} posts no receive buffers in {op}, although slots are free ({why}).",
        "gdb -p <pid> -batch -ex 'thread apply all bt'; look for the thread named NCCL Progress",
        stage="receiver's proxy: free slots, nothing posted",
    ),
    "flush": _Kind(
        "pcie_degraded",
        "host",
        "network_ns",
        "Data has arrived at {who} in {op} and does not become visible to its GPU ({why}).",
        "nvidia-smi -q -d PCIE; lspci -vv | grep -i lnksta; NCCL_NET_GDR_LEVEL=LOC for a test",
        stage="flush: received, not visible to the GPU",
    ),
    "app": _Kind(
        "absent",
        "process",
        "app_ns",
        "{who} never entered {op}, and the others wait for it.",
        "py-spy dump --native --pid <pid>, twice, a minute apart",
        stage="not entered",
    ),
    "crash": _Kind(
        "process_died",
        "process",
        "crash_ns",
        "The process of {who} is gone; the others were left in {op}.",
        "its last log lines; dmesg -T | grep -iE 'oom|killed|segfault'",
        status="crash",
        stage="process gone",
    ),
    "silent": _Kind(
        "process_died",
        "process",
        "crash_ns",
        "{who} fell silent while the others went on: its process or its host is gone, or stopped; they wait in {op}.",
        "ps -o stat,etime,cmd -p <pid>; dmesg -T | tail -20",
        status="crash",
        stage="silent",
        step_why="whether the host answers and the process exists",
    ),
    "stopped": _Kind(
        "process_stopped",
        "process",
        "crash_ns",
        "{who} is alive but does not run: not even its sampler does; the others wait for it in {op}.",
        "ps -o stat,wchan:30,cmd -p <pid>; kill -CONT <pid> if it is stopped",
        stage="process stopped",
    ),
    "nvlink": _Kind(
        "device_hang",
        "gpu",
        "gpu_ns",
        "All members are inside {op}, which has no network part, and nothing completes.",
        "nvidia-smi nvlink -s; dmesg -T | grep -i xid",
        stage="inside the host: all inside, nothing completes",
    ),
    "gpus": _Kind(
        "device_hang",
        "gpu",
        "gpu_ns",
        "A GPU of one host stands still in {op}: {who}; {why}.",
        "nvidia-smi -q; nvidia-smi nvlink -s; dmesg -T | grep -i xid",
        stage="inside the host: data does not go from GPU to GPU",
    ),
    "circle": _Kind(
        "order_deadlock",
        "code",
        "gpu_ns",
        "{who} wait for each other in a circle: {why}.",
        "compare the order in which these ranks issue their collectives",
        stage="circle over communicators",
    ),
}


def flow_findings(store: Frames, limits: FlowLimits = FLOW_DEFAULTS, *, at: int | None = None) -> tuple[Finding, ...]:
    """Return what stands still according to the tracer's flows, the most blamed first; empty: nothing, or no trace.

    Confident only where both sides were seen. Ranks that merely wait are victims, never causes.
    """
    with collector_paused():
        snapshot = read_snapshot(store, limits, at=at)
        return stalls_of(store, snapshot, limits) if snapshot is not None else ()


@contextmanager
def collector_paused() -> Generator[None]:
    """Keep the garbage collector from walking the nodes of a large job over and over while they are made.

    They are freed by their counts afterwards. Threads may nest in any order: who finds it off leaves that to others.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def stalls_of(store: Frames, snapshot: Snapshot, limits: FlowLimits) -> tuple[Finding, ...]:
    """Return the findings of one snapshot."""
    graph = FlowGraph(snapshot, limits)
    graph.build()
    found = graph.causes()
    teller = _Teller(store, snapshot, limits)
    if snapshot.lost and not any(teller.old_enough(c) for c in found):
        # Nobody else stands out: that nothing is heard of them is all that there is.
        return stalls_of(store, replace(snapshot, lost=frozenset()), limits)
    if not found:
        return ()
    ends = of_hosts(grouped(found), teller.hosts, snapshot.traced)
    causes = [c for c in ends if teller.old_enough(c)]
    # Whoever keeps more ranks waiting and is given more time may be why these GPUs stand: nobody is named before that.
    patient = max((len(c.blocked) for c in ends if c not in causes), default=0)
    causes = [c for c in causes if len(c.blocked) >= patient or kind_of(c) not in _OF_DEVICES]
    blocked = {r for c in causes for r in c.blocked}
    told = [teller.finding(c, others=[o for o in causes if o is not c], blocked=len(blocked)) for c in causes]
    return tuple(replace(f, id=f"f{n}") for n, f in enumerate(told, 1))


class _Teller:
    """Words and rows for causes; everything it says is in the snapshot."""

    def __init__(self, store: Frames, snapshot: Snapshot, limits: FlowLimits) -> None:
        self.snapshot = snapshot
        self.limits = limits
        names = store.frame(NAMES).to_dicts()
        self.titles = {int(r["comm"]): str(r["title"]) for r in names}
        self.keys = {int(r["comm"]): str(r["key"]) for r in names}
        people = store.frame(HOSTS).to_dicts()
        self.hosts: Mapping[int, str | None] = {int(r["rank"]): r["host"] for r in people}
        self.said = said_by_devices(store)
        self.pids: Mapping[int, int | None] = {int(r["rank"]): r["pid"] for r in people}

    # ---- time ----------------------------------------------------------------------

    def since(self, cause: Cause) -> int | None:
        """Last progress of the ranks that the cause blocks, other than its own; ns."""
        mine = set(ends_of(cause)) if kind_of(cause) == "net" else {n.key[0] for n in cause.nodes}
        waiting = [r for r in cause.blocked if r not in mine] or list(cause.blocked)
        return max((self.snapshot.progress[r] for r in waiting if r in self.snapshot.progress), default=None)

    def age(self, cause: Cause) -> int:
        """How long it has stood, ns; 0 where nothing says."""
        since = self.since(cause)
        return self.snapshot.at_ns - since if since is not None else 0

    def old_enough(self, cause: Cause) -> bool:
        """Checkpoints and pauses look like stalls while they are young; what the job gave up needs no more age."""
        if self.aborted(cause):
            return True
        return self.age(cause) >= self.limit(cause)

    def aborted(self, cause: Cause) -> bool:
        """Whether the job itself gave the operation up."""
        return any(o.aborted for r in cause.blocked for o in self.snapshot.open.get(r, ()))

    def limit(self, cause: Cause) -> int:
        """Age from which it is reported, ns: a rank that does not come may be in a pause like those before."""
        least = int(getattr(self.limits, _KINDS[kind_of(cause)].limit))
        pause = round(self.limits.app_pauses * self.snapshot.pause_ns)
        return max(least, pause) if kind_of(cause) == "app" else least

    # ---- who and where ---------------------------------------------------------------

    def accused(self, cause: Cause) -> tuple[tuple[int, ...], bool]:
        """Return the ranks to blame, and whether it is one of them."""
        kind, first = kind_of(cause), cause.nodes[0].key[0]
        if kind == "net":
            touched = Counter(r for r in ends_of(cause))
            moved = {r for r in touched if self._other_flow_moved(r, cause)}
            candidates = {r: n for r, n in touched.items() if r not in moved} or dict(touched)
            most = max(candidates.values())
            ranks = tuple(sorted(r for r, n in candidates.items() if n == most))
            # A port that says itself that it is down, or errs, is the end that is broken.
            told = tuple(r for r in ranks if self.said.agrees("net", r, self.hosts.get(r)))
            ranks = told or ranks
            return ranks, len(ranks) > 1
        flow = unsent(cause)
        if flow is not None:
            # Its proxy, or the receiver's word was lost on the way: either end.
            return tuple(sorted((flow.src, flow.dst))), True
        if kind == "nvlink":
            ranks = self.snapshot.members.get(cause.nodes[0].key[0], ())
            return ranks, len(ranks) > 1
        if kind == "gpus":
            return cause.nodes[0].key, len(cause.nodes[0].key) > 1
        if kind in OF_RANKS and len(cause.nodes) > 1:
            return tuple(sorted({n.key[0] for n in cause.nodes})), False
        if kind == "circle":
            if one_operation(cause):
                # Nothing but halves that were not seen: any end of its flows may be the one.
                ends = {r for n in cause.nodes if n.kind == "flow" for r in (flow_of(n).src, flow_of(n).dst)}
                return tuple(sorted(ends)), True
            inside: dict[int, list[int]] = {}
            for n in cause.nodes:
                if n.kind == "op":
                    inside.setdefault(op_of(n).comm, []).append(n.key[0])
            fewer = minority(inside)
            if fewer:
                return fewer, False
            ranks = tuple(sorted({n.key[0] for n in cause.nodes if n.kind in ("rank", "op")}))
            if not ranks:
                ends = {r for n in cause.nodes if n.kind == "flow" for r in (flow_of(n).src, flow_of(n).dst)}
                return tuple(sorted(ends)), True
            return ranks, True
        return (first,), False

    def _other_flow_moved(self, rank: int, cause: Cause) -> bool:
        """A network device that carried something after the stall began is not the one that is down."""
        stuck = {flow_of(n) for n in cause.nodes}
        since = self.since(cause) or 0
        for side in (self.snapshot.send, self.snapshot.recv):
            for key, half in side.items():
                if half.rank == rank and key not in stuck and half.ts - half.idle_ns > since + self.limits.standing_ns:
                    return True
        return False

    def operation(self, cause: Cause) -> OpKey | None:
        """The operation that the walk ended in; for a rank that did not come, the one that misses it."""
        for node in cause.nodes:
            if node.kind in ("net", "flow"):
                return flow_of(node).op
            if node.kind == "op":
                return op_of(node)
        for edge in reversed(cause.path):
            for node in (edge.dst, edge.src):
                if node.kind == "flow":
                    return flow_of(node).op
                if node.kind == "op":
                    return op_of(node)
        return None

    def op_words(self, op: OpKey | None) -> str:
        """Name an operation for a reader."""
        if op is None:
            return "their operations"
        kind = self.snapshot.algo.get(op, ("operation", "", ""))[0]
        title = self.titles.get(op.comm, f"communicator {op.comm}")
        if op.p2p:
            return f"send/recv {op.seq} from rank {op.src} to rank {op.dst} of {title}"
        return f"{kind} {op.seq} of {title}"

    def who(self, ranks: Sequence[int], *, one_of: bool = False) -> str:
        """Name ranks with their host, where all are on one."""
        words = count_words(ranks)
        if one_of and len(ranks) == 2:
            words = f"rank {ranks[0]} or rank {ranks[1]}"
        hosts = {self.hosts.get(r) for r in ranks}
        return f"{words} ({hosts.pop()})" if len(hosts) == 1 and None not in hosts else words

    def stuck_flow(self, cause: Cause) -> FlowKey | None:
        """The flow to show: the one the walk ended at."""
        for node in cause.nodes:
            if node.kind == "net":
                return flow_of(node)
        for edge in reversed(cause.path):
            for node in (edge.dst, edge.src):
                if node.kind == "flow":
                    return flow_of(node)
        return None

    # ---- the finding -----------------------------------------------------------------

    def finding(self, cause: Cause, *, others: Sequence[Cause], blocked: int) -> Finding:
        """Compose one finding."""
        kind = _KINDS[kind_of(cause)]
        ranks, one_of = self.accused(cause)
        op = self.operation(cause)
        flow = self.stuck_flow(cause)
        why = next((e.why for e in reversed(cause.path)), "")
        certainty = self._certainty(cause, ranks, one_of=one_of, others=others, blocked=blocked)
        victims = tuple(r for r in cause.blocked if r not in ranks)
        evidence = self._evidence(cause, ranks, op)
        category, status = kind.category, kind.status
        if kind_of(cause) == "circle" and one_operation(cause):
            category = "unknown"  # one operation in a circle with itself: evidence is missing
        summary = kind.summary.format(
            who=self.who(ranks, one_of=one_of), op=self.op_words(op), why=why, flow=self._between(cause)
        )
        return Finding(
            id="f0",
            status=status,
            category=category,
            component=self._component(cause, category, ranks),
            confidence=certainty.word(one_of=one_of),
            certainty=certainty.value,
            root_cause=RootCause(
                ranks=ranks,
                hosts=tuple(sorted({h for r in ranks if (h := self.hosts.get(r)) is not None})),
                flow=self._blamed_flow(cause, flow, ranks),
                one_of=one_of,
            ),
            summary=summary[:1].upper() + summary[1:],
            why=f"{kind.stage[:1].upper()}{kind.stage[1:]}. {why[:1].upper()}{why[1:]}.",
            confidence_why=certainty.told(),
            collective=self._collective(op),
            since=iso(self.since(cause)),
            victims=victims,
            chain=self._chain(cause, evidence),
            evidence=tuple(evidence),
            alternatives=self._alternatives(cause, flow, others),
            next_steps=tuple(self._steps(kind, ranks)),
        )

    def _component(self, cause: Cause, category: str, ranks: tuple[int, ...]) -> Component:
        if category == "unknown":
            return "unknown"
        whole_host = kind_of(cause) in OF_RANKS and len(cause.nodes) > 1 and len(ranks) > 1
        return "host" if whole_host else _KINDS[kind_of(cause)].component

    def _between(self, cause: Cause) -> str:
        flows = [flow_of(n) for n in cause.nodes if n.kind == "net"]
        pairs = sorted({(f.src, f.dst) for f in flows})
        words = ", ".join(f"from rank {a} to rank {b}" for a, b in pairs[:3])
        channels = sorted({f.channel for f in flows})
        more = f" and {len(pairs) - 3} more pairs" if len(pairs) > 3 else ""
        names = ", ".join(map(str, channels))
        return f"{words}{more} on channel{'s' if len(channels) > 1 else ''} {names}" if flows else ""

    def _blamed_flow(self, cause: Cause, flow: FlowKey | None, ranks: tuple[int, ...]) -> Flow | None:
        if flow is None or kind_of(cause) in ("app", "crash", "silent", "stopped", "nvlink", "circle"):
            return None
        sender = flow.src in ranks
        channels = {flow_of(n).channel for n in cause.nodes if n.kind == "net"}
        return Flow(
            channel=flow.channel if len(channels) <= 1 else None,
            peer=flow.dst if sender else flow.src,
            dir="send" if sender else "recv",
        )

    def _collective(self, op: OpKey | None) -> Collective | None:
        if op is None:
            return None
        missing = tuple(
            r
            for r in self.snapshot.members.get(op.comm, ())
            if not op.p2p and not self.snapshot.enqueued(r, op) and r not in self.snapshot.silent
        )
        return Collective(
            comm=self.keys.get(op.comm),
            group=self.titles.get(op.comm),
            seq=op.seq,
            op=self.snapshot.algo.get(op, (None,))[0],
            missing_ranks=missing,
        )

    def _certainty(
        self, cause: Cause, ranks: tuple[int, ...], *, one_of: bool, others: Sequence[Cause], blocked: int
    ) -> Certainty:
        kind = kind_of(cause)
        hosts = {self.hosts.get(r) for r in ranks} - {None}
        answers = any(
            self.hosts.get(r) in hosts and r not in ranks and r not in self.snapshot.silent for r in self.snapshot.heard
        )
        agrees = any(self.said.agrees(kind, r, self.hosts.get(r)) for r in ranks)
        last = cause.path[-1].src.kind if cause.path else ""
        return certainty_of(
            self.snapshot,
            Weight(
                sink=kind,
                ranks=ranks,
                one_of=one_of,
                blocked=len(cause.blocked),
                all_blocked=blocked,
                own=len(set(cause.blocked) & set(ranks)),
                runner_up=max((len(o.blocked) for o in others), default=0),
                flow=self.stuck_flow(cause) if last == "flow" or kind in ("net", "circle") else None,
                age_ns=self.age(cause),
                limit_ns=0 if self.aborted(cause) else self.limit(cause),
                host_answers=answers,
                agrees=agrees,
                unheard=tuple(sorted({self.hosts.get(r) or f"rank {r}" for r in ranks if self.said.unheard(r)})),
                minority=kind == "circle" and not one_of,
            ),
        )

    def _evidence(self, cause: Cause, ranks: tuple[int, ...], op: OpKey | None) -> list[Evidence]:
        rows: list[Evidence] = []

        def add(claim: str, table: str, key: dict[str, Any]) -> None:
            if not any(r.table == table and r.key == key for r in rows):
                rows.append(Evidence(id=f"e{len(rows) + 1}", claim=claim, table=table, key=key, source="tracer"))

        flows = [flow_of(n) for n in cause.nodes if n.kind in ("net", "flow")]
        flows += [flow_of(n) for e in reversed(cause.path) for n in (e.dst, e.src) if n.kind in ("net", "flow")]
        for flow in list(dict.fromkeys(flows))[:PATH_SHOWN]:
            for direction, half in (("send", self.snapshot.send.get(flow)), ("recv", self.snapshot.recv.get(flow))):
                if half is None:
                    continue
                names = ("handed over", "acknowledged") if direction == "send" else ("received", "consumed")
                claim = (
                    f"rank {half.rank} {direction}s on channel {flow.channel}: posted {half.posted}, "
                    f"ready {half.ready}, {names[0]} {half.moved}, {names[1]} {half.done} of {half.total}, "
                    f"still for {half.idle_ns / NS_PER_S:.1f} s"
                )
                peer = flow.dst if direction == "send" else flow.src
                key = {"rank": half.rank, "comm_id": flow.op.comm, "op_seq": flow.op.seq, "channel": flow.channel}
                add(claim, "flow_state", {**key, "dir": direction, "peer": peer})
        for rank in ranks:
            last = self.snapshot.heard.get(rank)
            if last is not None:
                behind = (self.snapshot.at_ns - last) / NS_PER_S
                claim = f"the sampler of rank {rank} was last heard {behind:.1f} s before the newest sign of any rank"
                add(claim, "heartbeat", {"rank": rank})
            if op is not None and not op.p2p and not self.snapshot.enqueued(rank, op):
                reached = self.snapshot.reached.get((op.comm, rank))
                claim = f"rank {rank} has enqueued {'nothing' if reached is None else f'up to {reached}'} there"
                add(claim, "group_status", {"rank": rank, "comm_id": op.comm})
        return rows

    def _chain(self, cause: Cause, evidence: Sequence[Evidence]) -> tuple[Link, ...]:
        """Return the path as ranks: each link is one rank that cannot go on before the next."""
        links: list[Link] = []
        at: int | None = None
        op: OpKey | None = None
        for edge in cause.path:
            at = at if at is not None else edge.src.key[0]
            if edge.dst.kind == "op":
                op = op_of(edge.dst)
            nxt = _owner(edge.dst, at)
            if nxt is None or nxt == at:
                continue
            if edge.dst.kind in ("flow", "net"):
                op = flow_of(edge.dst).op
            rows = tuple(
                e.id
                for e in evidence
                if e.key is not None and e.key.get("rank") in (at, nxt) and e.table == "flow_state"
            )
            links.append(
                Link(
                    waiter=at,
                    blocker=nxt,
                    group=self.titles.get(op.comm) if op is not None else None,
                    seq=op.seq if op is not None else None,
                    op=self.snapshot.algo.get(op, (None,))[0] if op is not None else None,
                    comm=self.keys.get(op.comm) if op is not None else None,
                    why=edge.why,
                    evidence=rows[:4],
                )
            )
            at = nxt
        return tuple(links[:PATH_SHOWN])

    def _alternatives(self, cause: Cause, flow: FlowKey | None, others: Sequence[Cause]) -> tuple[Alternative, ...]:
        """Return what the same pattern on the sending side could also have meant, and why it did not."""
        found: list[Alternative] = []
        kind = kind_of(cause)
        last = cause.path[-1].src.kind if cause.path else ""
        if flow is not None and (kind == "net" or last == "flow"):
            found += excluded(self.snapshot, flow, kind)
        elif kind == "gpu":
            found.append(Alternative("absent", (cause.nodes[0].key[0],), "it has enqueued the operation"))
        elif kind == "app":
            why = "not excluded: without a stack of it, or its log, all of them are a rank that does not come"
            found += [Alternative(c, (cause.nodes[0].key[0],), why) for c in _NOT_COMING]
        if kind == "silent":
            ranks = tuple(n.key[0] for n in cause.nodes)
            found.append(Alternative("process_stopped", ranks, "not excluded: nothing says whether the process exists"))
        for other in others:
            ranks, _ = self.accused(other)
            category = _KINDS[kind_of(other)].category
            found.append(Alternative(category, ranks, f"{len(other.blocked)} ranks wait for it: a finding of its own"))
        return tuple(found)

    def _steps(self, kind: _Kind, ranks: tuple[int, ...]) -> list[str]:
        if not ranks:
            return [kind.next_step]
        rank = ranks[0]
        pid, host = self.pids.get(rank), self.hosts.get(rank)
        command = kind.next_step.replace("<pid>", str(pid) if pid is not None else f"<pid of rank {rank}>")
        reason = f"{kind.step_why}, " if kind.step_why else ""
        return [f"{command}   # {reason}{f'on {host}' if host else f'on the host of rank {rank}'}"]


def _owner(node: Node, at: int) -> int | None:
    """Return the rank that a node is about, seen from rank `at`; None: a communicator."""
    if node.kind in ("flow", "net"):
        flow = flow_of(node)
        assert flow_node(flow).key == node.key
        if at == flow.src:
            return flow.dst
        return flow.src
    return None if node.kind == "nvlink" else node.key[0]
