"""Makes the packaged incidents of `mycroft demo`, `app/demo_data/*.tar.zst`, from the cases in this folder.

Run it after a case has changed: `python tests/data/make_demo_data.py`. The same cases give the same bytes. `truth.json`
stays out: a demo has no answer sheet, as an incident has none.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import zstandard

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "data" / "flight_recorder"
TARGET = ROOT / "app" / "demo_data"
CASES = ("stuck_dataloader", "sigkill", "pg_order", "size_mismatch", "straggler", "healthy")
LEFT_OUT = frozenset({"truth.json"})
ZSTD_LEVEL = 19


def archive(case: str) -> bytes:
    """Return the tar.zst of a case: names sorted, no times, no owners."""
    buffer = io.BytesIO()
    folder = SOURCES / case
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.name in LEFT_OUT:
                continue
            entry = tarfile.TarInfo(f"{case}/{path.relative_to(folder).as_posix()}")
            entry.size = path.stat().st_size
            entry.mode = 0o644
            with path.open("rb") as stream:
                tar.addfile(entry, stream)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(buffer.getvalue())


def main() -> int:
    """Write all archives."""
    TARGET.mkdir(exist_ok=True)
    for case in CASES:
        content = archive(case)
        (TARGET / f"{case}.tar.zst").write_bytes(content)
        print(f"{case}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
