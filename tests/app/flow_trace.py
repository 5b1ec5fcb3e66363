"""Writes small traces with flows, whose chunks stand at a place that is known: a ring, a double tree, and pairs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Final

WORLD: Final = 12
SILENT: Final = 9
"""Left no log at all."""
BROKEN: Final = (1, 5, 6)
"""Channel, sender and receiver of the flow that stands."""
TOTAL: Final = 16
START: Final = datetime(2026, 3, 2, 4, 10, 0)
STALL_TICK: Final = 12
TICKS: Final = 60
SEQ: Final = 7
Row = dict[str, Any]

# Children below parents; the second tree is the first with its ranks turned round.
_PARENTS: Final = {1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 3, 8: 4, 9: 4, 10: 5, 11: 5}


def parents(channel: int) -> dict[int, int]:
    """Return the parent of each rank in the tree of a channel."""
    if channel == 0:
        return dict(_PARENTS)
    return {(child + 4) % WORLD: (parent + 4) % WORLD for child, parent in _PARENTS.items()}


def edges(shape: str, channel: int) -> list[tuple[int, int]]:
    """Return who sends to whom."""
    if shape == "ring":
        return [(rank, (rank + 1) % WORLD) for rank in range(WORLD)]
    if shape == "pairs":
        return [(a, b) for a in range(WORLD) for b in range(WORLD) if a != b]
    tree = parents(channel)
    return [*tree.items(), *((parent, child) for child, parent in tree.items())]


def counters(shape: str, channel: int, src: int, dst: int, tick: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return posted, ready, moved and done of the sender and of the receiver at a tick."""
    before = min(tick, STALL_TICK)
    if channel == BROKEN[0]:
        if (src, dst) == BROKEN[1:]:
            done = min(before, 8)
            return (min(done + 4, TOTAL), done + 2, done + 2, done), (min(done + 4, TOTAL), done, done, done)
        if shape == "ring":
            # The further behind the break, the more the rank still had on its way.
            done = min(before, 8 + (src - BROKEN[1]) % WORLD // 2)
            return (done + 1, done, done, done), (min(done + 4, TOTAL), done, done, done)
    done = min(tick * 2, TOTAL)
    return (done, done, done, done), (done, done, done, done)


def rows(shape: str, *, blamed: bool = True) -> dict[str, list[Row]]:
    """Return the rows of every table, by name."""
    kind, algo = {"ring": ("all_reduce", "RING"), "tree": ("all_reduce", "TREE"), "pairs": ("all_to_all", None)}[shape]
    made: dict[str, list[Row]] = {
        "jobs": [{"job_id": 0, "world_size": WORLD}],
        "hosts": [{"host_id": host, "name": f"hx-b{host:02}"} for host in range(3)],
        "ranks": [{"job_id": 0, "rank": rank, "host_id": rank // 4, "local_rank": rank % 4} for rank in range(WORLD)],
        "communicators": [
            {"comm_id": 0, "job_id": 0, "key": "dp-0a", "desc": "dp0", "kind": "dp", "backend": "nccl", "size": WORLD}
        ],
        "members": [{"comm_id": 0, "rank": r, "comm_rank": r, "source": "topology"} for r in range(WORLD)],
        "rank_dumps": [{"rank": r, "file_id": 0, "kind": "ring"} for r in range(WORLD) if r != SILENT],
        "files": [{"file_id": 0, "job_id": 0, "loader": "mycroft_trace", "path": "trace.parquet", "sha256": "0" * 64}],
        "coll_ops": [],
        "flow_state": [],
        "flow_ops": [],
    }
    for rank in range(WORLD):
        if rank == SILENT:
            continue
        for seq in (SEQ - 1, SEQ):
            began = START + timedelta(seconds=seq - SEQ, milliseconds=rank)
            over = seq < SEQ
            made["coll_ops"].append(
                {
                    "rank": rank,
                    "comm_id": 0,
                    "op_seq": seq,
                    "op_kind": kind,
                    "algo": algo,
                    "start_ts": began,
                    "enq_ts": began,
                    "dur_ns": 400_000_000 if over else None,
                    "state": "completed" if over else "started",
                    "is_p2p": False,
                    "file_id": 0,
                }
            )
    for channel in (0, 1):
        for src, dst in edges(shape, channel):
            _flow(made, shape, kind, channel, src, dst)
    if blamed:
        made["diagnoses"] = [{"diag_id": 0, "revision": 1, "verdict": json.dumps(_verdict(kind)), "rules_version": "1"}]
    return made


def _flow(made: dict[str, list[Row]], shape: str, kind: str, channel: int, src: int, dst: int) -> None:
    for tick in range(TICKS):
        sides = counters(shape, channel, src, dst, tick)
        for rank, peer, way, values in ((src, dst, "send", sides[0]), (dst, src, "recv", sides[1])):
            if rank == SILENT or (values[3] == TOTAL and tick > TOTAL // 2):
                continue
            made["flow_state"].append(
                {
                    "ts": START + timedelta(milliseconds=100 * tick),
                    "rank": rank,
                    "comm_id": 0,
                    "peer": peer,
                    "op_seq": SEQ,
                    "op_kind": kind,
                    "channel": channel,
                    "dir": way,
                    "chunks_total": TOTAL,
                    **dict(zip(("posted", "ready", "moved", "done"), values, strict=True)),
                    "idle_ms": max(0, tick - STALL_TICK) * 100,
                }
            )
    # The operation before has ended; in a tree, what goes up before what comes down.
    up = shape == "tree" and parents(channel).get(src) == dst
    for rank, peer, way in ((src, dst, "send"), (dst, src, "recv")):
        if rank != SILENT:
            ended = START - timedelta(milliseconds=800 - (0 if up else 200))
            made["flow_ops"].append(
                {
                    "rank": rank,
                    "comm_id": 0,
                    "op_seq": SEQ - 1,
                    "channel": channel,
                    "dir": way,
                    "peer": peer,
                    "end_ts": ended,
                    "slices": TOTAL,
                }
            )


def _verdict(kind: str) -> dict[str, Any]:
    channel, src, dst = BROKEN
    return {
        "schema": "mycroft.verdict/1",
        "engine": "0.1.0/1",
        "evidence": {
            "digest": "sha256:00",
            "files": 1,
            "formats": {"mycroft_trace": 1},
            "ranks_expected": WORLD,
            "ranks_seen": WORLD - 1,
            "unread": [],
        },
        "status": "hang",
        "summary": f"Rank {src} (hx-b01) stopped sending to rank {dst} on channel {channel} of {kind} {SEQ} of dp0.",
        "findings": [
            {
                "id": "f1",
                "status": "hang",
                "category": "link_fault",
                "component": "nic",
                "confidence": "high",
                "confidence_why": [],
                "root_cause": {
                    "ranks": [src],
                    "hosts": ["hx-b01"],
                    "devices": [],
                    "flow": {"channel": channel, "peer": dst, "dir": "send", "qp": None},
                    "one_of": False,
                },
                "summary": f"Rank {src} (hx-b01) stopped sending to rank {dst} on channel {channel}.",
                "why": "handed over 10, acknowledged 8 of 16",
                "collective": {"comm": "dp-0a", "group": "dp0", "seq": SEQ, "op": kind, "missing_ranks": []},
                "since": "2026-03-02T04:10:01.200Z",
                "victims": {"count": WORLD - 1, "ranks": [r for r in range(WORLD) if r != src]},
                "chain": [],
                "evidence": [
                    {
                        "id": "e1",
                        "claim": f"rank {src} sends on channel {channel}: handed over 10, acknowledged 8 of 16",
                        "file": None,
                        "line": None,
                        "source": "tracer",
                        "table": "flow_state",
                        "key": {
                            "comm_id": 0,
                            "op_seq": SEQ,
                            "rank": src,
                            "peer": dst,
                            "channel": channel,
                            "dir": "send",
                        },
                    }
                ],
                "alternatives": [],
                "next_steps": ["ibstat   # on hx-b01"],
                "votes": [],
            }
        ],
        "unknown": [{"what": f"rank {SILENT} left no log", "would_decide": f"the trace of rank {SILENT}"}],
    }
