"""Makes segments of the log: in this process, or in one of its own beside the collector.

A fleet's rows take longer to sort and pack than its batches take to acknowledge, and while Python works on them in the
process that answers, every answer waits. The helper is told one thing at a time, a line of JSON on its standard input,
and says what it made in another; it reads the manifest like everybody else and writes no version of it. What it has
written counts once the collector has published it, so that it may die at any moment.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from mycroft.errors import MycroftError
from mycroft.loaders.collector.log import log_path, read_log
from mycroft.loaders.collector.manifest import Segment, read_manifest
from mycroft.loaders.collector.segments import Drained, drain, put_together, read_segments, write_segment

LOG: Final = logging.getLogger("mycroft.collector")


class MakerError(MycroftError):
    """Segments could not be made: says why."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of the log became. `seqs` and `positions` are those of the manifest and of the file together."""

    segments: list[Segment]
    seqs: dict[str, tuple[int, float]]
    positions: dict[str, tuple[int, float]]
    unreadable: list[str] = []
    repeated_rows: int = 0


class Maker(Protocol):
    """Who makes segments."""

    def of_log(self, number: int) -> Made:
        """Turn one closed file of the log into segments that no manifest lists yet."""
        ...

    def of_segments(self, segments: list[Segment]) -> Segment:
        """Put segments of one table together."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class LocalMaker:
    """Makes them here."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of_log(self, number: int) -> Made:
        """Turn one closed file of the log into segments that no manifest lists yet.

        Raises:
            OSError: if the disk does not give or take them.
        """
        manifest = read_manifest(self._root / "manifest")
        bodies = (body for body, _ in read_log(log_path(self._root / "log", number)))
        found = drain_most(bodies, seqs=manifest.seqs, positions=manifest.positions)
        made: list[Segment] = []
        try:
            # One table after the other is given up: a file of the log may hold a million rows.
            for name in sorted(found.tables):
                made.append(write_segment(self._root, name, found.tables.pop(name)))
        except OSError:
            self._remove(made)
            raise
        return Made(
            segments=made,
            seqs=found.seqs,
            positions=found.positions,
            unreadable=found.unreadable,
            repeated_rows=found.repeated_rows,
        )

    def of_segments(self, segments: list[Segment]) -> Segment:
        """Put segments of one table together.

        Raises:
            OSError: if the disk does not give or take them.
            pa.ArrowException: if one is damaged.
        """
        name = segments[0].table
        rows = put_together(name, read_segments(self._root, segments))
        return write_segment(self._root, name, rows, level=1, made=segments[0].made)

    def _remove(self, made: list[Segment]) -> None:
        for segment in made:
            with contextlib.suppress(OSError):
                (self._root / segment.path).unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing to end."""


def drain_most(
    bodies: Iterable[bytes], *, seqs: Mapping[str, tuple[int, float]], positions: Mapping[str, tuple[int, float]]
) -> Drained:
    """Do as `drain`; a batch with which that fails is left out, so that it does not hold up all that come after it."""
    known = list(bodies)
    try:
        return drain(known, seqs=seqs, positions=positions)
    except Exception:
        LOG.exception("batches cannot be put together; they are looked at one by one")
    good: list[bytes] = []
    bad: list[str] = []
    for body in known:
        try:
            drain([body], seqs={}, positions={})
        except Exception as error:
            bad.append(f"a batch that breaks the rules ({type(error).__name__}: {error})"[:300])
        else:
            good.append(body)
    found = drain(good, seqs=seqs, positions=positions)
    found.unreadable += bad
    return found


class Order(msgspec.Struct, kw_only=True):
    """What a helper is told: the number of a file of the log, or segments to be put together."""

    log: int | None = None
    segments: list[Segment] = []


class Reply(msgspec.Struct, kw_only=True):
    """What it made of it. `errno` is not 0 where the disk was the reason."""

    made: Made | None = None
    segment: Segment | None = None
    error: str = ""
    errno: int = 0


class HelperMaker:
    """Has them made by a process of its own, which is started when it is needed and again where it has died."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def of_log(self, number: int) -> Made:
        """Turn one closed file of the log into segments that no manifest lists yet.

        Raises:
            OSError: if the disk does not give or take them.
            MakerError: if the helper died over it.
        """
        reply = self._ask(Order(log=number))
        assert reply.made is not None
        return reply.made

    def of_segments(self, segments: list[Segment]) -> Segment:
        """Put segments of one table together.

        Raises:
            OSError: if the disk does not give or take them.
            MakerError: if the helper died over it, or one is damaged.
        """
        reply = self._ask(Order(segments=segments))
        assert reply.segment is not None
        return reply.segment

    def _ask(self, order: Order) -> Reply:
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                self._end()
                process = self._process = self._start()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(msgspec.json.encode(order) + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = b""
            if not line:
                self._end()
                raise MakerError(f"the process that makes segments ended with {process.returncode}; it is started anew")
        reply = msgspec.json.decode(line, type=Reply)
        if reply.errno:
            raise OSError(reply.errno, reply.error)
        if reply.error:
            raise MakerError(reply.error)
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "mycroft.loaders.collector.helper", str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()

    @property
    def pid(self) -> int | None:
        """The helper, None: there is none at the moment."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End the helper; it ends by itself where its input ends."""
        with self._lock:
            self._end()
