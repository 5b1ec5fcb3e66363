"""What a page of the dashboard is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dash import Dash
from dash.development.base_component import Component

from mycroft.app.access import Grant
from mycroft.app.config import AppConfig
from mycroft.app.queries import Queries
from mycroft.app.urls import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """What a layout may use. Everything it reads comes through `queries`, which checks access itself."""

    config: AppConfig
    queries: Queries
    address: Address
    grant: Grant


Layout = Callable[..., Component]
"""`layout(ctx: PageContext, **path_params) -> Component`; the parameters are named and typed as in `urls.TEMPLATES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: `name` is that of its template in `urls.TEMPLATES`.

    `title(ctx, **path_params)` gives the text of the browser's tab. `register_callbacks(app)` is called once, while
    the app is made; a callback reads through `server.queries_of(app)` and thereby asks for access.
    """

    name: str
    layout: Layout
    title: Callable[..., str] | None = None
    register_callbacks: Callable[[Dash], Any] | None = None
