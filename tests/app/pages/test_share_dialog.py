"""What a share link leads to: the view that the browser shows, pinned to the generation that it shows."""

from __future__ import annotations

from typing import Any

import pytest

from mycroft.app import shares
from mycroft.app.pages.share_dialog import target_of


@pytest.mark.parametrize(
    ("seen", "target"),
    [
        (
            {"address": "/t/x/op/dp-0a/7?at=5&r=3&zz=1", "generation": 2},
            "/t/x/op/dp-0a/7?r=3&at=5&g=2&zz=1",
        ),
        ({"address": "/t/x/timeline?t=1-2&g=1", "generation": 2}, "/t/x/timeline?t=1-2&g=1"),
        ({"address": "/t/x", "generation": None}, "/t/x"),
        ({"address": "/t/x", "generation": "2"}, "/t/x"),
        ({"address": "/t/x", "generation": -1}, "/t/x"),
    ],
)
def test_a_link_leads_to_what_is_shown_pinned(seen: dict[str, Any], target: str) -> None:
    assert target_of(seen) == target
    assert shares.covers(target, trace="x")


@pytest.mark.parametrize(
    "seen", [None, 7, {}, {"address": 7}, {"address": "//evil.example/t/x"}, {"address": "/t/y", "generation": 1}]
)
def test_an_address_that_is_not_of_the_trace_is_never_shared(seen: Any) -> None:
    assert not shares.covers(target_of(seen), trace="x")
