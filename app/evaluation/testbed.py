"""Runs of the testbed: made one after the other, loaded as a user would load them, diagnosed, compared with the truth.

The answer is that of `mycroft diagnose` over everything that the run left (trace, logs, stacks); the delay is that of
the first report that the trace alone would have given while the job ran.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.evaluation import NOT_LIVE_NS, Answer, Run, Truth, answer_of
from mycroft.analysis.follow import follow
from mycroft.analysis.verdict import RULES_VERSION
from mycroft.app.evaluation.simulated import EvaluationError
from mycroft.app.ingest import NothingReadableError, Stages, prepare
from mycroft.loaders.store import Store, StoreError, open_store
from mycroft.scratch import scratch_folder
from mycroft.tracer.testbed import SCENARIOS, Scenario, TestbedError, run_job
from mycroft.tracer.testbed.faults import FAULT_BY_NAME

TRUTH: Final = "truth.json"
TRUTH_BYTES_MAX: Final = 1 << 20
TRACE: Final = "trace.parquet"
UNFINISHED: Final = ".unfinished"
# Runs that fail one after the other: the machine cannot run the testbed.
FAILED_MOST: Final = 3
COMPONENTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "nic_down": ("nic",),
    "nic_bw": ("nic",),
    "pcie": ("pcie",),
    "gpu_power": ("gpu",),
    "bg_compute": ("host_gpu",),
    "bg_traffic": ("host_nic",),
    "proxy_delay": ("proxy",),
    "killed": ("crash",),
    "sigstop": ("stopped",),
    "exception": ("app", "crash"),
    "absent": ("app",),
    "ckpt_stall": ("app",),
    "recv_nopost": ("recv_proxy",),
    "qp_slow30": ("qp",),
    "link_flap": ("nic",),
    "gpu_hang": ("gpu",),
    "order": ("deadlock",),
    "wrong_size": ("app",),
    "extra_op": ("app",),
}
FAULTS: Final = tuple(COMPONENTS_OF)
# Slowness is told from the iterations before it: 4 to warm up, 18 to learn from, the rest to be sure.
LEARNT_ITERATIONS: Final = 26
SLOW_ITERATIONS: Final = 64
# How long a job may stand: a rank that does not come is waited for as long as a pause of a healthy job may take.
PATIENCE_S: Final = 14.0
PATIENCE_OF_ABSENT_S: Final = 22.0
_ABSENT: Final = ("absent", "ckpt_stall")
# Delays are of one machine's own clock; the first moments of a fault can be earlier than its note.
EARLY_NS: Final = NS_PER_S // 2


def make_runs(
    folder: Path, faults: Sequence[str], *, times: int, first_seed: int, say: Callable[[str], None]
) -> Iterator[Path]:
    """Run every fault so many times, each with another rank and time, and yield the folder of each run.

    A run whose folder holds a truth already is not made again, so that an interrupted series can go on: a run is made
    under another name, and what is found under that name was interrupted and is made anew. A run that fails is left
    out; as many in a row end the series.

    Raises:
        EvaluationError: if a fault does not exist.
        TestbedError: if no scenario can be run.
    """
    unknown = [fault for fault in faults if fault != "none" and fault not in COMPONENTS_OF]
    if unknown:
        raise EvaluationError(f"fault {unknown[0]!r}: expected none or one of {', '.join(COMPONENTS_OF)}")
    failed = 0
    for number in range(times):
        for fault in faults:
            target = folder / f"{fault}-{first_seed + number}"
            if not (target / TRUTH).is_file():
                unfinished = target.with_name(target.name + UNFINISHED)
                shutil.rmtree(unfinished, ignore_errors=True)
                say(f"{target.name}: running")
                try:
                    run_job(scenario_for(fault, first_seed + number), unfinished, say=lambda _text: None)
                except TestbedError as error:
                    failed += 1
                    if failed >= FAILED_MOST:
                        raise
                    say(f"{target.name}: left out: {error}")
                    continue
                unfinished.rename(target)
            failed = 0
            yield target


def scenario_for(fault: str, seed: int) -> Scenario:
    """Return what is run: the named scenario, long enough that its fault can be told."""
    base = replace(SCENARIOS[fault], seed=seed, patience_s=PATIENCE_OF_ABSENT_S if fault in _ABSENT else PATIENCE_S)
    draw = random.Random(seed)  # noqa: S311 - must be repeatable, not secret
    if fault == "none":
        return replace(base, iterations=SLOW_ITERATIONS)
    if FAULT_BY_NAME[fault].status == "slow":
        at = LEARNT_ITERATIONS + draw.randrange(6)
        return replace(base, iterations=SLOW_ITERATIONS, at_iteration=at)
    return base


def read_truth(path: Path) -> Truth:
    """Return the truth of a run.

    Raises:
        EvaluationError: if the file is no truth of the testbed.
    """
    try:
        body: Any = json.loads(path.read_bytes()[:TRUTH_BYTES_MAX])
        cause: Any = body["root_cause"]
        fault = str(body["fault"])
        ranks = tuple(int(r) for r in cause["ranks"])
        hosts = tuple(str(h) for h in cause["hosts"])
        injected = body["injected_ns"]
        at_ns = None if injected is None else int(injected)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"{path}: is no truth of a testbed run ({type(error).__name__}: {error})") from error
    if fault not in ("none", *COMPONENTS_OF):
        raise EvaluationError(f"{path}: fault {fault!r} is none of the testbed's")
    if fault == "none":
        return Truth(fault="none", components=())
    if at_ns is None:
        raise EvaluationError(f"{path}: the fault was never injected; run it again")
    return Truth(
        fault=fault,
        components=COMPONENTS_OF[fault],
        ranks=ranks,
        hosts=hosts,
        on_host=not ranks,
        injected_ns=at_ns,
    )


def score_run(folder: Path) -> Run:
    """Diagnose what one run left, and follow its trace for the delay.

    Raises:
        EvaluationError: if the folder has no readable truth.
    """
    truth = read_truth(folder / TRUTH)
    started = time.process_time()
    with scratch_folder() as scratch:
        try:
            draft = prepare([folder], scratch, Stages(lambda *_: None))
            with open_store(draft.path) as store:
                reports = [answer_of(r.at_ns, r.findings) for r in follow(store)]
                watched = _watched_s(store)
            answers = _answers(truth, reports, draft.verdict.findings)
        except (NothingReadableError, StoreError) as error:
            answers, watched = (Answer(at_ns=0, component="other", words=str(error)),), 0.0
    return Run(
        topology="testbed",
        seed=seed_of(folder),
        rules="ours",
        truth=truth,
        answers=answers,
        watched_s=watched,
        cpu_s=time.process_time() - started,
        version=RULES_VERSION,
    )


def _answers(truth: Truth, reports: Sequence[Answer], findings: Sequence[Any]) -> tuple[Answer, ...]:
    """Return what counts: reports before the fault, then the verdict at the time of the first report after it.

    A verdict of which nothing was reported while the job ran has no delay.
    """
    if truth.injected_ns is None:
        found = list(reports)
        if findings and not found:
            found.append(answer_of(0, findings))
        return tuple(found)
    early = [r for r in reports if r.at_ns < truth.injected_ns - EARLY_NS]
    later = [r for r in reports if r.at_ns >= truth.injected_ns - EARLY_NS]
    if not findings:
        return tuple(early)
    at_ns = max(later[0].at_ns, truth.injected_ns) if later else NOT_LIVE_NS
    return (*early, answer_of(at_ns, findings))


def _watched_s(store: Store) -> float:
    row = store.frame("SELECT (max(epoch_ns(ts)) - min(epoch_ns(ts))) / 1e9 AS s FROM heartbeat")["s"]
    return float(row[0]) if len(row) and row[0] is not None else 0.0


def seed_of(folder: Path) -> int:
    """Return the seed at the end of the name of a run's folder, 0 where there is none."""
    tail = folder.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0
