"""An exported trace of several ranks as one frame per kind of record, with the global rank and the group's name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from mycroft.tracer import Trace, read_export


@dataclass(frozen=True)
class Frames:
    state: pl.DataFrame
    flow: pl.DataFrame
    op: pl.DataFrame
    heartbeat: pl.DataFrame


def frames(source: Path | list[Trace]) -> Frames:
    """Records of all ranks; `op` holds the newest record of each operation."""
    traces = source if isinstance(source, list) else read_export(source)
    found: dict[str, list[pl.DataFrame]] = {"state": [], "flow": [], "op": [], "heartbeat": []}
    for trace in traces:
        names = pl.DataFrame(
            [(c.comm, c.name) for c in trace.communicators],
            schema={"comm": pl.UInt16, "group": pl.String},
            orient="row",
        )
        for kind, parts in found.items():
            frame = pl.from_arrow(trace.tables[kind])
            assert isinstance(frame, pl.DataFrame)
            text = [name for name, dtype in frame.schema.items() if dtype == pl.Categorical]
            frame = frame.with_columns(pl.col(text).cast(pl.String), rank=pl.lit(trace.process.rank, pl.Int64))
            parts.append(frame.join(names, on="comm", how="left", maintain_order="left"))
    joined = {kind: pl.concat(parts, how="vertical_relaxed") for kind, parts in found.items()}
    joined["op"] = joined["op"].unique(["rank", "op_id"], keep="last", maintain_order=True)
    return Frames(**joined)
