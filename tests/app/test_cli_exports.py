"""`mycroft export` and `mycroft diagnose --markdown`: files for people and for other tools."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.app import cli

STUCK = str(Path(__file__).resolve().parents[1] / "data" / "flight_recorder" / "stuck_dataloader")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A trace file, and what `diagnose --markdown` printed when it was made."""
    file = tmp_path_factory.mktemp("exports") / "stuck.duckdb"
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("builtins.print", lambda *parts, **_: said.append(" ".join(map(str, parts))))
        assert cli.main(["diagnose", STUCK, "--markdown", "--trace-out", str(file)]) == 1
    return str(file), "".join(said)


def test_diagnose_prints_the_summary_for_a_channel(trace: tuple[str, str]) -> None:
    assert trace[1].startswith("**Hang: Rank 5")
    assert "**Do next**" in trace[1]


def test_a_verdict_is_printed_in_one_form(capsys: Any) -> None:
    assert cli.main(["diagnose", STUCK, "--markdown", "--json"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_every_form_is_written_and_named(trace: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    names = {"markdown": "a.md", "csv": "a.csv", "perfetto": "a.json", "json": "v.json"}
    wanted = [part for kind, name in names.items() for part in (f"--{kind}", str(tmp_path / name))]
    assert cli.main(["export", trace[0], *wanted]) == 0
    assert set(capsys.readouterr().out.split()) == {str(tmp_path / name) for name in names.values()}
    assert (tmp_path / "a.md").read_text().startswith("**Hang: Rank 5")
    assert (tmp_path / "a.csv").read_text().splitlines()[1].startswith("5,root cause,node-1")
    assert json.loads((tmp_path / "a.json").read_text())["otherData"]["written"] == 149


def test_a_limit_of_operations_is_said_and_a_packed_file_is_packed(
    trace: tuple[str, str], tmp_path: Path, capsys: Any
) -> None:
    target = tmp_path / "a.json.gz"
    assert cli.main(["export", trace[0], "--perfetto", str(target), "--max-operations", "10"]) == 0
    assert "only the newest 10 of 149 operations" in capsys.readouterr().err
    assert json.loads(gzip.decompress(target.read_bytes()))["otherData"]["written"] == 10


@pytest.mark.parametrize("kind", ["perfetto", "bundle"])
def test_what_holds_the_evidence_itself_is_not_called_redacted(
    trace: tuple[str, str], tmp_path: Path, capsys: Any, kind: str
) -> None:
    assert cli.main(["export", trace[0], f"--{kind}", str(tmp_path / "a"), "--redact"]) == 2
    assert f"--redact does not reach into --{kind}" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
