"""What is drawn while a command works, and that nothing is drawn where nobody looks."""

from __future__ import annotations

import io

import pytest

from mycroft.app.ingest import Stages
from mycroft.app.jobs import Stage
from mycroft.app.terminal import Progress, amount, line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_the_share_and_a_count_what_has_no_total() -> None:
    assert "50%" in line("read", 5, 10, "files") and "5 files of 10 files" in line("read", 5, 10, "files")
    assert "%" not in line("unpack", 5, None, "files")
    assert "100%" in line("read", 11, 10)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0, "bytes", "0 B"), (1536, "bytes", "1.5 KiB"), (3 << 40, "bytes", "3.0 TiB"), (12345, "files", "12,345 files")],
)
def test_amounts_have_their_unit(value: int, unit: str, text: str) -> None:
    assert amount(value, unit) == text


def test_a_terminal_is_left_clean() -> None:
    stream = Terminal()
    with Progress(stream) as progress:
        progress.show("read", 10, 10)
        progress.warn("a file is odd")
        progress.show("write", 1, 1)
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "mycroft: a file is odd\n" in stream.getvalue()


def test_a_file_gets_warnings_only() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.show("read", 10, 10)
        progress.warn("a file is odd")
    assert stream.getvalue() == "mycroft: a file is odd\n"


def test_stages_end_when_the_next_begins_and_keep_their_counts() -> None:
    told: list[tuple[Stage, ...]] = []
    stages = Stages(lambda now, _: told.append(tuple(now)))
    stages.progress("unpack", 7, None, "files")
    stages.progress("read", 1, 2)
    stages.progress("read", 2, 2)
    stages.end()
    last = told[-1]
    assert [(stage.name, stage.state, stage.done, stage.total) for stage in last] == [
        ("unpack", "done", 7, None),
        ("read", "done", 2, 2),
    ]
    assert all(stage.finished is not None and stage.finished >= stage.started for stage in last)


def test_a_failure_marks_the_stage_in_which_it_happened() -> None:
    told: list[tuple[tuple[Stage, ...], tuple[str, ...]]] = []
    stages = Stages(lambda now, problems: told.append((tuple(now), tuple(problems))))
    stages.progress("unpack", 1, 1)
    stages.progress("read", 1, 2)
    stages.problem("a.bin: odd")
    stages.end(failed=True)
    assert [stage.state for stage in told[-1][0]] == ["done", "failed"]
    assert told[-1][1] == ("a.bin: odd",)
