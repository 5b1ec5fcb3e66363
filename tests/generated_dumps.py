"""Generated Flight Recorder dumps with a known culprit, in process: `tests/data/flight_recorder/make_nccl_fr.py`.

The generator is a model of an NCCL job written from public headers. It is used as it is: its faults, its truths.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

GENERATOR = Path(__file__).parent / "data" / "flight_recorder" / "make_nccl_fr.py"
FAULTS = (
    "none",
    "missing_rank",
    "missing_dp",
    "killed",
    "device_hang",
    "size_mismatch",
    "type_mismatch",
    "dtype_mismatch",
    "pg_order",
    "extra_op",
    "skipped_op",
    "p2p_mismatch",
    "straggler",
    "slow_group",
    "link_down",
)
# World, tensor and pipeline sizes. The last two are small ones for tests.
LAYOUTS = {"TP8xDP8": (64, 8, 1), "TP8xPP4xDP2": (64, 8, 4), "TP4xDP4": (16, 4, 1), "TP4xPP2xDP2": (16, 4, 2)}


@dataclass(frozen=True)
class Recipe:
    """What to generate; `world`, `tp`, `pp` and small steps, so that a case takes a second."""

    fault: str
    world: int = 64
    tp: int = 8
    pp: int = 1
    fault_rank: int = 21
    seed: int = 0
    timing: bool = False
    batched: bool = False
    frames: bool = True
    as_json: bool = False
    version: str = "2.10"
    entries: int = 300
    microbatches: int = 2
    layers: int = 2
    buckets: int = 2
    step: int | None = None

    @property
    def possible(self) -> bool:
        """Say whether the generator can make it: a send needs a stage before, a batch needs a pipeline."""
        stage = self.fault_rank // self.tp % self.pp
        if self.fault == "p2p_mismatch" and stage == 0:
            return False
        return not (self.batched and (self.pp == 1 or self.version in ("list", "1.4")))


@cache
def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_nccl_fr", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_nccl_fr"] = module
    spec.loader.exec_module(module)
    return module


def generate(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Write the dumps of a recipe into `folder` and return the truth, which is not left there."""
    generator = _generator()
    options = {
        "out": str(folder),
        "world": recipe.world,
        "tp": recipe.tp,
        "pp": recipe.pp,
        "fault": recipe.fault,
        "fault_rank": recipe.fault_rank,
        "step": recipe.step,
        "entries": recipe.entries,
        "microbatches": recipe.microbatches,
        "layers": recipe.layers,
        "buckets": recipe.buckets,
        "slow": 3.0,
        "fr_version": recipe.version,
        "timing": recipe.timing,
        "batched_p2p": recipe.batched,
        "frames": recipe.frames,
        "json": recipe.as_json,
        "prefix": "nccl_trace_rank_",
        "seed": recipe.seed,
    }
    job = generator.Job(type("Arguments", (), options)())
    truth = job.write(job.run())
    (folder / "truth.json").unlink()
    (folder / "job.json").unlink()
    return json.loads(json.dumps(truth))


def recipe(fault: str, layout: str, seed: int, **options: Any) -> Recipe:
    """Return the recipe of one seed: the fault rank is drawn by it, and can do what the fault needs."""
    world, tp, pp = LAYOUTS[layout]
    rng = random.Random(f"{fault} {layout} {seed}")
    ranks = [r for r in range(world) if fault != "p2p_mismatch" or r // tp % pp]
    rank = rng.choice(ranks) if ranks else 0
    return Recipe(fault=fault, world=world, tp=tp, pp=pp, fault_rank=rank, seed=seed, **options)
