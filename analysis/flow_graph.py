"""The edges of the walk over flows: from blocked ranks through operations and flow halves to what waits for nobody.

Mycroft (SOSP'25) 4.3 starts at the flow with the least data and reads one side's counters. Here every edge says "cannot
go on before", both sides are read, and the kernel's program order tells a missing input from a dead kernel; so the walk
crosses ranks, channels and communicators, and least data is only where a walk may begin. The rules are numbered as in
the design (a to f, hold).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from mycroft.analysis.config import FlowLimits
from mycroft.analysis.flow import SLICES_PER_CHUNK, FlowKey, Half, OpenOp, OpKey, Snapshot
from mycroft.analysis.walk import Edge, Node, Walk, rank_node

# Kinds of sinks. `net` names a flow, `nvlink` a communicator, the others a rank.
SINKS: Final = ("crash", "silent", "stopped", "app", "gpu", "proxy", "recv_proxy", "net", "flush", "nvlink", "gpus")


def op_node(rank: int, op: OpKey) -> Node:
    """A rank's membership in an operation."""
    return Node("op", (rank, *op))


def meet_node(op: OpKey) -> Node:
    """An operation without flows at those who wait in it: whoever is missing from it holds all of them up."""
    return Node("meet", tuple(op))


def flow_node(flow: FlowKey) -> Node:
    """A flow."""
    return Node("flow", (*flow.op, flow.channel, flow.src, flow.dst))


def flow_of(node: Node) -> FlowKey:
    """Return the flow that a flow or `net` node names."""
    comm, seq, src, dst, channel, a, b = node.key
    return FlowKey(OpKey(comm, seq, src, dst), channel, a, b)


def op_of(node: Node) -> OpKey:
    """Return the operation that an op node names."""
    return OpKey(*node.key[1:])


@dataclass(frozen=True, slots=True)
class Cause:
    """One end of the walk, or one circle: `ranks` blame it; `path` leads from a blocked rank to it."""

    nodes: tuple[Node, ...]
    blocked: tuple[int, ...]
    path: tuple[Edge, ...]

    @property
    def kind(self) -> str:
        """Kind of the sink; `circle` where several nodes wait for each other."""
        return self.nodes[0].kind if len(self.nodes) == 1 else "circle"


@dataclass(slots=True)
class FlowGraph:
    """Built once per snapshot; every rule is O(1) per node but for the neighbours it looks at."""

    snapshot: Snapshot
    limits: FlowLimits
    edges: dict[Node, list[Edge]] = field(default_factory=dict[Node, list[Edge]])
    # What is asked again and again of one flow or operation.
    _nodes: dict[FlowKey, Node] = field(default_factory=dict[FlowKey, Node])
    _flows: dict[Node, FlowKey] = field(default_factory=dict[Node, FlowKey])
    _standing: dict[FlowKey, bool] = field(default_factory=dict[FlowKey, bool])
    _loops: dict[OpKey, tuple[int, int]] = field(default_factory=dict[OpKey, tuple[int, int]])

    def build(self) -> None:
        """Walk from every rank that has something open or is waited for."""
        pending: deque[Node] = deque(rank_node(r) for r in sorted(self.snapshot.open) if r not in self.snapshot.silent)
        while pending:
            node = pending.popleft()
            if node in self.edges:
                continue
            found = self._out(node)
            self.edges[node] = found
            pending.extend(e.dst for e in found if e.dst not in self.edges)

    def causes(self) -> list[Cause]:
        """Return where walks end, the most blamed first. Ranks that only wait are in `blocked` of each."""
        walk = Walk(self.edges)
        causes: list[Cause] = []
        for nodes in walk.ends():
            if len(nodes) == 1 and nodes[0].kind in ("rank", "op", "flow", "meet"):
                continue  # it waits for nothing that is known: no evidence
            way = walk.to(nodes)
            causes.append(Cause(nodes, way.ranks(), way.longest()))
        causes.sort(key=lambda c: (-len(c.blocked), c.nodes))
        return causes

    # ---- rules ---------------------------------------------------------------------

    def _out(self, node: Node) -> list[Edge]:
        match node.kind:
            case "rank":
                targets = self._of_rank(node.key[0])
            case "op":
                targets = self._of_op(node.key[0], op_of(node))
            case "flow":
                targets = self._of_flow(self._flows[node])
            case "meet":
                targets = self._of_meeting(OpKey(*node.key))
            case _:
                targets = {}
        return [Edge(node, dst, why) for dst, why in targets.items() if dst != node]

    def _node(self, flow: FlowKey) -> Node:
        """Return the node of a flow, made once: most flows are come to from several sides."""
        known = self._nodes.get(flow)
        if known is None:
            known = self._nodes[flow] = flow_node(flow)
            self._flows[known] = flow
        return known

    def _gone(self, rank: int) -> dict[Node, str] | None:
        """A rank that does not run: its process is gone, or stopped with all its threads."""
        if rank not in self.snapshot.silent or rank in self.snapshot.lost:
            return None
        exists = self.snapshot.silent[rank]
        if exists is None:
            return {Node("silent", (rank,)): "its sampler is silent"}
        if exists:
            return {Node("stopped", (rank,)): "its process exists and its sampler is silent"}
        return {Node("crash", (rank,)): "its process is gone"}

    def _of_rank(self, rank: int) -> dict[Node, str]:
        gone = self._gone(rank)
        if gone is not None:
            return gone
        if rank not in self.snapshot.traced or rank in self.snapshot.lost:
            return {}
        ops = self.snapshot.open.get(rank, ())
        if not ops:
            # Its tracer counts operations as open that no row names: rows were lost, nothing can be said.
            return {} if rank in self.snapshot.unnamed else {Node("app", (rank,)): "has enqueued nothing more"}
        if rank in self.snapshot.side_senders and all(o.key.p2p and o.key.src == rank for o in ops):
            return {Node("app", (rank,)): "has only sends pending, which never held it up before"}
        return {op_node(rank, o.key): "is inside of it" for o in ops}

    def _started(self, rank: int, op: OpKey) -> bool | None:
        return self.snapshot.started.get((rank, op))

    def _of_op(self, rank: int, op: OpKey) -> dict[Node, str]:
        gone = self._gone(rank)
        if gone is not None:
            return gone
        snapshot = self.snapshot
        if rank in snapshot.lost:
            return {}
        if self._started(rank, op) is False:
            others: list[OpenOp] = [o for o in snapshot.open[rank] if o.key != op and o.started]
            if others:
                return {op_node(rank, o.key): "its kernel waits behind that one" for o in others}
            return {Node("gpu", (rank,)): "enqueued, kernel not started"}
        mine = snapshot.at_rank.get((op, rank), [])
        if mine:
            standing = [k for k in mine if not self._half_ended(k, rank)]
            found = {self._node(k): "stands" for k in standing if self._stands(k)}
            if standing and not found:
                return {}  # it moves
            return found or {Node("gpu", (rank,)): "all its flows have ended and the operation has not"}
        return {meet_node(op): "is inside of it"}

    def _of_meeting(self, op: OpKey) -> dict[Node, str]:
        """Members that have not come, or whose kernel has not; else those whose flows decide."""
        snapshot = self.snapshot
        found: dict[Node, str] = {}
        for q in self._members(op):
            if (q, op) in snapshot.finished or q in snapshot.lost:
                continue
            if not snapshot.enqueued(q, op):
                found[rank_node(q)] = "has not entered"
            elif self._started(q, op) is False:
                found[op_node(q, op)] = "has enqueued it, its kernel has not started"
            elif q in snapshot.silent:
                # Also where all are inside: one whose process does not run is the first to look at.
                found[rank_node(q)] = "has entered it, and its process does not run"
        if found:
            return found
        # Flows of ranks on other hosts decide; without any, all are inside and nothing completes.
        inside = {op_node(r, op): "is inside of it" for k in snapshot.of_op.get(op, ()) for r in (k.src, k.dst)}
        if not inside and not snapshot.lost.isdisjoint(self._members(op)):
            return {}
        return inside or {Node("nvlink", (op.comm,)): "all are inside, nothing completes"}

    def _inside(self, rank: int, op: OpKey) -> bool:
        """Whether a rank is in an operation, its kernel too where that is seen."""
        return self.snapshot.started.get((rank, op), False) is not False

    def _members(self, op: OpKey) -> tuple[int, ...]:
        return (op.src, op.dst) if op.p2p else self.snapshot.members.get(op.comm, ())

    def _half_ended(self, flow: FlowKey, rank: int) -> bool:
        half = self.snapshot.send.get(flow) if rank == flow.src else self.snapshot.recv.get(flow)
        if half is None:
            return (rank, flow.op) in self.snapshot.finished
        return half.done >= half.total

    def _stands(self, flow: FlowKey) -> bool:
        """A flow that moves is in normal flight. The other half's silence proves nothing."""
        known = self._standing.get(flow)
        if known is None:
            least = self.limits.standing_ns
            halves = self.snapshot.send.get(flow), self.snapshot.recv.get(flow)
            known = all(half is None or half.idle_ns >= least or half.ended for half in halves)
            self._standing[flow] = known
        return known

    def _waits_for_rank(self, rank: int, op: OpKey, why: str) -> dict[Node, str]:
        """The other side has no row of this flow: not enqueued, or held up before it."""
        if self.snapshot.enqueued(rank, op) and (rank, op) not in self.snapshot.finished:
            return {rank_node(rank): "has enqueued it and is not at it"}
        return {rank_node(rank): why}

    def _of_flow(self, flow: FlowKey) -> dict[Node, str]:
        for rank in (flow.src, flow.dst):  # a
            gone = self._gone(rank)
            if gone is not None:
                return gone
        if not self._stands(flow):
            return {}
        send, recv = self.snapshot.send.get(flow), self.snapshot.recv.get(flow)
        if send is None:  # b
            if (flow.src, flow.op) in self.snapshot.finished:
                if recv is not None and recv.moved > recv.done:
                    return self._hold(flow, recv)
                if recv is not None and recv.moved < recv.total:
                    # Lost on the way, or the two do not mean the same size.
                    return {self._net(flow): f"the sender has finished, {recv.moved} of {recv.total} received"}
                return {Node("gpu", (flow.dst,)): "the sender has finished, the receiver has not"}
            if recv is not None and flow.src in self.snapshot.lost and (free := self._not_posted(flow, recv)):
                # To post a buffer takes no word of the sender.
                why = f"the receiver has posted {recv.posted} with {free} slots free; nothing is heard of the sender"
                return {Node("recv_proxy", (flow.dst,)): why}
            return self._waits_for_rank(flow.src, flow.op, "sends nothing: it has not entered")
        if send.done >= send.total:  # f
            if recv is None:
                return {}
            if recv.moved < recv.total:
                return {self._net(flow): f"all acknowledged, {recv.moved} of {recv.total} received"}
            return self._hold(flow, recv)
        if send.moved > send.done:  # c
            in_flight = f"handed over {send.moved}, acknowledged {send.done} of {send.total}"
            if recv is None:
                if (flow.dst, flow.op) in self.snapshot.finished:
                    return {self._net(flow): in_flight}
                if flow.dst in self.snapshot.lost:
                    # NCCL hands over what the receiver has posted a buffer for.
                    return {self._net(flow): f"{in_flight}; nothing is heard of the receiver"}
                if self._inside(flow.dst, flow.op):
                    # Its half is not seen, but it is in the operation: what was handed over has nothing to wait for.
                    return {self._net(flow): f"{in_flight}; the receiver is inside, its half was not seen"}
                return self._waits_for_rank(flow.dst, flow.op, f"{in_flight}; the receiver has not entered")
            if recv.posted > send.done:
                return {self._net(flow): f"{in_flight}; the receiver has posted {recv.posted}, received {recv.moved}"}
            return self._without_credit(flow, send, recv)
        if send.ready > send.moved:  # d
            if recv is None and (flow.dst, flow.op) in self.snapshot.finished:
                return {self._net(flow): f"the receiver has finished, {send.moved} of {send.total} handed over"}
            if recv is None:
                return self._waits_for_rank(flow.dst, flow.op, "the receiver has not entered")
            if recv.posted > send.moved:
                why = f"chunk {send.moved} is ready, the receiver has posted {recv.posted}: not handed over"
                return {Node("proxy", (flow.src,)): why}
            return self._without_credit(flow, send, recv)
        return self._no_data(flow, send)  # e

    def _without_credit(self, flow: FlowKey, send: Half, recv: Half) -> dict[Node, str]:
        if free := self._not_posted(flow, recv):
            why = f"chunk {send.moved} is ready, the receiver has posted {recv.posted} with {free} slots free"
            return {Node("recv_proxy", (flow.dst,)): why}
        return self._hold(flow, recv)

    def _not_posted(self, flow: FlowKey, recv: Half) -> int:
        """Return how many slots are free for which the receiver has posted no buffer."""
        free = recv.done + self.snapshot.slots(flow.op) - recv.posted
        return free if recv.posted < recv.total and free > 0 else 0

    def _net(self, flow: FlowKey) -> Node:
        return Node("net", self._node(flow).key)

    def _no_data(self, flow: FlowKey, send: Half) -> dict[Node, str]:
        """Rule e: everything that the GPU of the sender filled has been sent."""
        snapshot = self.snapshot
        if self._started(flow.src, flow.op) is False:
            return {op_node(flow.src, flow.op): "its kernel has not started"}
        missing = self._missing_inputs(flow, send)
        if missing:
            found: dict[Node, str] = {}
            for source in missing:
                half = snapshot.recv.get(source)
                if half is not None and half.moved > half.ready:
                    found[Node("flush", (flow.src,))] = f"received {half.moved}, flushed {half.ready}"
                else:
                    found[self._node(source)] = "its input is missing"
            return found
        for source in snapshot.recvs_of(flow.op, flow.channel, flow.src):
            half = snapshot.recv.get(source)
            if half is not None and half.moved > half.ready:
                return {Node("flush", (flow.src,)): f"received {half.moved}, flushed {half.ready}"}
        if not snapshot.recvs_of(flow.op, flow.channel, flow.src) and self._needs_input(flow, send):
            inside = self._inside_host(flow.src, flow.op, flow.channel, incoming=True)
            if inside:
                return inside
        full = [k for k in snapshot.sends_of(flow.op, flow.channel, flow.src) if k != flow and self._full(k)]
        if full:
            return {self._node(k): "its other send is full" for k in full}
        why = f"the GPU has filled {send.ready} of {send.total} chunks, its input is there"
        return {Node("gpu", (flow.src,)): why}

    def _needs_input(self, flow: FlowKey, send: Half) -> bool:
        """Whether the next chunk to fill takes more than what the rank has itself."""
        kind, algo, _ = self.snapshot.algo.get(flow.op, ("", "", ""))
        if flow.op.p2p or kind == "all_to_all":
            return False
        return self._ring_need(flow, send) > 0 if algo == "RING" else True

    def _inside_host(self, rank: int, op: OpKey, channel: int, *, incoming: bool) -> dict[Node, str]:
        """What a rank gets from, or passes on to, the others of its host leaves no rows: their flows and calls tell.

        Empty: it is alone there.
        """
        snapshot = self.snapshot
        beside = [q for q in snapshot.beside(rank, op) if (q, op) not in snapshot.finished and q not in snapshot.lost]
        if not beside:
            return {}
        found: dict[Node, str] = {}
        for q in beside:
            if q in snapshot.silent or not snapshot.enqueued(q, op):
                found[rank_node(q)] = "of its host, it has not entered"
            elif self._started(q, op) is False:
                found[op_node(q, op)] = "of its host, its kernel has not started"
        if found:
            return found
        for q in beside:
            flows = snapshot.recvs_of(op, channel, q) if incoming else snapshot.sends_of(op, channel, q)
            for key in flows:
                half = snapshot.recv.get(key) if incoming else snapshot.send.get(key)
                if half is not None and half.done >= half.total:
                    continue
                # What has come was passed on: the host itself waits for more. Or it cannot pass on what it has.
                if half is None or (half.moved == half.done if incoming else self._full(key)):
                    found[self._node(key)] = "the input of its host is missing" if incoming else "its host cannot send"
                elif incoming and half.moved > half.ready:
                    found[Node("flush", (q,))] = f"received {half.moved}, flushed {half.ready}"
        way = "comes" if incoming else "goes on"
        gpus = Node("gpus", tuple(sorted((rank, *beside))))
        return found or {gpus: f"what {way} inside the host does not: it leaves no rows, any GPU there may stand"}

    def _full(self, flow: FlowKey) -> bool:
        half = self.snapshot.send.get(flow)
        if half is None or half.ended:
            return False
        return half.ready > half.moved or half.moved - half.done >= self.snapshot.slots(flow.op)

    def _missing_inputs(self, flow: FlowKey, send: Half) -> list[FlowKey]:
        """Which receives the next chunk to fill waits for, by the kernel's program order."""
        snapshot = self.snapshot
        if flow.op.p2p:
            return []
        sources = snapshot.recvs_of(flow.op, flow.channel, flow.src)
        algo = snapshot.algo.get(flow.op, ("", "", ""))[1]
        missing: list[FlowKey] = []
        for source in sources:
            half = snapshot.recv.get(source)
            if half is None:
                missing.append(source)
                continue
            if algo == "RING":
                needed = self._ring_need(flow, send)
            elif algo == "TREE":
                needed = self._tree_need(flow, send, source)
            else:
                # Unknown order: an input with nothing left to consume, and not complete.
                needed = half.ready + 1 if half.moved == half.done < half.total else 0
            if half.ready < min(needed, half.total):
                missing.append(source)
        return missing

    def _ring_need(self, flow: FlowKey, send: Half) -> int:
        """Chunks that must have come before the next one can be sent: the first turn sends what the rank has itself."""
        if flow.op not in self._loops:
            self._loops[flow.op] = self._loop_of(flow.op)
        per_loop, slices = self._loops[flow.op]
        if per_loop <= 0 or send.total % per_loop != 0:
            # Another order than ours, or members that nobody lists: what has come must have been passed on.
            return send.ready
        loop, inside = divmod(send.ready, per_loop)
        turn, part = divmod(inside, slices)
        return loop * per_loop + (0 if turn == 0 else (turn - 1) * slices + part + 1)

    def _loop_of(self, op: OpKey) -> tuple[int, int]:
        """Return the chunks that a member of a ring sends in one loop, and those in one turn of it."""
        kind, _, proto = self.snapshot.algo.get(op, ("", "", ""))
        members = len(self.snapshot.members.get(op.comm, ()))
        turns = 2 * (members - 1) if kind == "all_reduce" else members - 1
        slices = SLICES_PER_CHUNK if proto == "SIMPLE" else 1
        if self.snapshot.raw_steps and proto == "SIMPLE":
            slices *= SLICES_PER_CHUNK
        return turns * slices, slices

    def _tree_need(self, flow: FlowKey, send: Half, source: FlowKey) -> int:
        """A send to the parent needs every child, one to a child the parent, at the root every child."""
        rank = flow.src
        up = self._is_up(flow)
        from_child = self._is_up(source)
        if up is None or from_child is None:
            half = self.snapshot.recv[source]
            return half.ready + 1 if half.moved == half.done < half.total else 0
        is_root = not self.snapshot.has_parent(flow.op.comm, flow.channel, rank) and not any(
            self._is_up(k) for k in self.snapshot.sends_of(flow.op, flow.channel, rank)
        )
        if is_root and not up and from_child:
            # Some kernels send down while they still reduce, others only when all has come up: whoever has consumed
            # what came waits for more.
            half = self.snapshot.recv[source]
            return half.ready + 1 if half.moved == half.done else send.ready + 1
        needed = from_child if up or is_root else not from_child
        return send.ready + 1 if needed else 0

    def _is_up(self, flow: FlowKey) -> bool | None:
        """Whether a flow of a tree goes to the parent; None: not seen.

        Trees stay the same for the life of a communicator, so operations that ended tell; else what goes up is never
        behind what comes down.
        """
        for rank, peer, up in ((flow.src, flow.dst, True), (flow.dst, flow.src, False)):
            known = self.snapshot.parents.get((flow.op.comm, flow.channel, rank, peer))
            if known is not None:
                return known == up
        here, there = self._progress(flow), self._progress(FlowKey(flow.op, flow.channel, flow.dst, flow.src))
        if here is None or there is None or here == there:
            return None
        return here > there

    def _progress(self, flow: FlowKey) -> int | None:
        send, recv = self.snapshot.send.get(flow), self.snapshot.recv.get(flow)
        if send is not None:
            return send.ready
        return recv.moved if recv is not None else None

    def _hold(self, flow: FlowKey, recv: Half) -> dict[Node, str]:
        """Delivered and not consumed: the receiver's kernel, or what that one waits for."""
        snapshot, rank = self.snapshot, flow.dst
        if self._started(rank, flow.op) is False:
            return {op_node(rank, flow.op): "its kernel has not started"}
        if recv.moved > recv.ready:
            return {Node("flush", (rank,)): f"received {recv.moved}, flushed {recv.ready}"}
        sends = snapshot.sends_of(flow.op, flow.channel, rank)
        full = [k for k in sends if self._full(k)]
        if full:
            return {self._node(k): "it must first pass on what it has" for k in full}
        waiting: dict[Node, str] = {}
        for key in sends:
            half = snapshot.send.get(key)
            if half is None or half.done >= half.total:
                continue
            for source in self._missing_inputs(key, half):
                if source != flow:
                    waiting[self._node(source)] = "another input of it is missing"
        if not sends and not waiting:
            waiting = self._inside_host(rank, flow.op, flow.channel, incoming=False)
        why = f"{recv.ready} chunks are there, the GPU has consumed {recv.done}"
        return waiting or {Node("gpu", (rank,)): why}
