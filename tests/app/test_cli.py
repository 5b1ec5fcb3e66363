"""The command line: what it prints where, and what its exit status says."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from mycroft.app import cli
from mycroft.app.commands import COMMANDS
from mycroft.app.demo import incidents
from mycroft.loaders import LOADERS
from tests.data.make_demo_data import CASES as PACKAGED
from tests.data.make_demo_data import TARGET, archive

CASES = Path(__file__).resolve().parents[1] / "data" / "flight_recorder"
STUCK = str(CASES / "stuck_dataloader")
HEALTHY = str(CASES / "healthy")


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Ran:
        status = cli.main(list(arguments))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return call


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def python(script: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", script, *arguments], input=stdin, capture_output=True, check=False)


def mycroft(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return python("import sys; from mycroft.app.cli import main; sys.exit(main())", *arguments, stdin=stdin)


@pytest.mark.parametrize(("case", "status"), [("healthy", 0), ("stuck_dataloader", 1), ("sigkill", 1)])
def test_the_exit_status_carries_the_verdict(run: Any, case: str, status: int) -> None:
    assert run("diagnose", str(CASES / case)).status == status


def test_nothing_readable_exits_with_2_and_names_the_file(run: Any, tmp_path: Path) -> None:
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 64)
    ran = run("diagnose", str(tmp_path))
    assert (ran.status, ran.out) == (2, "")
    assert "noise.bin" in ran.err and "mycroft formats" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["diagnose"],
        ["diagnose", "/none/such"],
        ["diagnose", STUCK, "--expect-ranks", "0"],
        ["diagnose", "-", "-"],
        ["serve", "--port", "70000"],
        ["serve", "--host", "0.0.0.0", "--port", "0"],
        ["serve", "--token-file", "/none/such"],
        ["sql", "/none/such", "SELECT 1"],
        ["export", "/none/such", "--html", "x"],
        ["export", "/none/such"],
        ["score", "/none/such"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_one_message(
    run: Any, arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MYCROFT_DATA", str(tmp_path))
    monkeypatch.delenv("MYCROFT_TOKEN", raising=False)
    ran = run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].startswith("mycroft")
    assert "Traceback" not in ran.err


def test_json_goes_to_standard_output_alone(run: Any) -> None:
    ran = run("diagnose", STUCK, "--json")
    verdict = json.loads(ran.out)
    assert verdict["schema"] == "mycroft.verdict/1"
    assert verdict["findings"][0]["root_cause"]["ranks"] == [5]


def test_unread_files_are_warned_of_on_standard_error(run: Any, tmp_path: Path) -> None:
    noise = tmp_path / "noise.bin"
    noise.write_bytes(bytes(range(256)) * 64)
    ran = run("diagnose", HEALTHY, str(noise), "--json")
    assert "not read: noise.bin" in ran.err
    assert json.loads(ran.out)["evidence"]["unread"][0]["file"] == "noise.bin"


def test_files_unread_for_one_reason_take_one_line(run: Any, tmp_path: Path) -> None:
    names = [tmp_path / f"rank{rank}.log" for rank in range(5)]
    for name in names:
        name.touch()
    ran = run("diagnose", HEALTHY, *map(str, names), "--json")
    assert [line for line in ran.err.splitlines() if "rank" in line] == [
        "mycroft: not read: rank0.log and 4 more: empty"
    ]
    assert len(json.loads(ran.out)["evidence"]["unread"]) == 5


def test_no_progress_is_drawn_where_nobody_looks() -> None:
    ran = mycroft("diagnose", HEALTHY)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"\r" not in ran.stdout and b"\x1b" not in ran.stdout


def test_standard_input_is_read_as_a_file_or_archive() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(STUCK, arcname="stuck")
    ran = mycroft("diagnose", "-", "--json", stdin=buffer.getvalue())
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["findings"][0]["root_cause"]["ranks"] == [5]


def test_several_paths_are_one_incident(run: Any) -> None:
    case = CASES / "stuck_dataloader"
    ran = run("diagnose", str(case / "fr"), str(case / "logs"), str(case / "pyspy"), "--json")
    assert json.loads(ran.out)["findings"][0]["root_cause"]["ranks"] == [5]


def test_ranks_that_are_expected_and_missing_are_counted(run: Any) -> None:
    verdict = json.loads(run("diagnose", str(CASES / "healthy" / "fr"), "--json", "--expect-ranks", "12").out)
    assert (verdict["evidence"]["ranks_expected"], verdict["evidence"]["ranks_seen"]) == (12, 8)


def test_a_kept_trace_can_be_queried_and_is_never_overwritten(run: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.duckdb")
    assert run("diagnose", STUCK, "--trace-out", kept).status == 1
    before = Path(kept).read_bytes()
    ran = run("sql", kept, "SELECT category, rank FROM diagnoses WHERE incident_id = 'f1'", "--format", "json")
    assert json.loads(ran.out) == {"category": "dataloader", "rank": 5}
    assert run("diagnose", HEALTHY, "--trace-out", kept).status == 2
    assert Path(kept).read_bytes() == before


def test_loading_twice_is_one_trace(run: Any, data: str) -> None:
    first, second = run("load", STUCK, "--data", data), run("load", STUCK, "--data", data)
    assert first.out == second.out
    trace = first.out.split()[0]
    assert run("sql", trace, "SELECT count(*) AS n FROM ranks", "--data", data, "--format", "csv").out == "n\n8\n"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DROP TABLE ranks", "SELECT"),
        ("SELECT 1; SELECT 2", "SELECT"),
        ("SELECT nothing FROM ranks", "nothing"),
        ("COPY ranks TO 'x.csv'", "SELECT"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
    ],
)
def test_sql_reads_and_nothing_else(run: Any, tmp_path: Path, query: str, words: str) -> None:
    kept = str(tmp_path / "kept.duckdb")
    run("diagnose", HEALTHY, "--trace-out", kept)
    ran = run("sql", kept, query)
    assert (ran.status, ran.out) == (2, "")
    assert words in ran.err and len(ran.err.splitlines()) == 1


def test_sql_says_what_it_cut(run: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.duckdb")
    run("diagnose", HEALTHY, "--trace-out", kept)
    ran = run("sql", kept, "SELECT range FROM range(100)", "--max-rows", "3", "--format", "csv")
    assert ran.out == "range\n0\n1\n2\n"
    assert "first 3 rows" in ran.err


def test_sql_that_takes_too_long_is_stopped(run: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.duckdb")
    run("diagnose", HEALTHY, "--trace-out", kept)
    query = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    ran = run("sql", kept, query, "--timeout", "0.2")
    assert ran.status == 2 and "0.2 s" in ran.err


def test_text_of_the_evidence_cannot_speak_to_the_terminal(run: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.duckdb")
    run("diagnose", HEALTHY, "--trace-out", kept)
    ran = run("sql", kept, "SELECT chr(27) || '[31mred' AS x")
    assert "\x1b" not in ran.out and "[31mred" in ran.out


def test_export_writes_what_is_asked_for_and_overwrites_nothing(run: Any, data: str, tmp_path: Path) -> None:
    trace = run("load", STUCK, "--data", data).out.split()[0]
    targets = {kind: tmp_path / f"out.{kind}" for kind in ("html", "json", "duckdb")}
    ran = run(
        "export", trace, "--data", data, "--html", str(targets["html"]), "--json", str(targets["json"]),
        "--bundle", str(targets["duckdb"]),
    )  # fmt: skip
    assert ran.status == 0 and all(path.is_file() for path in targets.values())
    assert run("sql", str(targets["duckdb"]), "SELECT 1 AS x", "--format", "csv").out == "x\n1\n"
    assert run("export", trace, "--data", data, "--html", str(targets["html"])).status == 2
    assert run("export", trace, "--data", data, "--bundle", str(tmp_path / "b"), "--redact").status == 2


def test_redaction_leaves_no_host_in_an_export(run: Any, data: str, tmp_path: Path) -> None:
    trace = run("load", STUCK, "--data", data).out.split()[0]
    for kind in ("html", "json"):
        plain, redacted = tmp_path / f"plain.{kind}", tmp_path / f"redacted.{kind}"
        run("export", trace, "--data", data, f"--{kind}", str(plain))
        run("export", trace, "--data", data, f"--{kind}", str(redacted), "--redact")
        assert "node-1" in plain.read_text()
        assert "node-1" not in redacted.read_text() and "host-" in redacted.read_text()


def test_formats_names_every_loader(run: Any) -> None:
    listed = json.loads(run("formats", "--json").out)["formats"]
    assert [entry["name"] for entry in listed] == [loader.name for loader in LOADERS]
    assert all(entry["recognised_by"] and entry["yields"] for entry in listed)
    assert all(loader.name in run("formats").out for loader in LOADERS)


def test_demo_loads_every_packaged_incident_once(run: Any, data: str) -> None:
    first = run("demo", "--no-serve", "--no-live", "--data", data)
    assert first.status == 0
    links = [line for line in first.out.splitlines() if line.startswith("/t/")]
    assert len(links) == 6
    assert run("demo", "--no-serve", "--no-live", "--data", data).out == first.out
    assert len(list((Path(data) / "traces").iterdir())) == 6


def test_packaged_incidents_are_made_from_the_cases_of_the_tests() -> None:
    assert {path.name for path in TARGET.glob("*.tar.zst")} == {f"{case}.tar.zst" for case in PACKAGED}
    for case in PACKAGED:
        assert (TARGET / f"{case}.tar.zst").read_bytes() == archive(case), f"run tests/data/make_demo_data.py ({case})"


def test_packaged_incidents_hold_no_answer() -> None:
    for incident in incidents():
        content = zstandard.ZstdDecompressor().decompress(incident.path.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            names = tar.getnames()
        assert names and not any("truth" in name for name in names)


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; from mycroft.app.cli import main; main(sys.argv[2:])\n"
        "wrong = set(sys.argv[1].split(',')) & set(sys.modules)\nassert not wrong, wrong"
    )
    heavy = "dash,flask,plotly,polars,duckdb,pyarrow,numpy,gunicorn"
    assert python(script, heavy, "--help").returncode == 0
    ran = python(script, "dash,flask,plotly,gunicorn", "diagnose", HEALTHY)
    assert ran.returncode == 0, ran.stderr


def test_score_counts_what_is_right_and_names_it(run: Any, tmp_path: Path) -> None:
    for case in ("healthy", "stuck_dataloader"):
        shutil.copytree(CASES / case, tmp_path / "set" / case)
    ran = run("score", str(tmp_path), "--json")
    scored = json.loads(ran.out)
    assert ran.status == 0
    assert [case["name"] for case in scored["cases"]] == ["set/healthy", "set/stuck_dataloader"]
    assert (scored["summary"]["right"], scored["summary"]["cases"]) == (2, 2)


def test_score_says_when_an_answer_is_wrong_and_confident(run: Any, tmp_path: Path) -> None:
    shutil.copytree(CASES / "stuck_dataloader", tmp_path / "case")
    truth = tmp_path / "case" / "truth.json"
    truth.write_text(truth.read_text().replace('"ranks": [\n   5\n  ]', '"ranks": [\n   4\n  ]'))
    ran = run("score", str(tmp_path))
    assert ran.status == 1 and "wrong and confident 1" in ran.out


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff"])
def test_score_names_a_truth_that_is_none(run: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "truth.json").write_bytes(content)
    ran = run("score", str(tmp_path))
    assert ran.status == 2 and "truth.json" in ran.err


def test_every_verb_has_a_summary_and_help(run: Any) -> None:
    listed = run("--help").out
    for command in COMMANDS:
        assert command.name in listed
        ran = run(command.name, "--help")
        assert ran.status == 0 and command.name in ran.out


def test_a_mistake_of_ours_is_one_line_too(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("mycroft.app.ingest.prepare", broken)
    monkeypatch.delenv("MYCROFT_DEBUG", raising=False)
    ran = run("diagnose", HEALTHY)
    assert ran.status == 2
    assert (
        ran.err == "mycroft: internal error, please report it: RuntimeError: two lines (MYCROFT_DEBUG=1 shows where)\n"
    )


def test_a_reader_that_leaves_early_is_no_error() -> None:
    script = "import sys; from mycroft.app.cli import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", script, "formats"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
