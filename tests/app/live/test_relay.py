"""Two relays and a collector above, over HTTP: summaries, rows of the suspects only, a verdict; and what goes wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mycroft.analysis.fleet import Window as Span
from mycroft.analysis.fleet import partial
from mycroft.analysis.fleet.summaries import DIMENSIONS, OP_STATES, SUMMARY, summarise
from mycroft.app.cli import main
from mycroft.app.config import ConfigError
from mycroft.app.live import relay as relay_module
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.relay import Operations, Relay, _what_counts, check, name_of
from mycroft.app.live.relayed import Relayed
from mycroft.app.live.state import Incident
from mycroft.app.live.tokens import AgentToken, digest_of
from mycroft.app.live.watch import Watch
from mycroft.loaders.collector import Window
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.loaders.load import load
from mycroft.loaders.store import open_store
from mycroft.tracer.agent import AgentError
from mycroft.tracer.agent.sender import Request
from mycroft.tracer.simulator import truth
from tests.analysis.fleet.pieces import TablePiece
from tests.app.live.receiving import Receiving, receiving
from tests.app.live.simulated import SECOND, Job
from tests.tracer.agent.test_spool import no_room_beyond

FAULTY = 5
TOKEN = "a-token-of-enough-length"


@pytest.fixture(scope="module")
def job() -> Job:
    return Job("nic_down", rank=FAULTY, until_ns=time.time_ns())


@dataclass
class Tiers:
    upper: Receiving
    relays: list[Relay]
    watch: Watch
    told: list[tuple[str, Incident]]

    def restart(self) -> None:
        """End the watch, and start one that knows what is in the folder."""
        before = self.watch
        before.close()
        self.watch = Watch(before.config, before.state, Window(before.config.store_dir), told=before._told)

    def hear(self, job: Job, *, until_ns: int) -> None:
        """Give each relay what the agents of every other host sent of the job up to a moment of it."""
        _, batches = next(job.batches(first_ns=until_ns - job.first))
        for number, batch in enumerate(batches):
            self.relays[number % len(self.relays)].window.take(batch)

    def tell(self) -> None:
        """Let the relays tell, and the watch look."""
        for relay in self.relays:
            relay.turn()
            send_all(relay)
        self.watch.window.refresh()
        self.watch.tick()

    def bring(self) -> None:
        """Let the relays speak until all that were asked have brought what was wanted."""
        state = self.watch.state
        while any(r.ended is None for i in state.incidents() for r in state.requests(i.incident)):
            for relay in self.relays:
                relay.turn()
                send_all(relay)
                relay._serve_waiting()
        self.watch.tick()
        while not self.watch._queue.empty():
            self.watch.publish_one(self.watch._queue.get())


def send_all(relay: Relay) -> None:
    while len(relay.spool):
        assert relay.sender.send_one() == 0.0


def a_relay(tmp_path: Path, url: str, name: str, **settings: object) -> Relay:
    return Relay(LiveConfig(data_dir=tmp_path / name, upstream=url, relay_name=name, **settings))  # type: ignore[arg-type]


@pytest.fixture
def tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiers]:
    # Hosts of a busy machine are not silent because it took seconds until somebody looked.
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
        opened = Tiers(upper, [a_relay(tmp_path, upper.url, f"r{n}") for n in range(2)], watch, told)
        yield opened
        opened.watch.close()
        for relay in opened.relays:
            relay.close()


def stored(upper: Receiving) -> pl.DataFrame:
    upper.collector.flush()
    segments = [s for s in read_manifest(upper.collector.manifest_folder).segments if s.table == "summary"]
    return pl.concat([pl.DataFrame(pq.read_table(upper.collector.root / s.path, partitioning=None)) for s in segments])


def test_job_that_stands_gets_its_verdict_from_rows_of_the_suspects(tiers: Tiers, job: Job) -> None:
    tiers.hear(job, until_ns=job.last)
    tiers.tell()
    state = tiers.watch.state
    [incident] = state.incidents()
    # Summaries alone name nobody, and nobody is told of what may be a checkpoint.
    assert tiers.told == []
    assert (incident.ranks, incident.hosts, incident.status) == ((), (), "cannot_tell")
    requests = state.requests(incident.incident)
    assert {request.host for request in requests} == {"relay.r0", "relay.r1"}
    asked = [name for request in requests for name in request.processes]
    assert len(asked) == len(set(asked)) < 16  # not those of all ranks
    assert {request.until_ns for request in requests} == {job.last + job.shift}
    tiers.bring()
    incident = state.incident(incident.incident)
    assert FAULTY in incident.ranks and len(incident.ranks) <= 2
    assert (incident.category, incident.closed, incident.revisions) == ("link_fault", None, 2)
    assert [(event, one.category) for event, one in tiers.told] == [("opened", "link_fault")]
    assert incident.trace is not None and incident.page is not None
    # Once an incident: that the job still stands asks for nothing more, and takes nothing back.
    tiers.tell()
    assert len(state.requests(incident.incident)) == 2
    assert [one.incident for one in state.incidents()] == [incident.incident]
    assert state.incident(incident.incident).ranks == incident.ranks
    [seen] = state.jobs()
    assert (seen.title, seen.facts["processes"], seen.facts["relays"]) == ("simulated", 16, 2)


def test_rank_that_does_not_come_is_named_once_that_is_no_pause(tiers: Tiers) -> None:
    late = Job("absent", rank=FAULTY, until_ns=time.time_ns(), after_s=30.0)
    young = truth(late.simulated)["injected_ns"] + 9 * SECOND - late.first
    steps = late.batches(first_ns=young, step_ns=10 * SECOND)

    def hear() -> None:
        for number, batch in enumerate(next(steps)[1]):
            tiers.relays[number % len(tiers.relays)].window.take(batch)
        tiers.tell()

    hear()
    state = tiers.watch.state
    [incident] = state.incidents()
    tiers.bring()
    assert (state.incident(incident.incident).category, tiers.told) == ("unknown", [])
    hear()
    assert [(event, one.category) for event, one in tiers.told] == [("opened", "unknown")]
    tiers.bring()
    found = state.incident(incident.incident)
    assert (found.category, found.ranks) == ("absent", (FAULTY,))
    assert [event for event, _ in tiers.told] == ["opened", "revised"]
    # Rows are asked for twice at most, however long it stands.
    asked = state.requests(incident.incident)
    assert len({request.until_ns for request in asked}) == 2
    hear()
    assert len(state.requests(incident.incident)) == len(asked)


def test_job_that_goes_on_asks_for_nothing(tiers: Tiers, job: Job) -> None:
    tiers.hear(job, until_ns=truth(job.simulated)["injected_ns"])
    tiers.tell()
    assert tiers.told == []
    assert [seen.facts["processes"] for seen in tiers.watch.state.jobs()] == [16]
    numbers = tiers.watch.state.numbers()["tick"][1]["relays"]
    assert (numbers["relays"], numbers["silent"], numbers["ranks"]) == (2, 0, 16)


def test_half_a_job_is_not_judged_as_the_whole_also_by_a_watch_that_is_started_anew(tiers: Tiers, job: Job) -> None:
    tiers.hear(job, until_ns=job.last)
    other = tiers.relays.pop()
    tiers.tell()
    state = tiers.watch.state
    assert tiers.told == [] and state.jobs() == []
    # Nobody else speaks for as long as a relay may be silent: then it is judged, and said of what nothing is known.
    assert tiers.watch._relayed is not None
    tiers.watch._relayed._first = dict.fromkeys(tiers.watch._relayed._first, time.time() - 60.0)
    tiers.tell()
    [incident] = state.incidents()
    said = "nothing is known of the ranks of 8 processes of which no relay tells"
    assert said in incident.finding["why"]
    tiers.restart()
    tiers.bring()
    now = state.incident(incident.incident)
    assert now.ranks and now.confidence == "low"
    assert said in now.finding["confidence_why"]
    # Nobody had heard of it before there was somebody to name.
    assert [(event, one.ranks) for event, one in tiers.told] == [("opened", now.ranks)]
    other.close()


def test_watch_that_ended_before_it_asked_is_followed_by_one_that_asks(
    tiers: Tiers, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.hear(job, until_ns=job.last)
    with monkeypatch.context() as patched:
        patched.setattr(Relayed, "changed", lambda *_: None)
        tiers.tell()
    state = tiers.watch.state
    [incident] = state.incidents()
    assert state.requests(incident.incident) == []
    tiers.restart()
    tiers.tell()
    assert {request.host for request in state.requests(incident.incident)} == {"relay.r0", "relay.r1"}
    assert tiers.told == []
    tiers.tell()
    assert len(state.requests(incident.incident)) == 2


def test_incident_closes_when_the_job_is_over(tiers: Tiers, job: Job) -> None:
    tiers.hear(job, until_ns=job.last)
    tiers.tell()
    for relay in tiers.relays:
        for process in relay.window.processes.values():
            process.status = replace(process.status, closed=True)
    tiers.tell()
    [incident] = tiers.watch.state.incidents()
    assert incident.closed is not None
    assert tiers.told == []  # nobody had heard of it


def test_silent_relay_is_said_and_nobody_is_named_with_confidence(tiers: Tiers, job: Job) -> None:
    tiers.hear(job, until_ns=truth(job.simulated)["injected_ns"])
    tiers.tell()
    lost = tiers.relays.pop()
    # Its last word is a minute old; the rest of the job stands meanwhile.
    known = tiers.watch.window.relays
    known[lost.name] = replace(known[lost.name], arrived_s=time.time() - 60.0)
    # The other relay has the hosts of even numbers: what it hears is all up to the end.
    _, batches = next(job.batches(first_ns=job.last - job.first))
    for process in list(tiers.relays[0].window.processes):
        del tiers.relays[0].window.processes[process]
    for batch in batches[::2]:
        tiers.relays[0].window.take(batch)
    tiers.tell()
    opened = {incident.hosts: incident for incident in tiers.watch.state.incidents()}
    assert "blind for 8 ranks" in opened["relay.r1",].summary
    assert opened["relay.r1",].job == "relays"
    standing = opened[()]
    assert "nothing is known of the ranks of relay.r1" in standing.finding["why"]
    assert {r.host for r in tiers.watch.state.requests(standing.incident)} == {"relay.r0"}
    tiers.bring()
    now = tiers.watch.state.incident(standing.incident)
    assert now.confidence == "low"
    # It is no less silent when nothing is kept of it any more ...
    word = known.pop(lost.name)
    tiers.watch.tick()
    tiers.watch._jobs["relays"].incidents.clock = lambda: time.monotonic() + 60.0
    tiers.watch.tick()
    assert tiers.watch.state.incident(opened["relay.r1",].incident).closed is None
    # ... and the incident closes once it has spoken again for a while.
    known[lost.name] = replace(word, arrived_s=time.time())
    tiers.watch._jobs["relays"].incidents.clock = lambda: time.monotonic() + 120.0
    tiers.watch.tick()
    assert tiers.watch.state.incident(opened["relay.r1",].incident).closed is not None
    lost.close()


def test_summary_that_is_told_again_is_stored_once(tiers: Tiers, job: Job, tmp_path: Path) -> None:
    tiers.hear(job, until_ns=job.last)
    one = tiers.relays[0]
    one.turn()
    lent = one.spool.take()
    assert lent is not None
    assert one.collector.post("/api/v1/batch", lent[1]).taken
    # The answer was lost, and the relay with it: its successor has the spool and its own numbers.
    one.spool.keep()
    one.close()
    two = tiers.relays[0] = a_relay(tmp_path, tiers.upper.url, "r0")
    two.window.processes = one.window.processes
    two.turn()
    send_all(two)
    rows = stored(tiers.upper)
    assert sorted(rows.group_by("boot").len()["len"]) == [24, 24]
    assert rows.select("relay", "boot", "seq", "rank", "comm").is_unique().all()


def test_summaries_wait_for_a_collector_that_is_away_or_full(tmp_path: Path) -> None:
    with receiving(tmp_path / "up") as upper:
        port, url = upper.port, upper.url
    one = a_relay(tmp_path, url, "r0")
    for _ in range(3):
        one.turn()
        wait = one.sender.send_one()
        assert wait is not None and wait > 0
    assert len(one.spool) == 3
    with receiving(tmp_path / "up", port=port) as upper:
        with no_room_beyond(64):
            assert one.sender.send_one() != 0.0
        send_all(one)
        upper.collector.flush()
        assert read_manifest(upper.collector.manifest_folder).seqs[f"relay.r0/{one.boot}"][0] == 3
        assert upper.collector.counters.batches == 3
    one.close()


def test_relay_needs_a_token_that_may_speak_for_it(tmp_path: Path, job: Job) -> None:
    tokens = (AgentToken(digest_of(TOKEN), "gpu-*"), AgentToken(digest_of(TOKEN + "2"), "relay.*"))
    with receiving(tmp_path / "up", tokens) as upper:
        for number, (words, taken) in enumerate(((TOKEN, False), (TOKEN + "2", True))):
            file = tmp_path / f"token{number}"
            file.write_text(words)
            relay = a_relay(tmp_path, upper.url, f"r{number}", upstream_token_file=str(file))
            relay.turn()
            assert (relay.sender.send_one() == 0.0) is taken
            relay.close()


def test_rows_are_brought_of_those_who_are_asked_for_and_up_to_the_moment(
    tiers: Tiers, job: Job, tmp_path: Path
) -> None:
    tiers.hear(job, until_ns=job.last)
    one = tiers.relays[0]
    process = next(iter(one.window.processes.values()))
    rank = process.status.process.rank
    until = truth(job.simulated)["injected_ns"] + job.shift
    request = Request(
        tiers.watch.state.ask("i", one.name, []),
        "i",
        [name_of(rank, process.status.communicators[0].hash), name_of(4000, 1), "no name", "1@../../etc/passwd"],
        until,
    )
    assert one.serve_request(request) == ["3 ranks are not known here"]
    [file] = (tiers.upper.state.data_dir / "live" / "incidents" / "i" / one.name).iterdir()
    load([file], tmp_path / "t.duckdb")
    with open_store(tmp_path / "t.duckdb") as store:
        ops = store.frame("SELECT rank, epoch_ns(start_ts) AS at FROM coll_ops")
    assert set(ops["rank"]) == {rank}
    assert until - SECOND < ops["at"].max() < until + SECOND < job.last + job.shift  # type: ignore[operator]
    assert [r.problems for r in tiers.watch.state.requests("i")] == [("3 ranks are not known here",)]


def test_operations_kept_up_to_date_are_those_of_the_whole(job: Job) -> None:
    kept = Operations()
    whole: list[object] = []

    def follow(kind: str, rows: object) -> None:
        kept.take(kind, rows)
        if kind == "op":
            whole.append(rows)

    window = Window(Path("nowhere"), span_s=1e6, follow=follow)
    for turn, (_, batches) in enumerate(job.batches(first_ns=2 * SECOND, step_ns=4 * SECOND)):
        for batch in batches:
            window.take(batch)
        if turn % 2 == 0:
            kept.state(list(window.processes))
    tables = [t.set_column(0, "process", t.column("process").cast("string")) for t in whole]  # type: ignore[attr-defined]
    every = partial(OP_STATES, TablePiece(pa.concat_tables(tables)), Span(0, 1 << 62))
    who = [
        (p.key, p.status.process.rank, comm.comm, comm.hash, comm.rank, comm.size)
        for p in window.processes.values()
        for comm in p.status.communicators
    ]
    columns = zip(*who, strict=True)
    dimensions = pa.table([pa.array(c, f.type) for c, f in zip(columns, DIMENSIONS, strict=True)], schema=DIMENSIONS)
    mine = summarise(kept.state(list(window.processes)), dimensions, at_ns=0)
    assert mine.equals(summarise(every, dimensions, at_ns=0))
    assert mine.schema == SUMMARY.schema and mine.column("open_seq").null_count < mine.num_rows
    # What is kept does not grow with what was told.
    assert kept.state(list(window.processes)).num_rows < 5 * 16 < every.num_rows / 10
    assert kept.state([]).num_rows == 0


def test_operation_of_which_the_end_was_lost_does_not_stand_for_ever(job: Job) -> None:
    def op(number: int, *, ended: int, p2p: int = 0) -> dict[str, object]:
        peer = 1 if p2p else None
        row = {"process": "p", "comm": 1, "op_id": number, "enq": number, "ended": ended, "position": number}
        return {**row, "op_seq": number, "op_kind": 3 * p2p, "p2p": p2p, "peer": peer}

    rows = [op(1, ended=0), op(2, ended=1), op(3, ended=0), op(4, ended=0, p2p=1), op(5, ended=1, p2p=1)]
    kept = _what_counts(pl.DataFrame(rows, schema=pl.DataFrame(OP_STATES.schema.empty_table()).schema), ["p"])
    assert Counter(kept["op_seq"].to_list()) == Counter([3])


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"upstream": "ftp://x"}, AgentError, "expected an address"),
        ({"upstream": "http://x", "relay_name": "a b"}, ConfigError, "letters"),
        ({"upstream": "http://x", "relay_name": "a" * 81}, ConfigError, "at most 80"),
        ({"upstream": "http://x", "upstream_token_file": "missing"}, ConfigError, "missing"),
    ],
)
def test_settings_that_no_relay_can_use_are_refused_at_once(
    tmp_path: Path, settings: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        check(LiveConfig(data_dir=tmp_path, **settings))  # type: ignore[arg-type]


def test_options_of_a_relay_need_a_collector_above(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "--data", str(tmp_path), "--relay-name", "r1"]) == 2
    assert "--relay-name goes with --upstream" in capsys.readouterr().err
    assert main(["collect", "--data", str(tmp_path), "--upstream", "nowhere"]) == 2
    assert "expected an address" in capsys.readouterr().err
