"""From suspicions to findings: sentences, evidence rows, the chain, what was rejected, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from mycroft.analysis.case import Case, count_words, meeting_ref, op_words
from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.classes import ClassRule, classify
from mycroft.analysis.confidence import rate
from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.facts import Facts
from mycroft.analysis.verdict import (
    Alternative,
    Collective,
    Component,
    Evidence,
    Finding,
    Link,
    RootCause,
    Status,
    Vote,
)
from mycroft.analysis.waitgraph import HELD_UP, NO_DUMP, NOT_ENTERED, NOT_FINISHED, NOT_STARTED, UNRECORDED
from mycroft.analysis.walk import Edge
from mycroft.analysis.wording import ONE_OF, ONE_OF_BY_CATEGORY, SLOW_INPUT, STEPS, SUMMARIES

CHAIN_SHOWN: Final = 12
VICTIMS_NAMED: Final = 4096


def merge(suspicions: Sequence[Suspicion]) -> list[tuple[Suspicion, ClassRule]]:
    """Put equal faults together: same category, both certain of their ranks. Different faults stay apart."""
    merged: list[tuple[Suspicion, ClassRule]] = []
    for item in suspicions:
        rule = classify(item)
        at = next(
            (
                i
                for i, (other, their) in enumerate(merged)
                if their.category == rule.category and not other.one_of and not item.one_of and other.rule == item.rule
            ),
            None,
        )
        if at is None:
            merged.append((item, rule))
            continue
        other, their = merged[at]
        ranks = tuple(sorted({*other.ranks, *item.ranks}))
        merged[at] = (
            replace(
                other,
                ranks=ranks,
                claims=tuple(dict.fromkeys((*other.claims, *item.claims))),
                missing=tuple(sorted({*other.missing, *item.missing})),
                waiting=tuple(sorted({*other.waiting, *item.waiting} - set(ranks))),
                sinks=tuple(dict.fromkeys((*other.sinks, *item.sinks))),
                since=min((s for s in (other.since, item.since) if s is not None), default=None),
                doubts=tuple(dict.fromkeys((*other.doubts, *item.doubts))),
                passed_over=tuple(dict.fromkeys((*other.passed_over, *item.passed_over))),
            ),
            their,
        )
    return merged


def compose(case: Case, suspicions: Sequence[Suspicion]) -> tuple[Finding, ...]:
    """Return the findings, the heaviest first: by victims, then confidence, then time."""
    merged = merge(suspicions)
    drafts = [_finding(case, s, rule, only=len(merged) == 1) for s, rule in merged]
    weight = {"high": 0, "medium": 1, "low": 2}
    drafts.sort(key=lambda f: (-len(f.victims), weight[f.confidence], f.since or "", f.root_cause.ranks))
    return tuple(replace(f, id=f"f{n}") for n, f in enumerate(drafts, 1))


def iso(ns: int | None) -> str | None:
    """Return a time as text, UTC with milliseconds."""
    if ns is None:
        return None
    moment = datetime.fromtimestamp(ns // NS_PER_S, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % NS_PER_S // 1_000_000:03d}Z"


def _finding(case: Case, s: Suspicion, rule: ClassRule, *, only: bool) -> Finding:
    facts = case.facts
    confidence, reasons = rate(case, s)
    rows = _Rows(facts)
    for claim in s.claims:
        rows.add_claim(claim)
    chain = _chain(case, s, rows)
    victims = _victims(case, s, only=only and rule.status in ("hang", "crash"))
    at = {h for r in s.ranks if (i := facts.ranks.get(r)) is not None and (h := i.host) is not None}
    hosts = tuple(sorted(at)) or s.hosts
    summary = _summary(case, s, rule)
    status: Status = rule.status
    return Finding(
        id="f0",
        status=status,
        category=rule.category,
        component=_component(s, rule),
        confidence=confidence,
        root_cause=RootCause(ranks=s.ranks, hosts=hosts, devices=s.devices, one_of=s.one_of),
        summary=summary,
        why=_why(s, victims),
        confidence_why=reasons,
        collective=_collective(facts, s),
        since=iso(s.since),
        victims=victims,
        chain=chain,
        evidence=tuple(rows.rows),
        alternatives=_alternatives(case, s, rule),
        next_steps=next_steps(facts, s, rule),
        votes=_votes(s),
    )


def _component(s: Suspicion, rule: ClassRule) -> Component:
    if rule.category == "absent" and s.has("no_dump"):
        return "unknown"
    return rule.component


class _Rows:
    """Evidence rows in the order they are first needed, numbered; equal rows are one."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.rows: list[Evidence] = []
        self._known: dict[Ref, str] = {}

    def add(self, ref: Ref) -> str:
        if ref not in self._known:
            name = f"e{len(self.rows) + 1}"
            self._known[ref] = name
            self.rows.append(
                Evidence(
                    id=name,
                    claim=ref.claim,
                    file=self.facts.path(ref.file),
                    line=ref.line,
                    table=ref.table,
                    key=dict(ref.key) or None,
                    source=ref.source,
                )
            )
        return self._known[ref]

    def add_claim(self, claim: Claim) -> None:
        refs = claim.refs or (
            Ref(claim.text, table="rank_dumps", key=(("rank", claim.ranks[0]),), source=claim.source)
            if claim.ranks
            else Ref(claim.text, source=claim.source),
        )
        for ref in refs:
            self.add(ref)


def who(facts: Facts, ranks: Sequence[int]) -> str:
    """Return ranks with their host, where all are on one."""
    if not ranks:
        return ""
    words = count_words(ranks)
    hosts = {i.host for r in ranks if (i := facts.ranks.get(r)) is not None}
    if len(hosts) == 1 and None not in hosts:
        return f"{words} ({next(iter(hosts))})"
    return words


def _operation(case: Case, s: Suspicion) -> str:
    if s.comm is None or s.comm not in case.facts.groups:
        return "their operations"
    title = case.facts.groups[s.comm].title
    if s.seq is None:
        return title
    return f"{s.op or 'operation'} {s.seq} of {title}"


def _summary(case: Case, s: Suspicion, rule: ClassRule) -> str:
    place = s.first("in_dataloader", "in_checkpoint", "in_evaluation", "in_code", "in_exception")
    detail = s.first(
        "odd_type", "odd_size", "odd_dtype", "swapped", "left_path", "alone", "in_evaluation", "finished",
        "exception", "odd_place", "gpu_fault", "throttled", "slow_clock", "narrow_link", "congested", "link_down",
        "wrong_interface", "other_version", "never_joined", "unreachable", "at_all_ends", "slow_host", "slow_path",
        "wrong_results", "late", "late_input", "slow_operations", "slow_transfer",
    )  # fmt: skip
    told = ""
    if detail is not None:
        told = detail.refs[0].claim if detail.refs and detail.kind.startswith("odd_") else detail.text
    died = s.first("node_failed", "killed", "silent", "stopped", "closed_by")
    template = SUMMARIES.get(rule.category, SUMMARIES["unknown"])
    if rule.status == "slow" and rule.category == "dataloader":
        template = SLOW_INPUT
    if s.one_of:
        template = ONE_OF_BY_CATEGORY.get(rule.category, ONE_OF)
    text = template.format(
        who=who(case.facts, s.ranks) or _nameless(s),
        device=", ".join(s.devices) or "its network device",
        op=_operation(case, s),
        place=f": {place.detail}" if place is not None and place.detail else "",
        detail=told or "see the evidence",
        detail_tail=f" ({died.text})" if died is not None else "",
    )
    if len(s.ranks) > 1:
        text = text.replace(" wait for it", " wait for them").replace(": it is ", ": they are ")
        text = text.replace(" is in ", " are in ").replace(" is inside ", " are inside ")
    return text[0].upper() + text[1:]


def _nameless(s: Suspicion) -> str:
    """Return whom a finding is about that knows no rank."""
    if s.hosts:
        return f"host {' or '.join(s.hosts)}"
    return "a rank that no line names" if s.devices else "no rank that stands out"


def _why(s: Suspicion, victims: Sequence[int]) -> str:
    """Return what the verdict rests on, in a few sentences."""
    sentences = [c.text for c in s.claims if c.strength != "weak"][:4]
    if victims and s.sinks:
        sentences.append(f"{count_words(victims)} {'wait' if len(victims) > 1 else 'waits'} because of it")
    return "".join(f"{t[0].upper()}{t[1:]}. " for t in dict.fromkeys(sentences)).strip()


def _collective(facts: Facts, s: Suspicion) -> Collective | None:
    if s.comm is None or s.comm not in facts.groups:
        return None
    group = facts.groups[s.comm]
    name = group.desc if group.desc and group.desc != "undefined" else group.name or group.key
    return Collective(group.key, name, s.seq, s.op or None, s.missing)


def _victims(case: Case, s: Suspicion, *, only: bool) -> tuple[int, ...]:
    """Return who waits because of it. `only`: there is one cause, so whoever waits anywhere waits because of it."""
    reached = {*s.waiting, *case.graph.blaming(s.sinks), *case.graph.held_up_by(s.sinks)}
    if only:
        reached |= {*case.graph.waiting, *(r for r, place in case.places.items() if place.waits)}
    return tuple(sorted(reached - set(s.ranks)))[:VICTIMS_NAMED]


def _chain(case: Case, s: Suspicion, rows: _Rows) -> tuple[Link, ...]:
    """Turn the path of the graph into links: rank, operation, rank."""
    if not s.sinks:
        return ()
    best = max(s.sinks, key=lambda i: (len(set(case.graph.sinks[i].ranks) & set(s.ranks)), -i))
    path = case.graph.path_to(case.graph.sinks[best])
    links: list[Link] = []
    pending: Edge | None = None
    for edge in path:
        if edge.src.kind == "rank" and edge.dst.kind in ("op", "pair"):
            pending = edge
        elif pending is not None and edge.dst.kind in ("rank", "device"):
            meeting = case.graph.meetings[pending.dst]
            group = case.facts.groups[meeting.comm]
            waiter, blocker = pending.src.key[0], edge.dst.key[0]
            words = _link_words(edge.why, blocker, op_words(case, meeting))
            name = rows.add(
                meeting_ref(case, pending.dst, f"rank {waiter} waits in {op_words(case, meeting)}: {words}")
            )
            if waiter != blocker:
                links.append(
                    Link(
                        waiter, blocker, group.desc or group.name, meeting.seq, meeting.kind, group.key, words, (name,)
                    )
                )
            pending = None
        elif edge.src.kind == "rank" and edge.dst.kind == "rank":
            waiter, blocker = edge.src.key[0], edge.dst.key[0]
            links.append(Link(waiter, blocker, None, None, "send/recv", None, edge.why, _stack_row(case, waiter, rows)))
    return tuple(links[:CHAIN_SHOWN])


def _stack_row(case: Case, rank: int, rows: _Rows) -> tuple[str, ...]:
    place = case.places.get(rank)
    if place is None:
        return ()
    ref = Ref(f"rank {rank} is at {place.frame}", place.file, place.line, "stacks", (("rank", rank),), "stacks")
    return (rows.add(ref),)


def _link_words(why: str, blocker: int, op: str) -> str:
    return {
        NOT_ENTERED: f"rank {blocker} has not entered it",
        HELD_UP: f"rank {blocker} entered it and is held up before it",
        NO_DUMP: f"rank {blocker} left no dump",
        NOT_FINISHED: f"the others finished {op}, rank {blocker} did not",
        NOT_STARTED: f"the device of rank {blocker} has not started it",
        UNRECORDED: "a send or receive that is not recorded",
    }.get(why, why)


def _alternatives(case: Case, s: Suspicion, rule: ClassRule) -> tuple[Alternative, ...]:
    found = [Alternative(category, ranks, why) for category, ranks, why in s.passed_over]
    complaining = sorted(r for r in case.lives if case.is_victim(r) and r not in s.ranks)
    if complaining:
        text = "they report a timeout or a lost connection: that says that somebody else stopped"
        found.append(Alternative("process_died", tuple(complaining), text))
    aborted = sorted(r for r, life in case.lives.items() if life.size_complaint is not None and r not in s.ranks)
    if aborted:
        text = "it received more or less than it expected, which is the sender's doing"
        found.append(Alternative("process_died", tuple(aborted), text))
    if s.has("absent") and rule.component != "gpu":
        quiet = [r for r in s.ranks if r in case.facts.dumps and r not in case.graph.waiting]
        if quiet:
            text = "its device got through everything that it was given"
            found.append(Alternative("device_hang", tuple(quiet), text))
    if s.has("device_behind", "device_not_started"):
        found.append(Alternative("absent", s.ranks, "it issued the operation: its program came that far"))
    lost = [r for r in case.facts.without_dump() if r not in s.ranks and r not in aborted and r not in complaining]
    if lost and s.has("odd_type", "odd_size", "odd_dtype", "absent", "left_path", "alone"):
        text = "a missing dump alone is no evidence, and the one named is guilty without it"
        found.append(Alternative("process_died", tuple(lost), text))
    return tuple(dict.fromkeys(found))


def next_steps(facts: Facts, s: Suspicion, rule: ClassRule) -> tuple[str, ...]:
    """Return what to do about a fault of this class, most useful first, commands with what is known filled in."""
    info = facts.ranks.get(s.ranks[0]) if s.ranks else None
    host = info.host if info is not None and info.host else None
    known = {
        "rank": str(s.ranks[0]) if s.ranks else "?",
        "pid": str(info.pid) if info is not None and info.pid else f"<pid of rank {s.ranks[0] if s.ranks else '?'}>",
        "host": host or f"the host of {count_words(s.ranks[:1]) if s.ranks else 'these ranks'}",
        "gpu": str(info.gpu) if info is not None and info.gpu else "<its gpu>",
    }
    steps: list[str] = []
    for step in STEPS.get(rule.category, STEPS["unknown"]):
        why = step.why.format(**known)
        if host and "{pid}" in step.command and "{host}" not in step.why:
            why += f", on {host}"
        steps.append(f"{step.command.format(**known)}   # {why}")
    return tuple(steps)


def _votes(s: Suspicion) -> tuple[Vote, ...]:
    votes: list[Vote] = []
    for claim in s.claims:
        if claim.kind == "waits_elsewhere" and s.has(
            "odd_type", "odd_size", "odd_dtype", "alone", "left_path", "swapped"
        ):
            continue
        agrees = claim.kind != "waits_elsewhere"
        votes.append(Vote(claim.source, claim.ranks, claim.hosts, claim.text, agrees))
    return tuple(dict.fromkeys(votes))
