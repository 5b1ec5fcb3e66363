"""Stores and cases that the analysis' tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mycroft.analysis import diagnose
from mycroft.analysis.case import Case
from mycroft.analysis.diagnosis import build_case
from mycroft.analysis.facts import read_facts
from mycroft.analysis.verdict import Verdict
from tests.analysis.trace_builder import TraceBuilder


@pytest.fixture
def case_of(tmp_path: Path) -> Callable[[TraceBuilder], Case]:
    """Return what turns a trace written by hand into the case that the rules look at."""
    return lambda trace: build_case(read_facts(trace.store(tmp_path)))


@pytest.fixture
def verdict_of(tmp_path: Path) -> Callable[[TraceBuilder], Verdict]:
    """Return what diagnoses a trace written by hand."""
    return lambda trace: diagnose(trace.store(tmp_path))
