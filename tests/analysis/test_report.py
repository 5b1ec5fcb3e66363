from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mycroft.analysis.report import render
from mycroft.analysis.verdict import EvidenceSummary, Unknown, Verdict
from tests.analysis.test_findings import cascade
from tests.analysis.trace_builder import TraceBuilder

VerdictOf = Callable[[TraceBuilder], Verdict]


def test_who_what_why_how_sure_what_next_in_that_order(verdict_of: VerdictOf) -> None:
    lines = render(verdict_of(cascade())).splitlines()
    heads = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert heads[0] == "HANG"
    assert [h for h in heads if h in ("who", "what", "why", "how sure", "next")] == [
        "who",
        "what",
        "why",
        "how sure",
        "next",
    ]


def test_the_main_finding_fits_twenty_five_lines(verdict_of: VerdictOf) -> None:
    verdict = verdict_of(cascade())
    long = "a sentence that goes on and on " * 60
    finding = replace(
        verdict.findings[0], summary=long, why=long, confidence_why=(long,), next_steps=tuple(long for _ in range(9))
    )
    crowded = replace(verdict, findings=(finding,), unknown=())
    for width in (40, 80, 120):
        text = render(crowded, width=width)
        main = text.split("\nevidence")[0].rstrip("\n")
        assert len(main.splitlines()) <= 25
        assert all(len(line) <= width for line in text.splitlines())


def test_colour_is_off_unless_asked_for(verdict_of: VerdictOf) -> None:
    verdict = verdict_of(cascade())
    assert "\x1b" not in render(verdict)
    assert "\x1b[" in render(verdict, colour=True)


def test_control_characters_of_the_evidence_are_shown_as_such(verdict_of: VerdictOf) -> None:
    verdict = replace(verdict_of(cascade()), unknown=(Unknown("x\x1b[2J", "y"),))
    assert "\x1b" not in render(verdict)


def test_a_healthy_job_is_one_line_and_what_was_looked_at() -> None:
    verdict = Verdict(
        "0/1", EvidenceSummary(files=3, ranks_seen=2, ranks_expected=2), "healthy", "Healthy: all is well."
    )
    lines = [line for line in render(verdict).splitlines() if line]
    assert lines[0].startswith("HEALTHY")
    assert lines[1].startswith("evidence")
    assert len(lines) == 2


def test_cannot_tell_names_what_would_decide() -> None:
    verdict = Verdict(
        "0/1", EvidenceSummary(), "cannot_tell", "Cannot tell.", unknown=(Unknown("no dump of rank 7", "its dump"),)
    )
    text = render(verdict)
    assert "CANNOT TELL" in text
    assert "would decide: its dump" in text
