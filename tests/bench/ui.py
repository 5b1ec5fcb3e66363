"""Measures how long a person waits for the answer: `python -m tests.bench.ui [RUNS]`, and what a redraw of the lens
costs: `python -m tests.bench.ui lens [RANKS] [STEPS]`, by default a ring of 1,024 ranks and 50 steps of the slider.

From the address to the headline on the screen, of a trace that is loaded, on a server that is running; each run in a
fresh context, so with nothing in the browser's cache. Prints medians and the worst of the runs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from mycroft.app.ingest import Stages, ingest
from tests.app import flow_trace
from tests.browser import published
from tests.browser.serving import ROOT, SIZE, chromium, served

SAMPLE: Final = ROOT / "tests" / "data" / "flight_recorder" / "stuck_dataloader"
PAGES: Final = (
    ("diagnosis", "/d/f1", "h1"),
    ("overview", "", ".incident"),
    ("stacks", "/stacks", "svg.picture"),
    ("rank", "/rank/5", "h1"),
    ("evidence", "/files", ".ag-row"),
)
# The time at which the element was there, on the clock that starts with the navigation.
_WHEN: Final = """selector => new Promise((resolve) => {
  const look = () => document.querySelector(selector) ? resolve(performance.now()) : requestAnimationFrame(look);
  look();
})"""


def once(browser: Any, address: str, selector: str, *, cached: bool) -> float:
    """Return the seconds until `selector` was there."""
    context = browser.new_context(viewport=SIZE)
    page = context.new_page()
    if cached:
        page.goto(address)
        page.wait_for_selector(selector)
    page.goto(address, wait_until="commit")
    seconds = page.evaluate(_WHEN, selector) / 1000
    context.close()
    return seconds


# One step of the slider, until the frame that draws it is over.
_SLIDE: Final = """async (tick) => {
  const slider = document.querySelector(".flow__slider");
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => resolve()));
  slider.value = String(tick);
  slider.dispatchEvent(new Event("input"));
  await frame();
  await frame();
}"""


def lens(ranks: int, steps: int) -> None:
    """Measure redraws of strips and lens of a ring in CPU time of the browser's main thread, and print them."""
    flow_trace.WORLD = ranks  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        published.publish_flows(data_dir, ("ring",))
        with served(data_dir) as site, chromium() as browser:
            page = browser.new_context(viewport={"width": SIZE["width"], "height": SIZE["height"]}).new_page()
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})

            def spent() -> float:
                found = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
                return float(found["TaskDuration"])

            page.goto(f"{site.url}/t/flow-ring/op/dp-0a/{flow_trace.SEQ}")
            page.wait_for_selector("[data-flow][data-drawn]", timeout=600_000)
            costs: list[float] = []
            for at in range(steps + 5):
                before = spent()
                page.evaluate(_SLIDE, at % flow_trace.TICKS)
                costs.append((spent() - before) * 1000)
            costs = sorted(costs[5:])
            high = costs[min(int(len(costs) * 0.95), len(costs) - 1)]
            print(f"lens and strips, {ranks:,} ranks: {statistics.median(costs):.1f} ms median, {high:.1f} ms p95")


def main() -> int:
    """Measure and print the table."""
    if sys.argv[1:2] == ["lens"]:
        given = [int(text) for text in sys.argv[2:4]]
        lens(*given, *(1024, 50)[len(given) :])
        return 0
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        made = ingest([SAMPLE], data_dir, title=SAMPLE.name, stages=Stages(lambda *_: None))
        with served(data_dir) as site, chromium() as browser:
            print(
                f"{'page':12}{'first visit':>24}{'files of the page cached':>30}    seconds, median (worst) of {runs}"
            )
            for name, rest, selector in PAGES:
                address = f"{site.url}/t/{made.trace}{rest}"
                once(browser, address, selector, cached=False)
                cells: list[str] = []
                for cached in (False, True):
                    times = [once(browser, address, selector, cached=cached) for _ in range(runs)]
                    cells.append(f"{statistics.median(times):.2f} ({max(times):.2f})")
                print(f"{name:12}{cells[0]:>24}{cells[1]:>30}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
