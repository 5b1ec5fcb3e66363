"""What a launcher knows of a job: a JSON object with the world size, parallel sizes or the groups with their ranks.

Used when present and never needed. Explicit groups are believed; sizes alone give only coordinates, and only where
the file says in which order the ranks run, since every framework has its own order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from mycroft.loaders import json_values as jv
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport

MAX_BYTES: Final = 256 << 20
MAX_WORLD: Final = 4_000_000
_AXES: Final = ("tp", "cp", "pp", "dp", "ep")
_SIZE_NAMES: Final = {
    axis: (
        axis,
        f"{axis}_size",
        f"{word}_parallel_size",
        f"{word}_model_parallel_size",
        f"{axis}_degree",
    )
    for axis, word in zip(_AXES, ("tensor", "context", "pipeline", "data", "expert"), strict=True)
}
_WORLD: Final = re.compile(rb'"(?:world_size|nranks|num_ranks)"\s*:')
_LAYOUT: Final = re.compile(
    rb'"(?:groups|process_groups|tp|pp|dp|(?:tensor|pipeline|data)(?:_model)?_parallel_size|(?:tp|pp|dp)_(?:size|degree))"\s*:'
)


class TopologyLoader:
    """Reads a launcher's description of the job."""

    name = "topology"
    title = "job description of a launcher (JSON: world size, parallel sizes, groups)"
    recognised_by = "a JSON object with world_size and groups or parallel sizes"
    yields = "size of the job, communicators with their members, coordinates of ranks"

    def sniff(self, file: EvidenceFile) -> bool:
        """A JSON object that names a world size and a layout, and holds no operations."""
        head = file.head
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or file.size_bytes > MAX_BYTES:
            return False
        if b'"profiling_name"' in head or b'"pg_config"' in head or b'"traceEvents"' in head:
            return False
        return bool(_WORLD.search(head) and _LAYOUT.search(head))

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read each file; where two disagree, both are kept and the first by name gives the size."""
        return [_load_one(file, context) for file in files]


def _load_one(file: EvidenceFile, context: LoadContext) -> LoadReport:
    report = LoadReport(file.file_id, TopologyLoader.name)
    try:
        job = jv.object_of(file.path.read_bytes())
    except (OSError, ValueError) as error:
        report.problems.append(str(error))
        return report
    world = next((size for key in ("world_size", "nranks", "num_ranks") if (size := _size(job.get(key)))), None)
    name = job.get("job_id", job.get("name"))
    context.job(world_size=world, name=str(name)[:200] if isinstance(name, str | int) else None, source=file.name)
    report.rows += 1
    for group in _groups(job):
        _tell_group(group, context, report)
    _tell_coordinates(job, world, context, report)
    return report


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_WORLD else None


def _groups(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the groups: a list of objects, or an object from name to object or list of ranks."""
    found = job.get("groups", job.get("process_groups"))
    if isinstance(found, list):
        return [cast("dict[str, Any]", g) for g in cast("list[object]", found) if isinstance(g, dict)]
    if isinstance(found, dict):
        named = cast("dict[str, Any]", found)
        return [
            {"name": name, **cast("dict[str, Any]", group)}
            if isinstance(group, dict)
            else {"name": name, "ranks": group}
            for name, group in named.items()
        ]
    return []


def _tell_group(group: dict[str, Any], context: LoadContext, report: LoadReport) -> None:
    name, desc, ranks = group.get("name", group.get("pg_name")), group.get("desc"), group.get("ranks")
    members = cast("list[object]", ranks) if isinstance(ranks, list) else []
    good = [r for r in members if isinstance(r, int) and not isinstance(r, bool) and 0 <= r < MAX_WORLD]
    if not isinstance(name, str | int) or not good or len(good) != len(members) or len(set(good)) != len(good):
        report.drop("group without name, or with ranks that are none")
        return
    context.comm(str(name), ranks=good, desc=desc if isinstance(desc, str) else None, source="topology")
    report.rows += 1


def _tell_coordinates(job: dict[str, Any], world: int | None, context: LoadContext, report: LoadReport) -> None:
    """Give each rank its coordinates where the file says in which order they run, fastest first."""
    order = job.get("rank_order", job.get("order"))
    sizes = {axis: size for axis in _AXES for key in _SIZE_NAMES[axis] if (size := _size(job.get(key))) is not None}
    if not isinstance(order, str) or world is None:
        return
    axes = [axis for axis in re.findall(r"[a-z]+", order.lower().split("(")[0]) if axis in _AXES]
    if not axes or len(set(axes)) != len(axes) or math.prod(sizes.get(axis, 1) for axis in axes) != world:
        report.problems.append(f"rank_order {order[:60]!r} and the parallel sizes do not make up the world size")
        return
    per_host = _size(job.get("ranks_per_node", job.get("gpus_per_node")))
    for rank in range(world):
        rest = rank
        facts: dict[str, int] = {}
        for axis in axes:
            rest, facts[axis] = divmod(rest, sizes.get(axis, 1))
        if per_host:
            facts["local_rank"] = rank % per_host
        facts.pop("cp", None)
        context.rank(rank, **facts)
