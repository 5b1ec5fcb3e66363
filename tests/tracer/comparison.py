"""The decoded trace of one rank against what the script says it did: every difference as one line."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from mycroft.tracer import Trace, open_trace

SUMS = (
    "net_busy_ns",
    "net_max_ns",
    "peer_wait_ns",
    "peer_wait_max_ns",
    "post_delay_ns",
    "post_delay_max_ns",
    "flush_ns",
    "gpu_hold_ns",
)


def rows(table: Any) -> list[dict[str, Any]]:
    """Rows with times as integers."""
    import pyarrow as pa

    plain = {}
    for name in table.schema.names:
        column = table.column(name)
        plain[name] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def load(folder: Path) -> list[tuple[dict[str, Any], Trace]]:
    """Every rank's truth with its trace, by rank."""
    found = []
    for path in sorted(folder.glob("truth-*.json"), key=lambda p: int(p.stem.split("-")[1])):
        truth = json.loads(path.read_text())
        (ring,) = folder.glob(f"rank{truth['rank']}-{truth['pid']}-*.ring")
        found.append((truth, open_trace(ring)))
    return found


def compare(truth: dict[str, Any], trace: Trace, *, exact_times: bool) -> list[str]:
    """Return what differs; empty: the trace is exactly what was done."""
    names = {comm.comm: comm.name for comm in trace.communicators}
    wrong = [f"violation: {v}" for v in truth["violations"]]
    wrong += [f"lost: {reason} {count}" for reason, count in trace.losses.items()]
    wrong += _process(truth, trace)
    wrong += _differences("comm", _true_comms(truth), _seen_comms(trace))
    wrong += _differences("op", _true_ops(truth, exact_times), _seen_ops(trace, names, exact_times))
    wrong += _differences("flow", _true_flows(truth, exact_times), _seen_flows(trace, names, exact_times))
    wrong += _disorder(trace)
    wrong += _differences("foreign", _true_foreign(truth), _seen_foreign(trace))
    if exact_times:
        wrong += _holds(truth, trace, names)
    return wrong


def _differences(what: str, true: list[tuple[Any, ...]], seen: list[tuple[Any, ...]]) -> list[str]:
    expected, found = Counter(true), Counter(seen)
    return [f"{what} not recorded: {row}" for row in expected - found] + [
        f"{what} made up: {row}" for row in found - expected
    ]


def _process(truth: dict[str, Any], trace: Trace) -> list[str]:
    seen = (trace.process.pid, trace.process.rank, trace.process.rank_source)
    expected = (truth["pid"], truth["rank"], "RANK")
    return [] if seen == expected else [f"process: {seen} instead of {expected}"]


def _disorder(trace: Trace) -> list[str]:
    """A snapshot is taken while the flow moves on; still no stage is ahead of one that comes before it."""
    stages = {"send": ("done", "moved", "ready", "chunks_total"), "recv": ("done", "ready", "moved", "posted")}
    return [
        f"stages out of order: {row}"
        for row in rows(trace.tables["state"])
        if not all(row[a] <= row[b] for a, b in pairwise(stages[row["dir"]]))
    ]


def _true_comms(truth: dict[str, Any]) -> list[tuple[Any, ...]]:
    early = truth["abi"] <= 3  # neither name nor size before the first operation, and no size ever
    result = []
    for c in truth["comms"]:
        named = c["named"]
        result.append(
            (
                c["name"] if named else "",
                c["hash"] if named else 0,
                c["rank"] if named else None,
                None if early else c["size"],
                truth["abi"],
                c["closed"],
                c["last_seq"] if c["last_seq"] >= 0 else None,
            )
        )
    return result


def _seen_comms(trace: Trace) -> list[tuple[Any, ...]]:
    return [(c.name, c.hash, c.rank, c.size, c.abi, c.closed_ns is not None, c.last_seq) for c in trace.communicators]


def _true_ops(truth: dict[str, Any], exact_times: bool) -> list[tuple[Any, ...]]:
    return [
        (
            o["comm"],
            o["seq"],
            o["kind"],
            o["p2p"],
            o["peer"] if o["peer"] >= 0 else None,
            o["bytes"],
            o["source_seq"],
            o["state"],
            o["kernel_end"],
            None if o["state"] == "open" else o["flows"],
            o["enq_ns"] if exact_times else None,
            (o["dur_ns"] if o["dur_ns"] >= 0 else None) if exact_times else o["dur_ns"] >= 0,
        )
        for o in truth["ops"]
    ]


def _seen_ops(trace: Trace, names: dict[int, str], exact_times: bool) -> list[tuple[Any, ...]]:
    last: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows(trace.tables["op"]):
        last[(row["op_id"], row["enq_ts"])] = row  # written in order; the newest counts
    return [
        (
            names.get(o["comm"], "?"),
            o["op_seq"],
            o["op_kind"],
            o["p2p"],
            o["peer"],
            o["bytes"],
            o["source_seq"],
            o["op_state"],
            o["kernel_end"],
            None if o["op_state"] == "open" else o["flows"],
            o["enq_ts"] if exact_times else None,
            o["dur_ns"] if exact_times else o["dur_ns"] is not None,
        )
        for o in last.values()
    ]


def _true_flows(truth: dict[str, Any], exact_times: bool) -> list[tuple[Any, ...]]:
    result = []
    for f in truth["flows"]:
        mine = SUMS[:4] if f["send"] else SUMS[4:]
        result.append(
            (
                f["comm"],
                None if f["foreign"] else f["seq"],
                f["kind"],
                f["channel"],
                f["peer"],
                f["send"],
                f["foreign"],
                f["slices"],
                f["bytes"],
                f["partial"],
                f["aborted"],
                f["end_ns"] if exact_times and f["end_ns"] else None,
                tuple(f[name] if name in mine else None for name in SUMS) if exact_times else None,
            )
        )
    return result


def _seen_flows(trace: Trace, names: dict[int, str], exact_times: bool) -> list[tuple[Any, ...]]:
    return [
        (
            "" if f["foreign"] else names.get(f["comm"], "?"),
            None if f["foreign"] else f["op_seq"],
            f["op_kind"],
            f["channel"],
            f["peer"],
            f["dir"] == "send",
            f["foreign"],
            f["slices"],
            f["bytes"],
            f["partial"],
            f["aborted"],
            f["end_ts"] if exact_times and f["slices"] else None,
            tuple(f[name] for name in SUMS) if exact_times else None,
        )
        for f in rows(trace.tables["flow"])
    ]


def _true_foreign(truth: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (f["pid"], f["context"], f["parent"], f["rank"], f["channel"], f["peer"], f["send"], f["total"])
        for f in truth["foreign"]
    ]


def _seen_foreign(trace: Trace) -> list[tuple[Any, ...]]:
    return [
        (
            f["pid"],
            f["context"],
            f["parent"],
            f["rank"],
            f["channel"],
            f["peer"],
            f["dir"] == "send",
            f["chunks_total"],
        )
        for f in rows(trace.tables["foreign"])
    ]


def _holds(truth: dict[str, Any], trace: Trace, names: dict[int, str]) -> list[str]:
    """While a script stands still, every row of the sampler shows exactly what the script had done."""
    wrong: list[str] = []
    states = rows(trace.tables["state"])
    beats = {row["ts"]: row["open_ops"] for row in rows(trace.tables["heartbeat"])}
    for number, hold in enumerate(truth["holds"]):
        key = (
            "comm",
            "seq",
            "channel",
            "peer",
            "send",
            "foreign",
            "total",
            "posted",
            "ready",
            "moved",
            "done",
            "bytes",
        )
        expected = {tuple(row[k] for k in key): row for row in hold["rows"]}
        seen: dict[tuple[Any, ...], list[int]] = {}
        for s in states:
            if s["ts"] != hold["to_ns"]:
                continue
            row = (
                "" if s["foreign"] else names.get(s["comm"], "?"),
                0 if s["foreign"] else s["op_seq"],
                s["channel"],
                s["peer"],
                s["dir"] == "send",
                s["foreign"],
                *(s[name] for name in ("chunks_total", "posted", "ready", "moved", "done", "bytes")),
            )
            seen.setdefault(row, []).append(s["idle_ms"])
        wrong += [f"hold {number}: not sampled: {row}" for row in expected.keys() - seen.keys()]
        wrong += [f"hold {number}: made up: {row}" for row in seen.keys() - expected.keys()]
        for row in expected.keys() & seen.keys():
            # The sampler counts from the tick that saw the last move: between the move and the hold.
            least = (hold["to_ns"] - hold["from_ns"]) // 1_000_000
            most = (hold["to_ns"] - expected[row]["last_move_ns"]) // 1_000_000
            wrong += [
                f"hold {number}: idle {idle} not in {least}-{most}: {row}"
                for idle in seen[row]
                if not least <= idle <= most
            ]
        if beats.get(hold["to_ns"]) != hold["open_ops"]:
            wrong.append(f"hold {number}: heartbeat says {beats.get(hold['to_ns'])} open, not {hold['open_ops']}")
    return wrong
