"""One doubt, one test: what lowers the word, and what is said for it."""

from __future__ import annotations

from collections.abc import Callable

from mycroft.analysis.case import Case
from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.confidence import DOUBTS, rate
from mycroft.analysis.culprits import blame
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]
C10D = "torch/distributed/distributed_c10d.py"


def hang(world: int = 4, *, events: bool = True) -> TraceBuilder:
    """Rank 2 did not enter the fourth operation."""
    trace = TraceBuilder(world=world, events=events)
    group = trace.group("dp_0", list(range(world)), kind="dp")
    for rank in range(world):
        for seq in (1, 2, 3):
            trace.call(rank, group, seq)
    for rank in range(world):
        if rank != 2:
            trace.call(rank, group, 4, done=False)
    return trace


def rated(case: Case) -> tuple[str, str]:
    (suspicion,) = blame(case)
    word, reasons = rate(case, suspicion)
    return word, "; ".join(reasons)


def test_every_doubt_has_a_name_of_its_own() -> None:
    assert len({doubt.name for doubt in DOUBTS}) == len(DOUBTS)


def test_a_rank_that_everybody_waits_for_is_sure(case_of: CaseOf) -> None:
    word, reasons = rated(case_of(hang()))
    assert word == "high"
    assert "3 of 3 waiting ranks wait for it" in reasons


def test_the_accused_is_not_among_those_who_wait_for_it(case_of: CaseOf) -> None:
    case = case_of(hang())
    accused = Suspicion("ended", (0,), (Claim("launcher", "killed", (0,), "proof", "x"),), sinks=(0,))
    assert "2 of 2 waiting ranks wait for it" in "; ".join(rate(case, accused)[1])


def test_one_of_several(case_of: CaseOf) -> None:
    case = case_of(hang())
    claim = Claim("dumps", "absent", (1, 2), "strong", "x")
    word, reasons = rate(case, Suspicion("absent", (1, 2), (claim,), one_of=True))
    assert word == "medium"
    assert "fits each of 2 ranks" in "; ".join(reasons)


def test_no_dump_and_nothing_else(case_of: CaseOf) -> None:
    trace = hang()
    trace.without_dump(2)
    word, reasons = rated(case_of(trace))
    assert word == "medium"
    assert "no log or exit code says why" in reasons


def test_no_dump_and_an_exit_code(case_of: CaseOf) -> None:
    trace = hang()
    trace.without_dump(2)
    trace.event(2, "exit", code=-9)
    assert rated(case_of(trace))[0] == "high"


def test_others_missing_too(case_of: CaseOf) -> None:
    trace = hang(5)
    trace.without_dump(4)
    word, reasons = rated(case_of(trace))
    assert word == "medium"
    assert "rank 4 of the same group left no dump" in reasons


def test_others_missing_that_a_stack_shows_in_the_wait_count_for_nothing(case_of: CaseOf) -> None:
    trace = hang(5)
    trace.without_dump(4)
    trace.stack(4, f"all_reduce ({C10D}:1)", "main (train.py:3)")
    assert rated(case_of(trace))[0] == "high"


def test_unrecorded_sends(case_of: CaseOf) -> None:
    trace = hang(events=False)
    trace.group("pp_0", [1, 2], kind="pp")
    trace.event(0, "watchdog_timeout", text="Timed out waiting", at_ms=600_000)
    word, reasons = rated(case_of(trace))
    assert word == "medium"
    assert "keeps no send or receive" in reasons


def test_unrecorded_sends_do_not_matter_where_a_stack_tells(case_of: CaseOf) -> None:
    trace = hang(events=False)
    trace.group("pp_0", [1, 2], kind="pp")
    trace.event(0, "watchdog_timeout", text="Timed out waiting", at_ms=600_000)
    trace.stack(2, "get (queue.py:171)", "Loader.next_batch (train.py:91)")
    assert rated(case_of(trace))[0] == "high"


def test_a_stack_that_contradicts(case_of: CaseOf) -> None:
    case = case_of(hang())
    claims = (
        Claim("dumps", "absent", (2,), "strong", "x"),
        Claim("stacks", "waits_elsewhere", (2,), "strong", "y"),
    )
    word, reasons = rate(case, Suspicion("absent", (2,), claims, sinks=(0,)))
    assert word == "medium"
    assert "shows it in an operation itself" in "; ".join(reasons)


def test_age_unknown_on_a_recorder_that_sees_no_devices(case_of: CaseOf) -> None:
    trace = hang(events=False)
    trace.stack(2, "kernel (train.py:1)", "main (train.py:3)")
    word, reasons = rated(case_of(trace))
    assert word == "medium"
    assert "how old the waits were" in reasons


def test_dumps_alone_of_such_a_recorder(case_of: CaseOf) -> None:
    assert rated(case_of(hang(events=False)))[0] == "low"


def test_what_explains_few_waits(case_of: CaseOf) -> None:
    # Two faults apart: three ranks wait for 2, one rank waits for 5.
    trace = hang(4)
    other = trace.group("dp_1", [4, 5], kind="dp")
    trace.world = 6
    for rank in (4, 5):
        trace.call(rank, other, 1)
    trace.call(4, other, 2, done=False)
    trace.dumps |= {4, 5}
    case = case_of(trace)
    by_rank = {s.ranks: rate(case, s) for s in blame(case)}
    assert by_rank[5,][0] == "medium"
    assert "only 25% of the waiting ranks wait for it" in "; ".join(by_rank[5,][1])
    assert "of the waiting ranks wait for it" not in "; ".join(r for r in by_rank[2,][1] if r.startswith("but"))


def test_a_rule_s_own_doubt_counts(case_of: CaseOf) -> None:
    case = case_of(hang())
    claim = Claim("dumps", "absent", (2,), "strong", "x")
    word, reasons = rate(case, Suspicion("absent", (2,), (claim,), doubts=(("low", "because"),)))
    assert word == "low"
    assert "but because" in reasons


def test_kinds_of_evidence_that_agree_are_named(case_of: CaseOf) -> None:
    trace = hang()
    trace.stack(2, "get (queue.py:171)", "Loader.next_batch (train.py:91)")
    assert "2 kinds of evidence agree: dumps, stacks" in rated(case_of(trace))[1]


def test_dumps_missing_at_a_place_that_is_not_known(case_of: CaseOf) -> None:
    trace = hang(5)
    trace.without_dump(4)
    claim = Claim("dumps", "left_path", (2,), "strong", "x")
    word, reasons = rate(case_of(trace), Suspicion("alone", (2,), (claim,)))
    assert word == "medium"
    assert "whether they stand at the same place is not known" in "; ".join(reasons)
