"""Incidents as logs with the truth beside them, and what may be done to one without changing who is to blame.

`changes()` names every outer layer and container; `changed` applies one to the files of a case. `without` takes
one file away. Files of archives are taken as files, so that each can be wrapped or lost alone.
"""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import zstandard

from mycroft.analysis.verdict import Verdict
from tests.evidence_wrappers import CONTAINERS, ENCODINGS, LINE_ENDS, WRAPPERS, colour_residue

DATA: Final = Path(__file__).parent / "data"
RECORDED: Final = DATA / "logs"
WRITTEN: Final = DATA / "log_cases"
"""Written after the formats, not recorded: other versions, wrappers and launchers than the samples."""

Files = dict[str, bytes]

# A stack as a cluster makes it: torch's own prefix, the launcher, a stamp, the container runtime.
_STACKS: Final = {
    "srun+collector": ("srun", "collector"),
    "coloured+ray": ("coloured", "ray"),
    "compose+docker": ("compose", "docker"),
    "srun+kubectl+cri": ("srun", "kubectl", "cri"),
    "redrawn+stern": ("redrawn", "stern"),
}


def folders() -> dict[str, Path]:
    """Return the folder of every case by its name."""
    found = [*RECORDED.iterdir(), *(WRITTEN.iterdir() if WRITTEN.is_dir() else ())]
    return {path.name: path for path in sorted(found) if (path / "truth.json").is_file()}


def truth_of(case: str) -> dict[str, Any]:
    """Return what is known of a case."""
    return json.loads((folders()[case] / "truth.json").read_text())


def files_of(case: str) -> Files:
    """Return the files of a case, those of archives unpacked."""
    root = folders()[case]
    found: Files = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != "truth.json":
            found |= _unpacked(str(path.relative_to(root)), path.read_bytes())
    return found


def _unpacked(name: str, content: bytes) -> Files:
    if name.endswith(".zst"):
        content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
    if name.endswith((".tar.gz", ".tar.zst")):
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            streams = {member.name: tar.extractfile(member) for member in tar}
            return {f"{name}.d/{inner}": stream.read() for inner, stream in streams.items() if stream is not None}
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            return {f"{name}.d/{n}": packed.read(n) for n in packed.namelist() if not n.endswith("/")}
    return {name: content}


def changes() -> tuple[str, ...]:
    """Return the name of every change: wrappers, stacks of them, encodings, line ends, containers."""
    return (*WRAPPERS, "colour_residue", *_STACKS, *ENCODINGS, *LINE_ENDS, *CONTAINERS)


def changed(files: Mapping[str, bytes], change: str) -> Files:
    """Return the files with one change made to each, or packed into one. A profiler's trace is printed by nobody."""
    if change in CONTAINERS:
        name, content = CONTAINERS[change](dict(files))
        return {name: content}
    traces = {name: content for name, content in files.items() if name.endswith(".trace.json")}
    files = {name: content for name, content in files.items() if name not in traces}
    if change in ENCODINGS:
        return traces | {name: ENCODINGS[change](content.decode()) for name, content in files.items()}
    wraps = [
        colour_residue if part == "colour_residue" else {**WRAPPERS, **LINE_ENDS}[part]
        for part in _STACKS.get(change, (change,))
    ]
    found: Files = traces
    for name, content in files.items():
        text = content.decode()
        for wrap in wraps:
            text = wrap(text)
        found[name] = text.encode()
    return found


def without(files: Mapping[str, bytes]) -> Iterator[tuple[str, Files]]:
    """Give each file's name with all files but it."""
    if len(files) > 1:
        for lost in sorted(files):
            yield lost, {name: content for name, content in files.items() if name != lost}


def same_place(verdict: Verdict, truth: Mapping[str, Any]) -> bool:
    """Say whether a verdict names the truth's host where the file that would name the rank is lost, and asks for it.

    It may name ranks of that host as candidates, the truth's among them, and not surely.
    """
    first = verdict.findings[0] if verdict.findings else None
    if first is None or not verdict.unknown:
        return False
    cause = first.root_cause
    tied = cause.one_of and first.confidence != "high" and set(truth["root_cause"]["ranks"]) <= set(cause.ranks)
    if cause.one_of != bool(tied) or (cause.ranks and not tied):
        return False
    return bool(cause.hosts) and list(cause.hosts) == truth["root_cause"]["hosts"]


def together(one: str, two: str, *, flat: bool) -> Files:
    """Return the files of two cases in one folder: in a sub-folder each, or side by side under longer names."""
    found: Files = {}
    for case in (one, two):
        for name, content in files_of(case).items():
            found[f"{case}-{name.replace('/', '-')}" if flat else f"{case}/{name}"] = content
    return found
