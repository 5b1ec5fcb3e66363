"""Publishes the invented trace of `tests/app/page_trace.py` once for every variant of a verdict."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mycroft.app import similar
from mycroft.loaders import pyramid
from mycroft.loaders.catalogue import Catalogue
from tests.app import flow_trace, page_trace
from tests.app.trace_writer import write_rows

VERDICTS = Path(__file__).parents[1] / "data" / "verdicts"
VARIANTS = tuple(sorted(path.stem for path in VERDICTS.glob("*.json")))


def trace_of(variant: str) -> str:
    """Return the id that the trace of a variant is published under."""
    return variant.replace("_", "-")


def publish_flows(data_dir: Path, shapes: Sequence[str] = ("ring", "tree", "pairs")) -> None:
    """Publish a trace with flows of each shape, as `flow-ring`, `flow-tree` and `flow-pairs`."""
    catalogue = Catalogue(data_dir)
    try:
        for shape in shapes:
            with tempfile.TemporaryDirectory(dir=data_dir) as folder:
                file = Path(folder) / "trace.duckdb"
                write_rows(file, flow_trace.rows(shape))
                pyramid.build(file)
                summary = {
                    "status": "hang",
                    "summary": f"a {shape} whose chunks stand",
                    "incident": "f1",
                    "findings": 1,
                }
                catalogue.publish(f"flow-{shape}", file, title=f"flow {shape}", summary=summary)
    finally:
        catalogue.close()


def publish(data_dir: Path) -> None:
    """Publish all variants in a data folder."""
    catalogue = Catalogue(data_dir)
    try:
        for variant in VARIANTS:
            verdict = json.loads((VERDICTS / f"{variant}.json").read_text(encoding="utf-8"))
            findings = verdict["findings"]
            with tempfile.TemporaryDirectory(dir=data_dir) as folder:
                file = Path(folder) / "trace.duckdb"
                page_trace.write(file, verdict)
                catalogue.publish(
                    trace_of(variant),
                    file,
                    title=variant.replace("_", " "),
                    summary={
                        "status": verdict["status"],
                        "summary": verdict["summary"],
                        "incident": findings[0]["id"] if findings else None,
                        "findings": len(findings),
                        "ranks_seen": verdict["evidence"]["ranks_seen"],
                        "ranks_expected": verdict["evidence"]["ranks_expected"],
                        "files": verdict["evidence"]["files"],
                        similar.SUMMARY_KEY: similar.kept_of(verdict),
                    },
                )
    finally:
        catalogue.close()
