"""The real captures of `tests/data` as cases: their files, their truth, and what other people would make of them.

A case is a mapping from file name to content. `VARIATIONS` change what is handed over without changing what happened:
other names, other containers, less evidence. Each takes a case and a random source and gives a case.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import zstandard

from mycroft.analysis import diagnose
from mycroft.analysis.scoring import CaseScore, score_case
from mycroft.analysis.verdict import Verdict
from mycroft.loaders import load, open_store
from tests.evidence_wrappers import CONTAINERS

DATA: Final = Path(__file__).parent / "data"
FOLDERS: Final = ("flight_recorder", "nccl_flight_recorder_16_ranks")

Files = Mapping[str, bytes]
Variation = Callable[[Files, random.Random], Files]


@dataclass(frozen=True)
class SampleCase:
    """One real capture: what its people had, without the truth."""

    name: str
    files: Files
    truth: Mapping[str, Any]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks that left a dump."""
        return tuple(sorted({rank for name in self.files if (rank := dump_rank(name)) is not None}))


def cases() -> list[SampleCase]:
    """Return all cases, sorted by folder and name."""
    return [_case(path.parent) for folder in FOLDERS for path in sorted((DATA / folder).glob("*/truth.json"))]


def _case(folder: Path) -> SampleCase:
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "truth.json"
    }
    return SampleCase(folder.name, files, json.loads((folder / "truth.json").read_text()))


def dump_rank(name: str) -> int | None:
    """Return the rank of a dump's file, None for any other file."""
    found = re.search(r"(?:trace_rank|_dump)_(\d+)(?:\.json)?$", name)
    return int(found[1]) if found else None


def judge(files: Files, scratch: Path, *, order: random.Random | None = None) -> Verdict:
    """Load the files as a user would and diagnose them; `order`: each file by itself, in random order."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        base = Path(name) / "evidence"
        paths: list[Path] = []
        for relative, content in files.items():
            path = base / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            paths.append(path)
        if order is not None:
            order.shuffle(paths)
        load(paths if order is not None else [base], Path(name) / "trace.duckdb")
        with open_store(Path(name) / "trace.duckdb") as store:
            return diagnose(store)


def score(case: SampleCase, files: Files, scratch: Path, *, order: random.Random | None = None) -> CaseScore:
    """Judge what is left of a case and compare with its truth."""
    return score_case(case.name, judge(files, scratch, order=order), case.truth)


# ---- variations ----------------------------------------------------------------------------------


def without(*folders: str) -> Variation:
    """Leave out files by name or by the folder that they are in."""
    return lambda files, _: {n: c for n, c in files.items() if not set(PurePosixPath(n).parts) & set(folders)}


def renamed(files: Files, rng: random.Random) -> Files:
    """Give every file a name of one's own that keeps the rank; files without a rank keep theirs."""
    words = {folder: f"{rng.choice('abcdefgh')}{rng.randrange(100, 999)}" for folder in sorted(map(_kind, files))}
    made: dict[str, bytes] = {}
    for name, content in files.items():
        number = re.search(r"(\d+)(\.\w+)?$", PurePosixPath(name).name)
        if number is None:
            made[PurePosixPath(name).name] = content
            continue
        made[f"{words[_kind(name)]}/host-7-rank{int(number[1]):03d}.{words[_kind(name)]}"] = content
    return made


def _kind(name: str) -> str:
    path = PurePosixPath(name)
    return f"{path.parent}{path.suffix if not path.suffix[1:].isdigit() else ''}"


def _packed(container: str) -> Variation:
    def pack(files: Files, _: random.Random) -> Files:
        return dict([CONTAINERS[container](dict(files))])

    return pack


def _each(ending: str, pack: Callable[[bytes], bytes]) -> Variation:
    return lambda files, _: {f"{name}.{ending}": pack(content) for name, content in files.items()}


def shuffled(files: Files, rng: random.Random) -> Files:
    """Write the files in another order."""
    names = sorted(files)
    rng.shuffle(names)
    return {name: files[name] for name in names}


class _Plain(pickle.Unpickler):
    """Reads numbers, texts, lists and mappings; anything that would run code is refused."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} in a dump of the test data")


def as_json(files: Files, _: random.Random) -> Files:
    """Leave each rank one dump, as JSON: the one it has, else its pickle translated."""
    if any("fr_json" in PurePosixPath(name).parts for name in files):
        return without("fr")(files, _)
    return {
        f"{name}.json" if dump_rank(name) is not None else name: (
            json.dumps(_Plain(io.BytesIO(content)).load()).encode() if dump_rank(name) is not None else content
        )
        for name, content in files.items()
    }


# What is handed over, in another form: the same answer must come out.
FORMS: Final[dict[str, Variation]] = {
    "shuffled": shuffled,
    "renamed": renamed,
    **{container: _packed(container) for container in ("tar", "tar.gz", "tar.zst", "zip", "tar_in_zip_in_zst")},
    "gz": _each("gz", lambda content: gzip.compress(content, mtime=0)),
    "zst": _each("zst", zstandard.compress),
    "xz": _each("xz", lambda content: lzma.compress(content, preset=0)),
}
# Less of it: the same answer or none.
LESS: Final[dict[str, Variation]] = {
    "dumps as JSON only": as_json,
    "pickles only": without("fr_json"),
    "no topology": without("job.json", "snapshot.json"),
    "no stacks": without("pyspy"),
    "no logs": without("logs"),
    "no stacks, no logs": without("pyspy", "logs"),
    "dumps alone": without("pyspy", "logs", "job.json", "snapshot.json"),
    "no dumps": lambda files, _: {n: c for n, c in files.items() if dump_rank(n) is None},
}


def draws(case: SampleCase, lost: int) -> Iterator[set[int]]:
    """Draw ranks whose dumps are lost, the same for everybody, without end."""
    rng = random.Random(f"{case.name} {lost}")
    while True:
        yield set(rng.sample(case.ranks, lost))


def without_dumps(files: Files, ranks: set[int]) -> Files:
    """Take the dumps of some ranks away, in every format."""
    return {name: content for name, content in files.items() if dump_rank(name) not in ranks}
