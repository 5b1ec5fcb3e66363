"""All line formats of text: the visible list. A matcher's place in it is the order in which it is tried."""

from __future__ import annotations

from typing import Final

from mycroft.loaders.text import (
    deepspeed,
    executors,
    launchers,
    machine_formats,
    pods,
    stack_lines,
    torch_errors,
    torch_log,
    torch_reports,
    tracebacks,
    training,
)
from mycroft.loaders.text.matcher import BulkMatcher, Matcher
from mycroft.loaders.text.scope import FileScope

MATCHERS: Final[tuple[Matcher | BulkMatcher, ...]] = (
    *torch_log.MATCHERS,
    *torch_reports.MATCHERS,
    *torch_errors.MATCHERS,
    *tracebacks.MATCHERS,
    *launchers.MATCHERS,
    *executors.MATCHERS,
    *deepspeed.MATCHERS,
    *pods.MATCHERS,
    *stack_lines.MATCHERS,
    *training.MATCHERS,
    *machine_formats.MATCHERS,
)


def finish(scope: FileScope) -> None:
    """Let the formats complete their rows at the end of a file, when all of its lines are known."""
    torch_log.finish(scope)
    launchers.finish(scope)
    training.finish(scope)
    machine_formats.finish(scope)
