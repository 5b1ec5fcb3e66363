"""Incidents seen before: which of the catalogue are named, in which order, and what is counted."""

from __future__ import annotations

from typing import Any

from mycroft.app import similar
from mycroft.loaders.catalogue import TraceEntry
from tests.analysis.test_fingerprint import BASE, finding_of


def entry(trace: str, *findings: dict[str, Any], published: float = 0.0, kept: bool = True) -> TraceEntry:
    summary = {similar.SUMMARY_KEY: similar.kept_of({"findings": findings})} if kept else {}
    return TraceEntry(trace, trace.title(), 0.0, 1, published, 1, summary)


def on(host: str, **changed: Any) -> dict[str, Any]:
    return finding_of(BASE, [2], root_cause={"ranks": [2], "hosts": [host], "devices": []}, **changed)


def test_the_same_host_comes_before_the_same_shape_elsewhere() -> None:
    entries = [entry("shape", on("b"), published=9.0), entry("host", on("a", category="checkpoint"))]
    found = similar.similar(on("a"), entries, trace="mine")
    assert [item.trace for item in found.found] == ["host", "shape"]
    assert (found.incidents, found.traces) == (2, 2)


def test_an_incident_is_not_like_itself_but_another_of_its_trace_may_be() -> None:
    entries = [entry("mine", on("a"), on("a", id="f2"))]
    found = similar.similar(on("a"), entries, trace="mine")
    assert [(item.trace, item.incident.incident) for item in found.found] == [("mine", "f2")]
    assert found.incidents == 1


def test_traces_without_fingerprints_or_with_broken_ones_are_not_counted() -> None:
    broken = TraceEntry("broken", "b", 0.0, 1, 0.0, 1, {similar.SUMMARY_KEY: [None, 3, {"version": 99}, "x"]})
    found = similar.similar(on("a"), [entry("old", on("a"), kept=False), broken], trace="mine")
    assert (found.found, found.incidents, found.traces) == ((), 0, 0)
