"""Does a trace show what a fault must leave in it? One function per fault; each returns (shown, words with numbers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from tests.tracer.frames import Frames

Shown = tuple[bool, str]
KEY = ["rank", "group", "op_seq", "op_kind", "channel", "dir", "peer"]


def last_rows(frames: Frames, *, idle_ms: int = 2000) -> pl.DataFrame:
    """Flow halves that stand at the end of the trace."""
    end = frames.state["ts"].max()
    last = frames.state.sort("ts").unique(KEY, keep="last", maintain_order=True)
    return last.filter((pl.col("idle_ms") >= idle_ms) & (pl.col("ts") > end - pl.duration(milliseconds=2500)))


def group_ranks(name: str, groups: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    return groups[name]


def with_peer(frame: pl.DataFrame, groups: dict[str, tuple[int, ...]]) -> pl.DataFrame:
    table = pl.DataFrame(
        [(name, i, rank) for name, ranks in groups.items() for i, rank in enumerate(ranks)],
        schema={"group": pl.String, "peer": pl.UInt32, "peer_rank": pl.Int64},
        orient="row",
    )
    return frame.join(table, on=["group", "peer"], how="left", maintain_order="left")


def per_byte(frames: Frames, truth: dict[str, Any], of: pl.Expr, column: str) -> tuple[float, float]:
    """A sum of flows per byte, before and after the fault."""
    flows = frames.flow.filter(of & (pl.col("bytes") > 4096) & (pl.col("op_kind") != "all_reduce"))
    at = truth["injected_ns"]
    value = pl.col(column).sum() / pl.col("bytes").sum()
    before = flows.filter(pl.col("end_ts").cast(pl.Int64) < at).select(value).item()
    after = flows.filter(pl.col("end_ts").cast(pl.Int64) > at + 500_000_000).select(value).item()
    return before or 0.0, after or 0.0


def rises(frames: Frames, truth: dict[str, Any], of: pl.Expr, column: str, *, least: float) -> Shown:
    before, after = per_byte(frames, truth, of, column)
    ratio = after / before if before else float("inf") if after else 0.0
    return ratio >= least, f"{column} per byte x{ratio:.2f}"


def largest(frames: Frames, truth: dict[str, Any], of: pl.Expr, columns: list[str], *, least_s: float) -> Shown:
    flows = frames.flow.filter(of & (pl.col("end_ts").cast(pl.Int64) > truth["injected_ns"]))
    most = max((flows[column].max() or 0) for column in columns) / 1e9
    return most >= least_s, f"largest of {', '.join(columns)} {most:.2f} s"


def lateness_ms(
    frames: Frames, ranks: list[int], use: str, after_ns: int, before: bool, column: str, kind: str | None
) -> float:
    """Median of how much later than the others of the group the ranks enter its operations, or start their kernels."""
    ops = frames.op.filter(pl.col("group").str.starts_with(use) & ~pl.col("p2p"))
    ops = ops.filter(pl.col("op_kind") == kind) if kind else ops
    stamp = pl.col(column).cast(pl.Int64)
    ops = ops.filter(stamp < after_ns if before else stamp > after_ns)
    wide = ops.group_by("group", "op_seq").agg(
        own=stamp.filter(pl.col("rank").is_in(ranks)).median(),
        others=stamp.filter(~pl.col("rank").is_in(ranks)).median(),
    )
    return (wide.drop_nulls().select((pl.col("own") - pl.col("others")).median()).item() or 0.0) / 1e6


def late(
    frames: Frames,
    truth: dict[str, Any],
    ranks: list[int],
    use: str,
    *,
    least_ms: float,
    column: str = "enq_ts",
    kind: str | None = None,
) -> Shown:
    at = truth["injected_ns"]
    before = lateness_ms(frames, ranks, use, at, True, column, kind)
    after = lateness_ms(frames, ranks, use, at, False, column, kind)
    return (
        after - before >= least_ms,
        f"{column} of {use} {kind or 'operations'} {after - before:.1f} ms later than before",
    )


def silence_s(frames: Frames, rank: int) -> float:
    beats = frames.heartbeat.group_by("rank").agg(pl.col("ts").max().cast(pl.Int64).alias("last"))
    own = beats.filter(pl.col("rank") == rank)["last"].max()
    return (beats["last"].max() - (own or 0)) / 1e9


def silent(frames: Frames, rank: int) -> Shown:
    quiet = silence_s(frames, rank)
    return quiet > 2.5, f"no heartbeat of the rank for {quiet:.1f} s while others beat"


def idle(frames: Frames, rank: int) -> Shown:
    open_ops = frames.op.filter((pl.col("rank") == rank) & (pl.col("op_state") == "open")).height
    quiet = silence_s(frames, rank)
    waiting = frames.op.filter(pl.col("op_state") == "open")["rank"].n_unique()
    return open_ops == 0 and quiet < 2.5 and waiting > 0, (
        f"{open_ops} open operations at the rank, heartbeat {quiet:.1f} s old, {waiting} ranks wait"
    )


def nic_down(frames: Frames, rank: int, groups: dict[str, tuple[int, ...]]) -> Shown:
    """Data is out and not acknowledged, or the receiver has posted and its word of that has not come."""
    rows = with_peer(last_rows(frames), groups)
    receivers = rows.filter(pl.col("dir") == "recv").select(
        "group", "op_seq", "channel", sender="peer_rank", receiver="rank", their_posted="posted"
    )
    senders = rows.filter(pl.col("dir") == "send").join(
        receivers,
        left_on=["group", "op_seq", "channel", "rank", "peer_rank"],
        right_on=["group", "op_seq", "channel", "sender", "receiver"],
        how="left",
    )
    unacknowledged = pl.col("done") < pl.col("moved")
    unheard = (pl.col("ready") > pl.col("moved")) & (pl.col("their_posted") > pl.col("moved"))
    stuck = senders.filter(unacknowledged | unheard)
    touching = stuck.filter((pl.col("rank") == rank) | (pl.col("peer_rank") == rank))
    silent_ones = touching.filter(~unacknowledged).height
    return touching.height > 0 and touching.height == stuck.height, (
        f"{touching.height} of {stuck.height} flows the network holds touch it, {silent_ones} for want of credit"
    )


def recv_nopost(frames: Frames, rank: int, groups: dict[str, tuple[int, ...]]) -> Shown:
    rows = with_peer(last_rows(frames), groups)
    own = rows.filter(
        (pl.col("rank") == rank)
        & (pl.col("dir") == "recv")
        & (pl.col("posted") == pl.col("done"))
        & (pl.col("done") < pl.col("chunks_total"))
    ).height
    senders = rows.filter(
        (pl.col("peer_rank") == rank) & (pl.col("dir") == "send") & (pl.col("ready") > pl.col("moved"))
    ).height
    return own > 0 and senders > 0, f"{own} flows with posted = consumed < total, {senders} senders with ready > moved"


def gpu_hang(frames: Frames, rank: int) -> Shown:
    own = frames.op.filter((pl.col("rank") == rank) & (pl.col("op_state") == "open"))
    waiting = own.filter(pl.col("kstart_ts").is_null()).height
    flows = last_rows(frames).filter(
        (pl.col("rank") == rank) & (pl.col("done") < pl.col("chunks_total")) & (pl.col("dir") == "send")
        & (pl.col("ready") == pl.col("done"))
    ).height  # fmt: skip
    held = last_rows(frames).filter(
        (pl.col("rank") == rank) & (pl.col("dir") == "recv") & (pl.col("done") < pl.col("ready"))
    ).height  # fmt: skip
    # Inside a host nothing but the start of kernels is seen: all members are in, and nobody comes out.
    inside = own.filter(pl.col("group").str.starts_with("tp") & pl.col("kstart_ts").is_not_null()).height
    return waiting + flows + held + inside > 0, (
        f"{waiting} operations enqueued and not started, {flows} flows with ready = done < total, "
        f"{held} with consumed < flushed, {inside} kernels inside the host that do not end"
    )


def order(frames: Frames, rank: int) -> Shown:
    open_ops = frames.op.filter(pl.col("op_state") == "open")
    own = set(open_ops.filter(pl.col("rank") == rank)["group"].to_list())
    others = set(open_ops.filter(pl.col("rank") != rank)["group"].to_list())
    crossed = "default_pg" in own and any(name.startswith("tp") for name in others)
    return crossed, f"the rank waits in {sorted(own)}, others in {sorted(others)}"


def differs(frames: Frames, rank: int, column: str) -> Shown:
    ops = frames.op.filter(pl.col("group").str.starts_with("dp"))
    mine = ops.filter(pl.col("rank") == rank).select("group", "op_seq", own=column)
    others = ops.filter(pl.col("rank") != rank).select("group", "op_seq", other=column)
    joined = mine.join(others, on=["group", "op_seq"]).filter(pl.col("own") != pl.col("other"))
    return joined.height > 0, f"{joined.height} operations where {column} of the rank differs from its group"


def qp(frames: Frames, truth: dict[str, Any], rank: int) -> Shown:
    send = (pl.col("rank") == rank) & (pl.col("dir") == "send")
    ratios: list[float] = []
    for channel in (0, 1):
        before, after = per_byte(frames, truth, send & (pl.col("channel") == channel), "net_busy_ns")
        ratios.append(after / before if before else 0.0)
    return ratios[0] > 1.15 * ratios[
        1
    ], f"net_busy per byte x{ratios[0]:.2f} on channel 0, x{ratios[1]:.2f} on channel 1"


def signature(
    frames: Frames, truth: dict[str, Any], rank: int, host_ranks: list[int], groups: dict[str, tuple[int, ...]]
) -> Shown:
    """Look for the signature of the fault that the truth names."""
    own_send = (pl.col("rank") == rank) & (pl.col("dir") == "send")
    own_recv = (pl.col("rank") == rank) & (pl.col("dir") == "recv")
    host_send = pl.col("rank").is_in(host_ranks) & (pl.col("dir") == "send")
    checks: dict[str, Callable[[], Shown]] = {
        "nic_down": lambda: nic_down(frames, rank, groups),
        "nic_bw": lambda: rises(frames, truth, own_send, "net_busy_ns", least=1.5),
        "pcie": lambda: rises(frames, truth, own_recv, "flush_ns", least=3),
        "gpu_power": lambda: late(frames, truth, [rank], "tp", least_ms=2, column="kstart_ts"),
        "bg_compute": lambda: late(frames, truth, host_ranks, "dp", least_ms=5, kind="reduce_scatter"),
        "bg_traffic": lambda: rises(frames, truth, host_send, "net_busy_ns", least=1.5),
        "proxy_delay": lambda: largest(
            frames, truth, pl.col("rank") == rank, ["post_delay_max_ns", "peer_wait_max_ns"], least_s=0.9
        ),
        "killed": lambda: silent(frames, rank),
        "sigstop": lambda: silent(frames, rank),
        "exception": lambda: silent(frames, rank),
        "absent": lambda: idle(frames, rank),
        "ckpt_stall": lambda: idle(frames, rank),
        "recv_nopost": lambda: recv_nopost(frames, rank, groups),
        "qp_slow30": lambda: qp(frames, truth, rank),
        "link_flap": lambda: largest(frames, truth, pl.lit(value=True), ["net_max_ns"], least_s=1.0),
        "gpu_hang": lambda: gpu_hang(frames, rank),
        "order": lambda: order(frames, rank),
        "wrong_size": lambda: differs(frames, rank, "bytes"),
        "extra_op": lambda: differs(frames, rank, "op_kind"),
    }
    return checks[truth["fault"]]()
