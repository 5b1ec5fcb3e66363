"""JSON as containers, collectors and terminals hand it over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.base import LoadReport
from mycroft.loaders.comma import CommaLoader
from mycroft.loaders.inspector import InspectorLoader
from mycroft.loaders.ras import RasJsonLoader
from mycroft.loaders.wrapped_json import is_wrapped, plain_pieces
from tests.evidence_wrappers import ENCODINGS, LINE_ENDS, WRAPPERS
from tests.loaders import test_comma_example_profiler, test_inspector, test_ras_json
from tests.loaders.sources import dropped, load_with
from tests.loaders.text.recorder import Recorder, evidence

RECORDS = test_inspector.lines(*(test_inspector.record(rank, sn) for sn in range(3) for rank in range(2))).decode()
REPORT = json.dumps(test_ras_json.report([test_ras_json.member(0), test_ras_json.member(1, 7)]), indent=2)
OPERATIONS = "\n".join(json.dumps(test_comma_example_profiler.coll(0, n)) for n in range(3))
CHANGES = {**WRAPPERS, **ENCODINGS, **LINE_ENDS}


def rows(found: Recorder) -> list[dict[str, Any]]:
    return found.rows()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("loader", "text"), [(InspectorLoader, RECORDS), (RasJsonLoader, REPORT), (CommaLoader, OPERATIONS)]
)
def test_outer_layers_change_nothing(tmp_path: Path, loader: Any, text: str, change: str) -> None:
    made = CHANGES[change](text)
    content = made if isinstance(made, bytes) else made.encode()
    plain = load_with(loader(), tmp_path / "plain", {"n0-pid100.log": text.encode()})
    found = load_with(loader(), tmp_path / "changed", {"n0-pid100.log": content})
    assert rows(found) == rows(plain)
    assert not dropped(found)


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    text = '\n\n{"coll_perf": 1}\n\n{"coll_perf": 2}\n'
    (file,) = evidence(tmp_path, {"a.log": WRAPPERS["kubectl"](text).encode()})
    whole = b"".join(plain_pieces(file, LoadReport(0, "x"), (b'"coll_perf"',)))
    assert whole == text.encode().rstrip(b"\n")


@pytest.mark.parametrize(
    ("content", "wrapped"),
    [
        (b'{"a": 1, "coll_perf": {}}', False),
        (b'[{"coll_perf": {}}', False),
        (b'banner\n  {"coll_perf": {}}', False),
        (b'pod {"coll_perf": {}}', True),
        (b'{"log": "{\\"coll_perf\\": {}}"}', True),
        (b'\xef\xbb\xbf{"coll_perf": {}}', True),
        (b'\x1b[31m{"coll_perf": {}}\x1b[0m', True),
    ],
)
def test_what_counts_as_wrapped(tmp_path: Path, content: bytes, wrapped: bool) -> None:
    (file,) = evidence(tmp_path, {"a": content})
    assert is_wrapped(file, (b'"coll_perf"',)) is wrapped
