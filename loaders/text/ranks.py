"""Which rank a local rank or a task is, learned from the lines of the same file that say both."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mycroft.loaders.text.scope import Row

Part = tuple[int | None, int | None, int]
"""Data-, pipeline- and tensor-parallel rank, as a prefix gives them."""

# So many lines must say both before the rest is taken to follow.
_LEAST: Final = 2


def resolve_ranks(rows: list[Row], seen_parts: Collection[Part] = ()) -> None:
    """Give rows without a rank the one of their local rank or task, where the file shows how these are numbered.

    * local rank (`[default3]:`): global rank minus local rank is the same for all lines of a host.
    * task (`srun -l`): it is the rank if every line that says both says the same. With one launcher per node it is
      the number of the node, and some line will say another rank. Where no line has a global rank (torch up to 2.1),
      ranks inside groups that all equal their task say it too, if there are several.

    * tensor-parallel rank (`TP3]`, without other dimensions): the rank, where these and the ranks that other lines give
      are the numbers from 0 without a gap, and no line contradicts. Where no line gives a rank at all, a server of one
      tensor-parallel group numbers its processes so; with data-parallel attention (`DP1 TP3]`) each number stands
      beside one other number only. `seen_parts` are what the file's prefixes say of these dimensions.

    A launcher's rows speak of other processes and are left alone, but for what Slurm says of a task where tasks are
    ranks. Nothing is guessed from numbers alone.
    """
    _forget_shared_pids(rows)
    offsets: dict[object, set[int]] = {}
    seen: dict[object, int] = {}
    task_is_rank: set[bool] = set()
    task_seen = 0
    inside: dict[int, bool] = {}
    parts: set[int] = set()
    said: set[int] = set()
    for row in rows:
        rank = row["rank"] if row["rank"] is not None else _world_rank(row)
        if row.get("_foreign"):
            continue
        if rank is not None:
            said.add(rank)
        if row.get("_tp") is not None:
            parts.add(row["_tp"] if rank in (None, row["_tp"]) else -1)
        if rank is None:
            if row["_task"] is not None and row.get("comm_rank") is not None:
                inside[row["_task"]] = inside.get(row["_task"], True) and row["_task"] == row["comm_rank"]
            continue
        if row["local_rank"] is not None:
            offsets.setdefault(row["_host"], set()).add(rank - row["local_rank"])
            seen[row["_host"]] = seen.get(row["_host"], 0) + 1
        if row["_task"] is not None:
            task_is_rank.add(row["_task"] == rank)
            task_seen += 1
    if not task_seen and len(inside) >= _LEAST and all(inside.values()):
        task_is_rank, task_seen = {True}, _LEAST
    is_whole = bool(said and parts) and said | parts == set(range(len(said | parts)))
    part = "_part" if not said and _numbers_all(seen_parts) else "_tp"
    is_whole = is_whole or part == "_part"
    for row in rows:
        if row["rank"] is None and row.get("name") == "task" and task_is_rank == {True} and task_seen >= _LEAST:
            # What the launcher says of a task, it says of the rank of that number.
            row["rank"] = int(row["value"]) if row.get("value") is not None else None
        if row["rank"] is not None or row.get("_foreign"):
            continue
        if is_whole and row.get(part) is not None:
            row["rank"] = row[part]
        if row["local_rank"] is not None:
            known = offsets.get(row["_host"], set())
            if len(known) == 1 and seen[row["_host"]] >= _LEAST:
                rank = row["local_rank"] + next(iter(known))
                row["rank"] = rank if rank >= 0 else None
        elif row["_task"] is not None and task_is_rank == {True} and task_seen >= _LEAST:
            row["rank"] = row["_task"]


def _numbers_all(parts: Collection[Part]) -> bool:
    """Say whether the tensor-parallel ranks of a file number its processes: several, none of them in two groups.

    Beside data-parallel ranks they do if they go on through the groups from 0, without a gap.
    """
    numbers = {tp for _dp, _pp, tp in parts}
    if len(numbers) < _LEAST or len(numbers) < len(parts) or any(pp for _dp, pp, _tp in parts):
        return False
    return all(dp is None for dp, _pp, _tp in parts) or numbers == set(range(len(numbers)))


def _forget_shared_pids(rows: list[Row]) -> None:
    """Drop the pid of lines whose prefix names the one process that passes on what several ranks print."""
    ranks: dict[tuple[object, object], set[int]] = {}
    for row in rows:
        if row["kind"] in ("watchdog_timeout", "pg_status") and row.get("pid") is not None:
            rank = row["rank"] if row["rank"] is not None else row.get("comm_rank")
            # A process has another rank in every group: only ranks of the same one are told apart.
            if rank is not None and (row["rank"] is not None or row.get("group_name") in (None, "0")):
                ranks.setdefault((row["_host"], row["pid"]), set()).add(rank)
    shared = {process for process, found in ranks.items() if len(found) > 1}
    for row in rows if shared else ():
        if (row["_host"], row.get("pid")) in shared and not row.get("_foreign"):
            row["pid"] = None


def _world_rank(row: Row) -> int | None:
    return row.get("comm_rank") if row.get("group_name") == "0" else None
