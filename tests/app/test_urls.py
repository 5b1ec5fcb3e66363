"""The URL codec against the vectors it shares with JavaScript, and against itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycroft.app import urls

VECTORS = json.loads((Path(__file__).resolve().parents[1] / "data" / "url_vectors.json").read_text())


def plain(view: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in view.items()}


@pytest.mark.parametrize("vector", VECTORS["parse"], ids=lambda vector: vector["address"] or "empty")
def test_an_address_is_read_as_the_shared_vectors_say(vector: dict[str, Any]) -> None:
    parsed = urls.parse(vector["address"])
    assert parsed.page == vector["page"]
    assert parsed.params == vector["params"]
    assert plain(parsed.view) == vector["view"]
    assert [list(pair) for pair in parsed.extra] == vector["extra"]
    assert len(parsed.problems) == vector.get("problems", 0)
    if parsed.page is not None:
        assert urls.build(parsed) == vector.get("canonical", vector["address"])


@pytest.mark.parametrize("vector", VECTORS["clamp"], ids=lambda vector: vector["address"])
def test_what_lies_outside_the_trace_is_clamped_and_said(vector: dict[str, Any]) -> None:
    extents = {key: tuple(value) for key, value in vector["extents"].items()}
    clamped = urls.clamp(urls.parse(vector["address"]), extents=extents)
    assert plain(clamped.view) == vector["view"]
    assert len(clamped.problems) == vector["problems"]


WHOLE = st.integers(0, urls.MAX_INT)
WORD = st.text(min_size=1, max_size=20)
VIEWS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(urls.VIEW_INTEGERS, WHOLE),
        **{key: st.tuples(WHOLE, WHOLE).map(lambda pair: tuple(sorted(pair))) for key in urls.VIEW_RANGES},
        **dict.fromkeys(urls.VIEW_TEXTS, WORD),
    },
)


@st.composite
def addresses(draw: st.DrawFn) -> urls.Address:
    page, template = draw(st.sampled_from(urls.TEMPLATES))
    names = [part[1:-1] for part in template.split("/") if part.startswith("<")]
    params = {name: draw(WHOLE if name in urls.INTEGER_PARAMS else WORD) for name in names}
    extra = draw(
        st.lists(st.tuples(WORD.filter(lambda key: key not in urls.VIEW_ORDER), st.text(max_size=10)), max_size=3)
    )
    return urls.Address(page, params, draw(VIEWS), tuple(extra))


@given(addresses())
def test_every_address_that_is_built_is_read_back(address: urls.Address) -> None:
    assert urls.parse(urls.build(address)) == address


@given(st.text())
def test_reading_never_raises(text: str) -> None:
    urls.parse(text)


def test_every_page_has_its_own_address() -> None:
    names = [name for name, _ in urls.TEMPLATES]
    assert len(set(names)) == len(names)
    assert len({template for _, template in urls.TEMPLATES}) == len(names)
