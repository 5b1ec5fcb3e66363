"""A job of two relays that becomes slow, over HTTP: accused by summaries, judged by rows, told once, and over again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mycroft.app.live import relay as relay_module
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.state import Incident
from mycroft.app.live.watch import Watch
from mycroft.loaders.collector import Window
from mycroft.tracer.simulator import truth
from tests.app.live.receiving import receiving
from tests.app.live.simulated import SECOND, Job
from tests.app.live.test_relay import FAULTY, Tiers, a_relay

WINDOW_S = 4


class SlowTiers(Tiers):
    """Two relays that tell every four seconds of the job's time."""

    def tell(self) -> None:
        self.rested()
        super().tell()

    def rested(self) -> None:
        """Let the watch look again at once: windows of seconds are replayed in less."""
        if self.watch._relayed is not None:
            self.watch._relayed._next.clear()

    def go_on(self, job: Job, *, until_ns: int) -> None:
        """Let everybody speak, window after window, up to a moment of the job, or until an incident is open."""
        if not hasattr(self, "steps"):
            self.steps = job.batches(first_ns=WINDOW_S * SECOND, step_ns=WINDOW_S * SECOND)
        for at, batches in self.steps:
            for number, batch in enumerate(batches):
                self.relays[number % len(self.relays)].window.take(batch)
            self.tell()
            if at - job.shift >= until_ns - WINDOW_S * SECOND or self.watch.state.incidents():
                return


@pytest.fixture
def tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowTiers]:
    monkeypatch.setattr(relay_module, "PATIENCE_S", 3600.0)
    with receiving(tmp_path / "up") as upper:
        config = LiveConfig(data_dir=tmp_path / "up")
        told: list[tuple[str, Incident]] = []
        watch = Watch(
            config,
            upper.state,
            Window(config.store_dir),
            told=lambda event, incident, _title: told.append((event, incident)),
        )
        relays = [a_relay(tmp_path, upper.url, f"r{n}", summary_s=float(WINDOW_S)) for n in range(2)]
        opened = SlowTiers(upper, relays, watch, told)
        yield opened
        opened.watch.close()
        for relay in opened.relays:
            relay.close()


@pytest.fixture(scope="module")
def slow() -> Job:
    # Windows begin at the same moments of the job whenever the test runs.
    window_ns = WINDOW_S * SECOND
    return Job("gpu_power", rank=FAULTY, until_ns=time.time_ns() // window_ns * window_ns, after_s=40.0)


def test_rank_that_becomes_slow_is_accused_judged_by_rows_and_told_once(tiers: SlowTiers, slow: Job) -> None:
    began = truth(slow.simulated)["injected_ns"]
    tiers.go_on(slow, until_ns=began)
    state = tiers.watch.state
    assert state.incidents() == []
    tiers.go_on(slow, until_ns=slow.last)
    [incident] = state.incidents()
    assert (incident.status, incident.ranks, incident.confidence) == ("slow", (FAULTY,), "medium")
    assert "summaries" in incident.summary and incident.hosts == ("sim1",)
    # People hear of it once the rows were judged.
    assert tiers.told == []
    requests = state.requests(incident.incident)
    assert {request.host for request in requests} == {"relay.r0", "relay.r1"}
    tiers.bring()
    tiers.tell()
    assert [(event, one.ranks, one.status) for event, one in tiers.told] == [("opened", (FAULTY,), "slow")]
    now = state.incident(incident.incident)
    assert (now.trace is not None, now.closed) == (True, None)
    # It goes on, and asks for nothing more; then it is over for a while, and closes.
    tiers.tell()
    assert len(state.requests(incident.incident)) == len(requests)
    assert [event for event, _ in tiers.told] == ["opened"]
    relayed = tiers.watch._relayed
    assert relayed is not None
    for one in relayed._slow.values():
        one.findings = ()
    tiers.watch._jobs[incident.job].incidents.clock = lambda: time.monotonic() + 60.0
    tiers.tell()
    assert state.incident(incident.incident).closed is not None
    assert [event for event, _ in tiers.told] == ["opened", "closed"]
    # Of a job that no relay tells of any more nothing is held.
    relayed.tick([])
    assert relayed.numbers["entities"] == relayed.numbers["series_bytes"] == 0


def test_accused_are_told_with_doubt_where_no_rows_come_and_a_job_that_stands_is_another_incident(
    tiers: SlowTiers, slow: Job
) -> None:
    tiers.go_on(slow, until_ns=slow.last)
    state = tiers.watch.state
    [incident] = state.incidents()
    relayed = tiers.watch._relayed
    assert relayed is not None
    relayed.evidence_s = 0.0
    tiers.tell()
    assert [(event, one.confidence) for event, one in tiers.told] == [("opened", "medium")]
    assert "rows of these ranks would decide" in incident.finding["confidence_why"][0]
    # What was open for a moment is a pause, also of a slow job; what is open for longer is no slowness.
    for pause_s, still_slow in ((10, True), (20, False)):
        for name, seen in list(tiers.watch.window.relays.items()):
            rows = seen.summary.rows.to_pylist()
            at = seen.summary.parts[0].at_ns
            opened = [
                {**row, "open_seq": row["last_seq"], "open_kind": 0, "open_enq": at - pause_s * SECOND} for row in rows
            ]
            summary = replace(seen.summary, rows=type(seen.summary.rows).from_pylist(opened, seen.summary.rows.schema))
            tiers.watch.window.relays[name] = replace(seen, made_ns=seen.made_ns + pause_s, summary=summary)
        tiers.rested()
        tiers.watch.tick()
        now = state.incident(incident.incident)
        assert (now.closed is None) is still_slow
    assert [one.status for one in state.incidents(only_open=True)] == ["cannot_tell"]
