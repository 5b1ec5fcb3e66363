"""Which communicator is the world, and whose rank is which."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mycroft.loaders.comm_ranks import MAX_RANKS, CommRanks, hash_name


class Names:
    """Takes what is told."""

    def __init__(self) -> None:
        self.comms: dict[str, tuple[int, ...] | None] = {}
        self.ranks: dict[int, tuple[object, object]] = {}
        self.world: object = None

    def comm(
        self,
        name: str,
        *,
        ranks: Sequence[int] | None = None,
        desc: str | None = None,
        hash_: int | None = None,
        backend: str | None = None,
        source: str = "dump",
        of_rank: int | None = None,
    ) -> int:
        self.comms[name] = tuple(ranks) if ranks is not None else None
        return len(self.comms)

    def rank(self, rank: int, **facts: int | str | None) -> None:
        self.ranks[rank] = (facts["host"], facts["pid"])

    def job(self, **facts: int | str | None) -> None:
        self.world = facts["world_size"]


def world(
    ranks: CommRanks, size: int = 4, name: str | int = 0xAB, *, pid: int = 100, order: Sequence[int] | None = None
) -> None:
    for place, who in enumerate(order or range(size)):
        ranks.see(name, size, place, (f"n{who // 2}", pid + who), device=f"gpu{who % 2}")


def test_the_greatest_communicator_is_the_world() -> None:
    ranks = CommRanks()
    world(ranks)
    ranks.see(0xCD, 2, 0, ("n1", 102))
    ranks.see(0xCD, 2, 1, ("n1", 103))
    assert ranks.world() == ("0xab",)
    assert ranks.global_rank(0xCD, 1) == 3
    assert ranks.members(0xCD) == [2, 3]
    assert ranks.rank_of(("n0", 101)) == 1


def test_two_orders_of_one_size_are_no_world() -> None:
    ranks = CommRanks()
    world(ranks)
    world(ranks, name=0xCD, order=(1, 0, 2, 3))
    assert ranks.world() == ()
    assert ranks.rank_of(("n0", 101)) is None


def test_another_source_tells_which_order_is_the_job_s() -> None:
    ranks = CommRanks()
    world(ranks)
    world(ranks, name=0xCD, order=(1, 0, 2, 3))
    ranks.told(("n0", 101), 1)
    assert ranks.world() == ("0xab",)


def test_two_equal_ones_in_the_same_order_are_the_same_world() -> None:
    ranks = CommRanks()
    world(ranks)
    world(ranks, name=0xCD)
    assert ranks.world() == ("0xab", "0xcd")


def test_a_group_that_is_less_than_the_job_is_no_world() -> None:
    ranks = CommRanks()
    world(ranks, 2)
    ranks.at_least(8)
    assert ranks.world() == ()


def test_halves_share_no_gpu_and_restarts_do() -> None:
    halves = CommRanks()
    for name, host in ((0xA, "n0"), (0xB, "n1")):
        for place in range(2):
            halves.see(name, 2, place, (host, place), device=f"gpu{place}")
    assert halves.world() == ()
    starts = CommRanks()
    world(starts)
    world(starts, name=0xCD, pid=500)
    assert starts.world() == ("0xab", "0xcd")
    assert starts.rank_of(("n1", 503)) == 3


def test_two_processes_for_one_place_are_no_member() -> None:
    ranks = CommRanks()
    world(ranks)
    ranks.see(0xAB, 4, 3, ("n9", 7))
    assert ranks.rank_of(("n9", 7)) is None


def test_more_processes_than_places() -> None:
    ranks = CommRanks()
    world(ranks, 2)
    ranks.see(0xCD, 1, 0, ("n8", 1))
    ranks.see(0xCE, 1, 0, ("n9", 1))
    assert ranks.world() == ()


@pytest.mark.parametrize(("size", "rank"), [(2, 2), (2, -1), (MAX_RANKS + 1, 0), (None, MAX_RANKS)])
def test_what_cannot_be_is_ignored(size: int | None, rank: int) -> None:
    ranks = CommRanks()
    ranks.see(0x1, size, rank, ("n0", 1))
    assert ranks.names() == []


def test_members_are_named_only_when_all_are_known() -> None:
    ranks = CommRanks()
    world(ranks)
    ranks.see(0xCD, 2, 0, ("n1", 102))
    names = Names()
    ranks.comm_id(names, 0xCD)
    ranks.comm_id(names, 0xAB)
    assert names.comms == {"0xcd": None, "0xab": (0, 1, 2, 3)}


def test_ranks_are_told_with_host_and_process() -> None:
    ranks, names = CommRanks(), Names()
    world(ranks)
    ranks.tell(names, "a test")
    assert names.world == 4
    assert names.ranks[3] == ("n1", 103)


def test_names() -> None:
    assert hash_name(0xAB) == "0xab"
    ranks = CommRanks()
    assert ranks.world() == ()
    assert ranks.global_rank("x", 0) is None
    assert ranks.members("x") is None
