"""Programs that keep the worker processes of a job and say when one is gone: Ray, vLLM's executor, Composer."""

from __future__ import annotations

import re
from typing import Final

from mycroft.loaders.text.launchers import FORMAT, said, signed
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope
from mycroft.loaders.text.torch_log import rank_number


def _ray_exit(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    pid = re.search(r"Worker PID: (\d+)", line.text)
    address = re.search(r"Worker IP address: ([\d.a-fA-F:]+)", line.text)
    key = ("ray_exit", pid[1] if pid else None, address[1] if address else None)
    if pid is None or scope.once(key):
        said(
            scope,
            line,
            match.start(),
            "exit",
            name="ray_worker",
            pid=rank_number(pid[1]) if pid else None,
            peer=address[1] if address else None,
        )


def _engine_worker(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """The executor of vLLM lost one of its workers, which it numbers by their rank in the engine."""
    if line.facts.dp or not scope.once(("engine_worker", match["rank"])):
        return
    said(scope, line, match.start(), "exit", name="engine_worker", rank=rank_number(match["rank"]))


def _composer_exit(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Composer's launcher names the global rank of a process that ended, and of those that it ended after it."""
    rank, code = rank_number(match["rank"]), signed(match["code"])
    if scope.once(("composer", rank, code)):
        pid = rank_number(match["pid"])
        said(scope, line, match.start(), "launcher_failure", name="failed", rank=rank, code=code, pid=pid)


def _composer_output(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Composer repeats what a process had printed, between a first and a last line that name its global rank."""
    scope.section_rank = rank_number(match["rank"]) if match["edge"] == "Begin" else None


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "ray_exit",
        FORMAT,
        ("Worker exit type: ", "A worker died or was killed"),
        re.compile(r"Worker exit type: (?P<type>\w+)|A worker died or was killed"),
        _ray_exit,
    ),
    Matcher(
        "engine_worker",
        FORMAT,
        ("died unexpectedly, shutting down executor",),
        re.compile(r"Worker proc VllmWorker-(?P<rank>\d{1,7}) died unexpectedly"),
        _engine_worker,
    ),
    Matcher(
        "composer_exit",
        FORMAT,
        ("crashed with exit code", "exited with code"),
        re.compile(
            r"\b[Rr]ank (?P<rank>\d{1,7})(?: \(PID (?P<pid>\d{1,10})\))? (?:crashed with exit|exited with) code "
            r"(?P<code>-?\d{1,6})"
        ),
        _composer_exit,
    ),
    Matcher(
        "composer_output",
        FORMAT,
        ("in global rank ", "nd global rank "),
        re.compile(r"^-{5,20}(?P<edge>Begin|End) global rank (?P<rank>\d{1,7}) STD(?:ERR|OUT)-{5,20}"),
        _composer_output,
    ),
)
