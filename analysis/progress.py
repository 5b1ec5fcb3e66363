"""How far ranks and flows have come, and the three checks of the paper under their names, as definitions.

Mycroft (SOSP'25) 4.3: `CheckMinOp` finds who is behind, `CheckMinData` the flow with the least data, `CheckRCTable` the
stage that does not go on. Here the first compares within one communicator only (numbers of different ones cannot be
compared), the second is where a walk may begin and never a verdict (least data is often a victim), and the third
reads both halves of a flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mycroft.analysis.flow import FlowKey, Half, OpKey, Snapshot

Whom = Literal["src", "dst", "path", "input"]


def check_min_op(reached: Mapping[int, int], members: Iterable[int]) -> frozenset[int]:
    """CheckMinOp: return the members of one communicator that are furthest behind; empty if all are at one operation.

    `reached`: rank -> newest operation enqueued; a member that is not in it has enqueued none, as far as is known.
    """
    at = {rank: reached.get(rank, -1) for rank in members}
    newest = max(at.values(), default=-1)
    lag = {rank: newest - seq for rank, seq in at.items()}
    most = max(lag.values(), default=0)
    return frozenset(rank for rank, behind in lag.items() if behind == most > 0)


def behind(snapshot: Snapshot, comm: int) -> frozenset[int]:
    """Return `check_min_op` of a communicator at the moment of a snapshot."""
    members = snapshot.members.get(comm, ())
    return check_min_op({r: seq for (c, r), seq in snapshot.reached.items() if c == comm}, members)


def flow_progress(send: Half | None, recv: Half | None) -> float | None:
    """Return the share of a flow that is consumed, of which only the sender is seen acknowledged; None: no half."""
    half = recv if recv is not None else send
    return half.done / half.total if half is not None and half.total else None


def check_min_data(snapshot: Snapshot, op: OpKey) -> tuple[FlowKey, ...]:
    """CheckMinData: return the flows of an operation that have come least far, by channel and sender.

    All that are equal: the first of them is for display only. Empty where no flow of it was seen.
    """
    progress = {
        key: done
        for key in snapshot.of_op.get(op, ())
        if (done := flow_progress(snapshot.send.get(key), snapshot.recv.get(key))) is not None
    }
    least = min(progress.values(), default=0.0)
    found = [key for key, done in progress.items() if done == least]
    return tuple(sorted(found, key=lambda k: (k.channel, k.src, k.dst)))


@dataclass(frozen=True, slots=True)
class FlowFacts:
    """What the counters of a flow do not say themselves."""

    src_alive: bool = True
    dst_alive: bool = True
    src_enqueued: bool = True
    src_started: bool = True
    """The kernel of the sender; True where kernel events are off."""
    input_there: bool = True
    """All that the sender's next chunk needs has arrived."""


@dataclass(frozen=True, slots=True)
class RootCauseRow:
    """A row of the table: what stands (a sink of the walk, or `follow`) and at whom."""

    sink: str
    whom: Whom
    pattern: str
    """The counters of the sending side, as in the paper: 1 ready, 2 handed over, 3 acknowledged, N all."""


def check_rc_table(send: Half | None, recv: Half | None, facts: FlowFacts, *, slots: int) -> RootCauseRow:
    """CheckRCTable: return the row that fits two halves of a flow that stands. A total function; None: no row seen."""
    pattern = pattern_of(send)
    if not facts.src_alive:
        return RootCauseRow("crash", "src", pattern)
    if not facts.dst_alive:
        return RootCauseRow("crash", "dst", pattern)
    if send is None:
        return RootCauseRow("follow" if facts.src_enqueued else "app", "src", pattern)
    if pattern == "1=2=3=N":
        if recv is not None and recv.moved < recv.total:
            return RootCauseRow("net", "path", pattern)
        return _held(recv, pattern)
    if pattern == "2>3":
        if recv is None:
            return RootCauseRow("follow", "dst", pattern)
        return RootCauseRow("net", "path", pattern) if recv.posted > send.done else _credit(recv, pattern, slots)
    if pattern == "1>2":
        if recv is None:
            return RootCauseRow("follow", "dst", pattern)
        return RootCauseRow("proxy", "src", pattern) if recv.posted > send.moved else _credit(recv, pattern, slots)
    if not facts.src_started:
        return RootCauseRow("gpu", "src", pattern)
    return RootCauseRow("gpu", "src", pattern) if facts.input_there else RootCauseRow("follow", "input", pattern)


def pattern_of(send: Half | None) -> str:
    """Return the pattern of the sending side."""
    if send is None:
        return "no row"
    if send.done >= send.total:
        return "1=2=3=N"
    if send.moved > send.done:
        return "2>3"
    return "1>2" if send.ready > send.moved else "1=2=3<N"


def _credit(recv: Half, pattern: str, slots: int) -> RootCauseRow:
    if recv.posted < min(recv.done + slots, recv.total):
        return RootCauseRow("recv_proxy", "dst", pattern)
    return _held(recv, pattern)


def _held(recv: Half | None, pattern: str) -> RootCauseRow:
    """Delivered and not consumed."""
    if recv is None:
        return RootCauseRow("follow", "dst", pattern)
    return RootCauseRow("flush" if recv.moved > recv.ready else "gpu", "dst", pattern)
