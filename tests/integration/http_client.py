"""A small client of a running server, as a program would write it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mycroft.app.access import WRITE_HEADER

DEADLINE_S = 120.0
POLL_S = 0.05


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Requests to one server; `cookies` are sent and kept as a browser does, without their attributes."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self.cookies: dict[str, str] = {}

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection = http.client.HTTPConnection(self._host, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie", []):
            name, _, rest = cookie.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        return Answer(answer.status, dict(answer.headers), content)

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def write(self, method: str, path: str, body: Any = None) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        return self.call(method, path, content, **{WRITE_HEADER: "1", "Content-Type": "application/json"})

    def put(self, path: str, body: bytes) -> Answer:
        return self.call("PUT", path, body, **{WRITE_HEADER: "1"})

    def upload(self, files: Mapping[str, bytes]) -> str:
        """Upload files by name and return the id of the job."""
        wanted = {"files": [{"path": name, "size": len(content)} for name, content in files.items()]}
        made = self.write("POST", "/api/v1/uploads", wanted).json()
        size = made["chunk_bytes"]
        for number, content in enumerate(files.values()):
            for chunk in range(-(-len(content) // size)):
                part = content[chunk * size : (chunk + 1) * size]
                assert self.put(f"/api/v1/uploads/{made['upload']}/{number}/{chunk}", part).status == 200
        return self.write("POST", f"/api/v1/uploads/{made['upload']}/complete").json()["job"]

    def finished(self, job: str) -> dict[str, Any]:
        """Wait for the end of a job and return it."""
        return self.job_when(job, lambda found: found["status"] in {"done", "failed", "cancelled"})

    def job_when(self, job: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Poll a job as the page does until `condition` holds."""
        found: dict[str, Any] = {}

        def holds() -> bool:
            answer = self.get(f"/api/v1/jobs/{job}?since={found.get('rev', 0)}")
            if answer.status != 204:
                found.update(answer.json())
            return condition(found)

        until(holds, lambda: f"job {found}")
        return found


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait for a condition of another process; fails after a deadline that only a dead process reaches."""
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / POLL_S)):
        if condition():
            return
        pause.wait(POLL_S)
    raise AssertionError(f"did not come to pass: {what()}")


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder as a browser names them: with the folder in front."""
    return {
        f"{folder.name}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "truth.json"
    }
