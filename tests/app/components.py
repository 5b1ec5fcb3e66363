"""Looking into Dash components: what a reader would see, without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dash.development.base_component import Component


def walk(node: Any) -> Iterator[Any]:
    """Yield every component and text below `node`, in the order of the page."""
    if node is None or isinstance(node, bool):
        return
    if isinstance(node, list | tuple):
        for child in node:
            yield from walk(child)
        return
    yield node
    if isinstance(node, Component):
        yield from walk(getattr(node, "children", None))


def text_of(node: Any) -> str:
    """Return the text of a page, pieces joined as they stand."""
    return "".join(str(part) for part in walk(node) if not isinstance(part, Component))


def by_class(node: Any, name: str) -> list[Component]:
    """Return the components that carry a CSS class."""
    return [
        part
        for part in walk(node)
        if isinstance(part, Component) and name in (getattr(part, "className", None) or "").split()
    ]


def by_type(node: Any, kind: str) -> list[Component]:
    """Return the components of a type, such as `A` or `H1`."""
    return [part for part in walk(node) if type(part).__name__ == kind]


def links_of(node: Any) -> dict[str, str]:
    """Return the links by their text."""
    return {text_of(part): part.href for part in by_type(node, "A")}


def pictures_of(node: Any) -> list[str]:
    """Return the pictures that the page holds, as SVG text."""
    found = [getattr(part, "data-svg", None) for part in walk(node) if isinstance(part, Component)]
    return [svg for svg in found if svg]
