from __future__ import annotations

import pytest

from mycroft.analysis.claims import KINDS, Claim, Suspicion
from mycroft.analysis.classes import CLASSES, SLOW_KINDS, ClassRule, classify
from mycroft.analysis.verdict import CATEGORIES


def suspicion(*kinds: str) -> Suspicion:
    return Suspicion("test", (1,), tuple(Claim("dumps", kind, (1,), "strong", kind) for kind in kinds))


# Claims, and what they are called: one line for every row, so that a row that is lost or moved is missed.
CALLED = (
    ("odd_type", "code_divergence", "code", "hang"),
    ("odd_size", "size_mismatch", "code", "hang"),
    ("gpu_fault", "gpu_fault", "gpu", "crash"),
    ("out_of_memory", "out_of_memory", "process", "crash"),
    ("killed", "process_died", "process", "crash"),
    ("exception address_in_use", "init_timeout", "config", "crash"),
    ("exited", "process_died", "process", "crash"),
    ("exception", "exception", "code", "crash"),
    ("killed_by_ras", "process_died", "process", "crash"),
    ("node_failed", "process_died", "host", "crash"),
    ("never_joined", "init_timeout", "process", "hang"),
    ("other_version", "misconfigured_interface", "config", "hang"),
    ("same_gpu", "misconfigured_interface", "config", "crash"),
    ("wrong_interface", "misconfigured_interface", "config", "hang"),
    ("unreachable", "init_timeout", "process", "hang"),
    ("link_down", "link_fault", "nic", "hang"),
    ("swapped", "order_deadlock", "code", "hang"),
    ("alone crossed_groups", "order_deadlock", "code", "hang"),
    ("left_path", "code_divergence", "code", "hang"),
    ("device_behind", "device_hang", "gpu", "hang"),
    ("in_dataloader", "dataloader", "code", "hang"),
    ("in_checkpoint", "checkpoint", "code", "hang"),
    ("in_evaluation", "code_divergence", "code", "hang"),
    ("in_exception", "exception", "code", "hang"),
    ("finished", "code_divergence", "code", "hang"),
    ("stopped", "process_stopped", "process", "hang"),
    ("silent", "process_died", "process", "crash"),
    ("no_dump dumps_of_all_others", "process_died", "process", "hang"),
    ("no_dump", "absent", "unknown", "hang"),
    ("in_code", "absent", "process", "hang"),
    ("unresponsive", "process_stopped", "process", "hang"),
    ("closed_by", "process_died", "process", "crash"),
    ("absent", "absent", "process", "hang"),
    ("late throttled", "slow_gpu", "gpu", "slow"),
    ("late slow_clock", "slow_gpu", "gpu", "slow"),
    ("late narrow_link", "pcie_degraded", "host", "slow"),
    ("slow_host narrow_link", "pcie_degraded", "host", "slow"),
    ("congested", "network_congestion", "network", "slow"),
    ("slow_transfer link_errors", "link_fault", "nic", "slow"),
    ("slow_host", "slow_nic", "nic", "slow"),
    ("slow_path", "network_congestion", "network", "slow"),
    ("wrong_results", "unknown", "unknown", "slow"),
    ("slow_transfer", "slow_group", "network", "slow"),
    ("throttled", "slow_gpu", "gpu", "slow"),
    ("narrow_link", "pcie_degraded", "host", "slow"),
    ("late_input", "dataloader", "code", "slow"),
    ("late in_dataloader", "dataloader", "code", "slow"),
    ("late", "slow_compute", "unknown", "slow"),
    ("slow_operations", "slow_group", "unknown", "slow"),
    ("stuck_in", "unknown", "unknown", "hang"),
)


@pytest.mark.parametrize(("claims", "category", "component", "status"), CALLED)
def test_these_claims_have_this_name(claims: str, category: str, component: str, status: str) -> None:
    rule = classify(suspicion(*claims.split()))
    assert (rule.category, rule.component, rule.status) == (category, component, status)


def test_every_row_has_a_line_above() -> None:
    assert {classify(suspicion(*claims.split())).name for claims, *_ in CALLED} == {rule.name for rule in CLASSES}


@pytest.mark.parametrize("rule", CLASSES, ids=lambda rule: rule.name)
def test_every_row_is_reached_by_its_own_claims(rule: ClassRule) -> None:
    for need in rule.needs:
        assert classify(suspicion(need, *rule.also)) in CLASSES
    assert rule in {classify(suspicion(need, *rule.also)) for need in rule.needs}


@pytest.mark.parametrize("rule", [r for r in CLASSES if r.also], ids=lambda rule: rule.name)
def test_a_row_that_asks_for_more_is_not_reached_without_it(rule: ClassRule) -> None:
    assert classify(suspicion(*rule.needs)) is not rule


@pytest.mark.parametrize("rule", CLASSES, ids=lambda rule: rule.name)
def test_every_row_speaks_the_vocabulary(rule: ClassRule) -> None:
    assert {*rule.needs, *rule.also, *rule.unless} <= set(KINDS)
    assert rule.category in CATEGORIES


def test_a_general_class_gives_way_only_to_evidence() -> None:
    assert classify(suspicion("absent")).category == "absent"
    assert classify(suspicion("absent", "in_dataloader")).category == "dataloader"
    assert classify(suspicion("absent", "in_code")).category == "absent"
    assert classify(suspicion("absent", "exception", "in_dataloader")).category == "exception"


def test_what_is_slow_is_of_a_slow_class_whatever_the_stack_shows() -> None:
    for kind in SLOW_KINDS:
        assert classify(suspicion(kind, "in_dataloader", "in_code")).status == "slow"


def test_a_claim_that_no_row_knows_is_unknown() -> None:
    assert classify(suspicion("waits_elsewhere")).category == "unknown"
