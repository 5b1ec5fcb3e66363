"""A small invented job whose trace shows what the pages must be able to draw.

16 ranks (TP 4, PP 2, DP 2) on four hosts; rank 5 waits in its data loader, rank 11 left no dump, the logs of three
ranks are there. `rows()` gives the rows of each table, to be written by whoever builds a trace.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import zstandard

from tests.app.trace_writer import write_rows

TP, PP, DP = 4, 2, 2
WORLD = TP * PP * DP
STUCK, NO_DUMP = 5, 11
START = datetime(2026, 3, 2, 4, 10, 0, tzinfo=UTC).replace(tzinfo=None)
OPS_DONE = 40

Rows = dict[str, list[dict[str, Any]]]

_WAIT = [
    "wait (torch/distributed/distributed_c10d.py:2847)",
    "all_reduce (torch/distributed/distributed_c10d.py:2851)",
    "reduce_gradients (train/optimizer.py:118)",
    "step (train/loop.py:74)",
    "main (train/__main__.py:31)",
]
_LOADER = [
    "wait (threading.py:331)",
    "get (queue.py:180)",
    "_try_get_data (torch/utils/data/dataloader.py:1251)",
    "__next__ (torch/utils/data/dataloader.py:708)",
    "next_batch (train/data.py:52)",
    "step (train/loop.py:61)",
    "main (train/__main__.py:31)",
]
_RECV = [
    "recv (torch/distributed/distributed_c10d.py:2202)",
    "recv_forward (train/pipeline.py:88)",
    "step (train/loop.py:69)",
    "main (train/__main__.py:31)",
]


def place(rank: int) -> tuple[int, int, int]:
    """Return (dp, pp, tp) of a rank."""
    return rank // (TP * PP), rank // TP % PP, rank % TP


def host_of(rank: int) -> int:
    """Return the host of a rank: four GPUs each."""
    return rank // 4


def _stack_id(frames: list[str]) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(frames).encode()).digest()[:7], "big")


def _groups() -> list[tuple[str, str, list[int]]]:
    ranks = range(WORLD)
    groups = [("world", "default_pg", list(ranks))]
    for dp in range(DP):
        for pp in range(PP):
            members = [r for r in ranks if place(r)[:2] == (dp, pp)]
            groups.append(("tp", "TENSOR_MODEL_PARALLEL_GROUP", members))
    for pp in range(PP):
        for tp in range(TP):
            groups.append(("dp", "DATA_PARALLEL_GROUP", [r for r in ranks if place(r)[1:] == (pp, tp)]))
    for dp in range(DP):
        for tp in range(TP):
            groups.append(
                ("pp", "PIPELINE_MODEL_PARALLEL_GROUP", [r for r in ranks if (place(r)[0], place(r)[2]) == (dp, tp)])
            )
    return groups


def _text_file(file_id: int, text: str) -> dict[str, Any]:
    text = text.removesuffix("\n")
    lines = text.count("\n") + 1
    return {
        "file_id": file_id,
        "first_line": 1,
        "lines": lines,
        "size_bytes": len(text.encode()),
        "content": zstandard.compress(text.encode()),
    }


def _ops(comm: int, role: str, desc: str, members: list[int]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    kind = {"world": "barrier", "tp": "all_reduce", "dp": "reduce_scatter", "pp": "send"}[role]
    if role == "pp":
        return _sends(comm, members)
    for seq in range(1, OPS_DONE + 2):
        begin = START + timedelta(milliseconds=1000 * seq + 40 * comm)
        last = seq == OPS_DONE + 1
        if last and role == "world":
            continue
        for rank in members:
            if rank == NO_DUMP or (last and rank == STUCK):
                continue
            # Rank 2 is a little late each time; the numbers are a fixed pattern, not random.
            late = (rank * 7 + seq * 13) % 11 * 0.1 + (6.5 if rank == 2 else 0.0)
            enqueued = begin + timedelta(milliseconds=late)
            waits = last and STUCK in members
            made.append(
                {
                    "rank": rank,
                    "comm_id": comm,
                    "op_seq": seq,
                    "op_kind": kind,
                    "op_name": kind,
                    "start_ts": enqueued,
                    "enq_ts": enqueued,
                    "seen_start_ts": enqueued,
                    "seen_end_ts": None if waits else begin + timedelta(milliseconds=30),
                    "dur_ns": None if waits else int((30 - late) * 1e6),
                    "state": "started" if waits else "completed",
                    "retired": not waits,
                    "is_p2p": False,
                    "coalesced": False,
                    "bytes": 33_554_432,
                    "in_numel": 16_777_216,
                    "out_numel": 16_777_216 if rank != 3 or seq != 17 else 8_388_608,
                    "in_sizes": json.dumps([[4096, 4096]]),
                    "out_sizes": json.dumps([[4096, 4096]] if rank != 3 or seq != 17 else [[2048, 4096]]),
                    "dtype": "BFloat16",
                    "out_dtype": "BFloat16",
                    "timeout_ms": 600_000,
                    "stack_id": _stack_id(_WAIT),
                    "record_id": seq * 100 + comm,
                    "op_id": seq,
                    "file_id": rank,
                    "line": seq * 100 + comm,
                }
            )
    return made


def _sends(comm: int, members: list[int]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    first, second = members
    for seq in range(1, OPS_DONE + 1):
        for rank, peer, kind in ((first, second, "send"), (second, first, "recv")):
            if rank == NO_DUMP:
                continue
            begin = START + timedelta(milliseconds=1000 * seq + 500 + comm)
            made.append(
                {
                    "rank": rank,
                    "comm_id": comm,
                    "op_seq": seq,
                    "op_kind": kind,
                    "op_name": kind,
                    "start_ts": begin,
                    "enq_ts": begin,
                    "dur_ns": 4_000_000,
                    "state": "completed",
                    "is_p2p": True,
                    "peer": peer,
                    "pair_seq": seq - 1,
                    "coalesced": False,
                    "bytes": 8_388_608,
                    "in_numel": 4_194_304,
                    "in_sizes": json.dumps([[1, 4096, 1024]]),
                    "dtype": "BFloat16",
                    "stack_id": _stack_id(_RECV),
                    "record_id": seq * 100 + comm,
                    "file_id": rank,
                    "line": seq * 100 + comm,
                }
            )
    return made


def rows() -> Rows:
    """Return the rows of every table of the trace."""
    made: Rows = {
        "jobs": [{"job_id": 0, "name": "pretrain-0417", "started": START, "world_size": WORLD, "source": "topology"}],
        "hosts": [{"host_id": n, "name": f"hx-a{n + 1:02}", "group": f"rack-{n // 2}"} for n in range(WORLD // 4)],
        "ranks": [
            {
                "job_id": 0,
                "rank": rank,
                "host_id": host_of(rank) if rank != NO_DUMP else None,
                "local_rank": rank % 4 if rank != NO_DUMP else None,
                "gpu": f"0000:{rank % 4 + 1:02x}:00.0" if rank != NO_DUMP else None,
                "pid": 7000 + rank if rank != NO_DUMP else None,
                "dp": place(rank)[0],
                "pp": place(rank)[1],
                "tp": place(rank)[2],
            }
            for rank in range(WORLD)
        ],
        "communicators": [],
        "members": [],
        "coll_ops": [],
        "group_status": [],
        "rank_dumps": [],
        "files": [],
        "file_blocks": [],
        "events": [],
        "stacks": [],
        "stack_texts": [{"stack_id": _stack_id(frames), "frames": frames} for frames in (_WAIT, _LOADER, _RECV)],
    }
    for comm, (role, desc, members) in enumerate(_groups()):
        digest = hashlib.sha256(f"{role}{members}".encode()).hexdigest()[:4]
        made["communicators"].append(
            {
                "comm_id": comm,
                "job_id": 0,
                "key": f"{role}-{digest}",
                "name": str(comm),
                "desc": desc,
                "kind": role,
                "backend": "nccl",
                "size": len(members),
                "seen_size": len([rank for rank in members if rank != NO_DUMP]),
            }
        )
        made["members"] += [
            {"comm_id": comm, "rank": rank, "comm_rank": n, "source": "topology"} for n, rank in enumerate(members)
        ]
        made["coll_ops"] += _ops(comm, role, desc, members)
        made["group_status"] += [
            {
                "rank": rank,
                "comm_id": comm,
                "last_enqueued": OPS_DONE + (0 if rank == STUCK or role == "pp" else 1),
                "last_started": OPS_DONE,
                "last_completed": OPS_DONE + (0 if STUCK in members or role == "pp" else 1),
                "file_id": rank,
                "line": comm,
            }
            for rank in members
            if rank != NO_DUMP
        ]
    for rank in range(WORLD):
        if rank == NO_DUMP:
            continue
        taken = [op for op in made["coll_ops"] if op["rank"] == rank]
        made["files"].append(_file(rank, "flight_recorder", f"dumps/nccl_trace_rank_{rank}", len(taken), rank))
        made["rank_dumps"].append(
            {
                "rank": rank,
                "file_id": rank,
                "kind": "flight_recorder",
                "version": "2.9",
                "backend": "nccl",
                "lib_version": "2.27.3",
                "entries": len(taken),
                "first_record": 0,
                "last_record": 4100,
                "first_ts": START,
                "last_ts": START + timedelta(seconds=41),
                "has_events": True,
                "has_timing": False,
                "only_active": False,
            }
        )
        frames = _LOADER if rank == STUCK else _RECV if rank in (4, 6, 7) else _WAIT
        made["stacks"].append(
            {
                "ts": START + timedelta(minutes=11),
                "rank": rank,
                "pid": 7000 + rank,
                "thread": "MainThread",
                "is_main": True,
                "state": "idle",
                "stack_id": _stack_id(frames),
                "tool": "py_spy",
                "file_id": rank,
                "line": 1,
            }
        )
    _logs(made)
    return made


def _file(file_id: int, loader: str | None, path: str, taken: int, rank: int | None, **more: Any) -> dict[str, Any]:
    return {
        "file_id": file_id,
        "job_id": 0,
        "loader": loader,
        "path": path,
        "size_bytes": 18_000 + file_id,
        "sha256": hashlib.sha256(path.encode()).hexdigest(),
        "rows": taken,
        "dropped": 0,
        "rank": rank,
        **more,
    }


def _logs(made: Rows) -> None:
    for n, rank in enumerate((0, STUCK, 9)):
        file_id = WORLD + n
        lines = [
            f"[rank{rank}] 2026-03-02 04:10:{s:02},000 INFO train step {s} loss {7.1 - s / 100:.3f}" for s in range(41)
        ]
        at = len(lines) + 1
        if rank == STUCK:
            lines.append(f"[rank{rank}] 2026-03-02 04:10:41,002 WARNING data waiting for shard /data/shards/0417.tar")
        else:
            lines.append(
                f"[rank{rank}]:[E302 04:21:09.120 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
                "operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=16777216, NumelOut=16777216, "
                "Timeout(ms)=600000) ran for 600012 milliseconds before timing out. <b>not markup</b>"
            )
        text = "\n".join(lines) + "\n"
        made["files"].append(_file(file_id, "text_log", f"logs/rank{rank}/stderr.log", len(lines), rank))
        made["file_blocks"].append(_text_file(file_id, text))
        for number, line in enumerate(lines, start=1):
            made["events"].append(
                {
                    "ts": START + timedelta(seconds=number),
                    "time_quality": "exact",
                    "host_id": host_of(rank),
                    "rank": rank,
                    "level": "error" if number == at and rank != STUCK else "info",
                    "kind": "watchdog_timeout" if number == at and rank != STUCK else "step",
                    "source": "text_log",
                    "text": line,
                    "file_id": file_id,
                    "line": number,
                }
            )
    last = WORLD + 3
    made["files"].append(
        _file(last, None, "core.7741", 0, None, problems="not a format that is read here", size_bytes=812_331_008)
    )
    made["files"].append(
        _file(
            last + 1,
            "flight_recorder",
            f"dumps/nccl_trace_rank_{NO_DUMP}",
            0,
            NO_DUMP,
            dropped=1,
            problems="ends after 1,204 bytes, inside a string of 80 bytes: the process was killed while it wrote",
        )
    )


def write(path: Path, verdict: dict[str, Any] | None, *, more: Rows | None = None) -> None:
    """Write the trace to a new file, with `verdict` as what the analysis said of it."""
    made = rows()
    for table, extra in (more or {}).items():
        made.setdefault(table, []).extend(extra)
    if verdict is not None:
        made["diagnoses"] = [{"diag_id": 0, "revision": 1, "verdict": json.dumps(verdict), "rules_version": "1"}]
    write_rows(path, made)
