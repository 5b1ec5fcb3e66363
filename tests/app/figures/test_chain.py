from __future__ import annotations

import re
from typing import Any

from mycroft.app.figures import chain


def step(waiter: int, blocker: int, **more: Any) -> dict[str, Any]:
    return {"waiter": waiter, "blocker": blocker, "group": "g", "seq": 1, "op": "send", "comm": "c", "why": "", **more}


def draw(steps: list[dict[str, Any]], culprits: list[int], *, sure: bool = True) -> str:
    return chain.chain_svg(
        steps,
        culprits=culprits,
        sure=sure,
        hosts={1: "host-1"},
        rank_href=lambda rank: f"/rank/{rank}",
        op_href=lambda step: None if step["seq"] is None else f"/op/{step['comm']}/{step['seq']}",
    )


def test_branches_that_do_not_join_are_rows_of_their_own() -> None:
    rows = chain.rows_of([step(1, 2), step(2, 3), step(7, 3)])
    assert [[s["waiter"] for s in row] for row in rows] == [[1, 2], [7]]


def test_a_deadlock_is_closed_to_a_cycle() -> None:
    picture = draw([step(1, 2), step(2, 1)], [1, 2])
    assert "a cycle" in picture


def test_a_host_that_is_not_known_is_said_so() -> None:
    picture = draw([step(1, 2)], [2])
    assert ">host-1<" in picture
    assert ">host unknown<" in picture


def test_the_culprit_alone_has_the_hue() -> None:
    picture = draw([step(1, 2), step(2, 3)], [3])
    boxes = re.findall(r"chain-box--(\w+)", picture)
    assert boxes == ["wait", "wait", "cause"]
    assert picture.count("chain-cross") == 1


def test_a_long_chain_fits_the_width_of_the_page() -> None:
    picture = draw([step(n, n + 1) for n in range(40)], [40])
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', picture).group(1))  # type: ignore[union-attr]
    assert width <= 1216
    assert "37 more steps" in picture
    assert "▲ rank 40" in picture


def test_operations_without_a_number_are_drawn_without_a_link() -> None:
    picture = draw([step(1, 2, seq=None, op="barrier")], [2])
    assert ">barrier<" in picture
    assert "/op/" not in picture
