"""Starts what the browser tests look at and look with: `mycroft serve` as a user would, and Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from tests.browser import published

ROOT: Final = Path(__file__).parents[2]
SIZE: Final = {"width": 1280, "height": 720}
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
READY: Final = re.compile(r"Mycroft is at (http://\S+?)/?\s")


@dataclass(frozen=True, slots=True)
class Site:
    """A running server."""

    url: str
    data_dir: Path

    def page(self, variant: str, rest: str = "") -> str:
        """Return an address inside the published trace of a variant."""
        return f"{self.url}/t/{published.trace_of(variant)}{rest}"


@contextmanager
def served(data_dir: Path, *options: str) -> Iterator[Site]:
    """Run `mycroft serve` over a data folder, on a free port, until the block ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MYCROFT_")}
    command = [sys.executable, "-m", "mycroft.app.cli", "serve", "--data", str(data_dir), "--port", "0", *options]
    log = data_dir / "server.log"
    with log.open("wb") as stream:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stream, cwd=ROOT, env={**environment, "PYTHONUNBUFFERED": "1"}
        )
    assert server.stdout is not None
    try:
        # The line comes once the server answers; if it ends before, the pipe closes and the loop with it.
        found = next((m for line in server.stdout if (m := READY.search(line.decode() + " "))), None)
        assert found is not None, f"the server did not start:\n{log.read_text(errors='replace')}"
        yield Site(found.group(1), data_dir)
    finally:
        server.terminate()
        server.wait(timeout=60)
        server.stdout.close()


def chromium_path() -> str | None:
    """Return the Chromium of `$MYCROFT_CHROMIUM`, else of the PATH; None: there is none."""
    return os.environ.get("MYCROFT_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless Chromium until the block ends.

    Raises:
        FileNotFoundError: there is none on this machine.
    """
    path = chromium_path()
    if path is None:
        raise FileNotFoundError(
            "no Chromium: install one (Debian: apt-get install chromium) or name it in MYCROFT_CHROMIUM"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS), headless=True)
        yield browser
        browser.close()
