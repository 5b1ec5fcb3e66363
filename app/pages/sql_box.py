"""The box for a SELECT: the text, its button, the limits of what is asked, and what of it goes into the address."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from dash import dcc, html

from mycroft.app.pages.panel import Child, attributes, problem

CHARS_MAX: Final = 8000
LINK_CHARS_MAX: Final = 3000
"""Length of a query, written as part of an address, up to which it goes into addresses."""


def sql_box(name: str, value: str, *, rows: int) -> list[Child]:
    """Return the text `<name>-text` of `rows` lines and the button `<name>-run` that asks it."""
    return [
        html.Label("SQL", htmlFor=f"{name}-text", className="sr-only"),
        html.Div(
            dcc.Textarea(
                id=f"{name}-text",
                value=value,
                className="input sql__text",
                maxLength=CHARS_MAX,
                spellCheck=False,
                rows=rows,
            ),
            **attributes(data_submit=f"{name}-run"),
        ),
        html.Div(
            [
                html.Button("Run", id=f"{name}-run", type="button", className="button button--main"),
                html.Span("Ctrl + Enter", className="muted"),
            ],
            className="sql__buttons",
        ),
    ]


def sql_answer(name: str, first: Child = None) -> dcc.Loading:
    """Return the place `<name>-answer` of the answer, with what stands there before anything is asked."""
    return dcc.Loading(
        html.Div(first, id=f"{name}-answer", **attributes(aria_live="polite")), type="dot", delay_show=300
    )


def refused(query: str) -> html.Div | None:
    """Return why a text is not asked at all; None where it is."""
    if query and len(query) <= CHARS_MAX:
        return None
    return problem(f"A SELECT of 1 to {CHARS_MAX:,} characters is needed.")


def kept(**keys: str | None) -> html.Div:
    """Return what keeps keys in the address, None takes one out; see `assets/modules/view_keys.mjs`."""
    return html.Div(hidden=True, **attributes(data_view=json.dumps(keys)))


def kept_query(query: str) -> html.Div:
    """Return what keeps a query in the address, where it is short enough for one."""
    return kept(q=query if len(quote(query, safe="")) <= LINK_CHARS_MAX else None)
