"""Slow links as claims: the sender, the receiver or the path that the matrix of transfers shows as odd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.link_matrix import Link, Matrix, Odd

MOST_ODD: Final = 3
# Below this nobody would look into it.
LEAST_MS: Final = 0.05


def suspicions(matrices: Sequence[Matrix]) -> list[Suspicion]:
    """Return who is slow among ranks; many odd ones at once are the fabric, which names nobody."""
    found: list[Suspicion] = []
    for matrix in matrices:
        if matrix.ends != "ranks" or not 0 < len(matrix.odd) <= MOST_ODD:
            continue
        for odd in matrix.odd:
            mine = [link for link in matrix.links if _is_of(link, odd)]
            if max((link.ms for link in mine), default=0.0) >= LEAST_MS:
                found.append(_suspicion(matrix, odd, mine))
    return found


def _is_of(link: Link, odd: Odd) -> bool:
    if odd.kind == "cell":
        return (link.src, link.dst) == (odd.src, odd.dst)
    if odd.kind == "both":
        return odd.src in (link.src, link.dst)
    return link.src == odd.src if odd.kind == "row" else link.dst == odd.dst


def _suspicion(matrix: Matrix, odd: Odd, links: Sequence[Link]) -> Suspicion:
    ranks = tuple(sorted(_rank(name) for name in (odd.src, odd.dst) if name))
    slowest = sorted(links, key=lambda link: -link.factor)[:4]
    since = next((link.since for link in slowest if link.since), "")
    text = odd.text + (f", {since}" if since else "")
    refs = tuple(
        Ref(f"{link.src} to {link.dst}: {link.ms:.3g} ms", link.file, link.line, "events", (), "link_matrix")
        for link in slowest
    )
    kind = "slow_path" if odd.kind == "cell" else "slow_host"
    doubts = [("medium", "told from the times of transfers alone: counters of the NICs would show which device it is")]
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=(Claim("link_matrix", kind, ranks, "strong", text, refs, detail=text),),
        one_of=odd.kind == "cell",
        waiting=tuple(sorted({_rank(link.dst) for link in links} - set(ranks))),
        doubts=tuple(doubts),
    )


def _rank(name: str) -> int:
    return int(name.removeprefix("rank "))
