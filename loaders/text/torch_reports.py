"""Reports in which torch compares ranks: desync, fingerprints, monitored barrier, DDP, the dump analyser.

Each report names ranks other than the one that prints it. So there is a row for every rank that is *spoken of*: its
number is in `comm_rank` (the numbers are ranks inside the group; `fr_trace` alone gives global ones) and the rank
that prints it, where known, in `peer_rank`. Log-format notes, sections 1.6 to 1.8.
"""

from __future__ import annotations

import re
from itertools import islice
from math import prod
from typing import Final

from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope, Row
from mycroft.loaders.text.torch_log import FORMAT, number, op_kind, rank_number

_MAX_RANKS: Final = 4_096
_OP_WORDS: Final = {
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "broadcast": "broadcast",
    "all_to_all": "all_to_all",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
    "coalesced": "coalesced",
}


def _ranks(text: str) -> list[int]:
    """Return the ranks of `2, 5` or `{2, 5}` or `2,5`."""
    found = [rank_number(digits) for digits in re.findall(r"\d+", text)[:_MAX_RANKS]]
    return [rank for rank in found if rank is not None]


def _spoken_of(scope: FileScope, line: Line, at: int, kind: str, rank: int, **columns: object) -> None:
    """Add a row for `rank` of the group, said by the writer of the line."""
    reporter = line.rank_at(at)
    scope.event(
        line,
        at,
        kind,
        level="error",
        rank=None,
        comm_rank=rank,
        peer_rank=reporter,
        local_rank=None,
        _foreign=True,
        **columns,
    )


def _desync(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    state = match["st"]
    joined = number(match["m"]) if match["m"] else None
    name = "not_finished" if state.startswith("joined") else "not_joined" if joined is not None else "finished"
    for rank in _ranks(match["ranks"]):
        if scope.once(("desync", name, rank, match["n"], joined)):
            sequence = joined if joined is not None else number(match["n"])
            _spoken_of(scope, line, match.start(), "desync_report", rank, name=name, seq=sequence)


def _desync_never(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    for rank in _ranks(match["ranks"]):
        if scope.once(("desync", "never_joined", rank)):
            _spoken_of(scope, line, match.start(), "desync_report", rank, name="never_joined")


def _desync_header(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.memory[("desync", line.facts.key())] = number(match["n"])


def _desync_state(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    sequence = scope.memory.get(("desync", line.facts.key()))
    if sequence is None:
        return
    for rank in _ranks(match["ranks"]):
        if scope.once(("desync", match["st"], rank, sequence)):
            _spoken_of(
                scope,
                line,
                match.start(),
                "desync_report",
                rank,
                name=match["st"],
                seq=sequence,
                op_kind=op_kind(match["op"]),
            )


_FINGERPRINT: Final = re.compile(
    r"Rank (?P<r>\d{1,9}) is running (?:inconsistent )?collective: CollectiveFingerPrint\((?P<fp>[^()]{0,2000})"
)
_MAX_FINGERPRINTS: Final = 8


def _fingerprint(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    # The first match sees to the whole message: it speaks of both ranks.
    if scope.memory.get("fingerprints") is line:
        return
    scope.memory["fingerprints"] = line
    found = list(islice(_FINGERPRINT.finditer(line.text, match.start()), _MAX_FINGERPRINTS))
    ranks = [rank_number(one["r"]) for one in found]
    for at, (one, rank) in enumerate(zip(found, ranks, strict=True)):
        print_ = one["fp"]
        sequence = re.search(r"SequenceNumber=(\d+)", print_)
        op = re.search(r"OpType=(\w+)", print_)
        shape = re.search(r"TensorShape=\[([\d, ]*)\]", print_)
        dtype = re.search(r"TensorDtypes=\[?(\w+)", print_)
        if rank is None or not scope.once(("fingerprint", rank, print_)):
            continue
        # They stand in pairs: the one that prints, and the one that it was compared with.
        partner = at + 1 if at % 2 == 0 else at - 1
        other = ranks[partner] if partner < len(ranks) else None
        _spoken_of(
            scope,
            line,
            one.start(),
            "fingerprint_mismatch",
            rank,
            name=op[1] if op else None,
            op_kind=op_kind(op[1]) if op else None,
            seq=number(sequence[1]) if sequence else None,
            in_numel=_elements(shape[1]) if shape else None,
            dtype=dtype[1] if dtype else None,
            peer=str(other) if other is not None else None,
            text=line.text[match.start() :][:2000],
        )


def _elements(shape: str) -> int | None:
    sizes = [int(digits) for digits in re.findall(r"\d{1,18}", shape)[:64]]
    elements = prod(sizes) if sizes else None
    return elements if elements is not None and elements < 2**63 else None


def _monitored_barrier(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    for rank in _ranks(match["ranks"]):
        if scope.once(("monitored_barrier", rank, match["who"])):
            _spoken_of(
                scope, line, match.start(), "join_timeout", rank, name="monitored_barrier", dur_ms=float(match["ms"])
            )


def _ddp_params(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    pairs = ((match["r"], match["n"]), (match["r0"], match["n0"]))
    for rank_text, count in pairs:
        rank = rank_number(rank_text)
        if rank is not None and scope.once(("ddp", rank, count)):
            _spoken_of(scope, line, match.start(), "fingerprint_mismatch", rank, name="ddp_params", value=float(count))


def _ddp_shapes(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    for rank_text, sizes in ((match["r"], match["s"]), (match["r0"], "")):
        rank = rank_number(rank_text)
        if rank is not None and sizes and scope.once(("ddp_shape", rank, match["p"])):
            _spoken_of(
                scope,
                line,
                match.start(),
                "fingerprint_mismatch",
                rank,
                name="ddp_shape",
                in_numel=_elements(sizes),
                peer=match["r0"],
            )


class _Analysis:
    """One block of the dump analyser: a collective, its group, who is missing or differs."""

    def __init__(self, line: Line, sequence: int | None) -> None:
        self._line = line
        self._shared: Row = {"seq": sequence}
        self._left = 40
        self._ranks: list[tuple[int, str, str]] = []

    def feed(self, scope: FileScope, line: Line) -> bool:
        self._left -= 1
        key, colon, value = line.text.strip().lstrip("-* ").partition(":")
        key = key.strip().lower()
        if self._left < 0 or not colon or "sequence number" in key or "at entry" in line.text:
            return False
        value = value.strip()
        if key == "group info":
            name, _, description = value.partition(":")
            self._shared["group_name"] = name or None
            self._shared["group_desc"] = description or None
        elif key == "collective":
            self._shared["name"] = value[:80]
            self._shared["op_kind"] = _op_word(value)
        elif key == "missing ranks":
            self._ranks += [(rank, "missing", line.text) for rank in _ranks(value)]
        elif key == "error msg":
            for match in re.finditer(r"Culprit rank (\d+); Error type: (\w+)", value):
                rank = rank_number(match[1])
                if rank is not None:
                    self._ranks.append((rank, match[2].lower(), line.text))
        elif key not in _ANALYSIS_KEYS:
            return False
        return True

    def close(self, scope: FileScope) -> None:
        for rank, what, text in self._ranks:
            columns = {
                **self._shared,
                "name": what,
                "text": f"{self._shared.get('name') or ''} {text.strip()}".strip()[:2000],
            }
            scope.event(self._line, 0, "fr_analysis", level="error", rank=rank, _foreign=True, **columns)


_ANALYSIS_KEYS: Final = frozenset(
    (
        "internal record id",
        "input sizes",
        "output sizes",
        "world size",
        "expected ranks",
        "collective state",
        "collective stack trace",
        "error msgs",
        "pg",
    )
)


def _op_word(text: str) -> str:
    word = text.partition(":")[2] or text
    word = word.strip().lower().lstrip("_").removesuffix("_base").removesuffix("_coalesced")
    for name, kind in _OP_WORDS.items():
        if word.startswith(name) or word.replace("_", "").startswith(name.replace("_", "")):
            return kind
    return "other"


def _analysis(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Analysis(line, number(match["n"] or match["m"])))


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "desync_lagging",
        FORMAT,
        ("joined but didn't finish collective", "but didn't join collective"),
        re.compile(
            r"\[(?P<ranks>[\d, ]+)\] (?P<st>joined but didn't finish|finished) collective #(?P<n>\d+)"
            r"(?:, but didn't join collective #(?P<m>\d+))?"
        ),
        _desync,
    ),
    Matcher(
        "desync_never",
        FORMAT,
        ("lagging ranks that caused this timeout",),
        re.compile(r"ranks \[(?P<ranks>[\d, ]+)\] are the lagging ranks that caused this timeout"),
        _desync_never,
    ),
    Matcher(
        "desync_header",
        FORMAT,
        ("finished ranks:", "started ranks:"),
        re.compile(r"#(?P<n>\d+) (?:finished|started) ranks:"),
        _desync_header,
        follow=12,
    ),
    Matcher(
        "desync_state",
        FORMAT,
        ("] finished ", "] started "),
        re.compile(r"\[(?P<ranks>[\d, ]+)\] (?P<st>started|finished) (?P<op>[A-Z_]{3,40})\b"),
        _desync_state,
    ),
    Matcher(
        "fingerprint",
        FORMAT,
        ("CollectiveFingerPrint(",),
        re.compile(
            r"(?:Detected mismatch between collectives on ranks\. )?Rank \d+ is running (?:inconsistent )?collective: "
        ),
        _fingerprint,
    ),
    Matcher(
        "monitored_barrier",
        FORMAT,
        ("failed to pass monitoredBarrier",),
        re.compile(
            r"\[Rank (?P<who>\d+)\]: Ranks? (?P<ranks>[\d, ]+?) failed to pass monitoredBarrier in (?P<ms>\d+) ms"
        ),
        _monitored_barrier,
    ),
    Matcher(
        "ddp_params",
        FORMAT,
        ("DDP expects same model across all ranks",),
        re.compile(
            r"DDP expects same model across all ranks, but Rank (?P<r>\d+) has (?P<n>\d+) params, "
            r"while rank (?P<r0>\d+) has inconsistent (?P<n0>\d+) params"
        ),
        _ddp_params,
    ),
    Matcher(
        "ddp_shapes",
        FORMAT,
        ("appears not to match sizes of the same param",),
        re.compile(
            r"\[(?P<r>\d+)\]: params\[(?P<p>\d+)\] in this process with sizes \[(?P<s>[\d, ]*)\] "
            r"appears not to match sizes of the same param in process (?P<r0>\d+)"
        ),
        _ddp_shapes,
    ),
    Matcher(
        "fr_trace",
        "fr_trace",
        (" has errors", " errors", "Not all ranks joining collective"),
        re.compile(
            r"Collective(?: sequence number:)? (?P<n>\d+)(?: at entry \d+)?(?: has)? errors"
            r"|Not all ranks joining collective,? (?:sequence number: )?(?P<m>\d+)"
        ),
        _analysis,
        follow=16,
    ),
)
