"""The job queue: each job is done once, also when workers die."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from mycroft.app import jobs
from mycroft.app.jobs import JobError, Source, Stage
from mycroft.app.state import State

SOURCES = [Source("run/rank_0.pkl", "/data/0")]


def queue(state: State, title: str = "run") -> str:
    with state.transaction() as connection:
        return jobs.insert(connection, title=title, sources=SOURCES)


def claim(state: State, worker: str = "elsewhere:1:1", lease_s: float = 60.0) -> jobs.Job | None:
    return jobs.claim(state, worker=worker, lease_s=lease_s)


def test_jobs_are_claimed_in_order_and_once(state: State) -> None:
    first, second = queue(state), queue(state)
    claimed = [claim(state), claim(state), claim(state)]
    assert [job and job.job_id for job in claimed] == [first, second, None]
    assert claimed[0] is not None and claimed[0].sources == tuple(SOURCES)


def test_many_workers_never_share_a_job(state: State) -> None:
    wanted = {queue(state) for _ in range(40)}
    taken: list[str] = []

    def work(number: int) -> None:
        while (job := claim(state, worker=f"elsewhere:{number}:1")) is not None:
            taken.append(job.job_id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(wanted)


def test_a_job_whose_lease_runs_out_is_tried_once_more_and_then_reported(state: State) -> None:
    job_id = queue(state)
    for attempt in (1, 2):
        job = claim(state, lease_s=-1)
        assert job is not None and job.attempts == attempt
    assert claim(state) is None
    failed = jobs.find(state, job_id)
    assert failed.status == "failed"
    assert failed.error is not None and "2 times" in failed.error


def test_a_job_of_a_dead_process_is_taken_over_at_once(state: State) -> None:
    job_id = queue(state)
    script = "import sys; from mycroft.app import jobs; print(jobs.worker_id())"
    dead = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    claim(state, worker=dead, lease_s=3600)
    again = claim(state, worker=jobs.worker_id(), lease_s=3600)
    assert again is not None and again.job_id == job_id


def test_a_job_of_a_living_process_is_left_alone(state: State) -> None:
    queue(state)
    claim(state, worker=jobs.worker_id(), lease_s=3600)
    assert claim(state) is None


def test_a_worker_that_lost_its_job_cannot_report_or_finish_it(state: State) -> None:
    job_id = queue(state)
    claim(state, worker="elsewhere:1:1", lease_s=-1)
    claim(state, worker="elsewhere:2:1")
    assert jobs.renew(state, job_id, worker="elsewhere:1:1", lease_s=60) == "lost"
    jobs.report(state, job_id, worker="elsewhere:1:1", stages=[Stage("read")], problems=[])
    assert not jobs.finish(state, job_id, worker="elsewhere:1:1", status="done", trace="wrong", generation=1)
    assert jobs.find(state, job_id).stages == ()
    assert jobs.finish(state, job_id, worker="elsewhere:2:1", status="done", trace="right", generation=1)
    assert jobs.find(state, job_id).trace == "right"


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_is_told(state: State) -> None:
    running, waiting = queue(state), queue(state)
    claim(state, worker="elsewhere:1:1")
    assert jobs.renew(state, running, worker="elsewhere:1:1", lease_s=60) == "go on"
    assert jobs.cancel(state, waiting).status == "cancelled"
    assert jobs.cancel(state, running).cancelling
    assert jobs.renew(state, running, worker="elsewhere:1:1", lease_s=60) == "cancelled"
    assert claim(state) is None


def test_a_finished_job_cannot_be_cancelled(state: State) -> None:
    job_id = queue(state)
    claim(state, worker="elsewhere:1:1")
    jobs.finish(state, job_id, worker="elsewhere:1:1", status="done", trace="t", generation=1)
    before = jobs.find(state, job_id)
    assert jobs.cancel(state, job_id) == before


def test_a_released_job_waits_again_and_the_attempt_does_not_count(state: State) -> None:
    job_id = queue(state)
    claim(state, worker="elsewhere:1:1")
    jobs.release(state, job_id, worker="elsewhere:1:1")
    again = claim(state, worker="elsewhere:2:1")
    assert again is not None and again.attempts == 1


def test_finished_jobs_are_forgotten_after_a_month_and_others_never(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, waiting = queue(state), queue(state)
    claim(state, worker="elsewhere:1:1")
    jobs.finish(state, old, worker="elsewhere:1:1", status="done", trace="t", generation=1)
    assert jobs.sweep(state) == 0
    clock = jobs.now()
    monkeypatch.setattr(jobs, "now", lambda: clock + jobs.KEPT_S + 60)
    assert jobs.sweep(state) == 1
    assert [job.job_id for job in jobs.newest(state)] == [waiting]


def test_every_change_raises_the_revision(state: State) -> None:
    job_id = queue(state)
    seen = [jobs.find(state, job_id).rev]
    claim(state, worker="elsewhere:1:1")
    seen.append(jobs.find(state, job_id).rev)
    jobs.report(state, job_id, worker="elsewhere:1:1", stages=[Stage("read", done=3, total=9)], problems=["x"])
    seen.append(jobs.find(state, job_id).rev)
    jobs.finish(state, job_id, worker="elsewhere:1:1", status="failed", error="no")
    seen.append(jobs.find(state, job_id).rev)
    assert seen == sorted(set(seen))


def test_where_files_lie_is_not_told(state: State) -> None:
    assert "/data/0" not in str(jobs.find(state, queue(state)).to_dict())


def test_an_unknown_job_is_an_error(state: State) -> None:
    with pytest.raises(JobError, match="no job"):
        jobs.find(state, "x")
