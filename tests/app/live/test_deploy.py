"""The examples of deploy/: every command line in them is one that the program takes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycroft.app.alerts import read_targets
from mycroft.app.cli import parser
from mycroft.app.config import ConfigError

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def command_lines() -> Iterator[tuple[str, list[str]]]:
    for path in sorted(DEPLOY.glob("*.service")):
        for line in re.findall(r"^ExecStart=(.*)$", path.read_text(), re.MULTILINE):
            program, *arguments = shlex.split(line.replace("${COLLECTOR}", "http://c:8060"))
            assert program.endswith("/mycroft")
            yield path.name, arguments
    text = (DEPLOY / "Containerfile").read_text()
    yield "Containerfile", json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0])
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        text = path.read_text()
        inline = re.findall(r"args: \[(.*)\]", text)
        listed = re.findall(r"args:\n((?:\s+- .*\n)+)", text)
        found = [[word.strip().strip('"') for word in line.split(",")] for line in inline]
        found += [[item.strip()[2:] for item in block.strip().splitlines()] for block in listed]
        assert found, path.name
        for arguments in found:
            yield path.name, arguments


LINES = list(command_lines())


@pytest.mark.parametrize(("name", "arguments"), LINES, ids=[name for name, _ in LINES])
def test_command_lines_are_taken(name: str, arguments: list[str]) -> None:
    assert parser().parse_args(arguments).verb in ("agent", "collect", "watch", "serve")


def test_every_port_that_others_reach_asks_for_a_token() -> None:
    for name, arguments in LINES:
        given = vars(parser().parse_args(arguments))
        if given.get("host") == "0.0.0.0":
            assert given["token_file"] or given["trust_proxy_header"], name
        if given.get("collect_host") == "0.0.0.0":
            assert given["agent_tokens"], name


def test_slurm_script_is_one(tmp_path: Path) -> None:
    script = DEPLOY / "slurm-agent.sh"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    program = tmp_path / "mycroft"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MYCROFT_COLLECTOR": "http://c:8060", "SLURM_JOB_ID": "7"}
    done = subprocess.run([str(script)], env=environment, capture_output=True, text=True, check=True)
    arguments = done.stdout.splitlines()
    given = parser().parse_args(arguments)
    assert (given.collector, given.job) == ("http://c:8060", "job-7")


def test_example_of_alerts_is_taken_once_it_is_filled_in(tmp_path: Path) -> None:
    assert [target.kind for target in read_targets(DEPLOY / "alerts.toml")] == [
        "pagerduty",
        "slack",
        "webhook",
        "deadman",
    ]
    broken = tmp_path / "alerts.toml"
    broken.write_text((DEPLOY / "alerts.toml").read_text().replace("routing key of the service", ""))
    with pytest.raises(ConfigError, match="routing key"):
        read_targets(broken)
