"""Writes a tree of Dash components as plain HTML, so that an export shows what the page shows, without a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Final

from dash.development.base_component import Component

VOID: Final = frozenset({"br", "hr", "img", "input", "wbr", "col"})
# Without a script a button does nothing, and a form has nowhere to go.
DROPPED: Final = frozenset({"Button", "Form", "Input", "Textarea", "Select", "Script", "Iframe", "Dialog"})
_RENAMED: Final = {"className": "class", "htmlFor": "for", "rowSpan": "rowspan", "colSpan": "colspan"}
_KEPT: Final = frozenset(
    {"id", "title", "role", "scope", "lang", "dir", "open", "hidden", "tabIndex", "start", "value", "max", "min"}
    | {"data-flow", "data-timeline", "data-window", "data-height", "data-embedded", "data-ranks"}
    | set(_RENAMED)
)
_TAG: Final = re.compile(r"[a-z][a-z0-9]*\Z")

Relink = Callable[[str], str | None]
"""Gives the address that a link of the dashboard has in the document; None: its text stays without a link."""


def write(node: Any, *, relink: Relink) -> str:
    """Return `node` (component, text, number, list or None) as HTML. Text and attributes are escaped.

    Components of other libraries than `dash.html` are left out, but for their children.
    """
    if node is None or node is False or node is True:
        return ""
    if isinstance(node, str | int | float):
        return escape(str(node))
    if isinstance(node, list | tuple):
        return "".join(write(child, relink=relink) for child in node)
    if not isinstance(node, Component):
        raise TypeError(f"{type(node).__name__} is no component")
    return _element(node, relink)


def _element(node: Component, relink: Relink) -> str:
    described = node.to_plotly_json()
    kind, props = described["type"], described["props"]
    if kind == "Button" and "data-show" in props:
        # The script of the document makes a button of it again; without one it is nothing.
        label = escape(str(props.get("aria-label") or ""), quote=True)
        return f'<span data-show="{escape(str(props["data-show"]), quote=True)}" data-label="{label}"></span>'
    if kind in DROPPED:
        return ""
    inner = write(props.get("children"), relink=relink)
    svg = props.get("data-svg")
    if isinstance(svg, str):
        # Pictures are made by `app/figures/svg.py`, which escapes whatever comes from the evidence.
        inner += _relink_svg(svg, relink)
    if described["namespace"] != "dash_html_components":
        return inner
    tag = kind.lower()
    if not _TAG.match(tag):
        return inner
    attributes = _attributes(props)
    if tag == "a":
        target = relink(str(props.get("href") or ""))
        if target is None:
            tag = "span"
        else:
            attributes += f' href="{escape(target, quote=True)}"'
    return f"<{tag}{attributes}>" if tag in VOID else f"<{tag}{attributes}>{inner}</{tag}>"


def _attributes(props: Mapping[str, Any]) -> str:
    written: list[str] = []
    for name, value in props.items():
        plain = name.startswith("aria-")
        if value is None or value is False or not (plain or name in _KEPT):
            continue
        shown = _RENAMED.get(name, name).lower()
        written.append(f" {shown}" if value is True else f' {shown}="{escape(str(value), quote=True)}"')
    return "".join(written)


_SVG_HREF: Final = re.compile(r' href="([^"]*)"')


def _relink_svg(svg: str, relink: Relink) -> str:
    def replace(match: re.Match[str]) -> str:
        target = relink(match.group(1))
        return "" if target is None else f' href="{escape(target, quote=True)}"'

    return _SVG_HREF.sub(replace, svg)
