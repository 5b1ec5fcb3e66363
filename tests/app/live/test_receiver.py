"""From an agent to the collector over HTTP: acknowledged, refused, away, full, and asked for evidence."""

from __future__ import annotations

import argparse
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mycroft.app.commands import options
from mycroft.app.config import ConfigError
from mycroft.app.live import serving
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.state import ASK_AGAIN_S, ASK_FOR_S, LiveState
from mycroft.app.live.tokens import AgentToken, digest_of, read_tokens
from mycroft.app.state import State
from mycroft.loaders.collector import Window
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.tracer.agent import Agent, AgentError, AgentSettings
from mycroft.tracer.agent.sender import Request
from mycroft.tracer.trace import TABLES
from tests.app.live.receiving import Receiving, receiving
from tests.app.live.test_incidents import finding
from tests.bench import collector as bench
from tests.tracer.agent.batches import a_batch, numbered, recorder, write_ops
from tests.tracer.agent.test_spool import no_room_beyond

TOKEN = "a-token-of-enough-length"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Receiving]:
    with receiving(tmp_path / "data") as opened:
        yield opened


def agent(server: Receiving, tmp_path: Path, **settings: object) -> Agent:
    return Agent(
        AgentSettings(
            collector=server.url,
            folders=(tmp_path / "rings",),
            state=tmp_path / "agent",
            host="host0",
            **settings,  # type: ignore[arg-type]
        )
    )


def send_all(one: Agent) -> None:
    while (wait := one.sender.send_one()) is not None:
        assert wait == 0.0


def stored_rows(server: Receiving) -> list[tuple[str, int]]:
    server.collector.flush()
    found = []
    for segment in read_manifest(server.collector.manifest_folder).segments:
        if segment.table in TABLES:
            table = pq.read_table(server.collector.root / segment.path, partitioning=None)
            found += [(segment.table, position) for position in table.column("position").to_pylist()]
    return found


def stored_gaps(server: Receiving) -> list[dict[str, object]]:
    server.collector.flush()
    segments = [s for s in read_manifest(server.collector.manifest_folder).segments if s.table == "gaps"]
    columns = ["host", "why", "rows", "batches"]
    return [
        row
        for s in segments
        for row in pq.read_table(server.collector.root / s.path, columns=columns, partitioning=None).to_pylist()
    ]


def test_every_record_of_a_ring_arrives_once(server: Receiving, tmp_path: Path) -> None:
    with recorder(tmp_path / "rings") as writer:
        one = agent(server, tmp_path)
        for name in ("a", "b", "c"):
            write_ops(writer, 5, comm=name)
            one.turn()
            send_all(one)
        head = one.rings.live[0].file.header["head"]
        one.close()
    found = stored_rows(server)
    assert len(found) == len(set(found))
    assert sorted(position for _, position in found) == list(range(head))


def test_agent_that_is_killed_before_it_notes_its_positions_repeats_nothing(server: Receiving, tmp_path: Path) -> None:
    with recorder(tmp_path / "rings") as writer:
        write_ops(writer, 5)
        one = agent(server, tmp_path)
        one.turn()
        send_all(one)
        one.close()
        (tmp_path / "agent" / "cursors.json").unlink()
        write_ops(writer, 5, comm="later")
        two = agent(server, tmp_path)
        two.turn()
        send_all(two)
        head = two.rings.live[0].file.header["head"]
        two.close()
    found = stored_rows(server)
    assert sorted(position for _, position in found) == list(range(head))


def test_collector_that_is_away_costs_nothing_but_the_spool(tmp_path: Path) -> None:
    with receiving(tmp_path / "data") as server:
        port = server.port
        one = agent(server, tmp_path)
    with recorder(tmp_path / "rings") as writer:
        for number in range(3):
            write_ops(writer, 3, comm=f"c{number}")
            one.turn()
            wait = one.sender.send_one()
            assert wait is not None and wait > 0
        assert len(one.spool) == 3
        one.close()
        # The next agent has the spool, and the collector is back.
        with receiving(tmp_path / "data", port=port) as server:
            two = agent(server, tmp_path)
            two.turn()
            send_all(two)
            head = two.rings.live[0].file.header["head"]
            two.close()
            assert sorted(position for _, position in stored_rows(server)) == list(range(head))
            assert stored_gaps(server) == []


def test_collector_away_for_longer_than_the_spool_leaves_a_gap_that_is_told(tmp_path: Path) -> None:
    with receiving(tmp_path / "data") as server:
        port = server.port
        one = agent(server, tmp_path, spool_bytes=20_000)
    with recorder(tmp_path / "rings") as writer:
        for number in range(30):
            write_ops(writer, 20, comm=f"c{number}")
            one.turn()
            assert one.spool.size_bytes <= 20_000
        with receiving(tmp_path / "data", port=port) as server:
            one.turn()
            send_all(one)
            one.turn()
            send_all(one)
            rows = stored_rows(server)
            gaps = stored_gaps(server)
    one.close()
    assert {gap["why"] for gap in gaps} == {"spool full"}
    lost = sum(int(str(gap["rows"])) for gap in gaps)
    assert lost > 0
    # What is there and what is said to be missing is everything.
    assert len(rows) == len(set(rows))
    assert len(rows) + lost == one.rows


def test_full_disk_of_the_agent_leaves_the_rows_in_the_ring(server: Receiving, tmp_path: Path) -> None:
    with recorder(tmp_path / "rings") as writer:
        one = agent(server, tmp_path)
        write_ops(writer, 5)
        with no_room_beyond(100):
            one.turn()
        assert len(one.spool) == 0
        one.turn()
        send_all(one)
        head = one.rings.live[0].file.header["head"]
        one.close()
    assert sorted(position for _, position in stored_rows(server)) == list(range(head))


def test_full_disk_of_the_collector_is_said_to_the_agent_which_keeps_the_batch(
    server: Receiving, tmp_path: Path
) -> None:
    with recorder(tmp_path / "rings") as writer:
        one = agent(server, tmp_path)
        write_ops(writer, 5)
        one.turn()
        with no_room_beyond(64):
            wait = one.sender.send_one()
            assert wait is not None and wait > 0
            client = server.client()
            assert client.get("/healthz").status_code == 503
            assert "mycroft_disk_problem 1" in client.get("/metrics").text
        assert len(one.spool) == 1
        send_all(one)
        one.close()
    assert server.client().get("/healthz").status_code == 200
    assert len(stored_rows(server)) > 0


def test_two_agents_do_not_share_a_spool(server: Receiving, tmp_path: Path) -> None:
    one = agent(server, tmp_path)
    with pytest.raises(AgentError, match="another agent uses this spool"):
        agent(server, tmp_path)
    one.close()


@pytest.mark.parametrize("url", ["collector:8060", "ftp://collector", "http://", "http://c/?x=1"])
def test_agent_refuses_an_address_that_is_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="expected an address"):
        Agent(AgentSettings(collector=url, state=tmp_path))


# ---- access ---------------------------------------------------------------------------


def test_tokens_speak_for_their_hosts_only(tmp_path: Path) -> None:
    tokens = (AgentToken(digest_of(TOKEN), "gpu-*"), AgentToken(digest_of("another-token-here"), "*"))
    batch = a_batch(tmp_path / "rings")
    with receiving(tmp_path / "data", tokens) as server:
        client = server.client()

        def post(host: str, token: str | None) -> int:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return client.post("/api/v1/batch", data=numbered(batch, 1, host=host), headers=headers).status_code

        assert post("gpu-1", None) == 401
        assert post("gpu-1", "wrong-token-wrong-token") == 403
        assert post("cpu-1", TOKEN) == 403
        assert post("gpu-1", TOKEN) == 204
        assert post("cpu-1", "another-token-here") == 204


def test_every_address_of_the_collector_that_changes_anything_asks_for_a_token(tmp_path: Path) -> None:
    with receiving(tmp_path / "data", (AgentToken(digest_of(TOKEN)),)) as server:
        request = server.state.ask("incident", "host0", ["p"])
        batch = numbered(a_batch(tmp_path / "rings"), 1)
        client = server.client()
        rules = [rule.rule for rule in server.app.url_map.iter_rules() if "POST" in (rule.methods or set())]
        for address in ("/api/v1/batch", *rules):
            answer = client.post(address, data=batch, headers={"X-Mycroft-Request": request})
            assert answer.status_code == 401, address


def test_open_collector_stays_on_loopback(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="refusing to collect on"):
        LiveConfig(data_dir=tmp_path, host="0.0.0.0").tokens()
    assert LiveConfig(data_dir=tmp_path, host="127.0.0.1").tokens() == ()


@pytest.mark.parametrize(("text", "why"), [("short\n", "line 1"), ("# none\n", "holds no token")])
def test_token_file_that_protects_nothing_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_tokens(path)


def test_what_is_no_batch_is_refused_with_the_reason(server: Receiving) -> None:
    client = server.client()
    assert client.post("/api/v1/batch", data=b"hello").status_code == 400
    assert client.post("/api/v1/batch", data=bytes(9 << 20)).status_code == 413
    assert client.get("/api/v1/batch").status_code == 405
    assert client.get("/").status_code == 404


def test_metrics_name_no_host_rank_or_job(server: Receiving, tmp_path: Path) -> None:
    client = server.client()
    batch = a_batch(tmp_path / "rings")
    for number in range(30):
        client.post("/api/v1/batch", data=numbered(batch, 1, host=f"host-{number}"))
    text = client.get("/metrics").text
    assert "mycroft_batches_total 30" in text
    assert 'mycroft_agents{state="speaking"} 30' in text
    assert "host-" not in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .*|[a-z_]+(\{[a-z]+=\"[a-z_]+\"\})? [-+.e0-9]+", line), line


# ---- evidence --------------------------------------------------------------------------

PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.tracer.agent.batches import recorder, write_ops
writer = recorder(Path({folder!r}))
write_ops(writer, 3)
print("a line of the log", file=sys.stderr, flush=True)
print("ready", flush=True)
def stands_here():
    sys.stdin.read()
stands_here()
"""


def test_agent_brings_stacks_logs_and_ring_of_the_processes_that_were_asked_for(
    server: Receiving, tmp_path: Path
) -> None:
    root = str(Path(__file__).resolve().parents[3])
    with (tmp_path / "err.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(root=root, folder=str(tmp_path / "rings"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        one = agent(server, tmp_path)
        one.turn()
        send_all(one)
        key = one.rings.live[0].key
        server.state.ask("incident1", "host0", [key])
        asked: list[Request] = []
        one.sender._on_request = asked.append
        server.app.extensions.clear()
        one.turn()
        while not asked:
            one.turn()
            send_all(one)
        assert [request.processes for request in asked] == [[key]]
        problems = one.serve_request(asked[0])
        one.close()
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    folder = tmp_path / "data" / "live" / "incidents" / "incident1" / "host0"
    names = {path.name for path in folder.iterdir()}
    assert {"rank0.stderr.log", "rank0.trace.parquet", "rank0.stacks.txt"} <= names
    assert (folder / "rank0.stderr.log").read_text() == "a line of the log\n"
    assert "stands_here" in (folder / "rank0.stacks.txt").read_text()
    assert problems == ["rank0.stdout.log: goes to no file; its reader may have it"]
    request = server.state.requests("incident1")[0]
    assert request.ended is not None and request.problems == tuple(problems)
    # Once an incident and host.
    assert server.state.ask("incident1", "host0", [key]) == request.request
    assert server.state.hand_requests("host0") == []


def test_evidence_that_was_not_asked_for_is_refused(server: Receiving) -> None:
    client = server.client()
    headers = {"X-Mycroft-Request": "nothing", "X-Mycroft-Name": "x.log"}
    assert client.post("/api/v1/evidence", data=b"x", headers=headers).status_code == 404
    request = server.state.ask("incident", "host0", ["p"])
    for name in ("../../etc/passwd", ".hidden", "a/b", "", "a b"):
        headers = {"X-Mycroft-Request": request, "X-Mycroft-Name": name}
        assert client.post("/api/v1/evidence", data=b"x", headers=headers).status_code == 404, name
    server.state.end_request(request, [])
    headers = {"X-Mycroft-Request": request, "X-Mycroft-Name": "x.log"}
    assert client.post("/api/v1/evidence", data=b"x", headers=headers).status_code == 409


# ---- real processes --------------------------------------------------------------------


@pytest.mark.slow
def test_killed_collector_loses_nothing_that_it_acknowledged() -> None:
    assert bench.kill(3, seed=7, hosts=3) == 0


def test_window_of_a_running_collector_sees_the_job(server: Receiving, tmp_path: Path) -> None:
    with recorder(tmp_path / "rings") as writer:
        write_ops(writer, 5)
        one = agent(server, tmp_path)
        one.turn()
        send_all(one)
        window = Window(server.collector.root)
        window.refresh()
        assert [[process.status.process.rank for process in job] for job in window.jobs()] == [[0]]
        one.close()


def test_how_long_tables_are_kept_is_told_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    options.add_data(parser)
    options.add_collecting(parser, prefix="")
    given = parser.parse_args(["--data", str(tmp_path), "--keep", "state=0.5", "--keep", "op=30"])
    assert options.live_config(given).keep_s == {"state": 43_200.0, "op": 30 * 86_400.0}
    for wrong in ("stat=1", "op", "op=-1"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--keep", wrong])
        assert wrong.partition("=")[2] in capsys.readouterr().err


def test_request_whose_answer_was_lost_is_handed_again_until_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 1000.0
    monkeypatch.setattr("mycroft.app.live.state.now", lambda: at)
    state = LiveState(State(tmp_path))
    request = state.ask("incident", "host0", ["key"])

    def waiting_and_handed() -> tuple[set[str], list[str]]:
        return state.waiting_hosts(), [one.request for one in state.hand_requests("host0")]

    assert waiting_and_handed() == ({"host0"}, [request])
    assert waiting_and_handed() == (set(), [])
    at += ASK_AGAIN_S + 1
    assert waiting_and_handed() == ({"host0"}, [request])
    at += ASK_AGAIN_S + 1
    state.end_request(request, [])
    assert waiting_and_handed() == (set(), [])
    # Of one that nobody fetches, agents are not asked for ever.
    state.ask("another", "host0", ["key"])
    at += ASK_FOR_S + 1
    assert waiting_and_handed() == (set(), [])


def test_rows_of_known_incidents_are_kept_from_some_minutes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "PINS_S", 0.0)
    state = LiveState(State(tmp_path))
    pins = serving.Pins(state)
    assert pins() == []
    opened = state.open_incident("job", finding(), why="first found")
    # One that stays open keeps what it rests on, and not all that comes after it.
    with monkeypatch.context() as later:
        later.setattr(serving.time, "time", lambda: opened.opened + 10 * serving.PIN_AFTER_S)
        assert pins()[0].until_ns == int((opened.opened + serving.PIN_AFTER_S) * 1e9)
    closed = state.close_incident(opened.incident)
    (pin,) = pins()
    assert closed.closed is not None
    assert pin.since_ns == int((opened.opened - serving.PIN_BEFORE_S) * 1e9)
    assert pin.until_ns == int(closed.closed * 1e9)

    def locked(**_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(state, "incidents", locked)
    assert pins() == [pin]
