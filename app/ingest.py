"""From evidence to a published trace: load, diagnose, store the verdict, publish; in-process or as the queue's worker.

The same `ingest` serves `mycroft load`, `mycroft demo` and the worker of `mycroft serve`. It writes a new file beside
the catalogue and publishes it under a new generation; a file is never written again once it has a name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mycroft.app import jobs
from mycroft.app.config import MIB, AppConfig
from mycroft.app.injected import injected_of, truth_of
from mycroft.app.jobs import Source, Stage
from mycroft.app.state import State, now
from mycroft.app.terminal import Progress
from mycroft.app.uploads import Uploads
from mycroft.errors import MycroftError
from mycroft.loaders.bundle import Limits, NamedFile

if TYPE_CHECKING:
    from mycroft.analysis.verdict import Verdict
    from mycroft.loaders.store import Store

LOG: Final = logging.getLogger("mycroft.ingest")
POLL_S: Final = 0.2
FREE_RESERVE_BYTES: Final = 256 * MIB
WHOLE_VERDICT: Final = "verdict"
SWEEP_S: Final = 60.0
REPORT_S: Final = 0.25
CONFIDENCE_SHARE: Final = {"high": 0.9, "medium": 0.6, "low": 0.3}
"""Words of confidence as the numbers of `diagnoses.confidence`, for sorting; the words are what is meant."""
BEAT_S: Final = 0.5


class Stages:
    """The stages of one ingest as they go by; tells `publish` about them, at most every quarter of a second.

    Called from the thread that works; `publish` is given copies.
    """

    def __init__(self, publish: Callable[[Sequence[Stage], Sequence[str]], None]) -> None:
        self._publish = publish
        self._stages: list[Stage] = []
        self._problems: list[str] = []
        self._published_at = 0.0

    def progress(self, name: str, done: int, total: int | None, unit: str = "", note: str = "") -> None:
        """Say how far the stage `name` is; a new name ends the stage before."""
        if not self._stages or self._stages[-1].name != name:
            self._end("done")
            self._stages.append(Stage(name, started=now()))
            self._published_at = 0.0
        self._stages[-1] = replace(self._stages[-1], done=done, total=total, unit=unit, note=note)
        if time.monotonic() - self._published_at >= REPORT_S:
            self._tell()

    def problem(self, text: str) -> None:
        """Add a line to what went wrong without ending the ingest."""
        self._problems.append(text)

    def end(self, *, failed: bool = False) -> None:
        """End the last stage and publish."""
        self._end("failed" if failed else "done")
        self._tell()

    def _end(self, state: str) -> None:
        if self._stages and self._stages[-1].state == "running":
            last = self._stages[-1]
            self._stages[-1] = replace(last, state=state, finished=now())  # pyright: ignore[reportArgumentType]

    def _tell(self) -> None:
        self._published_at = time.monotonic()
        self._publish(tuple(self._stages), tuple(self._problems))

    @classmethod
    def on_terminal(cls, progress: Progress, *, prefix: str = "") -> Stages:
        """Return stages that are drawn by a progress bar."""

        def draw(stages: Sequence[Stage], _: Sequence[str]) -> None:
            if stages and stages[-1].state == "running":
                last = stages[-1]
                progress.show(prefix + last.name, last.done, last.total, last.unit)

        return cls(draw)


class IngestError(MycroftError):
    """A trace that cannot be made or kept."""


class NothingReadableError(IngestError):
    """Evidence of which no loader could read anything."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A loaded and diagnosed trace that has no name yet; its file is complete and holds its verdict."""

    path: Path
    verdict: Verdict
    digest: str
    world_size: int | None
    name: str = ""
    """What the job is called where the evidence is of several."""
    others: tuple[Draft, ...] = ()
    """A trace for each further job; the verdict of this one is then that of all together."""

    @property
    def incident(self) -> str | None:
        """Id of the answer's finding; None where nothing was found."""
        return self.verdict.findings[0].id if self.verdict.findings else None

    def keep(self, target: Path) -> None:
        """Copy the trace to a file of the user's.

        Raises:
            IngestError: it cannot be written there.
        """
        try:
            with self.path.open("rb") as content, target.open("xb") as copy:
                try:
                    shutil.copyfileobj(content, copy, 1024 * 1024)
                except BaseException:
                    target.unlink()
                    raise
        except OSError as error:
            raise IngestError(f"{target}: the trace cannot be written ({error.strerror})") from error


def prepare(
    sources: Sequence[str | Path | NamedFile],
    folder: Path,
    stages: Stages,
    *,
    ranks_expected: int | None = None,
) -> Draft:
    """Load and diagnose evidence into a new trace file in `folder`.

    Raises:
        LoadError: a source does not exist.
        NothingReadableError: no loader knows any of it.
    """
    from mycroft.analysis import diagnose
    from mycroft.loaders import load
    from mycroft.loaders.store import open_store

    path = folder / "trace.duckdb"
    summary = load(
        sources,
        path,
        progress=lambda at: stages.progress(at.stage, at.done, at.total or None, _unit(at.stage), at.message),
        ranks_expected=ranks_expected,
        limits=room_in(folder),
    )
    for name, problem in (*summary.problems, *summary.unread):
        stages.problem(f"{name}: {problem}")
    if not summary.formats:
        first = f", first {summary.unread[0][0]}: {summary.unread[0][1]}" if summary.unread else ""
        raise NothingReadableError(
            f"nothing of the evidence can be read ({summary.files} files{first}); `mycroft formats` lists what can be"
        )
    stages.progress("diagnose", 0, 1)
    with open_store(path) as store:
        verdict = diagnose(store)
        name, others = _split(store, folder, summary.digest)
    _keep_verdict(path, verdict)
    stages.progress("diagnose", 1, 1)
    return Draft(path, verdict, summary.digest, summary.world_size, name, others)


def _split(store: Store, folder: Path, digest: str) -> tuple[str, tuple[Draft, ...]]:
    """Return the name of the first job of a trace, and a trace for each further one; mostly there is none."""
    from mycroft.analysis import diagnose
    from mycroft.analysis.several_jobs import job_titles
    from mycroft.loaders.one_job import extract_job
    from mycroft.loaders.store import OtherJob, open_store

    others = [job for job in store.jobs() if isinstance(job, OtherJob)]
    if not others:
        return "", ()
    first, *names = job_titles(store, others)
    drafts: list[Draft] = []
    for number, (job, name) in enumerate(zip(others, names, strict=True), 1):
        path = folder / f"trace-{number}.duckdb"
        extract_job(job, path)
        with open_store(path) as alone:
            verdict = diagnose(alone)
        _keep_verdict(path, verdict)
        drafts.append(Draft(path, verdict, digest, None, name))
    return first, tuple(drafts)


def add_timelines(draft: Draft, stages: Stages) -> None:
    """Add what timelines are drawn from to a draft and its further jobs. Without them all else still works."""
    from mycroft.loaders import pyramid

    stages.progress("pyramid", 0, None, "bands")
    for path in (draft.path, *(other.path for other in draft.others)):
        try:
            pyramid.build(path, tell=lambda done, total: stages.progress("pyramid", done, total, "bands"))
        except Exception as error:
            LOG.exception("timeline of %s", path)
            stages.problem(f"the timeline could not be made ({type(error).__name__}: {error}); all other pages work")


def room_in(folder: Path) -> Limits:
    """Return the limits of unpacking, with no more bytes than `folder` has room for beside a reserve."""
    default = Limits()
    free = shutil.disk_usage(folder).free - FREE_RESERVE_BYTES
    return replace(default, total_bytes=min(default.total_bytes, max(0, free)))


def _unit(stage: str) -> str:
    return "" if stage == "sort/write" else "files"


@dataclass(frozen=True, slots=True)
class Published:
    """What an ingest made: a generation of a trace, its verdict's summary, and the answer's finding if there is one."""

    trace: str
    generation: int
    summary: str
    incident: str | None

    @property
    def page(self) -> str:
        """Name of the diagnosis in addresses: that of the finding, or of the verdict that has none."""
        return self.incident or WHOLE_VERDICT


def _summary(draft: Draft) -> dict[str, Any]:
    """Return what the list of traces shows of one."""
    from mycroft.app.similar import SUMMARY_KEY, kept_of
    from mycroft.app.version import ANALYSIS_VERSION

    verdict = draft.verdict
    return {
        "digest": draft.digest,
        "analysis": ANALYSIS_VERSION,
        "status": verdict.status,
        "summary": verdict.summary,
        "incident": draft.incident,
        "findings": len(verdict.findings),
        "category": verdict.findings[0].category if verdict.findings else None,
        "confidence": verdict.findings[0].confidence if verdict.findings else None,
        "ranks_seen": verdict.evidence.ranks_seen,
        "ranks_expected": verdict.evidence.ranks_expected,
        "files": verdict.evidence.files,
        "formats": verdict.evidence.formats,
        SUMMARY_KEY: kept_of(verdict.to_dict()),
    }


def _publish_job(draft: Draft, data_dir: Path, *, title: str, jobs_of: list[dict[str, str]]) -> None:
    from mycroft.loaders.catalogue import new_trace_id

    summary = {**_summary(draft), "jobs": jobs_of}
    _into_catalogue(draft, data_dir, new_trace_id(title, draft.digest), title, summary)


def publish(draft: Draft, data_dir: Path, *, title: str, truth: Mapping[str, Any] | None = None) -> Published:
    """Give a draft its place in the catalogue of `data_dir`, whose file system it must lie on.

    Evidence that is there already, under the same title and judged by the same rules, is not published again. `truth`
    of a job that was broken on purpose is kept in the catalogue for its page, and not in the trace.
    """
    from mycroft.analysis.scoring import score_case
    from mycroft.loaders.catalogue import new_trace_id

    trace = new_trace_id(title, draft.digest)
    summary = _summary(draft)
    if truth is not None:
        injected = injected_of(truth)
        injected = replace(injected, outcome=score_case(title, draft.verdict, injected.truth()).outcome)
        # Through JSON, as the catalogue holds it, for the comparison below.
        summary["injected"] = json.loads(json.dumps(injected.to_json()))
    if draft.others:
        # The other traces are named by this one, and it by them, so that each page can lead to all.
        jobs_of = [{"trace": trace, "name": draft.name}]
        for other in draft.others:
            own = f"{title} · {other.name}"
            jobs_of.append({"trace": new_trace_id(own, draft.digest), "name": other.name})
        summary["jobs"] = jobs_of
        for other in draft.others:
            _publish_job(other, data_dir, title=f"{title} · {other.name}", jobs_of=jobs_of)
    return _into_catalogue(draft, data_dir, trace, title, summary)


def _into_catalogue(draft: Draft, data_dir: Path, trace: str, title: str, summary: dict[str, Any]) -> Published:
    from mycroft.loaders.catalogue import Catalogue

    verdict = draft.verdict
    catalogue = Catalogue(data_dir)
    try:
        known = next((entry for entry in catalogue.list() if entry.trace_id == trace), None)
        if known is not None and known.summary == summary:
            generation = known.generation
        else:
            generation = catalogue.publish(trace, draft.path, title=title, summary=summary)
    finally:
        catalogue.close()
    return Published(trace, generation, verdict.summary, draft.incident)


def ingest(sources: Sequence[str | Path | NamedFile], data_dir: Path, *, title: str, stages: Stages) -> Published:
    """Load, diagnose and publish in this process.

    Raises:
        LoadError: a source does not exist.
        NothingReadableError: no loader knows any of it.
    """
    clear_stale(data_dir)
    with work_dir(data_dir) as folder:
        draft = prepare(sources, folder, stages)
        add_timelines(draft, stages)
        published = publish(draft, data_dir, title=title, truth=truth_of(sources))
    stages.end()
    return published


def uploaded(sources: Sequence[Source]) -> list[NamedFile]:
    """Return the files of a job under their names; a top folder that all share says nothing and is left out."""
    tops = {source.name.split("/", 1)[0] for source in sources if "/" in source.name}
    shared = len(tops) == 1 and all("/" in source.name for source in sources)
    return [NamedFile(source.name.split("/", 1)[1] if shared else source.name, Path(source.path)) for source in sources]


def _keep_verdict(path: Path, verdict: Verdict) -> None:
    """Write the verdict into the trace: once for all of it, and one row per finding."""
    import polars as pl

    from mycroft.analysis.verdict import RULES_VERSION
    from mycroft.loaders import schema
    from mycroft.loaders.store import StoreWriter

    whole = {
        "diag_id": 0,
        "revision": 1,
        "category": verdict.findings[0].category if verdict.findings else verdict.status,
        "rank": next(iter(verdict.findings[0].root_cause.ranks), None) if verdict.findings else None,
        "verdict": verdict.to_json(),
        "rules_version": RULES_VERSION,
    }
    diagnoses = [whole]
    incidents: list[dict[str, Any]] = []
    for number, finding in enumerate(verdict.findings, start=1):
        opened = None if finding.since is None else datetime.fromisoformat(finding.since).astimezone(UTC)
        diagnoses.append(
            {
                "diag_id": number,
                "incident_id": finding.id,
                "revision": 1,
                "category": finding.category,
                "rank": next(iter(finding.root_cause.ranks), None),
                "confidence": CONFIDENCE_SHARE[finding.confidence],
                "rules_version": RULES_VERSION,
            }
        )
        incidents.append(
            {
                "incident_id": finding.id,
                "job_id": 0,
                "opened": None if opened is None else opened.replace(tzinfo=None),
                "diag_id": number,
            }
        )
    writer = StoreWriter(path, reopen=True)
    for table, rows in (("diagnoses", diagnoses), ("incidents", incidents)):
        writer.append(table, pl.DataFrame(rows, schema=schema.polars_schema(schema.BY_NAME[table])))
    writer.finish()


@contextlib.contextmanager
def work_dir(data_dir: Path) -> Iterator[Path]:
    """Lend a folder beside the traces, on the same file system; its name says whose it is, for `clear_stale`."""
    root = data_dir / "work"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix=f"{jobs.worker_id()}.", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear_stale(data_dir: Path) -> list[str]:
    """Delete the work folders of processes that are gone, and return their names."""
    root = data_dir / "work"
    names = [entry.name for entry in root.iterdir()] if root.is_dir() else []
    stale = [name for name in names if jobs.is_gone(name.rpartition(".")[0])]
    for name in stale:
        shutil.rmtree(root / name, ignore_errors=True)
    return stale


class Worker:
    """Takes jobs from the queue of one data folder, one at a time.

    A second thread renews the lease and obeys cancellation. Work inside native code cannot be interrupted, so a worker
    that is to stop clears up and leaves the process; the supervisor starts a fresh one.
    """

    def __init__(self, config: AppConfig, state: State, *, leave: Callable[[], None] = lambda: os._exit(0)) -> None:
        self._config = config
        self._state = state
        self._leave = leave
        self._name = jobs.worker_id()
        # Whoever holds it decides how the job ends: the work by publishing, or the watch by leaving.
        self._ending = threading.Lock()
        self._job: jobs.Job | None = None
        self._folder: Path | None = None

    def run_one(self) -> bool:
        """Do the oldest waiting job; False: nothing waits."""
        job = jobs.claim(self._state, worker=self._name, lease_s=self._config.job_lease_s)
        if job is None:
            return False
        self._job = job
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(job, done), name="lease", daemon=True)
        watch.start()
        try:
            with work_dir(self._config.data_dir) as self._folder:
                self._work(job, self._folder)
        finally:
            done.set()
            watch.join()
            self._job = self._folder = None
        return True

    def _work(self, job: jobs.Job, folder: Path) -> None:
        def tell(stages: Sequence[Stage], problems: Sequence[str]) -> None:
            jobs.report(self._state, job.job_id, worker=self._name, stages=stages, problems=problems)

        stages = Stages(tell)
        try:
            sources = uploaded(job.sources)
            draft = prepare(sources, folder, stages)
            add_timelines(draft, stages)
            with self._ending:
                published = publish(draft, self._config.data_dir, title=job.title, truth=truth_of(sources))
                stages.end()
                self._finish(job, "done", trace=published.trace, generation=published.generation)
            return
        except MycroftError as failure:
            error = str(failure)
        except Exception as failure:
            LOG.exception("job %s", job.job_id)
            error = f"internal error, please report it: {type(failure).__name__}: {failure}"
        with self._ending:
            stages.end(failed=True)
            self._finish(job, "failed", error=error)

    def _finish(self, job: jobs.Job, status: jobs.Status, **result: Any) -> None:
        jobs.finish(self._state, job.job_id, worker=self._name, status=status, **result)
        if job.upload_id is not None:
            Uploads(self._config, self._state).discard(job.upload_id)

    def _watch(self, job: jobs.Job, done: threading.Event) -> None:
        while not done.wait(BEAT_S):
            wanted = jobs.renew(self._state, job.job_id, worker=self._name, lease_s=self._config.job_lease_s)
            if wanted == "go on":
                continue
            with self._ending:
                if done.is_set():
                    return
                if wanted == "cancelled":
                    self._finish(job, "cancelled")
                self._clear_and_leave()
            return

    def abandon(self) -> None:
        """Stop at once, from any thread: put the job back without counting the attempt, clear up and leave."""
        with self._ending:
            if self._job is not None:
                jobs.release(self._state, self._job.job_id, worker=self._name)
            self._clear_and_leave()

    def _clear_and_leave(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._leave()


def ingest_main(config: AppConfig, watch_supervisor: Callable[[Callable[[], None]], None]) -> int:
    """Run the queue's worker: wait for a job, do it, and end, so that its memory goes back to the system.

    `watch_supervisor` is given what to do when the supervisor is gone. SIGTERM, which the caller has blocked in
    every thread, puts a job that runs back.
    """
    state = State(config.data_dir)
    worker = Worker(config, state)

    def obey() -> None:
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
        worker.abandon()

    threading.Thread(target=obey, name="signals", daemon=True).start()
    watch_supervisor(worker.abandon)
    clear_stale(config.data_dir)
    # Imported before a job is there, so that a job does not wait for it.
    import mycroft.analysis
    import mycroft.loaders  # noqa: F401 - for its time only

    idle = threading.Event()
    swept_at = 0.0
    while not worker.run_one():
        if time.monotonic() - swept_at > SWEEP_S or swept_at == 0.0:
            swept_at = time.monotonic()
            Uploads(config, state).sweep()
            jobs.sweep(state)
        idle.wait(POLL_S)
    return 0
