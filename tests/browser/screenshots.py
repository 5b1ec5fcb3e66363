"""Takes the pictures of `docs/screenshots`: `python -m tests.browser.screenshots [NAME...]`.

Pages of the packaged samples, which are real captures, where one shows the case; else of the invented variants.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, ViewportSize

from mycroft.app.ingest import Stages, ingest
from mycroft.loaders import pyramid
from mycroft.loaders.catalogue import Catalogue
from tests.bench import timeline
from tests.browser import published
from tests.browser.conftest import PATIENCE_MS, settled
from tests.browser.serving import ROOT, SIZE, Site, chromium, served

OUT: Final = ROOT / "docs" / "screenshots"
SMALL: Final[ViewportSize] = {"width": SIZE["width"], "height": SIZE["height"]}
WALL: Final[ViewportSize] = {"width": 3840, "height": 2160}
LARGE: Final = ("diagnosis-ring", "diagnosis-tree")
"""Pages that are looked at on a large screen too."""
SAMPLES: Final = ROOT / "tests" / "data" / "flight_recorder"
REAL: Final = {"hang": "lock_deadlock", "cascade": "stuck_dataloader", "healthy": "healthy", "crash": "sigkill"}
INVENTED: Final = {
    "slow-rank": "slow_rank",
    "several-suspects": "several_suspects",
    "inconclusive": "inconclusive",
    "outside-trace": "outside_trace",
    "two-faults": "cascade",
}


def pages(site: Site, traces: dict[str, tuple[str, str]]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return name, address and themes of each picture."""
    both = ("light", "dark")
    found = [
        (f"diagnosis-{name}", f"{site.url}/t/{trace}/d/{incident}", both) for name, (trace, incident) in traces.items()
    ]
    for name, variant in INVENTED.items():
        incident = "verdict" if variant == "inconclusive" else "f1"
        found.append((f"diagnosis-{name}", site.page(variant, f"/d/{incident}"), both))
    trace = f"{site.url}/t/{traces['cascade'][0]}"
    for shape in ("ring", "tree"):
        found.append((f"diagnosis-{shape}", f"{site.url}/t/flow-{shape}/d/f1", both))
    found += [
        ("overview", trace, ("light",)),
        ("rank", f"{trace}/rank/5", ("light",)),
        ("stacks", f"{trace}/stacks", ("light",)),
        ("evidence", f"{trace}/files", ("light",)),
        ("operation", site.page("hang_root_cause", "/op/world-434b/40"), ("light",)),
        ("chunk-flow-ring", f"{site.url}/t/flow-ring/op/dp-0a/7", both),
        ("chunk-flow-tree", f"{site.url}/t/flow-tree/op/dp-0a/7?ch=1&r=5", both),
        ("chunk-flow-pairs", f"{site.url}/t/flow-pairs/op/dp-0a/7", ("light",)),
        ("timeline-bars", f"{site.url}/t/flow-ring/timeline", both),
        ("timeline-heat", f"{site.url}/t/wide/timeline", both),
        ("traces", f"{site.url}/", ("light",)),
    ]
    return found


def publish_wide(data_dir: Path) -> None:
    """Publish 256 ranks of which one comes 300 ms late now and then: more operations than bars are drawn for."""
    path = data_dir / "wide.duckdb"
    timeline.write(path, 256 * 1_000, 256)
    pyramid.build(path)
    catalogue = Catalogue(data_dir)
    catalogue.publish("wide", path, title="256 ranks", summary={})
    catalogue.close()


def take(browser: Browser, name: str, address: str, theme: str, size: ViewportSize = SMALL) -> None:
    """Take one picture, of what fits on a screen."""
    context = browser.new_context(viewport=size, color_scheme=theme, locale="en-US", timezone_id="UTC")  # pyright: ignore[reportArgumentType]
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("[data-ready]")
    page.wait_for_load_state("networkidle")
    page.evaluate("document.fonts.ready")
    settled(page)
    page.screenshot(path=OUT / f"{name}-{theme}.png")
    context.close()


def main() -> int:
    """Take all pictures."""
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        traces: dict[str, tuple[str, str]] = {}
        for name, sample in REAL.items():
            made = ingest([SAMPLES / sample], data_dir, title=sample, stages=Stages(lambda *_: None))
            traces[name] = (made.trace, made.page)
        published.publish(data_dir)
        published.publish_flows(data_dir)
        publish_wide(data_dir)
        with served(data_dir) as site, chromium() as browser:
            for name, address, themes in pages(site, traces):
                if sys.argv[1:] and name not in sys.argv[1:]:
                    continue
                for theme in themes:
                    take(browser, name, address, theme)
                    if name in LARGE:
                        take(browser, f"{name}-4k", address, theme, WALL)
                    print(f"{name}-{theme}.png", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
