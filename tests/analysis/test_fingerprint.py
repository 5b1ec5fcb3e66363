"""The shape of a fault: equal for the same fault of other ranks, different for another fault."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from mycroft.analysis.fingerprint import VERSION, fingerprint_of, from_dict, likeness

VERDICTS = sorted((Path(__file__).resolve().parents[1] / "data" / "verdicts").glob("*.json"))
FINDINGS = [
    finding
    for path in VERDICTS
    for finding in json.loads(path.read_text(encoding="utf-8"))["findings"]
    if finding["chain"]
]


def finding_of(chain: list[tuple[int, int, str, str]], culprits: list[int], **changed: Any) -> dict[str, Any]:
    """A finding whose chain is (waiter, blocker, role of the group, operation)."""
    return {
        "id": "f1",
        "status": "hang",
        "category": "dataloader",
        "component": "code",
        "summary": "x",
        "since": None,
        "root_cause": {"ranks": culprits, "hosts": ["a"], "devices": [], "one_of": False},
        "chain": [
            {"waiter": w, "blocker": b, "comm": f"{role}-{w:02x}{b:02x}", "op": op, "group": f"{role}_{w}"}
            for w, b, role, op in chain
        ],
        **changed,
    }


def star(ranks: int, culprit: int) -> dict[str, Any]:
    """All wait for one, in tensor parallelism; the rest of the job through its groups of data parallelism."""
    waits = [(r, culprit, "tp", "all_reduce") for r in range(ranks) if r != culprit]
    return finding_of(waits + [(100 + r, r, "dp", "reduce_scatter") for r in range(ranks)], [culprit])


def test_the_same_fault_of_other_ranks_in_a_larger_job_has_the_same_shape() -> None:
    assert fingerprint_of(star(4, 1)).shape == fingerprint_of(star(32, 17)).shape
    alike = likeness(fingerprint_of(star(4, 1)), fingerprint_of(star(32, 17)))
    assert alike is not None and alike.same_shape and alike.share == 1.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding["summary"][:30])
def test_names_of_ranks_and_order_of_links_do_not_matter(finding: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    ranks = {link[end] for link in finding["chain"] for end in ("waiter", "blocker")} | set(
        finding["root_cause"]["ranks"]
    )
    other = dict(zip(sorted(ranks), chance.sample(range(1000), len(ranks)), strict=True))
    links = [{**link, "waiter": other[link["waiter"]], "blocker": other[link["blocker"]]} for link in finding["chain"]]
    chance.shuffle(links)
    cause = {**finding["root_cause"], "ranks": [other[rank] for rank in finding["root_cause"]["ranks"]]}
    renamed = {**finding, "chain": links, "root_cause": cause}
    assert fingerprint_of(renamed) == fingerprint_of(finding)


BASE = [(0, 1, "tp", "all_reduce"), (1, 2, "dp", "reduce_scatter")]


@pytest.mark.parametrize(
    ("chain", "culprits"),
    [
        ([(0, 1, "tp", "all_reduce"), (1, 2, "dp", "all_gather")], [2]),
        ([(0, 1, "pp", "all_reduce"), (1, 2, "dp", "reduce_scatter")], [2]),
        ([(0, 1, "dp", "reduce_scatter"), (1, 2, "tp", "all_reduce")], [2]),
        (BASE, [1]),
        ([*BASE, (2, 0, "tp", "all_reduce")], [2]),
        (BASE[:1], [1]),
    ],
)
def test_another_operation_group_order_culprit_or_cycle_is_another_shape(
    chain: list[tuple[int, int, str, str]], culprits: list[int]
) -> None:
    assert fingerprint_of(finding_of(chain, culprits)).shape != fingerprint_of(finding_of(BASE, [2])).shape


def test_without_a_chain_there_is_no_shape_to_be_the_same() -> None:
    none = fingerprint_of(finding_of([], [3]))
    assert none.shape == ""
    alike = likeness(none, none)
    assert alike is not None and not alike.same_shape and alike.hosts == ("a",)


def test_another_category_on_another_host_is_not_alike() -> None:
    one = fingerprint_of(finding_of(BASE, [2]))
    other = finding_of(BASE, [2], category="checkpoint", root_cause={"ranks": [2], "hosts": ["b"], "devices": []})
    assert likeness(one, fingerprint_of(other)) is None


def test_the_same_host_is_alike_for_the_same_component_only() -> None:
    one = fingerprint_of(finding_of(BASE, [2]))
    same = likeness(one, fingerprint_of(finding_of([], [9], category="checkpoint")))
    assert same is not None and same.hosts == ("a",) and not same.same_category
    assert likeness(one, fingerprint_of(finding_of([], [9], category="slow_nic", component="nic"))) is None


def test_a_device_of_the_same_name_on_another_host_is_another_device() -> None:
    def on(host: str) -> Any:
        cause = {"ranks": [2], "hosts": [host], "devices": ["mlx5_0"]}
        return fingerprint_of(finding_of(BASE, [2], root_cause=cause))

    same, other = likeness(on("a"), on("a")), likeness(on("a"), on("b"))
    assert same is not None and same.devices == ("mlx5_0",)
    assert other is not None and other.devices == ()


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding["summary"][:30])
def test_what_is_kept_comes_back(finding: dict[str, Any]) -> None:
    made = fingerprint_of(finding)
    assert from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize("kept", [{}, {"version": VERSION}, {"version": 0}, {"version": VERSION, "edges": 3}])
def test_what_is_no_fingerprint_is_none(kept: dict[str, Any]) -> None:
    assert from_dict(kept) is None


def test_a_long_chain_ends() -> None:
    chain = [(n, n + 1, "pp", "recv") for n in range(500)]
    assert fingerprint_of(finding_of(chain, [500])).shape
