"""The same log as other people's machines would hand it over: every outer layer that the loaders undo.

`WRAPPERS` puts something in front of each line or the line into a record; `ENCODINGS` and `LINE_ENDS` change the
bytes; `CONTAINERS` pack files. Each takes content and gives content, so they can be stacked in any order:

    wrapped = WRAPPERS["docker"](WRAPPERS["srun"](log))

All are pure and deterministic. Wrappers that carry a time give every line its own, one second apart.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Final

import zstandard

Wrap = Callable[[str], str]
Recode = Callable[[str], bytes]
Pack = Callable[[dict[str, bytes]], tuple[str, bytes]]

_START_S: Final = 1_767_225_600  # 2026-01-01T00:00:00Z
_DOCKER_PIECE: Final = 16 * 1024


def _lines(text: str) -> Iterator[tuple[int, str]]:
    body = text[:-1] if text.endswith("\n") else text
    yield from enumerate(body.split("\n"))


def _stamp(number: int) -> str:
    seconds = _START_S + number
    days, rest = divmod(seconds - _START_S, 86_400)
    return f"2026-01-{1 + days:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}.{number % 1000:03d}000001Z"


def _prefixed(prefix: str | Callable[[int], str]) -> Wrap:
    def wrap(text: str) -> str:
        made = (f"{prefix if isinstance(prefix, str) else prefix(number)}{line}" for number, line in _lines(text))
        return "\n".join(made) + "\n"

    return wrap


def docker_json(text: str) -> str:
    """Docker's json-file driver: one record a line, long lines in pieces of 16 KiB, `<`, `>` and `&` escaped."""
    out: list[str] = []
    for number, line in _lines(text):
        whole = line + "\n"
        for start in range(0, len(whole), _DOCKER_PIECE):
            body = json.dumps(whole[start : start + _DOCKER_PIECE], ensure_ascii=False)
            body = (
                body.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\x1b", "\\u001b")
            )
            out.append(f'{{"log":{body},"stream":"stderr","time":"{_stamp(number)}"}}')
    return "\n".join(out) + "\n"


def cri(text: str) -> str:
    """The format of containerd and CRI-O, long lines in pieces marked P."""
    out: list[str] = []
    for number, line in _lines(text):
        pieces = [line[start : start + _DOCKER_PIECE] for start in range(0, max(len(line), 1), _DOCKER_PIECE)]
        for at, piece in enumerate(pieces):
            out.append(f"{_stamp(number)} stderr {'F' if at == len(pieces) - 1 else 'P'} {piece}")
    return "\n".join(out) + "\n"


def json_message(text: str) -> str:
    """A collector's record with the text under `message`."""
    return "".join(
        json.dumps({"@timestamp": _stamp(number), "host": "node-17", "message": line}) + "\n"
        for number, line in _lines(text)
    )


def coloured(text: str) -> str:
    """Every line in a colour, as a logger on a terminal writes it."""
    return "".join(f"\x1b[3{1 + number % 6}m{line}\x1b[0m\n" for number, line in _lines(text))


def colour_residue(text: str) -> str:
    """What is left of colours when a viewer has removed the escape byte only."""
    return "".join(f"[36m[{line[1:]}\n" if line.startswith("[") else f"[36m{line}\n" for _, line in _lines(text))


def redrawn(text: str) -> str:
    """A progress bar redrawn with carriage returns in front of every line."""
    return "".join(f"\r 3%|3 | 3/100\r 4%|4 | 4/100\r{line}\n" for _, line in _lines(text))


def hard_wrapped(width: int) -> Wrap:
    """Broken at `width` characters, in the middle of words."""

    def wrap(text: str) -> str:
        out: list[str] = []
        for _, line in _lines(text):
            out += [line[start : start + width] for start in range(0, max(len(line), 1), width)]
        return "\n".join(out) + "\n"

    return wrap


# Prefixes that name no rank: whatever is said by the lines themselves must survive them unchanged.
WRAPPERS: Final[dict[str, Wrap]] = {
    "docker": docker_json,
    "cri": cri,
    "json_message": json_message,
    "kubectl": _prefixed("[pod/llm-worker-3/main] "),
    "stern": _prefixed("llm-worker-3 main "),
    "stern_pipe": _prefixed("llm-worker-3 | "),
    "compose": _prefixed("trainer-1  | "),
    "srun": _prefixed("3: "),
    "srun_wide": _prefixed("  3: "),
    "pdsh": _prefixed("node-17: "),
    "job_stream": _prefixed("run7.node-17.nolog [stderr] "),
    "collector": _prefixed(lambda number: f"{_stamp(number)} "),
    "collector_zone": _prefixed(lambda number: f"{_stamp(number)[:19].replace('T', ' ')}+00:00 | "),
    "ray": _prefixed("(TrainWorker pid=4711, ip=10.0.0.7) "),
    "syslog": _prefixed("Jan  1 00:00:07 node-17 train[4711]: "),
    "coloured": coloured,
    "redrawn": redrawn,
}

LINE_ENDS: Final[dict[str, Wrap]] = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "no_last_newline": lambda text: text.removesuffix("\n"),
}

ENCODINGS: Final[dict[str, Recode]] = {
    "utf-8": lambda text: text.encode(),
    "utf-8-bom": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "utf-16-le-bom": lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
    "utf-16-be-bom": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
}


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


# Each packs files (name -> content) into one file and returns its name and content.
CONTAINERS: Final[dict[str, Pack]] = {
    "tar": lambda files: ("evidence.tar", _tar(files)),
    "tar.gz": lambda files: ("evidence.tar.gz", gzip.compress(_tar(files), mtime=0)),
    "tar.zst": lambda files: ("evidence.tar.zst", zstandard.compress(_tar(files))),
    "tar.xz": lambda files: ("evidence.tar.xz", lzma.compress(_tar(files))),
    "zip": lambda files: ("evidence.zip", _zip(files)),
    "gz_each": lambda files: (
        "evidence.tar",
        _tar({f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}),
    ),
    "tar_in_zip_in_zst": lambda files: (
        "evidence.zip.zst",
        zstandard.compress(_zip({"inner.tar": _tar(files)})),
    ),
    "renamed": lambda files: ("download(3)", gzip.compress(_tar(files), mtime=0)),
}
