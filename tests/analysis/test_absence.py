from __future__ import annotations

from collections.abc import Callable

import pytest

from mycroft.analysis.absence import signal_of
from mycroft.analysis.case import Case
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]


def signs(case: Case) -> set[tuple[str, int]]:
    return {(c.kind, c.ranks[0]) for c in case.signs}


def one_call(world: int = 3) -> TraceBuilder:
    trace = TraceBuilder(world=world, events=False)
    group = trace.group("dp_0", list(range(world)), kind="dp")
    for rank in range(world):
        trace.call(rank, group, 1)
    return trace


@pytest.mark.parametrize(("code", "signal"), [(-9, -9), (137, -9), (1, None), (0, None), (None, None), (139, -11)])
def test_an_exit_code_hides_a_signal(code: int | None, signal: int | None) -> None:
    assert signal_of(code) == signal


def test_a_signal_that_ends_a_process_is_a_claim_against_it(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(1, "exit", code=-9)
    assert signs(case_of(trace)) == {("killed", 1)}


def test_being_asked_to_stop_is_no_claim(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(1, "exit", code=-15)
    trace.event(2, "exit", code=-6)
    assert signs(case_of(trace)) == set()


def test_an_exception_of_its_own_is_a_claim(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(1, "exception", name="ValueError", text="ValueError: nan in loss")
    assert signs(case_of(trace)) == {("exception", 1)}


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:46464",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:78",
        "RuntimeError: Timed out waiting 20000ms for send operation to complete",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_an_error_about_the_other_end_accuses_nobody(case_of: CaseOf, text: str) -> None:
    trace = one_call()
    trace.event(1, "exception", name=text.split(":")[0], text=text)
    case = case_of(trace)
    assert signs(case) == set()
    assert case.is_victim(1)


@pytest.mark.parametrize(
    "text",
    [
        "The server socket has failed to listen on any local network address. port: 29950, name: EADDRINUSE",
        "[Errno 13] Permission denied: '/scratch/store' (c10d FileStore)",
    ],
)
def test_what_fails_on_its_own_machine_is_an_error_of_its_own(case_of: CaseOf, text: str) -> None:
    trace = one_call()
    trace.event(1, "exception", name="torch.distributed.DistNetworkError", text=text)
    case = case_of(trace)
    assert ("exception", 1) in signs(case)
    assert not case.is_victim(1)


def test_who_received_too_much_is_a_victim_of_the_sender(case_of: CaseOf) -> None:
    trace = one_call()
    text = "[enforce fail] op.preamble.length <= op.nbytes. 40 vs 32. Received data size doesn't match expected size."
    trace.event(1, "exception", name="gloo::EnforceNotMet", text=text)
    trace.event(1, "exit", code=-6)
    assert case_of(trace).is_victim(1)


def test_an_error_while_the_job_is_taken_down_did_not_stop_it(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(1, "dump_written", at_ms=1000)
    trace.event(1, "exception", name="KeyError", text="KeyError: 'x'", at_ms=9000)
    assert signs(case_of(trace)) == set()


def test_an_error_just_before_the_dump_is_why_it_was_written(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(1, "exception", name="KeyError", text="KeyError: 'x'", at_ms=990)
    trace.event(1, "dump_written", at_ms=1000)
    assert signs(case_of(trace)) == {("exception", 1)}


def test_a_log_that_stops_without_a_word_is_a_claim_when_others_complain(case_of: CaseOf) -> None:
    trace = one_call(4)
    for rank in range(3):
        trace.event(rank, "connection_closed", text="Connection closed by peer", at_ms=500)
        trace.event(rank, "log_end", at_ms=500)
    trace.event(3, "log_end", at_ms=400)
    assert ("silent", 3) in signs(case_of(trace))


def test_a_running_process_that_wrote_no_dump_does_not_run(case_of: CaseOf) -> None:
    trace = one_call()
    trace.without_dump(2)
    for rank in range(3):
        trace.event(rank, "alive", at_ms=500)
    assert signs(case_of(trace)) == {("stopped", 2)}


def test_finishing_is_a_sign_too(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(0, "finished", at_ms=10)
    trace.event(1, "exit", code=0)
    assert signs(case_of(trace)) == {("finished", 0), ("finished", 1)}


@pytest.mark.parametrize(
    "text",
    ["[Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 30000 ms", "NCCL communicator was aborted on rank 0."],
)
def test_an_exception_about_others_is_no_claim(case_of: CaseOf, text: str) -> None:
    trace = one_call()
    trace.event(1, "exception", name="RuntimeError", text=text)
    assert signs(case_of(trace)) == set()


def test_bad_numbers_are_the_rank_s_own_whatever_it_would_have_sent_next(case_of: CaseOf) -> None:
    trace = one_call()
    text = "found NaN in local grad norm in backward pass before data-parallel communication collective. Device: 2"
    trace.event(1, "exception", name="RuntimeError", text=text)
    assert signs(case_of(trace)) == {("exception", 1)}


def test_who_is_interrupted_raised_nothing_of_its_own(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(1, "exception", name="KeyboardInterrupt", text="KeyboardInterrupt")
    assert signs(case_of(trace)) == set()


def test_an_exception_after_which_its_rank_went_on_was_caught(case_of: CaseOf) -> None:
    trace = one_call()
    trace.event(1, "exception", name="ConnectionError", text="Max retries exceeded", at_ms=1000)
    trace.event(1, "step", value=9, at_ms=3_600_000)
    trace.event(2, "exception", name="KeyError", text="KeyError: 'x'", at_ms=3_600_100)
    trace.event(2, "step", value=9, at_ms=3_600_000)
    assert signs(case_of(trace)) == {("exception", 2)}
