"""The server with its real processes: gunicorn and ingest on a free port of loopback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycroft.app import jobs
from mycroft.app.config import MIB, AppConfig
from mycroft.app.processes import ServeError, Server
from mycroft.app.state import State
from mycroft.loaders import load, open_store
from tests.bench.uploads import upload
from tests.integration.http_client import Client, files_of, until

CASES = Path(__file__).resolve().parents[1] / "data" / "flight_recorder"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = AppConfig(data_dir=tmp_path_factory.mktemp("server"), port=0, chunk_bytes=64 * 1024)
    with Server(config) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.url)


@pytest.fixture(scope="module")
def trace(server: Server) -> str:
    """The id of an uploaded incident."""
    client = Client(server.url)
    job = client.finished(client.upload(files_of(CASES / "stuck_dataloader")))
    assert job["status"] == "done", job
    return job["trace"]


def test_an_uploaded_folder_becomes_a_verdict(client: Client, trace: str) -> None:
    verdict = client.get(f"/api/v1/traces/{trace}/verdict").json()
    assert verdict["schema"] == "mycroft.verdict/1"
    assert verdict["findings"][0]["root_cause"]["ranks"] == [5]


def test_the_stages_of_an_ingest_are_told(client: Client, server: Server) -> None:
    job = client.finished(client.upload(files_of(CASES / "healthy")))
    names = [stage["name"] for stage in job["stages"]]
    assert names[0] == "unpack" and names[-2:] == ["diagnose", "pyramid"]
    assert {stage["state"] for stage in job["stages"]} == {"done"}
    assert client.get(f"/api/v1/jobs/{job['job_id']}?since={job['rev']}").status == 204
    folder = server.config.data_dir / "uploads" / job["upload_id"]
    until(lambda: not folder.exists(), lambda: f"{folder} is deleted")


def test_an_upload_and_a_folder_on_disk_make_the_same_trace(
    client: Client, server: Server, trace: str, tmp_path: Path
) -> None:
    load([CASES / "stuck_dataloader"], tmp_path / "t.duckdb")
    listed = {row["path"] for row in client.get(f"/api/v1/traces/{trace}/files").json()["files"]}
    with open_store(tmp_path / "t.duckdb") as store:
        assert set(store.frame("SELECT path FROM files")["path"]) == listed
        assert client.get(f"/api/v1/traces/{trace}").json()["digest"] == store.meta["digest"]


def test_the_same_upload_twice_is_one_generation(client: Client, trace: str) -> None:
    job = client.finished(client.upload(files_of(CASES / "stuck_dataloader")))
    assert (job["trace"], job["generation"]) == (trace, 1)
    assert client.get(f"/api/v1/traces/{trace}").json()["generations"] == [1]


def test_a_claim_can_be_opened_at_its_line(client: Client, trace: str) -> None:
    verdict = client.get(f"/api/v1/traces/{trace}/verdict").json()
    files = {row["path"]: row["file_id"] for row in client.get(f"/api/v1/traces/{trace}/files").json()["files"]}
    claims = [claim for claim in verdict["findings"][0]["evidence"] if claim["file"] in files and claim["line"]]
    shown = 0
    for claim in claims:
        answer = client.get(
            f"/api/v1/traces/{trace}/g/1/files/{files[claim['file']]}/lines?from={claim['line']}&count=1"
        )
        lines = answer.json()["lines"]
        if lines:
            shown += 1
            local = (CASES / "stuck_dataloader" / claim["file"]).read_text().splitlines()
            assert lines == [local[claim["line"] - 1]]
    assert shown


def test_sql_is_answered_and_changes_nothing(client: Client, trace: str) -> None:
    answer = client.get(f"/api/v1/traces/{trace}/sql?q=SELECT%20rank%20FROM%20ranks%20ORDER%20BY%201").json()
    assert answer == {"columns": ["rank"], "rows": [[rank] for rank in range(8)], "cut": False}
    for query in (
        "DROP%20TABLE%20ranks",
        "SELECT%201;%20SELECT%202",
        "SELECT%20*%20FROM%20read_text('/etc/passwd')",
        "",
    ):
        refused = client.get(f"/api/v1/traces/{trace}/sql?q={query}")
        assert refused.status == 400 and "error" in refused.json()


def test_a_share_opens_the_trace_for_reading_in_a_fresh_browser(client: Client, server: Server, trace: str) -> None:
    made = client.write("POST", f"/api/v1/traces/{trace}/shares", {"target": f"/t/{trace}/d/f1?g=1", "days": 1}).json()
    colleague = Client(server.url)
    opened = colleague.get(made["path"])
    assert (opened.status, opened.headers["Location"]) == (303, f"/t/{trace}/d/f1?g=1")
    assert colleague.get(f"/api/v1/traces/{trace}/verdict").status == 200
    assert colleague.get("/api/v1/traces").status == 403
    assert colleague.write("DELETE", f"/api/v1/traces/{trace}").status == 403
    assert client.write("DELETE", f"/api/v1/traces/{trace}/shares/{made['share']}").status == 204
    assert Client(server.url).get(made["path"]).status == 410


@pytest.mark.parametrize("target", ["//evil.example", "/t/another", "/jobs/1", "https://evil.example/t/x", 7])
def test_a_share_leads_only_into_its_own_trace(client: Client, trace: str, target: object) -> None:
    assert client.write("POST", f"/api/v1/traces/{trace}/shares", {"target": target}).status == 400


def test_an_export_needs_nothing_but_itself(client: Client, trace: str) -> None:
    answer = client.get(f"/api/v1/traces/{trace}/export.html?redact=1")
    text = answer.body.decode()
    assert answer.status == 200 and len(answer.body) < 2_000_000
    assert "attachment" in answer.headers["Content-Disposition"]
    assert "node-0" not in text
    # The one script is of the file itself, and its policy allows no other and no request.
    assert text.count("<script>") == 1 and "script-src &#x27;sha256-" in text and "connect-src" not in text
    assert not re.search(r"<[^>]*(?:src|href)=\"(?!#)", text) and not re.search(r"url\([\"']?(?!data:|#)", text)
    body = client.get(f"/api/v1/traces/{trace}/export.json").json()
    assert body["verdict"]["findings"][0]["root_cause"]["ranks"] == [5]


def test_garbage_is_reported_and_harms_nobody(client: Client) -> None:
    job = client.finished(client.upload({"noise.bin": os.urandom(4096)}))
    assert job["status"] == "failed"
    assert "noise.bin" in job["error"]


def test_the_format_is_known_before_the_upload_is_complete(client: Client) -> None:
    content = (CASES / "healthy" / "fr" / "nccl_trace_rank_0").read_bytes() + b"\0" * 200_000
    wanted = {"files": [{"path": "nccl_trace_rank_0", "size": len(content)}]}
    made = client.write("POST", "/api/v1/uploads", wanted).json()
    answer = client.put(f"/api/v1/uploads/{made['upload']}/0/0", content[: made["chunk_bytes"]])
    assert answer.json()["format"] == "flight_recorder"
    client.write("DELETE", f"/api/v1/uploads/{made['upload']}")


def test_a_body_that_ends_early_is_not_recorded(client: Client, server: Server) -> None:
    made = client.write("POST", "/api/v1/uploads", {"files": [{"path": "a", "size": 1000}]}).json()
    with socket.create_connection(("127.0.0.1", server.config.port)) as raw:
        head = f"PUT /api/v1/uploads/{made['upload']}/0/0 HTTP/1.1\r\nHost: localhost\r\nX-Mycroft: 1\r\n"
        raw.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b"x" * 10)
    state = client.get(f"/api/v1/uploads/{made['upload']}").json()
    assert state["files"][0]["received"] == []
    assert client.put(f"/api/v1/uploads/{made['upload']}/0/0", b"x" * 1000).status == 200


def queue(server: Server, path: Path) -> str:
    state = State(server.config.data_dir)
    with state.transaction() as connection:
        job = jobs.insert(connection, title="pipe", sources=[jobs.Source("pipe", str(path))])
    state.close()
    return job


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A pipe that nobody writes to: whoever loads it works until it is stopped."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    return pipe


def test_a_worker_that_is_killed_has_its_job_tried_once_more_and_then_reported(
    client: Client, server: Server, endless: Path
) -> None:
    job = queue(server, endless)
    for attempt in (1, 2):
        client.job_when(job, lambda found, n=attempt: found["status"] == "running" and found["attempts"] == n)
        os.kill(server.pids["ingest"], signal.SIGKILL)
    found = client.finished(job)
    assert found["status"] == "failed" and "2 times" in found["error"]
    again = client.finished(client.upload(files_of(CASES / "healthy")))
    assert again["status"] == "done"


def test_a_running_job_is_cancelled_and_the_next_one_runs(client: Client, server: Server, endless: Path) -> None:
    job = queue(server, endless)
    client.job_when(job, lambda found: found["status"] == "running")
    assert client.write("DELETE", f"/api/v1/jobs/{job}").status == 200
    assert client.finished(job)["status"] == "cancelled"
    assert client.finished(client.upload(files_of(CASES / "healthy")))["status"] == "done"
    work = server.config.data_dir / "work"
    until(lambda: not any(work.iterdir()), lambda: f"{work} is empty")


def test_stopping_puts_a_running_job_back(tmp_path: Path, endless: Path) -> None:
    config = AppConfig(data_dir=tmp_path / "data", port=0)
    with Server(config) as first:
        job = queue(first, endless)
        Client(first.url).job_when(job, lambda found: found["status"] == "running")
    state = State(config.data_dir)
    found = jobs.find(state, job)
    state.close()
    assert (found.status, found.attempts) == ("queued", 0)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_no_process_outlives_the_server(tmp_path: Path) -> None:
    with Server(AppConfig(data_dir=tmp_path, port=0)) as running:
        pids = list(running.pids.values())
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


def test_no_process_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, signal; from pathlib import Path; from mycroft.app.config import AppConfig;"
        "from mycroft.app.processes import Server\n"
        "with Server(AppConfig(data_dir=Path(sys.argv[1]), port=0)) as running:\n"
        "    print(*running.pids.values(), flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    until(lambda: all(gone(pid) for pid in pids), lambda: f"processes {pids} end")


def test_a_taken_port_is_told_before_anything_starts(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=f"port {server.config.port}"):
        Server(AppConfig(data_dir=tmp_path, port=server.config.port))


def test_a_web_that_cannot_start_is_reported(tmp_path: Path) -> None:
    (tmp_path / "secret.key").mkdir()
    with pytest.raises(ServeError, match="the web process ended 3 times"):
        Server(AppConfig(data_dir=tmp_path, port=0)).__enter__()


def test_an_upload_costs_the_web_processes_little_memory(tmp_path: Path) -> None:
    with Server(AppConfig(data_dir=tmp_path, port=0)) as running:
        cost = upload(running, 192 * MIB)
    assert cost.grown_bytes <= 64 * MIB


@pytest.mark.slow
def test_a_cold_start_answers_parallel_requests_without_an_error(tmp_path: Path) -> None:
    statuses: list[int] = []

    def ask(url: str, path: str) -> None:
        statuses.append(Client(url).get(path).status)

    paths = ["/", "/_dash-layout", "/_dash-dependencies", "/api/v1/traces", "/t/none", "/healthz"] * 2
    for _ in range(10):
        with Server(AppConfig(data_dir=tmp_path, port=0)) as cold:
            threads = [threading.Thread(target=ask, args=(cold.url, path)) for path in paths]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert len(statuses) == 120
    assert set(statuses) == {200}


def test_ctrl_c_ends_serve_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mycroft.app.cli", "serve", "--port", "0", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None and serving.stderr is not None
        line = serving.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert url is not None, line
        assert Client(url[0]).get("/healthz").status == 200
        serving.send_signal(signal.SIGINT)
        told = serving.stderr.read()
        assert serving.wait() == 0
    assert told == "stopping\n"
