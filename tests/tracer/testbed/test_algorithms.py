"""What each collective sends: every slice has a receiver, and the trees are trees."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.tracer import _testbed

KINDS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]


def edges(
    kind: str, algo: str, ranks: int, channels: int, elements: int, slot: int
) -> tuple[Counter[object], Counter[object]]:
    """Slices by (channel, from, to), as senders and as receivers count them."""
    sent: Counter[object] = Counter()
    received: Counter[object] = Counter()
    for rank in range(ranks):
        for channel, peer, send, slices in _testbed.programs(kind, algo, rank, ranks, channels, 0, elements, slot):
            (sent if send else received)[channel, *((rank, peer) if send else (peer, rank))] += slices
    return +sent, +received


@given(
    st.sampled_from(KINDS),
    st.sampled_from(["RING", "TREE"]),
    st.integers(2, 33),
    st.integers(1, 5),
    st.integers(0, 100_000),
    st.sampled_from([64, 1024, 16384]),
)
@settings(max_examples=150, deadline=None)
def test_every_slice_that_is_sent_is_received(
    kind: str, algo: str, ranks: int, channels: int, elements: int, slot: int
) -> None:
    sent, received = edges(kind, algo, ranks, channels, elements // ranks, slot)
    assert sent == received


def test_each_tree_connects_all_ranks_and_inner_ranks_of_one_are_leaves_of_the_other() -> None:
    for ranks in range(2, 40):
        inner: list[set[int]] = []
        for channel in (0, 1):
            sent, _ = edges("all_reduce", "TREE", ranks, 2, 1000, 1024)
            pairs = {(a, b) for (c, a, b) in sent if c == channel}  # type: ignore[misc]
            # Every edge is used in both directions, and n - 1 of them connect n ranks.
            assert {(b, a) for a, b in pairs} == pairs
            assert len(pairs) == 2 * (ranks - 1)
            reached = {0}
            while more := {b for a, b in pairs if a in reached} - reached:
                reached |= more
            assert reached == set(range(ranks))
            degree = Counter(a for a, _ in pairs)
            assert max(degree.values()) <= 3
            inner.append({rank for rank, count in degree.items() if count > 1})
        if ranks > 2:
            # The complement is exact for even sizes; for odd ones a rank or two is inside both.
            assert len(inner[0] & inner[1]) <= (1 if ranks % 2 == 0 else 2)
