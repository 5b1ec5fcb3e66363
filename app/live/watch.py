"""The watch: looks at every job once a second, opens incidents, asks agents for evidence, publishes, alerts.

One thread reads the window and judges; a second publishes generations, which takes longer than a tick may, and judges
by the evidence in them: never both at a time. One watch per data folder, held by a lock. Whatever fails in one job is
said, and the others go on.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from mycroft.app.live.config import LiveConfig
from mycroft.app.live.incidents import Event, Incidents, blind_finding, same
from mycroft.app.live.judge import JUDGE_S, look
from mycroft.app.live.publishing import LivePublished, evidence_files, forget_old, publish_live
from mycroft.app.live.ranks import (
    SOON_NS,
    is_due,
    newest_of_each_rank,
    silence_ns,
    unheard,
    weighed,
    without_old_news,
)
from mycroft.app.live.receiver import incident_folder
from mycroft.app.live.state import Incident, LiveState
from mycroft.errors import MycroftError

if TYPE_CHECKING:
    from mycroft.app.live.relayed import Relayed
    from mycroft.app.live.spans import Spans
    from mycroft.loaders.collector import Process, Window

LOG: Final = logging.getLogger("mycroft.watch")
TICK_S: Final = 1.0
# Between two looks for news in the log, and the share of the time that these may take.
NEWS_S: Final = 0.1
_NEWS_SHARE: Final = 0.2
# Between two looks at a job that goes on: slowness takes iterations to show, and stalls are looked at when told of.
QUIET_S: Final = 2.0
# ... and where something slow is waited for to last.
DOUBT_S: Final = 0.3
# ... and how many times as long as a look took: it must not take the whole machine.
_QUIET_REST: Final = 5.0
_DOUBT_REST: Final = 1.0
# A host that has said nothing for this long is silent: nobody waits for it any more.
PATIENCE_S: Final = 6.0
BLIND_S: Final = 60.0
PUBLISH_S: Final = 60.0
# ... or so many times as long as it took.
_PUBLISH_REST: Final = 30.0
EVIDENCE_S: Final = 45.0
SWEEP_S: Final = 3600.0
# Between two looks for incidents of jobs that have left, and how long one is waited for of which nobody said that it is
# over: the watch is blind for it.
_LEFT_EVERY_S: Final = 60.0
LEFT_S: Final = 3600.0
# Incidents that are over are kept for a year with their evidence; their traces until somebody removes them.
KEEP_S: Final = 365 * 86_400.0
MOST_SUSPECTS: Final = 8
_MOST_TITLE: Final = 80
# A look goes back so far, or so many iterations: what was usual is learnt from the oldest of them. While something is
# wrong, and as long after, it goes back to where it did before that: else it would learn the fault.
BACK_NS: Final = 120_000_000_000
_BACK_ITERATIONS: Final = 80
# Detectors are asked for this much of the past at the first look: an incident may be older than the watch.
_FIRST_NS: Final = 60_000_000_000


class WatchError(MycroftError):
    """A watch that cannot start."""


@dataclass
class _Job:
    """What is remembered of a job between ticks. Times are monotonic seconds but for `looked_ns` (UTC ns)."""

    job: str
    title: str
    incidents: Incidents
    looked_ns: int = 0
    seen_ns: int = 0
    """End of the last iteration that was looked at."""
    from_ns: int = 0
    """Older rows are left out of looks."""
    iteration_ns: int = 0
    """What the last iterations took."""
    wrong_ns: int = 0
    """When something was wrong last."""
    next_look: float = 0.0
    judged: float = 0.0
    published: float = 0.0
    publishing_s: float = 0.0
    """What the last publication took, in seconds of a processor."""
    evidence_seen: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    unheard: dict[int, str] = field(default_factory=lambda: dict[int, str]())
    """Ranks of which nothing was known at the last look, with their hosts."""
    blind: bool = False
    over: bool = False
    ended: int = 0
    problem: str = ""

    def weighed(self, findings: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
        """Return findings with no more confidence than is due for what is not heard."""
        return tuple(weighed(finding, self.unheard) for finding in findings)


@dataclass(frozen=True, slots=True)
class _Publication:
    job: str
    incident: str | None
    revision: int
    """Of the incident, when its window was taken."""
    why: str
    traces: tuple[Any, ...]


class Watch:
    """The watch of one data folder. `tick` is one look at everything; `run` looks until it is stopped."""

    def __init__(
        self,
        config: LiveConfig,
        state: LiveState,
        window: Window,
        *,
        told: Callable[[Event, Incident, str], None] = lambda _event, _incident, _title: None,
        each_tick: Callable[[], None] = lambda: None,
        spans: Spans | None = None,
        publish: bool = True,
    ) -> None:
        """Take the lock of the folder.

        Args:
            config: settings of the live part.
            state: of the same data folder.
            window: of the collector's store.
            told: called for every change of an incident, with the title of its job.
            each_tick: called once a tick, for what else is to be done now and then.
            spans: told of the operations that incidents are about.
            publish: make generations of traces; off for tests of the rest.

        Raises:
            WatchError: if another watch has the folder.
        """
        self.config = config
        self.state = state
        self.window = window
        self._told = told
        self._each_tick = each_tick
        self._publishing = publish
        self._spans = spans
        self._relayed: Relayed | None = None  # made with the first relay
        self._jobs: dict[str, _Job] = {}
        self._names: dict[str, str] = {}  # of the job of a process, as the last tick had it
        self._operations_told: set[str] = set()
        self._swept = -SWEEP_S
        self._minded_left = -_LEFT_EVERY_S
        self._judging = threading.RLock()
        """Held by whoever reads the window, or changes incidents."""
        self._queue: queue.Queue[_Publication] = queue.Queue(maxsize=32)
        self._stopping = threading.Event()
        folder = config.data_dir / "live"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / "watch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise WatchError(f"{config.data_dir}: another watch looks at this folder") from None

    # ---- a tick --------------------------------------------------------------------

    def tick(self) -> None:
        """Take what has come and look at every job."""
        with self._judging:
            self._tick()

    def _tick(self) -> None:
        began = time.monotonic()
        self.window.refresh()
        groups = self.window.jobs()
        self._names = {}
        for group in groups:
            name = ""
            try:
                job = self._job_of(group)
                name = job.job
                self._names.update((process.key, name) for process in group)
                self._look(job, group)
                job.problem = ""
            except Exception as error:
                # One job that breaks the rules must not blind the watch to the others.
                text = f"{type(error).__name__}: {error}"
                known = self._jobs.get(name)
                if known is None or known.problem != text:
                    LOG.exception("job %s cannot be judged", name or "?")
                if known is not None:
                    known.problem = text
                    known.next_look = time.monotonic() + 5.0
        self._look_at_relays()
        self._mind_left(began)
        with contextlib.suppress(MycroftError):
            self._each_tick()
        if began - self._swept > SWEEP_S:
            self._swept = began
            for incident in self.state.sweep(keep_s=KEEP_S):
                self._operations_told.discard(incident)
                shutil.rmtree(incident_folder(self.config.data_dir, incident), ignore_errors=True)
        self.state.set_numbers(
            {
                "tick": {
                    "seconds": time.monotonic() - began,
                    "jobs": len(groups),
                    "processes": sum(len(group) for group in groups),
                    "rows": self.window.rows,
                    "batches": self.window.batches,
                    "unreadable": self.window.unreadable,
                    "relays": {} if self._relayed is None else self._relayed.numbers,
                    "problems": {job.job: job.problem for job in self._jobs.values() if job.problem},
                }
            }
        )

    def _job_of(self, group: Sequence[Process]) -> _Job:
        from mycroft.loaders.catalogue import new_trace_id

        keys = [process.key for process in group]
        name = self.state.job_of(keys)
        told = next((process.status.job for process in group if process.status.job), "")
        title = (told or f"job on {group[0].host}")[:_MOST_TITLE]
        if name is None:
            first = min(comm.hash for process in group for comm in process.status.communicators if comm.hash)
            name = new_trace_id(title, str(first))
        return self._job_named(name, title)

    def _job_named(self, name: str, title: str) -> _Job:
        job = self._jobs.get(name)
        if job is None:
            incidents = Incidents(
                name, self.state, lambda event, incident: self._incident(name, title, event, incident)
            )
            job = self._jobs[name] = _Job(name, title, incidents)
            LOG.info("watches %s", name)
        return job

    def _look(self, job: _Job, group: Sequence[Process]) -> None:
        from mycroft.loaders.collector import fresh_until

        now = time.monotonic()
        if not is_due(group, job.ended, rested=now >= job.next_look, told=job.incidents.stands):
            return
        at_ns, silent = fresh_until(group, patience_s=PATIENCE_S)
        group = without_old_news(newest_of_each_rank(group), silent)
        job.unheard = unheard(group, silent)
        self._note(job, group, silent)
        alive = [process for process in group if not process.ended]
        self._mind_silence(job, group, silent)
        if not alive and all(process.status.closed for process in group):
            if not job.over:
                job.over = True
                job.incidents.end()
                self._publish(job, None, group, "the job is over")
            return
        job.over = False
        if job.blind:
            job.next_look = now + QUIET_S
            return
        if at_ns <= job.looked_ns and not job.incidents.any_open:
            return  # nothing new was told
        judge = job.incidents.unsure or (job.incidents.judging and now - job.judged >= JUDGE_S)
        since = job.looked_ns or at_ns - _FIRST_NS
        seen = job.seen_ns or at_ns - _FIRST_NS
        self._go_back(job, at_ns)
        found = look(group, from_ns=job.from_ns, since_ns=min(since, at_ns), at_ns=at_ns, seen_ns=seen, judge=judge)
        job.looked_ns = max(at_ns, job.looked_ns)
        ends = [*([job.seen_ns] if job.seen_ns else []), *(iteration.at_ns for iteration in found.iterations)]
        if len(ends) > 1:
            job.iteration_ns = (ends[-1] - ends[0]) // (len(ends) - 1)
        job.seen_ns = max([job.seen_ns, *ends])
        if judge:
            job.judged = now
        job.ended = sum(process.ended for process in group)
        stands = silence_ns(group) > SOON_NS
        iterations = [replace(one, findings=job.weighed(one.findings)) for one in found.iterations]
        job.incidents.take_iterations(iterations, at_ns=at_ns, stands=stands)
        job.incidents.take(job.weighed(found.findings), judged=judge, why=found.fired, stands=stands)
        # Waiting for a processor is no cost.
        rest_s = (DOUBT_S, _DOUBT_REST) if job.incidents.doubts else (QUIET_S, _QUIET_REST)
        job.next_look = now + max(rest_s[0], rest_s[1] * found.cpu_s)
        self._gather(job, group)
        if now - job.published > max(PUBLISH_S, _PUBLISH_REST * job.publishing_s):
            self._publish(job, None, group, "the last minutes")

    def _look_at_relays(self) -> None:
        """Look at the jobs that relays tell of; most collectors have none."""
        if not self.window.relays:
            return
        if self._relayed is None:
            from mycroft.app.live.relayed import Relayed

            self._relayed = Relayed(
                self.state,
                lambda name, title: self._job_named(name, title).incidents,
                self._publish_brought,
                self._told,
                evidence_s=EVIDENCE_S,
            )
        try:
            self._relayed.tick(list(self.window.relays.values()))
        except Exception:
            LOG.exception("what relays tell cannot be judged")

    def _go_back(self, job: _Job, at_ns: int) -> None:
        """Choose from when on rows are looked at: work must not grow with the age of a job."""
        if job.incidents.any_open:
            job.wrong_ns = at_ns
        back_ns = max(BACK_NS, _BACK_ITERATIONS * job.iteration_ns)
        # Before the first iterations nothing says how long one is.
        if job.iteration_ns and at_ns - back_ns > job.wrong_ns:
            job.from_ns = max(job.from_ns, at_ns - back_ns)

    def _note(self, job: _Job, group: Sequence[Process], silent: Sequence[str]) -> None:
        hosts = sorted({process.host for process in group})
        told = [process.status.process for process in group]
        facts = {
            "world_size": max((who.world_size or 0 for who in told), default=0) or None,
            "processes": len(group),
            "ended": sum(process.ended for process in group),
            "hosts": hosts[:200],
            "hosts_count": len(hosts),
            "silent": list(silent)[:50],
            "rows": sum(process.rows for process in group),
            "progress_ns": max((c.last_enq_ns or 0 for p in group for c in p.status.communicators), default=0) or None,
        }
        self.state.see_job(job.job, title=job.title, processes=[process.key for process in group], facts=facts)

    def _mind_silence(self, job: _Job, group: Sequence[Process], silent: Sequence[str]) -> None:
        """Say when nobody tells us anything of a job any more: then nothing here can find a fault in it."""
        now = time.time()
        running = [process for process in group if not process.ended]
        newest = max((process.arrived_s for process in running), default=now)
        blind = bool(running) and now - newest > BLIND_S
        if blind:
            # Again at each look: that nothing is seen is no sign that anything is over.
            finding = blind_finding(job.title, sorted({p.host for p in running}), now - newest)
            job.incidents.take([finding], judged=False, why="no agent speaks")
        job.blind = blind

    def _mind_left(self, now: float) -> None:
        """Close the incidents of jobs that are not looked at any more: nothing would ever find that they are over."""
        if now - self._minded_left < _LEFT_EVERY_S:
            return
        self._minded_left = now
        present = set(self._names.values())
        for name in {incident.job for incident in self.state.incidents(only_open=True, limit=10_000)} - present:
            with contextlib.suppress(MycroftError):
                job = self.state.job(name)
                processes, ended = (job.facts.get(fact) or 0 for fact in ("processes", "ended"))
                if (processes and ended >= processes) or time.time() - job.seen > LEFT_S:
                    self._job_named(name, job.title).incidents.end()

    # ---- incidents -----------------------------------------------------------------

    def _incident(self, name: str, title: str, event: Event, incident: Incident) -> None:
        if self._relayed is not None and self._relayed.is_of(name):
            self._relayed.changed(event, name, incident, title)
            return
        self._told(event, incident, title)
        job = self._jobs.get(name)
        group = self._processes_of(name)
        if job is None or not group:
            return
        if event == "opened":
            self._ask(incident, group)
        if event in ("opened", "revised"):
            self._publish(job, incident, group, f"incident {event}")

    def _processes_of(self, name: str) -> list[Process]:
        from mycroft.loaders.collector import fresh_until

        for group in self.window.jobs():
            if self.state.job_of([process.key for process in group]) == name:
                _, silent = fresh_until(group, patience_s=PATIENCE_S)
                return without_old_news(newest_of_each_rank(group), silent)
        return []

    def _ask(self, incident: Incident, group: Sequence[Process]) -> None:
        """Ask the agents of the suspects for evidence; where nobody is suspected, of a few that wait."""
        ranks, hosts = set(incident.ranks), set(incident.hosts)
        suspects = [p for p in group if p.status.process.rank in ranks] or [p for p in group if p.host in hosts]
        victims = [p for p in group if p not in suspects and not p.ended]
        # One that waits, beside the suspects: its stack shows for what.
        chosen = suspects[:MOST_SUSPECTS] + victims[: 1 if suspects else MOST_SUSPECTS // 2]
        by_host: dict[str, list[str]] = {}
        for process in chosen:
            by_host.setdefault(process.host, []).append(process.key)
        for host, keys in list(by_host.items())[: self.config.evidence_hosts]:
            self.state.ask(incident.incident, host, keys)

    def _gather(self, job: _Job, group: Sequence[Process]) -> None:
        """Judge again once the evidence of an incident is there."""
        now = time.time()
        for incident in self.state.incidents(job=job.job, only_open=True):
            requests = self.state.requests(incident.incident)
            over = [r for r in requests if r.ended is not None or now - r.created > EVIDENCE_S]
            files = len(self.state.evidence(incident.incident))
            complete = bool(requests) and len(over) == len(requests)
            if complete and files and job.evidence_seen.get(incident.incident) != files:
                job.evidence_seen[incident.incident] = files
                self._publish(job, incident, group, f"{files} files of evidence arrived")

    # ---- publishing ----------------------------------------------------------------

    def _publish(self, job: _Job, incident: Incident | None, group: Sequence[Process], why: str) -> None:
        from mycroft.loaders.collector import traces_of

        job.published = time.monotonic()
        if not self._publishing:
            return
        try:
            name, revision = (None, 0) if incident is None else (incident.incident, incident.revisions)
            self._queue.put_nowait(_Publication(job.job, name, revision, why, tuple(traces_of(group))))
        except queue.Full:
            LOG.warning("publishing is behind; %s is left out", job.job)

    def _publish_brought(self, job: str, incident: Incident, why: str) -> None:
        """Publish what was brought for an incident of a job of which there is no window here."""
        if self._publishing:
            self._queue.put_nowait(_Publication(job, incident.incident, incident.revisions, why, ()))

    def publish_one(self, item: _Publication) -> None:
        """Publish a generation, and let an incident follow what its evidence says."""
        job = self._jobs[item.job]
        evidence = evidence_files(self.config.data_dir, item.incident) if item.incident is not None else []
        began = time.thread_time()
        published = publish_live(item.traces, self.config.data_dir, trace=item.job, title=job.title, evidence=evidence)
        job.publishing_s = time.thread_time() - began
        self.state.set_trace(item.job, published.trace)
        with self._judging:
            about = self._follow_evidence(item, job, published, brought=bool(evidence))
        if about is not None:
            self._tell_operations(*about, published)
        forget_old(self.state, published.trace)

    def _follow_evidence(
        self, item: _Publication, job: _Job, published: LivePublished, *, brought: bool
    ) -> tuple[Incident, Mapping[str, Any]] | None:
        """Let an incident follow what was published of it; return it with what it is about. None: it is of none."""
        if item.incident is None:
            return None
        incident = self.state.incident(item.incident)
        matching = [f for f in published.verdict["findings"] if same(incident.finding, f)]
        matching.sort(key=lambda f: f["category"] != incident.category)
        finding = weighed(matching[0], job.unheard) if matching else None
        if finding is not None and self._relayed is not None:
            finding = self._relayed.weighed(item.job, incident.incident, finding)
        revision = item.revision
        if brought and finding is not None and incident.closed is None:
            before = incident.revisions
            incident = job.incidents.revise(incident, finding, item.why)
            revision = incident.revisions if incident.revisions > before else revision
        self.state.published(
            item.incident,
            revision=revision,
            trace=published.trace,
            generation=published.generation,
            page=finding["id"] if finding is not None else "verdict",
        )
        return incident, finding or incident.finding

    def _tell_operations(self, incident: Incident, finding: Mapping[str, Any], published: LivePublished) -> None:
        from mycroft.app.live.spans import operations_of
        from mycroft.loaders.catalogue import Catalogue
        from mycroft.loaders.store import open_store

        if self._spans is None or incident.incident in self._operations_told:
            return
        catalogue = Catalogue(self.config.data_dir)
        try:
            path = catalogue.path(published.trace, published.generation)
        finally:
            catalogue.close()
        with open_store(path) as store:
            rows = operations_of(store, finding)
        if rows:
            self._operations_told.add(incident.incident)
            self._spans.operations(incident, rows)

    def _publish_loop(self) -> None:
        while not self._stopping.is_set():
            try:
                item = self._queue.get(timeout=0.5)
            except queue.Empty:
                continue
            try:
                self.publish_one(item)
            except MycroftError as error:
                LOG.warning("%s is not published: %s", item.job, error)
            except Exception:
                LOG.exception("%s is not published", item.job)

    # ---- life ----------------------------------------------------------------------

    def run(self) -> None:
        """Look until `stop`."""
        publisher = threading.Thread(target=self._publish_loop, name="publish", daemon=True)
        publisher.start()
        while not self._stopping.is_set():
            due = time.monotonic() + TICK_S
            try:
                self.tick()
                self._wait_for_news(due)
            except Exception:
                LOG.exception("a tick failed")
                self._stopping.wait(TICK_S)
        publisher.join(10.0)
        self.close()

    def _wait_for_news(self, due: float) -> None:
        """Wait for the next tick, or until a job that seems to stand or to be slow has told more."""
        pause = NEWS_S
        while not self._stopping.wait(min(pause, max(0.05, due - time.monotonic()))):
            began = time.monotonic()
            with self._judging:
                if began >= due or (self.window.refresh() and self._news()):
                    return
            pause = max(NEWS_S, (time.monotonic() - began) / _NEWS_SHARE)

    def _news(self) -> bool:
        """Whether all hosts of a job in which something seems wrong have told of a later moment than was looked at."""
        from mycroft.loaders.collector import fresh_until

        now = time.monotonic()
        for group in self.window.jobs():
            name = self._names.get(group[0].key)
            job = self._jobs.get(name) if name is not None else None
            if job is None or job.over:
                continue
            rested = job.incidents.doubts and now >= job.next_look
            if not is_due(group, job.ended, rested=rested, told=job.incidents.stands):
                continue
            at_ns, _ = fresh_until(group, patience_s=PATIENCE_S)
            if at_ns > job.looked_ns:
                return True
        return False

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    def close(self) -> None:
        """Give the folder back."""
        with contextlib.suppress(OSError):
            os.close(self._lock)
