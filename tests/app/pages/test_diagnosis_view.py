"""The diagnosis page of every variant of a verdict, read as a page and not as markup."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mycroft.app.pages import diagnosis_view
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.verdict_band import Context, RankFacts
from mycroft.app.reads.coverage import Coverage
from tests.app.components import by_class, by_type, links_of, pictures_of, text_of, walk

VERDICTS = Path(__file__).parents[2] / "data" / "verdicts"
VARIANTS = sorted(path.stem for path in VERDICTS.glob("*.json"))


def verdict_of(name: str) -> dict[str, Any]:
    return json.loads((VERDICTS / f"{name}.json").read_text(encoding="utf-8"))


def context() -> Context:
    return Context(
        links=TraceLinks("run-1", 2),
        files={"dumps/nccl_trace_rank_5": 4, "logs/rank13/stderr.log": 9},
        ranks={5: RankFacts(host="hx-a03", gpu="GPU 5", place="DP 0 · TP 1")},
        group_sizes={"dp-3f": 16},
    )


def page(name: str, incident: str | None = None) -> Any:
    verdict = verdict_of(name)
    finding = diagnosis_view.finding_of(verdict, incident or diagnosis_view.first_incident(verdict))
    return diagnosis_view.view(verdict, finding, context())


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_has_one_headline_and_it_is_the_backends_text(name: str) -> None:
    verdict = verdict_of(name)
    headlines = by_type(page(name), "H1")
    expected = verdict["findings"][0]["summary"] if verdict["findings"] else verdict["summary"]
    assert [text_of(headline) for headline in headlines] == [expected.rstrip(".")]


@pytest.mark.parametrize("name", VARIANTS)
def test_only_a_sure_root_cause_is_filled_with_the_hue(name: str) -> None:
    verdict = verdict_of(name)
    filled = by_class(page(name), "tag--cause")
    named = verdict["findings"] and not verdict["findings"][0]["root_cause"]["one_of"]
    assert len(filled) == (1 if named else 0)


def test_the_band_says_who_what_why_since_and_how_sure() -> None:
    found = page("hang_root_cause")
    text = text_of(by_class(found, "verdict")[0])
    for part in ("Root cause", "rank 5", "hx-a03", "GPU 5", "all_reduce 1843", "16 ranks", "15 other ranks waiting"):
        assert part in text
    for part in ("completed 1842", "04:11:09.120", "2026-03-02 UTC", "High", "no rank is missing"):
        assert part in text


def test_the_band_and_the_quality_tell_where_the_rank_stands_and_what_the_evidence_lacks() -> None:
    verdict = verdict_of("hang_root_cause")
    more = replace(
        context(),
        ranks={5: RankFacts(host="hx-a03", nic="NIC mlx5_2", place="DP 0", ring="ring position 6 of 16")},
        waited_ns=642_300_000_000,
        iteration=1842,
        coverage=Coverage(16, 3, 0, 13, 1, 40, 4, 4, 1_200_000),
    )
    found = diagnosis_view.view(verdict, diagnosis_view.finding_of(verdict, "f1"), more)
    band = text_of(by_class(found, "verdict")[0])
    for part in ("NIC mlx5_2", "DP 0 · ring position 6 of 16", "after iteration 1,842", "waiting, 10 min 42 s when"):
        assert part in band
    whole = text_of(found)
    for part in ("3 with older operations overwritten", "13 from the first", "40 records or lines of 1 file"):
        assert part in whole
    assert "within ± 1.2 ms of UTC, 4 of 4 hosts" in whole


def test_commands_can_be_copied_with_the_host_they_are_for() -> None:
    buttons = [part for part in walk(page("hang_root_cause")) if getattr(part, "data-copy", None)]
    assert getattr(buttons[0], "data-copy") == "py-spy dump --pid 7741   # on hx-a03"
    assert len(buttons) == 3


def test_links_are_pinned_to_the_generation() -> None:
    links = links_of(page("hang_root_cause"))
    assert links["rank 5"] == "/t/run-1/rank/5?g=2"
    assert links["all_reduce 1843"] == "/t/run-1/op/dp-3f/1843?g=2"
    assert links["dumps/nccl_trace_rank_5:412"] == "/t/run-1/files/4?g=2#L412"


def test_a_file_that_the_trace_does_not_list_is_named_and_not_linked() -> None:
    found = page("hang_root_cause")
    assert "logs/rank0/stderr.log:812" in text_of(found)
    assert "logs/rank0/stderr.log:812" not in links_of(found)


def test_a_cascade_is_drawn_to_the_culprit_and_told_in_words() -> None:
    found = page("cascade")
    (picture,) = [p for p in pictures_of(found) if "Chain of waiting" in p]
    assert "rank 4 waits for rank 6 waits for rank 7 waits for rank 13" in picture
    assert picture.count("chain-box--cause") == 1
    assert "rank 7 waits for rank 13 in reduce_scatter 1208" in text_of(by_class(found, "chain-list")[0])


def test_independent_faults_are_offered_side_by_side() -> None:
    items = by_class(page("cascade"), "findings__item")
    assert [item.href for item in items] == ["/t/run-1/d/f1?g=2", "/t/run-1/d/f2?g=2"]
    assert getattr(items[0], "aria-current") == "page"


def test_the_second_fault_has_a_page_of_its_own() -> None:
    found = page("cascade", "f2")
    assert text_of(by_type(found, "H1")[0]).startswith("Rank 9 sends on channel 3")
    assert "channel 3 · send to rank 10" in text_of(found)
    assert "mlx5_2" in text_of(found)


def test_a_tie_is_shown_as_a_tie() -> None:
    found = page("several_suspects")
    assert "One of 2 suspects" in text_of(found)
    (picture,) = [p for p in pictures_of(found) if "Chain of waiting" in p]
    assert "chain-box--cause" not in picture
    assert picture.count("chain-box--suspect") == 2


def test_missing_evidence_stands_in_the_band_where_it_weakens_the_verdict() -> None:
    band = by_class(page("outside_trace"), "verdict")[0]
    assert "7 of 8 ranks seen · rank 6 left no dump" in text_of(band)
    assert "host unknown" in text_of(band)
    assert by_class(page("hang_root_cause"), "verdict__remarks") == []


def test_inconclusive_is_a_page_that_says_what_would_decide_it() -> None:
    found = page("inconclusive")
    text = text_of(found)
    assert "Cannot tell" in text
    assert "Flight Recorder dumps or exit codes of ranks 4-7" in text
    assert "core.7741" in text
    assert by_class(found, "tag--cause") == []


def test_healthy_is_said_to_be_healthy_and_what_that_means() -> None:
    text = text_of(page("healthy"))
    assert "Healthy" in text
    assert "A fault that leaves no mark" in text


def test_each_source_is_shown_with_its_stand() -> None:
    text = text_of(page("hang_root_cause"))
    assert text.count("✓ agrees") == 2
    assert text.count("≠ says otherwise") == 1
    assert text.count("– says nothing") == 1


def test_names_from_files_become_text_and_never_markup_or_addresses() -> None:
    found = page("hostile")
    for picture in pictures_of(found):
        assert "<img" not in picture
        assert "<script" not in picture
    for part in by_type(found, "A"):
        assert part.href.startswith(("/t/run-1/", "#claim-", "#quality"))
    assert not [part for part in walk(found) if type(part).__name__ in {"Markdown", "DangerouslySetInnerHTML"}]


def test_a_long_chain_is_folded_and_told_whole() -> None:
    found = page("hostile")
    (picture,) = [p for p in pictures_of(found) if "Chain of waiting" in p]
    assert "9 more steps" in picture
    assert len(by_type(by_class(found, "chain-list")[0], "Li")) == 12
