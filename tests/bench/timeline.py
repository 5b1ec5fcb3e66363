"""Measures the timeline: `python -m tests.bench.timeline [ROWS] [RANKS] [VIEWS]`, by default 10^6 rows of 1,024 ranks.

Building the levels (CPU time, size), each answer of the server (CPU time, bytes), and a redraw in Chromium, beside a
heat map of Plotly over the same cells whose window is changed by `relayout` and refilled by `restyle`. CPU time
throughout: wall time on a shared machine says nothing.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.app.open_stores import OpenStores
from mycroft.app.queries import TraceReader
from mycroft.app.reads import timeline
from mycroft.loaders import pyramid, schema
from mycroft.loaders.catalogue import Catalogue
from mycroft.loaders.store import StoreWriter
from tests.browser.serving import SIZE, chromium, served

GROUP: Final = 8
PIECE: Final = 2_000_000
SEED: Final = 7
START: Final = int(datetime(2026, 3, 2, 4, 0, 0).timestamp()) * 1_000_000_000


def write(path: Path, rows: int, ranks: int) -> None:
    """Write operations of groups of eight ranks, one a 100 ms apart from the next, with jitter and one late rank."""
    noise = np.random.default_rng(SEED)
    writer = StoreWriter(path)
    groups = max(ranks // GROUP, 1)
    wanted = {
        "trace_meta": pl.DataFrame({"key": ["schema_version"], "value": [str(schema.SCHEMA_VERSION)]}),
        "jobs": pl.DataFrame({"job_id": [0], "world_size": [ranks]}),
        "communicators": pl.DataFrame(
            {"comm_id": range(groups), "key": [f"tp-{n}" for n in range(groups)], "kind": ["tp"] * groups}
        ),
        "ranks": pl.DataFrame({"job_id": [0] * ranks, "rank": range(ranks)}),
    }
    for table, frame in wanted.items():
        writer.append(table, frame)
    per_rank = rows // ranks
    step = max(PIECE // ranks, 1)
    for first in range(0, per_rank, step):
        seqs = np.arange(first, min(first + step, per_rank))
        seq = np.repeat(seqs, ranks)
        rank = np.tile(np.arange(ranks), len(seqs))
        late = noise.gamma(2.0, 500_000, len(seq)).astype(np.int64)
        late[(rank == ranks // 3) & (seq % 97 == 0)] += 300_000_000
        start = START + seq * 100_000_000 + late
        frame = pl.DataFrame(
            {
                "rank": rank,
                "comm_id": rank // GROUP,
                "op_seq": seq,
                "op_kind": pl.Series(["all_reduce"]).extend_constant("all_reduce", len(seq) - 1),
                "start_ts": pl.Series(start).cast(pl.Datetime("ns")),
                "enq_ts": pl.Series(start).cast(pl.Datetime("ns")),
                "dur_ns": np.maximum(60_000_000 - late, 1_000_000),
                "state": pl.Series(["completed"]).extend_constant("completed", len(seq) - 1),
                "is_p2p": np.zeros(len(seq), bool),
            }
        )
        writer.append("coll_ops", frame.sort("comm_id", "op_seq", "rank"))
    writer.finish()


def cpu(what: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of a call, s, all threads of this process, and its result."""
    started = time.process_time()
    found = what()
    return time.process_time() - started, found


def told(name: str, times: list[float], sizes: list[int]) -> None:
    """Print the median and the 95 % quantile of CPU times, ms, and of sizes, KiB."""
    times = sorted(times)
    high = times[min(int(len(times) * 0.95), len(times) - 1)]
    size = f", {statistics.median(sizes) / 1024:.1f} KiB median, {max(sizes) / 1024:.1f} most" if sizes else ""
    print(f"{name:34} {statistics.median(times) * 1e3:8.1f} ms median {high * 1e3:8.1f} ms p95{size}")


def server(reader: TraceReader, views: int) -> None:
    """Measure tiles of each kind and bars at random places."""
    chance = random.Random(SEED)
    plan = timeline.plan_of(reader)
    seconds, found = cpu(lambda: timeline.describe(reader))
    packed = gzip.compress(json.dumps(found).encode(), 1)
    print(f"{'description':34} {seconds * 1e3:8.1f} ms {len(packed) / 1024:32.1f} KiB")
    for kind, levels in (
        ("kept tile", range(plan.stored)),
        ("tile made afresh", range(plan.stored, len(plan.bins_ns))),
    ):
        times: list[float] = []
        sizes: list[int] = []
        for _ in range(views):
            level = chance.choice(list(levels))
            x = chance.randrange(-(-plan.bins(level) // pyramid.SIDE))
            y = chance.randrange(-(-plan.ranks // pyramid.SIDE))
            metric = chance.choice(pyramid.METRICS)
            seconds, tile = cpu(lambda level=level, y=y, x=x, m=metric: timeline.tile(reader, m, level, y, x))
            times.append(seconds)
            sizes.append(len(tile or b""))
        told(kind, times, sizes)
    times, sizes = [], []
    span = plan.span_ns // 1000
    length = int(min(span, 100_000 * timeline.BARS_MAX / 100))
    for _ in range(views):
        first = chance.randrange(max(span - length, 1))
        low = chance.randrange(max(plan.ranks - 99, 1))
        seconds, body = cpu(lambda first=first, low=low: timeline.bars(reader, first, first + length, low, low + 98))
        times.append(seconds)
        sizes.append(len(body))
    told("bars of 99 ranks", times, sizes)


# One step of the reader in our page: a key, or a click into the minimap; done when all that is shown has come.
_STEP: Final = """async ([key, shift, share]) => {
  const place = document.querySelector("[data-timeline]");
  const canvas = document.querySelector("canvas.timeline__canvas");
  const map = document.querySelector("canvas.timeline__map");
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => resolve()));
  const started = performance.now();
  if (key === "map") {
    const box = map.getBoundingClientRect();
    const at = { clientX: box.left + 92 + share * (box.width - 100), clientY: box.top + 9, pointerId: 1 };
    map.setPointerCapture = () => {};
    map.dispatchEvent(new PointerEvent("pointerdown", { ...at, bubbles: true }));
    map.dispatchEvent(new PointerEvent("pointerup", { ...at, bubbles: true }));
  } else canvas.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey: shift, bubbles: true }));
  await frame();
  await frame();
  while (!place.hasAttribute("data-settled")) await frame();
  return performance.now() - started;
}"""
_PLOTLY_START: Final = """async ([address, cells]) => {
  await new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  const place = document.createElement("div");
  place.style.width = "1150px";
  place.style.height = "430px";
  document.body.replaceChildren(place);
  window.cells = cells;
  window.place = place;
  // As a relayout callback works: the window changes, the answer of the server is the cells anew.
  await window.Plotly.newPlot(place, [{ z: cells, type: "heatmap", colorscale: "Cividis" }], {});
}"""
_PLOTLY_STEP: Final = """async (at) => {
  const { cells, place } = window;
  const wide = cells[0].length;
  const shift = (at % 10) * (wide / 40);
  const started = performance.now();
  await window.Plotly.relayout(place, { "xaxis.range": [shift, shift + wide / 2] });
  await window.Plotly.restyle(place, { z: [cells] });
  return performance.now() - started;
}"""
Step = tuple[str, bool, float]


def pans(views: int) -> list[Step]:
    """Return steps to and fro, whose tiles are soon all here."""
    return [("ArrowRight" if at % 10 < 5 else "ArrowLeft", False, 0.0) for at in range(views)]


def wanders(views: int) -> list[Step]:
    """Return steps anywhere: along, in and out, to other ranks, to another place of the whole."""
    chance = random.Random(SEED)
    keys = ("+", "+", "-", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "map", "map")
    return [(chance.choice(keys), chance.random() < 0.3, chance.random()) for _ in range(views)]


def cells_of(reader: TraceReader) -> list[list[int]]:
    """Return the cells of the finest kept level of about a thousand bins, for Plotly."""
    plan = timeline.plan_of(reader)
    level = min(1, plan.stored - 1)
    empty = np.zeros((pyramid.SIDE, pyramid.SIDE), np.uint8)
    bands: list[Any] = []
    for y in range(-(-plan.ranks // pyramid.SIDE)):
        row = [timeline.tile(reader, "late", level, y, x) for x in range(-(-plan.bins(level) // pyramid.SIDE))]
        shape = (pyramid.SIDE, pyramid.SIDE)
        bands.append(
            np.hstack([empty if t is None else np.frombuffer(gzip.decompress(t), np.uint8).reshape(shape) for t in row])
        )
    return np.vstack(bands)[: plan.ranks, : plan.bins(level)].tolist()


def browser(data_dir: Path, reader: TraceReader, views: int) -> None:
    """Measure redraws: ours by keys in the page, then Plotly's over the cells of one level."""
    plan = timeline.plan_of(reader)
    with served(data_dir) as site, chromium() as running:
        page = running.new_context(viewport=SIZE).new_page()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> float:
            found = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
            return float(found["TaskDuration"])

        def measured(name: str, script: str, steps: Sequence[Any]) -> None:
            walls: list[float] = []
            costs: list[float] = []
            for step in steps:
                before = spent()
                walls.append(page.evaluate(script, step) / 1000)
                costs.append(spent() - before)
            told(f"{name}: browser CPU", costs, [])
            told(f"{name}: wall", walls, [])

        def opened(query: str) -> None:
            page.goto(f"{site.url}/t/bench/timeline{query}")
            page.wait_for_selector("[data-settled]")

        opened(f"?t=0-{plan.span_ns // 2000}")
        for step in pans(10):
            page.evaluate(_STEP, step)
        measured("canvas, pan over cached tiles", _STEP, pans(views))
        opened("")
        measured("canvas, anywhere, with fetch", _STEP, wanders(views))
        # With what is fetched on either side this is just below where heat becomes bars.
        bar_us = min(58 * 100_000, plan.span_ns // 1000)
        opened(f"?t=0-{bar_us}&y=0-89")
        page.wait_for_selector("[data-mode=bars]")
        measured("canvas, bars", _STEP, pans(views))
        page.evaluate(_PLOTLY_START, ["/_dash-component-suites/plotly/package_data/plotly.min.js", cells_of(reader)])
        measured("Plotly heat map", _PLOTLY_STEP, range(min(views, 30)))


def main() -> int:
    """Measure and print."""
    rows, ranks, views = [*map(int, sys.argv[1:4]), *(1_000_000, 1024, 100)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        data_dir.mkdir()
        path = data_dir / "bench.duckdb"
        write(path, rows, ranks)
        raw = path.stat().st_size
        seconds, plan = cpu(lambda: pyramid.build(path))
        size = path.stat().st_size
        print(
            f"{rows:,} rows, {ranks:,} ranks: built in {seconds:.1f} CPU-s, {(size - raw) / raw:.0%} of the file's size"
        )
        assert plan is not None
        catalogue = Catalogue(data_dir)
        catalogue.publish("bench", path, title="bench", summary={})
        catalogue.close()
        path = data_dir / "traces" / "bench.1.duckdb"
        reader = TraceReader(trace="bench", title="bench", generation=1, path=path, stores=OpenStores())
        server(reader, views)
        browser(data_dir, reader, views)
    return 0


if __name__ == "__main__":
    sys.exit(main())
