"""Damages samples of every format at random for a while: `python -m tests.bench.fuzz [CPU_SECONDS] [SEED]`.

The bounded run is `tests/loaders/test_fuzz.py`; this one goes on, with other damage for another seed. Prints rounds,
failures with what repeats them, the longest load and the growth of the peak memory against the largest input.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from mycroft.loaders import LoadReport
from tests.loaders.test_fuzz import MOST, SAMPLES, damaged, load_any
from tests.loaders.text.recorder import evidence


def main() -> int:
    """Fuzz until the CPU time is used up; return the number of failures."""
    budget = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    names = sorted(SAMPLES)
    rounds, failures, longest, taken = 0, 0, (0.0, ""), Counter[str]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.process_time() < budget:
        name = names[rounds % len(names)]
        dice = random.Random(f"{seed} {rounds}")
        for file_name, content in SAMPLES[name].items():
            data = content
            for _ in range(1 + rounds % 3):
                data = damaged(data, dice)
            began = time.process_time()
            try:
                with tempfile.TemporaryDirectory(prefix="mycroft-fuzz-") as folder:
                    (file,) = evidence(Path(folder), {file_name: data})
                    for loader, recorder in load_any(file):
                        taken[loader] += 1
                        if not all(isinstance(report, LoadReport) for report in recorder.reports):
                            raise TypeError(f"{loader} gave no report")
            except Exception:
                failures += 1
                print(f"seed {seed}, round {rounds}, {name}: {traceback.format_exc(limit=-3)}", flush=True)
            longest = max(longest, (time.process_time() - began, name))
        rounds += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    spent = time.process_time()
    print(f"{rounds:,} rounds over {len(names)} samples, seed {seed}, {spent:.0f} CPU s: {failures} failures")
    print(f"longest load {longest[0]:.2f} CPU s ({longest[1]}); inputs up to {MOST >> 10} KiB")
    print(f"peak memory + {grown >> 20} MiB")
    print("by loader: " + ", ".join(f"{loader} {count:,}" for loader, count in taken.most_common()))
    return failures


if __name__ == "__main__":
    sys.exit(main())
