"""Claims of many sources become the same groups in whatever order they come."""

from __future__ import annotations

import itertools
import random

import pytest

from mycroft.loaders.groups import Claim, Group, GroupRegistry, role_of, world_size


def claim(name: str, ranks: tuple[int, ...] | None = None, **more: object) -> Claim:
    fields = {"desc": None, "hash_": None, "backend": None, "source": "dump", "of_rank": None, **more}
    return Claim(name=name, ranks=ranks, **fields)  # type: ignore[arg-type]


def resolved(claims: list[Claim]) -> tuple[list[Group], dict[Claim, Group]]:
    registry = GroupRegistry()
    ids = {c: registry.add(c) for c in claims}
    groups, position = registry.resolve()
    return groups, {c: groups[position[i]] for c, i in ids.items()}


JOB = [
    claim("0", (0, 1, 2, 3), desc="default_pg", source="topology"),
    claim("0", (0, 1, 2, 3), desc="default_pg"),
    claim("7", (0, 1), desc="tp"),
    claim("7", (2, 3), desc="tp"),
    claim("7", desc="tp", source="entries", of_rank=3),
    claim("7", desc="tp", source="log", of_rank=0),
    claim("0xab", (0, 1, 2, 3), hash_=0xAB, source="log"),
    claim("0xab", hash_=0xAB, source="log", of_rank=2),
    claim("9", desc="gloo", source="entries", of_rank=1),
    claim("9", desc="gloo", source="entries", of_rank=2),
    claim("~1", (2, 3)),
    claim("", (2, 3)),
]


def test_the_order_of_claims_does_not_matter() -> None:
    def described(claims: list[Claim]) -> list[tuple[object, ...]]:
        groups, _ = resolved(claims)
        return [(g.name, g.ranks, g.desc, g.hash_, g.source, sorted(g.seen), g.kind, g.key) for g in groups]

    wanted = described(JOB)
    dice = random.Random(3)
    for _ in range(200):
        shuffled = JOB[:]
        dice.shuffle(shuffled)
        assert described(shuffled) == wanted


def test_a_claim_without_members_belongs_to_the_group_that_its_rank_is_in() -> None:
    _, of = resolved(JOB)
    assert of[JOB[4]].ranks == (2, 3)
    assert of[JOB[5]].ranks == (0, 1)


def test_what_the_dumps_list_is_believed_before_the_topology() -> None:
    _, of = resolved(JOB)
    assert of[JOB[0]] is of[JOB[1]]
    assert of[JOB[0]].source == "dump"


def test_a_group_that_nobody_lists_has_the_members_that_spoke_of_it() -> None:
    _, of = resolved(JOB)
    group = of[JOB[8]]
    assert group is of[JOB[9]]
    assert (group.ranks, group.seen, group.source) == (None, {1, 2}, "entries")


def test_a_hash_belongs_to_the_only_group_with_its_members() -> None:
    _, of = resolved(JOB)
    assert of[JOB[6]] is of[JOB[0]]
    assert of[JOB[7]] is of[JOB[0]]
    assert of[JOB[0]].hash_ == 0xAB


def test_a_hash_that_fits_two_groups_stays_alone() -> None:
    claims = [
        claim("3", (0, 1), desc="tp"),
        claim("4", (0, 1), desc="tp_cp"),
        claim("0xab", (0, 1), hash_=0xAB, source="log"),
    ]
    groups, of = resolved(claims)
    assert len(groups) == 3
    assert of[claims[2]].name == "0xab"


def test_groups_without_names_are_matched_by_their_place_among_equal_members() -> None:
    named = [claim("3", (0, 1)), claim("12", (0, 1))]
    nameless = [claim("", (0, 1)), claim("~1", (0, 1)), claim("~2", (0, 1))]
    for order in itertools.permutations(named + nameless):
        groups, of = resolved(list(order))
        assert of[nameless[0]] is of[named[0]]
        assert of[nameless[1]] is of[named[1]]
        assert len(groups) == 3


def test_no_two_groups_share_name_and_members_or_key() -> None:
    groups, _ = resolved([claim(str(i), tuple(range(i % 50, i % 50 + 4))) for i in range(3000)])
    assert len({(g.name, g.ranks) for g in groups}) == len(groups) == 3000
    assert len({g.key for g in groups}) == 3000


def test_the_key_of_a_group_does_not_depend_on_other_groups_of_other_roles() -> None:
    tp = claim("1", (0, 1), desc="tp_0")
    alone, _ = resolved([tp])
    among, of = resolved([tp, claim("0", (0, 1, 2, 3), desc="default_pg"), claim("2", (2, 3), desc="tp_1")])
    assert of[tp].key == alone[0].key
    assert len(among) == 3


def test_numbers_in_names_count_as_numbers() -> None:
    groups, _ = resolved([claim(name, (0,)) for name in ("10", "9", "100", "x")])
    assert [g.name for g in groups] == ["9", "10", "100", "x"]


def test_the_world_is_the_group_of_everybody() -> None:
    groups, _ = resolved([claim("0", (0, 1, 2, 3)), claim("1", (0, 1))])
    assert [g.kind for g in groups] == ["world", "other"]
    assert world_size(groups) == 4
    assert world_size(resolved([claim("5", desc="x", of_rank=1)])[0]) is None


@pytest.mark.parametrize(
    ("desc", "role"),
    [
        ("default_pg", "world"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("tp_0", "tp"),
        ("mesh_tp", "tp"),
        ("device_mesh_tp", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("pp_3", "pp"),
        ("DATA_PARALLEL_GROUP", "dp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("DATA_PARALLEL_GROUP_GLOO", "dp"),
        ("mesh_dp_shard", "dp"),
        ("dp_replicate", "dp"),
        ("fsdp", "dp"),
        ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", "dp"),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("HIERARCHICAL_CONTEXT_PARALLEL_GROUPS", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("mesh_ep", "ep"),
        ("EXPERT_DATA_PARALLEL_GROUP", "edp"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "etp"),
        ("MODEL_PARALLEL_GROUP", "mp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "tp_dp"),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", "tp_cp"),
        ("EMBEDDING_GROUP", "emb"),
        ("POSITION_EMBEDDING_GROUP", "emb"),
        ("undefined", "other"),
        ("step", "other"),
        ("depth", "other"),
        ("", "other"),
        (None, "other"),
    ],
)
def test_roles_are_read_from_the_words_of_the_description(desc: str | None, role: str) -> None:
    assert role_of(desc) == role
