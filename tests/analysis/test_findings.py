from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import mycroft.analysis
from mycroft.analysis.findings import iso
from mycroft.analysis.verdict import CATEGORIES, Verdict
from mycroft.analysis.wording import STEPS, SUMMARIES
from tests.analysis.trace_builder import START_NS, TraceBuilder

VerdictOf = Callable[[TraceBuilder], Verdict]
C10D = "torch/distributed/distributed_c10d.py"
SCHEMA = json.loads((Path(mycroft.analysis.__file__).parent / "verdict.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def cascade() -> TraceBuilder:
    """0 waits for 1 in one group, 1 for 2 in another; 2 is in its data loader."""
    trace = TraceBuilder(world=3)
    first, second = trace.group("dp_0", [0, 1], kind="dp"), trace.group("tp_0", [1, 2], kind="tp")
    for rank, group in ((0, first), (1, first), (1, second), (2, second)):
        trace.call(rank, group, 1)
    trace.call(0, first, 2, done=False)
    trace.call(1, second, 2, done=False)
    trace.stack(2, "get (queue.py:171)", "Loader.next_batch (train.py:91)")
    trace.rows["hosts"].append({"host_id": 0, "name": "hx-a03"})
    trace.rows["ranks"] += [{"job_id": 0, "rank": r, "host_id": 0, "pid": 7000 + r} for r in range(3)]
    return trace


def test_the_verdict_keeps_its_contract(verdict_of: VerdictOf) -> None:
    VALIDATOR.validate(json.loads(verdict_of(cascade()).to_json()))


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "data" / "verdicts").glob("*.json")), ids=str)
def test_the_verdicts_of_the_pages_keep_the_contract(path: Path) -> None:
    VALIDATOR.validate(json.loads(path.read_text()))


def test_the_schema_refuses_what_the_contract_forbids(verdict_of: VerdictOf) -> None:
    body = json.loads(verdict_of(cascade()).to_json())
    body["findings"][0]["root_cause"]["one_of"] = True
    assert not VALIDATOR.is_valid(body), "one of several is never sure"
    body = json.loads(verdict_of(cascade()).to_json())
    body["status"] = "healthy"
    assert not VALIDATOR.is_valid(body), "a healthy verdict has no findings"


def test_the_schema_knows_every_category() -> None:
    assert SCHEMA["$defs"]["finding"]["properties"]["category"]["enum"] == list(CATEGORIES)


def test_the_chain_leads_from_the_symptom_to_the_cause(verdict_of: VerdictOf) -> None:
    (finding,) = verdict_of(cascade()).findings
    assert [(link.waiter, link.blocker, link.group) for link in finding.chain] == [(0, 1, "dp_0"), (1, 2, "tp_0")]
    rows = {e.id for e in finding.evidence}
    assert all(link.evidence and set(link.evidence) <= rows for link in finding.chain)


def test_every_claim_can_be_opened(verdict_of: VerdictOf) -> None:
    (finding,) = verdict_of(cascade()).findings
    assert finding.evidence
    assert all(e.file is not None or e.table is not None for e in finding.evidence)
    assert any(e.table == "stacks" and e.file == "file-102" for e in finding.evidence)


def test_the_summary_names_who_and_where(verdict_of: VerdictOf) -> None:
    summary = verdict_of(cascade()).summary
    for word in ("Rank 2", "hx-a03", "all_reduce 2", "tp_0", "data loader", "next_batch"):
        assert word in summary


def test_what_comes_next_can_be_copied(verdict_of: VerdictOf) -> None:
    (finding,) = verdict_of(cascade()).findings
    assert any(step.startswith("py-spy dump --pid 7002 ") and "hx-a03" in step for step in finding.next_steps)


def test_other_explanations_are_rejected_with_reasons(verdict_of: VerdictOf) -> None:
    (finding,) = verdict_of(cascade()).findings
    assert ("device_hang", (2,)) in {(a.category, a.ranks) for a in finding.alternatives}
    assert all(a.rejected for a in finding.alternatives)


def test_since_is_when_the_first_rank_began_to_wait(verdict_of: VerdictOf) -> None:
    (finding,) = verdict_of(cascade()).findings
    assert finding.since == "2025-10-09T08:53:20.030Z"


def test_times_are_utc_with_milliseconds() -> None:
    assert iso(START_NS + 120_000_000) == "2025-10-09T08:53:20.120Z"
    assert iso(None) is None


@pytest.mark.parametrize("category", [c for c in CATEGORIES if c not in ("healthy", "proxy_stall")])
def test_every_category_has_its_words_and_its_steps(category: str) -> None:
    assert category in SUMMARIES
    assert STEPS[category]


def test_equal_evidence_gives_equal_bytes(tmp_path: Path) -> None:
    texts: set[str] = set()
    for turn in range(2):
        trace = cascade()
        if turn:
            for rows in trace.rows.values():
                rows.reverse()
        folder = tmp_path / str(turn)
        folder.mkdir()
        texts.add(mycroft.analysis.diagnose(trace.store(folder)).to_json())
    assert len(texts) == 1


def test_text_of_the_evidence_cannot_steer_a_terminal(verdict_of: VerdictOf) -> None:
    trace = cascade()
    for rank in (0, 1):
        trace.event(rank, "connection_closed", text="Connection closed by peer")
    trace.event(2, "exception", name="ValueError", text="ValueError: \x1b]0;owned\x07\x1b[2J boo")
    summary = verdict_of(trace).summary
    assert "boo" in summary
    assert summary.isprintable()


def test_whoever_waits_is_a_victim_also_where_only_a_stack_shows_it(verdict_of: VerdictOf) -> None:
    trace = cascade()
    for rank in (3, 4):
        trace.stack(rank, f"recv ({C10D}:2799)", "train_step (train.py:80)")
    (finding,) = verdict_of(trace).findings
    assert (finding.root_cause.ranks, finding.victims) == ((2,), (0, 1, 3, 4))
