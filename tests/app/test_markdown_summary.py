"""The summary for a channel: complete enough to act on, and nothing in it speaks to the channel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mycroft.app.markdown_summary import code, plain, to_markdown

VERDICTS = sorted((Path(__file__).resolve().parents[1] / "data" / "verdicts").glob("*.json"))


def verdict_of(name: str) -> dict[str, Any]:
    return json.loads(next(path for path in VERDICTS if path.stem == name).read_text(encoding="utf-8"))


def test_it_says_who_what_why_since_how_sure_and_what_to_do() -> None:
    text = to_markdown(verdict_of("hang_root_cause"), title="run 7", link="https://x/t/run")
    assert text.startswith("**Hang: Rank 5 never entered all_reduce 1843")
    for part in (
        "- **Who:** rank 5 on `hx-a03`",
        "- **Operation:** all_reduce 1843 of default_pg",
        "- **Waiting:** 15 ranks",
        "- **Since:** 04:11:09.120 2026-03-02 UTC",
        "- **Confidence:** high (",
        "1. `py-spy dump --pid 7741 # on hx-a03`",
        "(`dumps/nccl_trace_rank_5:412`)",
        "16 of 16 ranks seen in 34 files",
        "<https://x/t/run>",
    ):
        assert part in text, part


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_every_variant_has_its_summary_and_every_further_fault(path: Path) -> None:
    verdict = json.loads(path.read_text(encoding="utf-8"))
    text = to_markdown(verdict)
    assert len(text) < 12_000
    assert text.count("\n- **Who:**") == min(1, len(verdict["findings"]))
    for finding in verdict["findings"][1:]:
        assert plain(finding["summary"]) in text
    assert ("**Not known**" in text) == bool(verdict["unknown"])


def test_one_of_several_is_never_named_as_sure() -> None:
    assert "- **Who:** one of ranks" in to_markdown(verdict_of("several_suspects"))


@pytest.mark.parametrize(
    "hostile",
    [
        "@here wake up",
        "<img src=x onerror=1>",
        "[click](http://evil)",
        "http://evil/x",
        "**bold** `code` # head",
        "a\n\n# new heading",
        "| a | b |",
        "_emphasis_ ~~gone~~",
        "\x1b[31mred",
        "x" * 5000,
    ],
)
def test_nothing_from_the_evidence_is_markup_or_a_mention(hostile: str) -> None:
    text = plain(hostile)
    assert "\n" not in text and "\x1b" not in text and len(text) < 1000
    assert not re.search(r"(?<!\\)[<>`*\[\]|~#]", text)
    assert "@here" not in text and "http://" not in text
    assert not re.match(r"_|.*[^\\\w]_\w", text)


def test_names_with_underscores_stay_readable() -> None:
    assert plain("all_reduce 5 of tp_2") == "all_reduce 5 of tp_2"
    assert plain("Loader._read") == "Loader.\\_read"


@pytest.mark.parametrize("text", ["a", "a `b` c", "``", "`x", "a\nb"])
def test_code_is_fenced_whatever_it_holds(text: str) -> None:
    made = code(text)
    fence = re.match(r"`+", made)
    assert fence and made.endswith(fence[0]) and "\n" not in made
    inner = made[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall(r"`+", inner)
