"""What the path of a log says: the rank, the local rank, the host it is of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# rank_3.log, rank-3/stderr.log, rank=3, global_rank3.txt, 1/rank.03/stdout (Open MPI)
_RANK: Final = re.compile(
    r"(?<![a-z])(?:(?P<local>local)[._-]?)?(?:global[._-]?)?rank[._=-]?0*(?P<n>\d{1,7})(?!\d)", re.IGNORECASE
)
# <run>/attempt_0/3/stderr.log (torchrun --log-dir): the number is the local rank
_ATTEMPT: Final = re.compile(
    r"(?P<node>.*?)(?P<attempt>attempt_\d+)[/!](?P<lr>\d{1,4})[/!](?:stdout|stderr|error)[^/!]*$"
)
# a folder or a part of a name that is a machine
_HOST: Final = re.compile(
    r"(?:^|[/!])(?:host[=_-])?(?P<host>(?:[a-z][a-z0-9]*-)*(?:node|host|gpu|worker|compute|dgx|hgx|ip|trn|gn|cn)[\w-]*?\d[\w-]*)(?=[/!])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What a path says; `node` is the part before torchrun's `attempt_<n>`, equal for the ranks of one node."""

    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    node: str | None = None


def path_facts(name: str) -> PathFacts:
    """Read the logical path of a file."""
    rank: int | None = None
    local: int | None = None
    for match in _RANK.finditer(name):
        if match["local"]:
            local = int(match["n"])
        else:
            rank = int(match["n"])
    node: str | None = None
    attempt = _ATTEMPT.match(name)
    if attempt is not None:
        local = int(attempt["lr"])
        node = attempt["node"]
    hosts = _HOST.findall(name)
    return PathFacts(rank=rank, local_rank=local, host=hosts[-1] if hosts else None, node=node)
