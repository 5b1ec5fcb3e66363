"""One real server and one Chromium for all browser tests; a context of its own for each, watched for mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response, expect

from tests.browser import published
from tests.browser.serving import SIZE, Site, chromium, served

# Only how long a test that fails goes on waiting; on a busy machine a page may take seconds.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data_dir = tmp_path_factory.mktemp("site")
    published.publish(data_dir)
    published.publish_flows(data_dir)
    with served(data_dir) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # Never a skip: a suite that passes without its browser tests says what is not true.
    with chromium() as running:
        yield running


@dataclass
class Watch:
    """What went wrong in the pages of a test; `allow` names answers that the test itself provokes."""

    origin: str
    wrong: list[str] = field(default_factory=list)
    allowed: list[tuple[int, str]] = field(default_factory=list)

    def allow(self, status: int, part: str) -> None:
        """Expect answers of `status` from addresses that hold `part`."""
        self.allowed.append((status, part))

    def _is_allowed(self, status: int, url: str) -> bool:
        return any(status == code and part in url for code, part in self.allowed)

    def on_response(self, response: Response) -> None:
        if response.status >= 400 and not self._is_allowed(response.status, response.url):
            self.wrong.append(f"{response.status} from {response.url}")

    def on_request(self, request: Any) -> None:
        if not request.url.startswith((self.origin + "/", "data:", "blob:")):
            self.wrong.append(f"request to another origin: {request.url}")

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type != "error":
            return
        # Chromium reports an answer of 4xx here too; on_response judges those.
        if "Failed to load resource" in message.text and self.allowed:
            return
        self.wrong.append(f"console error: {message.text}")

    def on_error(self, error: Any) -> None:
        self.wrong.append(f"page error: {error}")

    def attach(self, context: BrowserContext) -> None:
        context.on("request", self.on_request)
        context.on("response", self.on_response)
        context.on("console", self.on_console)
        context.on("weberror", lambda error: self.on_error(error.error))


@pytest.fixture
def watch(site: Site) -> Iterator[Watch]:
    """Fails the test if any page of it made a mistake."""
    found = Watch(site.url)
    yield found
    assert found.wrong == []


@pytest.fixture
def new_context(browser: Browser, watch: Watch) -> Iterator[Callable[..., BrowserContext]]:
    """Makes contexts: fresh visitors without cookies or storage."""
    made: list[BrowserContext] = []

    def make(**options: Any) -> BrowserContext:
        context = browser.new_context(**{"viewport": SIZE, "locale": "en-US", "timezone_id": "UTC", **options})
        context.set_default_timeout(PATIENCE_MS)
        watch.attach(context)
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()


@pytest.fixture
def page(new_context: Callable[..., BrowserContext]) -> Page:
    return new_context().new_page()


def ready(page: Page, name: str) -> None:
    """Wait until a page of that name has been drawn."""
    page.wait_for_selector(f'[data-ready="{name}"]')


# A table is there some time after its page, and fills itself in steps: its frame, the cells, what stands in them. Cells
# that are there and hidden do not count: a screen reader would find the table empty.
_SETTLED = """() => {
  const shown = (cell) => cell.textContent && getComputedStyle(cell).visibility === "visible";
  const whole = (place) => {
    const rows = [...place.querySelectorAll(".ag-header-row")];
    const cells = [...place.querySelectorAll(".ag-row .ag-cell")];
    return rows.length && rows.every((row) => row.firstElementChild && [...row.children].every(shown))
      && cells.length && cells.every(shown);
  };
  const drawn = (place) => place.hasAttribute("data-drawn");
  return [...document.querySelectorAll(".grid-place")].every(whole)
    && [...document.querySelectorAll("[data-flow], [data-timeline]")].every(drawn);
}"""


def settled(page: Page) -> None:
    """Wait until all that the browser draws itself, tables and pictures, is there at the same moment."""
    page.wait_for_function(_SETTLED)
