"""What surrounds every page: skip link, top bar with breadcrumb and actions, tabs of the trace, share dialog."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from dash import html

from mycroft.app.pages import links
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, attributes, link, tag

TABS: Final = (
    ("overview", "Overview"),
    ("diagnosis", "Diagnosis"),
    ("timeline", "Timeline"),
    ("stacks", "Stacks"),
    ("links", "Links"),
    ("files", "Evidence"),
    ("sql", "SQL"),
    ("compare", "Compare"),
)
COPY_SUMMARY: Final = "copy-summary"
"""The button whose `data-copy` is the summary: it changes with the notes."""


def _brand() -> html.A:
    return link(
        [html.Span(className="brand__mark", **attributes(aria_hidden="true")), html.Span("Mycroft")],
        links.traces(),
        class_name="brand",
    )


def _breadcrumb(crumbs: Sequence[tuple[str, str | None]]) -> html.Nav:
    items: list[Child] = []
    for index, (text, href) in enumerate(crumbs):
        is_last = index == len(crumbs) - 1
        inner = (
            html.Span(text, **attributes(aria_current="page" if is_last else None))
            if is_last or href is None
            else link(text, href)
        )
        items.append(html.Li(inner, title=text))
    return html.Nav(html.Ol(items), className="breadcrumb", **attributes(aria_label="Breadcrumb"))


def _theme_switch() -> html.Button:
    return html.Button(
        [
            html.Span(className="theme__icon", **attributes(aria_hidden="true")),
            html.Span("Theme", className="theme__text"),
        ],
        type="button",
        className="button button--quiet theme",
        **attributes(data_theme_switch="", aria_label="Theme: follows the system"),
    )


def _menu(label: str, items: Sequence[Child]) -> html.Details:
    return html.Details(
        [html.Summary(label, className="button"), html.Div(list(items), className="menu__items")],
        className="menu",
        **attributes(data_menu=""),
    )


def _find_button() -> html.Button:
    return html.Button(
        ["Find", html.Kbd("/", className="key")],
        type="button",
        className="button",
        **attributes(data_find="", aria_keyshortcuts="/"),
    )


def actions(
    *, can_share: bool, exports: Sequence[tuple[str, str]], copied: str | None = None, is_shared: bool = False
) -> list[Child]:
    """Return the buttons of the top bar; `exports` are pairs of a text and an address to download from.

    `copied` is a summary that can be copied to be pasted elsewhere.
    `is_shared` says that the visitor came by a share link, and may only read.
    """
    found: list[Child] = [tag("shared, read-only", "info")] if is_shared else []
    if can_share:
        found.append(
            html.Button(
                "Share", type="button", className="button button--main", **attributes(data_dialog="share-dialog")
            )
        )
    found.append(html.Button("Copy link", type="button", className="button", **attributes(data_copy_link="")))
    if exports:
        items: list[Child] = [html.A(text, href=href, download="", className="menu__item") for text, href in exports]
        if copied is not None:
            items.insert(
                0,
                html.Button(
                    "Copy summary for a channel",
                    id=COPY_SUMMARY,
                    type="button",
                    className="menu__item menu__item--button",
                    **attributes(data_copy=copied),
                ),
            )
        found.append(_menu("Export", items))
    return found


def _tabs(trace: TraceLinks, active: str, incident: str, left_out: Collection[str]) -> html.Nav:
    hrefs = {
        "overview": trace.overview(),
        "diagnosis": trace.incident(incident),
        "timeline": trace.timeline(),
        "stacks": trace.stacks(),
        "links": trace.links(),
        "files": trace.files(),
        "sql": trace.sql(),
        "compare": links.compare(trace.trace),
    }
    items = [
        html.Li(link(text, hrefs[name], current=name == active), className="tabs__item")
        for name, text in TABS
        if name not in left_out or name == active
    ]
    return html.Nav(html.Ul(items), className="tabs", **attributes(aria_label="Pages of this trace"))


def page(
    name: str,
    *children: Child,
    crumbs: Sequence[tuple[str, str | None]],
    trace: TraceLinks | None = None,
    tab: str = "",
    incident: str = "f1",
    top: Sequence[Child] = (),
    dialogs: Sequence[Child] = (),
    banner: Child = None,
    generation: int | None = None,
    left_out: Collection[str] = (),
) -> html.Div:
    """Return a whole page: bar, tabs of the trace if it is of one, and the content.

    The attribute `data-ready` says that the page has been drawn; `generation` is that of the trace that it shows.
    `left_out` names tabs of pages that would be empty.
    """
    return html.Div(
        [
            html.A("Skip to the content", href="#content", className="skip"),
            html.Header(
                [
                    _brand(),
                    _breadcrumb(crumbs),
                    html.Div(
                        [_find_button() if trace is not None else None, *top, _theme_switch()],
                        className="topbar__actions",
                    ),
                ],
                className="topbar",
            ),
            _tabs(trace, tab, incident, left_out) if trace is not None else None,
            html.Main([banner, *children], id="content", tabIndex="-1", className=f"content content--{name}"),
            *dialogs,
            html.Div(id="live-region", className="sr-only", role="status", **attributes(aria_live="polite")),
        ],
        className="page",
        **attributes(data_ready=name, data_generation=None if generation is None else str(generation)),
    )
