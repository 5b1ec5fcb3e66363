"""The live demo, for real: a job of 8 processes is broken and diagnosed, and the page shows verdict and truth."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flask
import pytest

from mycroft.app import access, cli, urls
from mycroft.app.config import AppConfig
from mycroft.app.demo import LIVE_FAULTS, live_job
from mycroft.app.injected import from_json, injected_of, truth_of
from mycroft.app.pages import diagnosis
from mycroft.app.pages.page import PageContext
from mycroft.app.queries import queries_of
from mycroft.app.server import create_app
from mycroft.loaders.bundle import NamedFile
from mycroft.loaders.catalogue import Catalogue, TraceEntry
from mycroft.loaders.store import open_store
from tests.app.components import by_type, text_of, walk

SEED = 7  # a killed process: told after five seconds of silence, so that a slow machine does not matter


@dataclass(frozen=True)
class Demo:
    """What one run of the demo left."""

    out: str
    data: Path
    truth: dict[str, Any]
    entry: TraceEntry


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    told = io.StringIO()
    with redirect_stdout(told):
        status = cli.main(
            ["demo", "--no-serve", "--data", str(folder / "data"), "--seed", str(SEED), "--keep", str(folder / "run")]
        )
    assert status == 0
    catalogue = Catalogue(folder / "data")
    (entry,) = [entry for entry in catalogue.list() if entry.title == f"live job, seed {SEED}"]
    catalogue.close()
    return Demo(told.getvalue(), folder / "data", json.loads((folder / "run/truth.json").read_text()), entry)


def page_of(demo: Demo) -> Any:
    config = AppConfig(data_dir=demo.data)
    app = create_app(config)
    incident = demo.entry.summary["incident"]
    address = urls.parse(urls.path_of("diagnosis", trace=demo.entry.trace_id, incident=incident))
    with app.server.test_request_context("/"):
        context = PageContext(
            config=config, queries=queries_of(app), address=address, grant=access.grant_for(flask.request)
        )
        return diagnosis.layout(context, trace=demo.entry.trace_id, incident=incident)


def test_live_demo_breaks_the_rank_of_its_seed_and_the_verdict_names_it(demo: Demo) -> None:
    job = live_job(seed=SEED)
    assert demo.truth["root_cause"]["ranks"] == [job.rank]
    assert (demo.truth["fault"], demo.truth["seed"]) == (job.fault.name, SEED)
    lines = demo.out.splitlines()
    assert f"--seed {SEED})" in lines[0]
    verdict = next(line for line in lines if line.startswith("    verdict: "))
    assert f"rank {job.rank} " in verdict.lower()
    assert f"    truth:   {job.fault.name} at rank {job.rank} on node" in demo.out
    # The packaged incidents are there as before.
    assert len([line for line in lines if line.startswith("/t/")]) == 7


def test_page_of_the_live_job_shows_verdict_and_truth_side_by_side(demo: Demo) -> None:
    (panel,) = [part for part in walk(page_of(demo)) if getattr(part, "id", None) == "injected"]
    (who,) = [row for row in by_type(panel, "Tr") if text_of(row).startswith("Who")]
    named = f"rank {demo.truth['root_cause']['ranks'][0]} on {demo.truth['root_cause']['hosts'][0]}"
    assert [text_of(cell) for cell in by_type(who, "Td")] == [named, named]
    assert "the verdict names it" in text_of(panel)
    assert demo.truth["explanation"] in text_of(panel)


def test_trace_of_the_live_job_does_not_hold_the_truth(demo: Demo) -> None:
    assert demo.entry.summary["injected"]["explanation"] == demo.truth["explanation"]
    (path,) = (demo.data / "traces").glob(f"{demo.entry.trace_id}.*")
    with open_store(path) as store:
        files = store.frame("SELECT path FROM files")["path"].to_list()
        assert files and not any("truth" in name for name in files)
        verdict = store.frame("SELECT verdict FROM diagnoses WHERE verdict IS NOT NULL").item(0, 0)
    assert demo.truth["explanation"] not in verdict


def test_every_seed_draws_a_fault_of_the_list_and_seeds_differ() -> None:
    drawn = {(job.fault.name, job.rank) for job in (live_job(seed=seed) for seed in range(200))}
    assert {name for name, _ in drawn} == set(LIVE_FAULTS)
    assert {rank for _, rank in drawn} == set(range(8))


def test_truth_is_found_beside_the_evidence_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    assert truth_of([tmp_path]) is None
    (tmp_path / "truth.json").write_text('{"category": "absent"}')
    assert truth_of([tmp_path]) == {"category": "absent"}
    assert truth_of([NamedFile("truth.json", tmp_path / "truth.json")]) == {"category": "absent"}
    assert truth_of([NamedFile("rank0/truth.json", tmp_path / "truth.json")]) is None
    for damaged in ("[1]", "{", "[" * 100_000, "\xff"):
        (tmp_path / "truth.json").write_text(damaged)
        assert truth_of([tmp_path]) is None


def test_truth_of_other_types_than_it_should_have_is_left_out() -> None:
    strange = {
        "root_cause": {"ranks": [3, "4", -1, True, 1 << 40], "hosts": ["a", 5]},
        "category": ["x"],
        "explanation": "y" * 1000,
        "seed": "1",
        "injected_ns": -5,
    }
    read = injected_of(strange)
    assert (read.ranks, read.hosts, read.category, read.seed, read.at_ns) == ((3,), ("a",), "", None, None)
    assert len(read.explanation) == 500
    assert injected_of({"root_cause": [1]}).ranks == ()
    assert from_json(None) is None
    assert from_json(json.loads(json.dumps(read.to_json()))) == read
