"""Writing SVG as text: elements with escaped content, so that no name from the evidence can become markup.

Colours never stand in the picture: shapes carry classes, and the style sheet gives those their colour in each theme.
"""

from __future__ import annotations

from html import escape

Attribute = str | int | float


def _value(value: Attribute) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    # Control characters are not allowed in XML at all, and the parser would refuse the whole picture.
    text = "".join(c if c >= " " and not 0xD800 <= ord(c) <= 0xDFFF else " " for c in str(value))
    return escape(text, quote=True)


def element(name: str, *children: str, **attributes: Attribute | None) -> str:
    """Return an element. In names of attributes a trailing `_` is dropped and `_` becomes `-`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = "".join(children)
    return f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>"


def text(x: float, y: float, content: str, class_: str, *, anchor: str = "start") -> str:
    """Return a line of text whose baseline is at `y`."""
    return element("text", _value(content), x=x, y=y, class_=class_, text_anchor=anchor)


def measure(content: str, font_px: float) -> float:
    """Return about how wide a text is, in px, in the font of the dashboard: close enough to place labels."""
    em = sum(0.72 if c.isupper() or c in "@%&mw_" else 0.34 if c in "il.,:;'|!ftj" else 0.59 for c in content)
    return em * font_px


def fit(content: str, width: float, font_px: float) -> str:
    """Return the text, its middle cut out where it would be wider than `width` px in the font of the dashboard."""
    kept = len(content)
    shown = content
    while kept > 1 and measure(shown, font_px) > width:
        kept -= 1
        shown = content[: (kept + 1) // 2] + "…" + content[len(content) - kept // 2 :]
    return shown


def wrap(content: str, width: float, font_px: float, *, lines: int) -> list[str]:
    """Return the text in at most `lines` lines, broken between words; what is too long loses its middle."""
    made: list[str] = []
    words = content.split()
    while words and len(made) < lines - 1:
        line = words.pop(0)
        while words and measure(f"{line} {words[0]}", font_px) <= width:
            line += f" {words.pop(0)}"
        made.append(line)
    if words:
        made.append(" ".join(words))
    return [fit(line, width, font_px) for line in made]


def title(content: str) -> str:
    """Return the text that a browser shows when the pointer rests on the parent of this element."""
    return element("title", _value(content))


def anchor(href: str, *children: str) -> str:
    """Return a link to a page of the dashboard around shapes; its name is the text among them."""
    return element("a", *children, href=href, class_="svg-link")


def picture(width: float, height: float, *children: str, label: str) -> str:
    """Return a whole picture, as wide as its place allows and never enlarged; `label` is its name for readers.

    One with links is a group of them; one without is an image, of which readers are told the name alone.
    """
    has_links = any("<a " in child for child in children)
    return element(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="group" if has_links else "img",
        aria_label=label,
        class_="picture",
    )
