"""The pages of the dashboard. One module per page; the tuple is the list of what exists."""

from mycroft.app.pages import traces
from mycroft.app.pages.page import Page, PageContext

PAGES: tuple[Page, ...] = (traces.PAGE,)

__all__ = ["PAGES", "Page", "PageContext"]
