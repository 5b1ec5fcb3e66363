"""What DeepSpeed's own launcher prints on every node: which rank is which process, and how a process ended.

It says the ranks of each node once, the pid of each local rank as it starts it, and the exit code when one ends; what a
node has said is kept until then. `memory` is by the host of the line, which pdsh puts in front.

The command that it prints with the exit code is the last one that it started, whichever process ended: where a node has
several, the line tells the node and the code and not the rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from mycroft.loaders.text.launchers import said, signed
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import TEXT_LIMIT, FileScope
from mycroft.loaders.text.torch_log import rank_number

FORMAT: Final = "deepspeed_launcher"
_MOST_RANKS: Final = 65_536

_NODE: Final = re.compile(r"'(?P<host>[\w.-]{1,253})': \[(?P<ranks>[\d, ]*)\]")
_LOCAL: Final = re.compile(r"'--local[_-]rank=(?P<lr>\d{1,5})'")


@dataclass(slots=True)
class _Node:
    """What the launcher of one node has said so far."""

    number: int | None = None
    size: int | None = None
    pids: dict[int, int] = field(default_factory=lambda: dict[int, int]())


def _node(scope: FileScope, line: Line) -> _Node:
    key = ("deepspeed", line.facts.host)
    return scope.memory.setdefault(key, _Node())


def _ranks(scope: FileScope, line: Line) -> tuple[str | None, list[int]]:
    """Return the name of the node of a line and its ranks, as the launcher numbers them."""
    mapping: dict[str, list[int]] = scope.memory.get("deepspeed ranks", {})
    node = _node(scope, line)
    if line.facts.host in mapping:
        return line.facts.host, mapping[line.facts.host or ""]
    if len(mapping) == 1:
        return next(iter(mapping.items()))
    if node.number is not None and node.number < len(mapping):
        return list(mapping.items())[node.number]
    if node.number is not None and node.size is not None:
        return line.facts.host, list(range(node.number * node.size, (node.number + 1) * node.size))
    return line.facts.host, []


def _shape(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    node = _node(scope, line)
    node.size, node.number = min(int(match["size"]), _MOST_RANKS), int(match["node"])


def _mapping(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    found = {n["host"]: [int(r) for r in re.findall(r"\d{1,7}", n["ranks"])] for n in _NODE.finditer(match["map"])}
    if sum(len(ranks) for ranks in found.values()) <= _MOST_RANKS:
        scope.memory["deepspeed ranks"] = found


def _spawned(scope: FileScope, line: Line, match: re.Match[str]) -> bool | None:
    local = _LOCAL.search(line.text)
    pid = rank_number(match["pid"])
    if local is None or pid is None:
        return False
    number = int(local["lr"])
    _node(scope, line).pids[number] = pid
    host, ranks = _ranks(scope, line)
    if number < len(ranks):
        scope.know(ranks[number], line, host=host, pid=pid, local_rank=number)
    return None


def _ended(scope: FileScope, line: Line, match: re.Match[str]) -> bool | None:
    local = _LOCAL.search(line.text)
    code = signed(match["code"])
    if local is None or code is None:
        return False
    number = int(local["lr"])
    host, ranks = _ranks(scope, line)
    alone = number == 0
    said(
        scope,
        line,
        match.start(),
        "launcher_failure",
        name="failed",
        code=code,
        rank=ranks[0] if alone and ranks else None,
        local_rank=number if alone else None,
        pid=_node(scope, line).pids.get(number) if alone else None,
        host=host,
        text=f"exits with return code = {code} {line.text}"[:TEXT_LIMIT],
    )
    return None


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "deepspeed_shape",
        FORMAT,
        ("num_local_procs=",),
        re.compile(r"nnodes=\d{1,6}, num_local_procs=(?P<size>\d{1,6}), node_rank=(?P<node>\d{1,6})"),
        _shape,
    ),
    Matcher(
        "deepspeed_mapping",
        FORMAT,
        ("global_rank_mapping=",),
        re.compile(r"global_rank_mapping=(?P<map>.{1,65536})"),
        _mapping,
    ),
    Matcher(
        "deepspeed_spawned",
        FORMAT,
        (" spawned with command: ",),
        re.compile(r"process (?P<pid>\d{1,10}) spawned with command: "),
        _spawned,
    ),
    Matcher(
        "deepspeed_ended",
        FORMAT,
        ("exits with return code = ",),
        re.compile(r"exits with return code = (?P<code>-?\d{1,6})"),
        _ended,
    ),
)
