"""Which communicators there are: claims of many sources, brought together at the end, independent of their order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

# A source that lists the members is believed in this order.
SOURCE_ORDER: Final = ("dump", "topology", "log", "trace", "entries")

# Words of a description, longest meaning first. Megatron, DeepSpeed, FSDP and device meshes all end up here.
_ROLES: Final = (
    ("world", (r"default_pg", r"world(_group)?", r"global")),
    ("edp", (r"expert.*data.*", r"edp", r"expt_dp")),
    ("etp", (r"expert_tensor.*", r"etp")),
    ("ep", (r"expert.*", r"ep", r"moe.*")),
    ("emb", (r".*embedding.*", r"embd")),
    ("tp_dp", (r"tensor_and_data.*", r"tp_dp.*", r"tp_and_dp.*")),
    ("tp_cp", (r"tensor_and_context.*", r"tp_cp.*")),
    ("cp", (r".*context_parallel.*", r"cp", r"sequence_parallel.*", r"sp", r"ulysses.*", r"ring_attn.*")),
    ("mp", (r"model_parallel.*", r"mp")),
    ("tp", (r"tensor.*", r"tp", r"mp_tp")),
    ("pp", (r"pipeline.*", r"pp", r"stage.*")),
    ("dp", (r"data_parallel.*", r"d?dp.*", r"fsdp.*", r"hsdp.*", r".*_data_parallel.*", r".*distributed_optimizer.*")),
)
_PATTERNS: Final = tuple((role, re.compile("|".join(f"(?:{p})" for p in words))) for role, words in _ROLES)
_NUMBER: Final = re.compile(r"\d+")


def role_of(desc: str | None) -> str:
    """Return the role that a group's description names: world, tp, pp, dp, ep, cp, … or `other`.

    `TENSOR_MODEL_PARALLEL_GROUP`, `tp_0`, `mesh_tp` and `mesh_dp_shard` are understood; `undefined` is no role.
    """
    if not desc:
        return "other"
    words = re.sub(r"[^a-z0-9]+", "_", desc.lower()).strip("_")
    words = re.sub(r"_?\d+$", "", words)
    words = re.sub(r"^(device_)?mesh_", "", words)
    words = re.sub(r"^(intra|inter)_(partial_)?", "", words)
    words = re.sub(r"(_process)?_group(_gloo)?$", "", words)
    for role, pattern in _PATTERNS:
        if pattern.fullmatch(words):
            return role
    return "other"


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts "2" before "10"."""
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(p), p) if p.isdigit() and len(p) < 20 else (1, 0, p) for p in parts if p)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one source said of one group. `of_rank` is the rank that spoke."""

    name: str
    desc: str | None
    ranks: tuple[int, ...] | None
    hash_: int | None
    backend: str | None
    source: str
    of_rank: int | None


@dataclass(slots=True)
class Group:
    """A communicator, as all claims together describe it."""

    name: str
    ranks: tuple[int, ...] | None
    desc: str | None = None
    hash_: int | None = None
    backend: str | None = None
    source: str = "entries"
    seen: set[int] = field(default_factory=lambda: set[int]())
    kind: str = "other"
    key: str = ""

    def order(self) -> tuple[object, ...]:
        """Sort key: the numbering of communicators depends on what they are, never on who spoke first."""
        return (natural(self.name), self.ranks or (), self.desc or "", self.hash_ or 0, min(self.seen, default=0))

    def learn(self, claim: Claim) -> None:
        """Add what a claim says."""
        self.desc = _first(self.desc, claim.desc)
        self.hash_ = self.hash_ if self.hash_ is not None else claim.hash_
        self.backend = _first(self.backend, claim.backend)
        if claim.ranks is not None and SOURCE_ORDER.index(claim.source) < SOURCE_ORDER.index(self.source):
            self.source = claim.source
        if claim.of_rank is not None:
            self.seen.add(claim.of_rank)

    def absorb(self, other: Group) -> None:
        """Take over another description of the same group."""
        self.desc = _first(self.desc, other.desc)
        self.hash_ = self.hash_ if self.hash_ is not None else other.hash_
        self.backend = _first(self.backend, other.backend)
        self.seen |= other.seen


def _first(one: str | None, other: str | None) -> str | None:
    """Return the word that says something; of two, the smaller, so that the order of sources does not matter."""
    said = sorted(word for word in (one, other) if word and word != "undefined")
    return said[0] if said else (one or other)


class GroupRegistry:
    """Collects claims; `resolve` says which groups they are about."""

    def __init__(self) -> None:
        self._ids: dict[Claim, int] = {}
        self._by_name: dict[str, list[Claim]] = {}
        self._seen: dict[int, set[int]] = {}

    def add(self, claim: Claim) -> int:
        """Return a provisional id for the group that the claim speaks of."""
        known = self._ids.get(claim)
        if known is None:
            known = self._ids[claim] = len(self._ids)
            self._by_name.setdefault(claim.name, []).append(claim)
        return known

    def see(self, provisional: int, rank: int) -> None:
        """Note that a rank left a trace of the group with that provisional id."""
        self._seen.setdefault(provisional, set()).add(rank)

    def members(self, name: str, *, desc: str | None = None, of_rank: int | None = None) -> tuple[int, ...] | None:
        """Return the members of the group of that name as said so far; None where nobody or more than one fits."""
        listed = {
            (c.ranks, c.desc)
            for c in self._by_name.get(name, [])
            if c.ranks and (of_rank is None or of_rank in c.ranks)
        }
        same = {ranks for ranks, other in listed if desc is None or other == desc}
        found = same or {ranks for ranks, _ in listed}
        return found.pop() if len(found) == 1 else None

    def listed(self, source: str) -> list[tuple[str, str | None, tuple[int, ...]]]:
        """Return name, description and members of every group that a source lists, in order of their names."""
        found = {(c.name, c.desc, c.ranks) for c in self._ids if c.source == source and c.ranks}
        return sorted(found, key=lambda group: (natural(group[0]), group[2], group[1] or ""))

    def resolve(self) -> tuple[list[Group], list[int]]:
        """Return the groups in their final order, and for each provisional id the position of its group."""
        claims = list(self._ids)
        groups: dict[tuple[object, ...], Group] = {}
        owner: dict[Claim, Group] = {}
        for claim in claims:
            if claim.ranks:
                group = groups.setdefault(("listed", claim.name, claim.ranks), Group(claim.name, claim.ranks))
                group.learn(claim)
                owner[claim] = group
        listed: dict[str, list[Group]] = {}
        for group in groups.values():
            listed.setdefault(group.name, []).append(group)
        by_hash = {c.hash_: owner[c] for c in sorted(owner, key=_claim_order) if c.hash_ is not None}
        for claim in sorted((c for c in claims if not c.ranks), key=_claim_order):
            group = _fitting(claim, listed, by_hash)
            if group is None:
                group = groups.setdefault(_unlisted_key(claim), Group(claim.name, None))
            if claim.hash_ is not None:
                by_hash.setdefault(claim.hash_, group)
            group.learn(claim)
            owner[claim] = group
        for provisional, ranks in self._seen.items():
            owner[claims[provisional]].seen |= ranks
        merged = _merge_nameless(list(groups.values()))
        final = sorted(
            {id(merged.get(id(g), g)): merged.get(id(g), g) for g in groups.values()}.values(), key=Group.order
        )
        position = {id(group): i for i, group in enumerate(final)}
        _name_roles(final)
        return final, [position[id(merged.get(id(owner[c]), owner[c]))] for c in claims]


def _claim_order(claim: Claim) -> tuple[object, ...]:
    return (
        natural(claim.name),
        claim.ranks or (),
        claim.desc or "",
        claim.hash_ or 0,
        claim.source,
        claim.of_rank or 0,
    )


def _unlisted_key(claim: Claim) -> tuple[object, ...]:
    if claim.hash_ is not None:
        return ("hash", claim.hash_)
    return ("name", claim.name)


def _fitting(claim: Claim, listed: dict[str, list[Group]], by_hash: dict[int, Group]) -> Group | None:
    """Return the listed group that a claim without members speaks of, None where there is none."""
    if claim.hash_ is not None and claim.hash_ in by_hash:
        return by_hash[claim.hash_]
    candidates = listed.get(claim.name, [])
    if claim.of_rank is not None:
        candidates = [g for g in candidates if g.ranks and claim.of_rank in g.ranks]
    same = [g for g in candidates if claim.desc is not None and g.desc == claim.desc]
    candidates = same or candidates
    return min(candidates, key=lambda g: (SOURCE_ORDER.index(g.source), *g.order()), default=None)


def is_nameless(name: str) -> bool:
    """Say whether a name is none of the job's: layout 1.4 has no names, and NCCL knows a hash only.

    Ours for the first are empty, or `~n` for the n-th group of the same members; for the second the hash in
    hexadecimal.
    """
    return name == "" or name.startswith(("~", "0x"))


def _merge_nameless(groups: list[Group]) -> dict[int, Group]:
    """Find for groups without a name the named one with the same members: by position, or where there is only one."""
    named: dict[tuple[int, ...], list[Group]] = {}
    nameless: dict[tuple[int, ...], list[Group]] = {}
    for group in sorted(groups, key=Group.order):
        if group.ranks:
            # Members are compared as sets: a source may list them in another order.
            members = tuple(sorted(group.ranks))
            (nameless if is_nameless(group.name) else named).setdefault(members, []).append(group)
    merged: dict[int, Group] = {}
    for ranks, orphans in nameless.items():
        targets = named.get(ranks, [])
        hashed = [g for g in orphans if g.hash_ is not None]
        if len(hashed) == 1 and len(targets) == 1 and targets[0].hash_ in (None, hashed[0].hash_):
            targets[0].absorb(hashed[0])
            merged[id(hashed[0])] = targets[0]
        for target, orphan in zip(targets, [g for g in orphans if g.hash_ is None], strict=False):
            target.absorb(orphan)
            merged[id(orphan)] = target
    return merged


def _name_roles(groups: Sequence[Group]) -> None:
    """Give each group its role and its key: the role and the shortest hash that is unique in the trace."""
    everybody = max((len(g.ranks) for g in groups if g.ranks), default=0)
    for group in groups:
        group.kind = role_of(group.desc)
        # The first group of a job is its world, whatever it is called.
        first = group.name == "0" and group.ranks is not None and len(group.ranks) == everybody
        if group.kind == "other" and first:
            group.kind = "world"
    digests = [
        hashlib.blake2b(
            repr((g.name, g.ranks, g.desc if g.ranks is None else None, g.hash_ if g.ranks is None else None)).encode(),
            digest_size=16,
        ).hexdigest()
        for g in groups
    ]
    taken: set[str] = set()
    for group, digest in zip(groups, digests, strict=True):
        length = 2
        while f"{group.kind}-{digest[:length]}" in taken:
            length += 1
        group.key = f"{group.kind}-{digest[:length]}"
        taken.add(group.key)


def world_size(groups: Iterable[Group]) -> int | None:
    """Return the size of the group of everybody, None where no source lists it."""
    return max((len(g.ranks) for g in groups if g.ranks and g.kind == "world"), default=None)
