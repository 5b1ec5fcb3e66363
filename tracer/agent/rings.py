"""Follows every trace file of a host: what is new since the last turn, in bounded pieces. Only reads.

A file is followed by what wrote it (host, boot, pid, start, random salt), not by its name. After its process has ended
and everything was read, its last state is told once more and then no more.
"""

from __future__ import annotations

import hashlib
import logging
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mycroft.tracer._core import TraceError
from mycroft.tracer.agent.batch import MOST_RINGS, Gap, RingStatus
from mycroft.tracer.process_state import in_container, local_pid, process_state, same_boot
from mycroft.tracer.trace import MOST_NUMBER, Communicator, Process, TraceFile

LOG: Final = logging.getLogger("mycroft.agent")
SUFFIX: Final = ".ring"
# Names by which launchers call a job, in the environment of its processes.
_JOB_VARIABLES: Final = (b"MYCROFT_JOB", b"SLURM_JOB_ID", b"TORCHELASTIC_RUN_ID")
_MOST_ENVIRONMENT: Final = 1 << 20
_SHORT_JOB: Final = 100
# Other hosts that are named in the log, where many share a folder.
_MOST_TOLD: Final = 5


def process_key(process: Process) -> str:
    """Return the name of a process for ever: the same in every batch, of every agent."""
    parts = (process.host, process.boot_id, process.pid, process.proc_start, process.started_ns, process.salt)
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def job_of(process: Process) -> str:
    """Return what the launcher calls the job of a process of this machine; empty: it says nothing, or not to us."""
    if (number := local_pid(process)) is None:
        return ""
    try:
        with Path(f"/proc/{number}/environ").open("rb") as source:
            found = dict(part.split(b"=", 1) for part in source.read(_MOST_ENVIRONMENT).split(b"\0") if b"=" in part)
    except (OSError, ValueError):
        return ""
    for name in _JOB_VARIABLES:
        # What torchrun calls a job that was given no name.
        if (value := found.get(name)) and value != b"none":
            text = value.decode("utf-8", "replace")[:_SHORT_JOB]
            return text if text.isprintable() else ""
    return ""


@dataclass(frozen=True, slots=True)
class LogFile:
    """What one of a process' outputs went to while it lived; device and inode tell whether the path still means it."""

    name: str
    path: Path
    device: int
    inode: int


def logs_of(process: Process) -> tuple[LogFile, ...]:
    """Return the files that standard error and output of a process of this machine go to; others are left out."""
    if (number := local_pid(process)) is None:
        return ()
    found: list[LogFile] = []
    for descriptor, name in ((2, "stderr"), (1, "stdout")):
        link = Path(f"/proc/{number}/fd/{descriptor}")
        try:
            about = link.stat()
            if stat.S_ISREG(about.st_mode):
                found.append(LogFile(name, link.readlink(), about.st_dev, about.st_ino))
        except OSError:
            continue
    return tuple(found)


@dataclass
class Ring:
    """One trace file that is being followed."""

    path: Path
    inode: int
    file: TraceFile
    key: str
    process: Process
    job: str
    position: int
    logs: tuple[LogFile, ...] = ()
    losses: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    ended: bool = False
    """Its process is gone and everything was told."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn found: statuses of all rings, record batches by kind with the index of their ring, and gaps.

    `more`: not everything fitted; go on at once.
    """

    rings: tuple[RingStatus, ...]
    parts: Mapping[str, list[tuple[int, Any]]]
    gaps: tuple[Gap, ...]
    rows: int
    more: bool


class Rings:
    """The trace files of the folders of one host."""

    def __init__(
        self,
        folders: tuple[Path, ...],
        *,
        host: str,
        job: str = "",
        cursors: Mapping[str, int] | None = None,
        history: int = 20_000,
        most: int = 32_768,
    ) -> None:
        """Follow what lies in `folders` and was written on `host`.

        Args:
            folders: where trace files lie.
            host: name of this host; files of other hosts, as on a shared file system, are left to their agents.
            job: name of all jobs here; empty: what their launchers say.
            cursors: positions up to which an earlier agent has told, by `process_key`.
            history: records from before the first look that are told, per ring.
            most: records of one turn, of all rings.
        """
        self._folders = folders
        self._host = host
        self._job = job
        self._cursors = dict(cursors or {})
        self._history = history
        self._most = most
        self._rings: dict[Path, Ring] = {}
        self._others: dict[Path, int] = {}
        """Files of other hosts, by what they were when they were looked at: they need not be opened again."""
        self._said: dict[Path, int] = {}
        """Files that cannot be read, which was said."""
        self._hosts: set[str] = set()
        self._first = 0
        self._pending: dict[str, int] = {}
        self._ending: set[str] = set()
        self._gaps: list[Gap] = []

    @property
    def live(self) -> list[Ring]:
        """Rings that are followed, in a steady order."""
        return list(self._rings.values())

    def turn(self) -> Turn:
        """Read what is new. It counts as told only after `told`; else the next turn reads it again."""
        self._look()
        statuses: list[RingStatus] = []
        parts: dict[str, list[tuple[int, Any]]] = {}
        self._pending = {}
        self._ending = set()
        left = self._most
        more = False
        rings = [ring for ring in self._rings.values() if not ring.ended][:MOST_RINGS]
        # Another one begins each time, so that a busy ring cannot keep the others from being read.
        self._first = (self._first + 1) % max(len(rings), 1)
        for ring in rings[self._first :] + rings[: self._first]:
            share = max(left, 1)
            header = ring.file.header
            # Before its records: what a process wrote before it was seen to be gone is all there.
            state = process_state(ring.process)
            over = header["closed"] or (state is not None and not state.exists)
            try:
                coded = ring.file.coded(ring.position, most=share, live=not over)
            except TraceError as error:
                LOG.warning("%s: %s", ring.path, error)
                ring.ended = True
                continue
            number = len(statuses)
            for kind, batch in coded.batches.items():
                if batch.num_rows:
                    parts.setdefault(kind, []).append((number, batch))
                    left -= batch.num_rows
            whole = coded.next >= header["head"] or (not over and coded.next - ring.position < share)
            more = more or not whole
            self._pending[ring.key] = coded.next
            losses = dict(ring.losses)
            for why, count in coded.losses.items():
                losses[why] = losses.get(why, 0) + count
            if lost := coded.losses.get("overwritten"):
                self._gaps.append(Gap(why="overwritten in the ring before it was read", rows=lost, ring=ring.key))
            ring.losses = losses
            if over and whole:
                self._ending.add(ring.key)
            statuses.append(
                RingStatus(
                    key=ring.key,
                    process=ring.process,
                    # What a damaged file says must not make the collector refuse all that the host has to tell.
                    communicators=tuple(comm for comm in ring.file.communicators if _is_sound(comm)),
                    closed=header["closed"],
                    last_tick_ns=header["tick_ns"] if 0 < header["tick_ns"] <= MOST_NUMBER else None,
                    interval_ms=header["interval_ms"],
                    state=state,
                    job=ring.job,
                    losses=losses,
                    next=coded.next,
                )
            )
        gaps, self._gaps = tuple(self._gaps), []
        return Turn(tuple(statuses), parts, gaps, self._most - left, more)

    def told(self) -> dict[str, int]:
        """Take the last turn as told, and return all positions by process, for the next agent."""
        for ring in self._rings.values():
            if ring.key in self._pending:
                ring.position = self._pending[ring.key]
            if ring.key in self._ending:
                ring.ended = True
            self._cursors[ring.key] = ring.position
        return dict(self._cursors)

    def untold(self, gaps: tuple[Gap, ...]) -> None:
        """Keep the gaps of a turn that could not be told."""
        self._gaps = [*gaps, *self._gaps][-1000:]

    def _look(self) -> None:
        """Find new files and forget those that are gone."""
        seen: set[Path] = set()
        for folder in self._folders:
            try:
                found = sorted(folder.glob(f"*{SUFFIX}"))
            except OSError:
                continue
            for path in found:
                try:
                    inode = path.stat().st_ino
                except OSError:
                    continue
                seen.add(path)
                ring = self._rings.get(path)
                if ring is not None and ring.inode == inode:
                    continue
                if self._others.get(path) != inode:
                    self._open(path, inode)
        for path in list(self._rings):
            if path not in seen:
                # What it held is lost with it, unless it was read to its end.
                ring = self._rings.pop(path)
                if not ring.ended:
                    self._gaps.append(Gap(why="the trace file was removed", ring=ring.key))
                self._cursors.pop(ring.key, None)
        self._others = {path: inode for path, inode in self._others.items() if path in seen}
        self._said = {path: inode for path, inode in self._said.items() if path in seen}

    def _say_other(self, host: str) -> None:
        if host in self._hosts or len(self._hosts) >= _MOST_TOLD:
            return
        self._hosts.add(host)
        LOG.info("leaves traces of host %s to the agent there; this one speaks for %s", host[:100], self._host)

    def _open(self, path: Path, inode: int) -> None:
        try:
            file = TraceFile(path)
            process = file.process
            header = file.header
        except (TraceError, OSError) as error:
            # Tried again at every turn: its process may be making it just now, and we may have too many files open.
            if self._said.get(path) != inode and _is_begun(path):
                LOG.warning("%s is not followed: %s", path, error)
                self._said[path] = inode
            return
        if max(process.started_ns, process.proc_start, header["head"]) > MOST_NUMBER:
            self._others[path] = inode
            LOG.warning("%s is not followed: its header is damaged", path)
            return
        if process.pid == 0:
            return  # its process has not introduced itself yet
        # A container has a name of its own, as a pod has; the machine says by its boot that it is this one.
        if process.host not in ("", self._host) and not (same_boot(process) and in_container(process)):
            self._others[path] = inode
            self._say_other(process.host)
            return
        key = process_key(process)
        head = header["head"]
        known = self._cursors.get(key)
        position = known if known is not None and known <= head else max(0, head - self._history)
        if known is None and position:
            self._gaps.append(Gap(why="before the agent began", rows=position, ring=key))
        state = process_state(process)
        job = self._job or (job_of(process) if state is not None else "")
        logs = logs_of(process) if state is not None and state.exists else ()
        self._rings[path] = Ring(path, inode, file, key, replace(process, host=self._host), job, position, logs)
        LOG.info("follows %s (rank %s, pid %d)", path.name, process.rank, process.pid)


def _is_begun(path: Path) -> bool:
    """Whether anything was written to a file: a trace that is being made is zeros until its header is whole."""
    try:
        with path.open("rb") as source:
            return any(source.read(8))
    except OSError:
        return True


def _is_sound(comm: Communicator) -> bool:
    times = (comm.opened_ns, comm.closed_ns, comm.last_enq_ns, comm.last_seq, comm.p2p_started)
    return all(number is None or number <= MOST_NUMBER for number in times)
