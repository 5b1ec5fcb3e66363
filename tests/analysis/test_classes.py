from __future__ import annotations

import pytest

from mycroft.analysis.claims import KINDS, Claim, Suspicion
from mycroft.analysis.classes import CLASSES, SLOW_KINDS, ClassRule, classify
from mycroft.analysis.verdict import CATEGORIES


def suspicion(*kinds: str) -> Suspicion:
    return Suspicion("test", (1,), tuple(Claim("dumps", kind, (1,), "strong", kind) for kind in kinds))


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
