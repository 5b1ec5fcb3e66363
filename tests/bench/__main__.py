"""Runs every benchmark in a process of its own: `python -m tests.bench [NAME ...]`, without names all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run the benchmarks; return the number of those that failed."""
    here = Path(__file__).parent
    known = sorted(path.stem for path in here.glob("*.py") if not path.stem.startswith("__"))
    wanted = sys.argv[1:] or known
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    failed = 0
    for name in wanted:
        print(f"== {name} ==", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], cwd=here.parents[1]).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
