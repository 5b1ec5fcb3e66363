"""Dumps to test with: synthetic ones from our own generator, and what they say according to Python's own unpickler.

Only pickles that this repository holds or has just made are ever unpickled here.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"
SAMPLES = DATA / "flight_recorder"
NCCL_SAMPLES = DATA / "nccl_flight_recorder_16_ranks"
GENERATOR = SAMPLES / "make_nccl_fr.py"


def generate(out: Path, *arguments: str) -> Path:
    """Run the generator of synthetic NCCL dumps; a small job where nothing else is asked for."""
    small = ["--world", "16", "--tp", "2", "--pp", "2", "--entries", "120", "--fault-rank", "5"]
    subprocess.run([sys.executable, str(GENERATOR), str(out), *small, *arguments], check=True, capture_output=True)
    return out


def unpickled(path: Path) -> dict[str, Any]:
    """Return a trusted dump as Python reads it, in the shape of the newest layout."""
    content = json.loads(path.read_text()) if path.suffix == ".json" else pickle.loads(path.read_bytes())
    return {"entries": content, "version": "list"} if isinstance(content, list) else content


def write(path: Path, dump: object, *, protocol: int = 2) -> Path:
    """Write a dump as Python's own pickler does, or as JSON by the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(dump, sort_keys=True))
    else:
        path.write_bytes(pickle.dumps(dump, protocol=protocol))
    return path


def entry(**fields: Any) -> dict[str, Any]:
    """Return an entry of layout 2.10."""
    return {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_760_000_000_000_000_000,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600_000,
        "is_p2p": False,
        **fields,
    }


def group(name: str, desc: str, ranks: list[int]) -> dict[str, Any]:
    """Return a group as pg_config lists it."""
    return {name: {"name": name, "desc": desc, "ranks": str(ranks)}}


def dump(entries: list[dict[str, Any]], config: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """Return a dump of layout 2.10 with records numbered from 0."""
    numbered = [{**e, "record_id": i} for i, e in enumerate(entries)]
    return {
        "version": "2.10",
        "comm_lib_version": "2.27.5",
        "pg_config": group("0", "default_pg", [0, 1, 2, 3]) if config is None else config,
        "pg_status": {},
        "entries": numbered,
        **top,
    }
