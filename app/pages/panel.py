"""The pieces that every page is put together from: panels, facts, tags, and the ways of saying "nothing here"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from mycroft.app import words

Child = Any
"""A Dash component, a text, or a list of them."""


def attributes(**named: str | None) -> dict[str, Any]:
    """Return `aria-…` and `data-…` attributes of a component, `attributes(aria_label="x")`; None leaves one out."""
    return {name.replace("_", "-"): value for name, value in named.items() if value is not None}


def panel(
    title: str,
    *children: Child,
    note: Child = None,
    id: str | None = None,  # noqa: A002 - the name Dash gives it
    class_name: str = "",
    actions: Child = None,
    level: int = 2,
) -> html.Section:
    """Return a bordered box with a heading, an optional muted note beside it, and its content."""
    heading = getattr(html, f"H{level}")
    named = attributes(id=id)
    head: list[Child] = [heading(title, className="panel__title")]
    if note is not None:
        head.append(html.Span(note, className="panel__note"))
    if actions is not None:
        head.append(html.Div(actions, className="panel__actions"))
    return html.Section(
        [html.Header(head, className="panel__head"), *[child for child in children if child is not None]],
        className=f"panel {class_name}".strip(),
        **named,
    )


def facts(rows: Sequence[tuple[str, Child]], *, class_name: str = "") -> html.Dl:
    """Return a list of named facts; a value of None is shown as unknown."""
    items: list[Child] = []
    for name, value in rows:
        shown = unknown() if value is None else value
        items.append(html.Div([html.Dt(name), html.Dd(shown)], className="facts__row"))
    return html.Dl(items, className=f"facts {class_name}".strip())


def unknown(text: str = words.UNKNOWN) -> html.Span:
    """Return the mark of something that the evidence does not say."""
    return html.Span(text, className="unknown")


def tag(text: str, kind: str = "neutral") -> html.Span:
    """Return a small label. `kind`: cause, suspect, wait, done, nolog, info or neutral; the text says it as well."""
    return html.Span(text, className=f"tag tag--{kind}")


def link(text: Child, href: str, *, class_name: str = "", current: bool = False) -> html.A:
    """Return a link inside the dashboard; `assets/main.mjs` follows it without loading the page anew.

    `current` marks the link to the page that is shown.
    """
    marks = attributes(aria_current="page" if current else None)
    return html.A(text, href=href, className=class_name or None, **marks)


def code(text: str) -> html.Code:
    """Return a short piece of code or a name from the evidence."""
    return html.Code(text)


def copyable(text: str, *, comment: str = "") -> html.Div:
    """Return a command with a button that copies it; the comment is shown beneath, and copied too."""
    whole = f"{text}   # {comment}" if comment else text
    children: list[Child] = [
        html.Code(text, className="command__code", tabIndex="0"),
        html.Button(
            "Copy",
            type="button",
            className="button button--small command__copy",
            **attributes(data_copy=whole, aria_label=f"Copy: {words.shorten(text, 60)}"),
        ),
    ]
    if comment:
        children.append(html.Span(comment, className="command__comment"))
    return html.Div(children, className="command")


def empty(title: str, *children: Child) -> html.Div:
    """Return what stands where there is nothing to show: what is missing, and what would change that."""
    return html.Div([html.P(title, className="empty__title"), *children], className="empty")


def problem(title: str, *children: Child) -> html.Div:
    """Return an error that the reader can act on."""
    return html.Div([html.P(title, className="problem__title"), *children], className="problem", role="alert")


def note(*children: Child, kind: str = "info") -> html.Div:
    """Return a remark inside a page; `kind` is info or nolog (something is missing)."""
    return html.Div(list(children), className=f"note note--{kind}", role="note")


def figure(svg: str) -> html.Div:
    """Return the place of a picture that `assets/main.mjs` fills with `svg`."""
    return html.Div(className="figure", tabIndex="0", **attributes(data_svg=svg))


def html_table(names: Sequence[str], rows: Sequence[Child]) -> html.Div:
    """Return a plain table for what is read in order; `rows` are `html.Tr`. Tables to sort and filter are grids."""
    head = html.Thead(html.Tr([html.Th(name, scope="col") if name else html.Td() for name in names]))
    return html.Div(
        html.Table([head, html.Tbody(list(rows))], className="table"), className="table-scroll", tabIndex="0"
    )


def details(summary: Child, *children: Child, opened: bool = False, class_name: str = "") -> html.Details:
    """Return a fold; closed unless `opened`."""
    return html.Details([html.Summary(summary), *children], open=opened, className=f"fold {class_name}".strip())


def ranks_inline(values: Sequence[int], href: Any, *, limit: int = 4) -> list[Child]:
    """Return ranks as links; more than `limit` are written as runs of numbers without links."""
    ordered = sorted(set(values))
    if len(ordered) > limit:
        return [words.named_ranks(ordered)]
    parts: list[Child] = []
    for index, rank in enumerate(ordered):
        parts += [", "] if index else []
        parts.append(link(f"rank {rank}", href(rank)))
    return parts


def select(
    label: str, options: Sequence[tuple[str, str]], chosen: str, *, store: str, key: str, class_name: str = ""
) -> html.Label:
    """Return a choice among `options` (value, text); `assets/modules/choices.mjs` writes it into a `dcc.Store`.

    All choices of one store are its data, an object by their keys.
    """
    return html.Label(
        [
            html.Span(label, className="choice__label"),
            html.Select(
                [html.Option(text, value=value) for value, text in options],
                className="input",
                **attributes(data_store=store, data_key=key, data_value=chosen),
            ),
        ],
        className=f"choice {class_name}".strip(),
    )
