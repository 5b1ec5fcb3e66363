"""Every command line of the docs and of deploy/ is one that the program takes."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycroft.app.cli import parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*")])
# What stands before a command in a shell.
BEFORE = re.compile(r"^(?:\$ |# +|RUN |[A-Z_]+=\S+ |python -m )*(?:\S*/bin/)?mycroft (?=[a-z-])")
INNER = re.compile(r"\$\((?:\S*/bin/)?mycroft ([^)]*)\)")
SPAN = re.compile(r"`(?:[A-Z_]+=\S+ )?mycroft ([a-z][^`]*)`")


def lines_of(path: Path) -> Iterator[str]:
    """Lines that continue on the next one are put together."""
    yield from re.sub(r"\\\n[#\s]*", " ", path.read_text()).splitlines()


def blocks_of(path: Path) -> Iterator[str]:
    """What is a command of its own: in code blocks of Markdown, anywhere else in any line."""
    fenced = False
    for line in lines_of(path):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif path.suffix != ".md" or fenced or line.startswith("    "):
            yield line.strip()


def words_of(command: str) -> list[str]:
    """The words after the program's name: without comments, and with what may be left out."""
    command = re.sub(r"\s[&>|].*$", "", command.replace("[", " ").replace("]", " ").replace("\\|", "|"))
    return [word.partition("|")[0] for word in shlex.split(command, comments=True)]


def whole_commands() -> Iterator[tuple[str, str]]:
    for path in PAGES:
        if path.is_dir():
            continue
        for line in blocks_of(path):
            if found := BEFORE.match(line):
                yield path.name, line[found.end() :]
        for line in lines_of(path):
            for inner in INNER.findall(line):
                yield path.name, inner


WHOLE = sorted(set(whole_commands()))
PARTS = sorted({(path.name, span) for path in PAGES if path.suffix == ".md" for span in SPAN.findall(path.read_text())})


def verbs() -> set[str]:
    return set(choices_of(parser()))


def choices_of(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


@pytest.mark.parametrize(("page", "command"), WHOLE)
def test_commands_in_blocks_are_taken_as_they_stand(page: str, command: str) -> None:
    words = words_of(command)
    assert parser().parse_args(words).verb == words[0]


@pytest.mark.parametrize(("page", "command"), PARTS)
def test_commands_in_sentences_have_their_verb_and_options(page: str, command: str) -> None:
    here = parser()
    words = words_of(command.replace("\n", " "))
    assert words[0] in choices_of(here)
    while words and words[0] in choices_of(here):
        here = choices_of(here)[words.pop(0)]
    known = here._option_string_actions
    assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in known] == []


def test_pages_are_really_searched() -> None:
    assert {page for page, _ in WHOLE} >= {"README.md", "always-on.md", "scale-out.md", "slurm-agent.sh", "job.yaml"}
    assert {words_of(command)[0] for _, command in [*WHOLE, *PARTS]} == verbs()


def test_benchmarks_and_folders_of_tests_that_are_named_exist() -> None:
    named = 0
    for path in PAGES:
        if path.suffix != ".md":
            continue
        text = " ".join(path.read_text().split())
        for module in re.findall(r"-m (tests(?:\.\w+)+)", text):
            place = ROOT / module.replace(".", "/")
            assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file(), (path.name, module)
            named += 1
        for folder in re.findall(r"-m pytest (tests/[\w/.]+)", text):
            assert (ROOT / folder.rstrip(".")).exists(), (path.name, folder)
    assert named > 20
