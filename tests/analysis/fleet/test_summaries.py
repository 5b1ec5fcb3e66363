"""Summaries of simulated jobs, cut among relays, lead to the ranks that a diagnosis needs, and to no others."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mycroft.analysis import diagnose
from mycroft.analysis.fleet import Window, digest, merge, partial
from mycroft.analysis.fleet.summaries import OP_STATES, RECV, SEND, SUMMARY, Suspects, find_suspects, summarise
from mycroft.loaders.memory import load_traces
from mycroft.tracer.names import OP_KINDS
from tests.analysis.fleet.pieces import TablePiece
from tests.analysis.fleet.simulated_fleet import Fleet, small_fleet

WHOLE = Window(0, 1 << 62)


def summaries(fleet: Fleet) -> list[pa.Table]:
    return [
        summarise(
            partial(OP_STATES, TablePiece(fleet.operations(ranks)), WHOLE), fleet.dimensions(ranks), at_ns=fleet.last_ns
        )
        for ranks in fleet.relays
    ]


def suspects(fleet: Fleet, *, most_ranks: int | None = None) -> Suspects:
    return find_suspects(merge(SUMMARY, summaries(fleet)), at_ns=fleet.last_ns, most_ranks=most_ranks)


def test_codes_of_sends_and_receives_are_those_of_the_tracer() -> None:
    assert (OP_KINDS[SEND], OP_KINDS[RECV]) == ("send", "recv")


@pytest.mark.parametrize(
    ("fault", "category"),
    [
        ("nic_down", "link_fault"),
        ("recv_nopost", "proxy_stall"),
        ("gpu_hang", "device_hang"),
        ("crash", "process_died"),
    ],
)
def test_ranks_that_summaries_lead_to_are_enough_to_name_the_culprit(fault: str, category: str) -> None:
    fleet = small_fleet(fault, topology="T512", rank=133, ranks_per_relay=64, microbatches=2, interval_ns=5e8)
    found = suspects(fleet)
    assert found.ranks_told == 512
    assert found.ranks_waiting > 500
    assert 133 in found.ranks
    assert len(found.ranks) <= 64
    with load_traces(fleet.traces(found.ranks), name="fetched") as store:
        verdict = diagnose(store, at=fleet.last_ns)
    assert verdict.findings[0].root_cause.ranks == (133,)
    assert verdict.findings[0].category == category


def test_rank_that_does_not_come_and_stands_in_nothing_is_suspect_itself() -> None:
    found = suspects(small_fleet("absent", topology="T32", rank=13, ranks_per_relay=8, microbatches=2, interval_ns=5e8))
    assert found.standing
    assert {rank for one in found.standing for rank in one.absent} == {13}
    assert 13 in found.ranks


@pytest.mark.parametrize("fault", ["none", "gpu_power"])
def test_job_that_goes_on_has_no_suspects(fault: str) -> None:
    """Slow is not standing: of slowness summaries of this kind say nothing."""
    found = suspects(small_fleet(fault, topology="T32", rank=13, ranks_per_relay=8, microbatches=2, interval_ns=5e8))
    assert (found.ranks, found.standing, found.ranks_waiting) == ((), (), 0)


def test_no_more_ranks_are_fetched_than_may_be_and_the_rest_is_counted() -> None:
    fleet = small_fleet("recv_nopost", topology="T512", rank=133, ranks_per_relay=256, microbatches=2, interval_ns=5e8)
    found = suspects(fleet, most_ranks=5)
    assert len(found.ranks) == 5
    assert found.left_out == len(found.standing[0].ranks) - 5 > 0


def test_summaries_are_the_same_however_relays_are_cut_and_told_twice() -> None:
    fleet = small_fleet("nic_down", topology="T32", rank=5, ranks_per_relay=8, microbatches=2, interval_ns=5e8)
    parts = summaries(fleet)
    whole = merge(SUMMARY, parts)
    fleet.ranks_per_relay = 32
    assert digest(merge(SUMMARY, summaries(fleet))) == digest(whole)
    random.Random(1).shuffle(parts)
    assert digest(merge(SUMMARY, [parts[0], merge(SUMMARY, parts[1:]), parts[0]])) == digest(whole)
    assert whole.num_rows == 32 * 3
