from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from mycroft.app.figures import svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


@given(st.text())
def test_any_text_gives_a_picture_that_parses_and_holds_it_as_text(content: str) -> None:
    picture = svg.picture(10, 10, svg.text(0, 0, content, "x"), svg.title(content), label=content)
    root = ET.fromstring(picture)
    assert {node.tag for node in root.iter()} <= {NAMESPACE + name for name in ("svg", "text", "title")}


@given(st.text(max_size=60), st.floats(20, 300))
def test_fit_keeps_a_label_inside_its_place(content: str, width: float) -> None:
    fitted = svg.fit(content, width, 12)
    assert fitted == content or "…" in fitted
    assert len(fitted) <= len(content)


def test_attributes_are_escaped() -> None:
    assert svg.element("a", href='/x" onload="y') == '<a href="/x&quot; onload=&quot;y"/>'
