"""Uploads: what is received is exactly what was sent, in any order, once or often; and nothing else gets in."""

from __future__ import annotations

import dataclasses
import errno
import io
import itertools
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycroft.app import jobs, uploads
from mycroft.app.config import MIB, AppConfig
from mycroft.app.state import State
from mycroft.app.uploads import UploadError, Uploads, WantedFile, wanted_files

CHUNK = 64 * 1024
DATA = bytes(range(256)) * 640  # 160 KiB: two whole chunks and a half


@pytest.fixture
def received(config: AppConfig, state: State) -> Uploads:
    return Uploads(config, state)


def put(received: Uploads, upload: str, file: int, chunk: int, data: bytes = DATA, **options: Any) -> dict[str, Any]:
    body = data[chunk * CHUNK : (chunk + 1) * CHUNK]
    options = {"body": io.BytesIO(body), "length": len(body)} | options
    return received.write_chunk(upload, file=file, chunk=chunk, **options)


def refused(status: int, call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(UploadError) as caught:
        call(*args, **options)
    assert caught.value.http_status == status
    return str(caught.value)


def start(received: Uploads, *files: WantedFile) -> str:
    return received.create(list(files) or [WantedFile("job/rank_0.pkl", len(DATA))])["upload"]


def content(config: AppConfig, upload: str, file: int) -> bytes:
    return (config.data_dir / "uploads" / upload / str(file)).read_bytes()


def test_chunks_in_any_order_and_repeated_give_the_file(received: Uploads, config: AppConfig) -> None:
    upload = start(received)
    for chunk in (2, 0, 2, 1, 0):
        put(received, upload, 0, chunk)
    received.complete(upload)
    assert content(config, upload, 0) == DATA


def test_status_names_what_is_there_so_that_a_client_can_resume(received: Uploads) -> None:
    upload = start(received)
    put(received, upload, 0, 0)
    put(received, upload, 0, 2)
    status = received.status(upload)
    assert status["files"][0]["received"] == [(0, 1), (2, 3)]
    assert status["received_bytes"] == CHUNK + CHUNK // 2
    assert status["status"] == "open"


@given(st.sets(st.integers(0, 40)))
def test_ranges_hold_exactly_the_chunks(chunks: set[int]) -> None:
    found = uploads.ranges(sorted(chunks))
    assert [chunk for first, end in found for chunk in range(first, end)] == sorted(chunks)
    assert all(end < later for (_, end), (later, _) in itertools.pairwise(found))


def test_a_body_shorter_than_it_says_is_not_recorded(received: Uploads) -> None:
    upload = start(received)
    refused(400, put, received, upload, 0, 0, body=io.BytesIO(DATA[: CHUNK - 1]))
    assert received.status(upload)["files"][0]["received"] == []


@pytest.mark.parametrize("length", [0, CHUNK - 1, CHUNK + 1])
def test_a_chunk_of_another_length_is_refused_unread(received: Uploads, length: int) -> None:
    body = io.BytesIO(b"x" * length)
    message = refused(400, put, received, start(received), 0, 0, body=body, length=length)
    assert str(CHUNK) in message
    assert body.tell() == 0


def test_a_chunk_without_a_length_is_refused(received: Uploads) -> None:
    refused(411, put, received, start(received), 0, 0, length=None)


def test_a_body_is_read_in_small_pieces(config: AppConfig, state: State) -> None:
    asked: list[int] = []

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size or -1)
            return super().read(size)

    received = Uploads(dataclasses.replace(config, chunk_bytes=3 * MIB), state)
    upload = start(received, WantedFile("big", 3 * MIB))
    received.write_chunk(upload, file=0, chunk=0, body=Watched(b"x" * 3 * MIB), length=3 * MIB)
    assert asked and all(0 < size <= MIB for size in asked)


def test_a_body_that_stalls_is_the_senders_failure(received: Uploads) -> None:
    class Stalled(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise TimeoutError("timed out")

    upload = start(received)
    assert "timed out" in refused(408, put, received, upload, 0, 0, body=Stalled())
    assert received.status(upload)["files"][0]["received"] == []


def test_bytes_that_no_job_needs_are_swept(received: Uploads, config: AppConfig, state: State) -> None:
    waiting, done, open_ = (start(received, WantedFile(name, 0)) for name in "abc")
    for upload in (waiting, done):
        received.complete(upload)
    with state.connection() as connection:
        connection.execute("UPDATE jobs SET status = 'failed' WHERE upload_id = ?", (done,))
    received.sweep()
    assert {entry.name for entry in (config.data_dir / "uploads").iterdir()} == {waiting, open_}


def test_the_last_chunk_has_what_is_left(received: Uploads) -> None:
    upload = start(received)
    refused(400, put, received, upload, 0, 2, body=io.BytesIO(b"x" * CHUNK), length=CHUNK)
    put(received, upload, 0, 2)
    assert received.status(upload)["received_bytes"] == len(DATA) - 2 * CHUNK


@pytest.mark.parametrize(("file", "chunk"), [(1, 0), (0, 3), (0, 10**15)])
def test_what_was_not_announced_has_no_place(received: Uploads, file: int, chunk: int) -> None:
    upload = start(received)
    refused(404, received.write_chunk, upload, file=file, chunk=chunk, body=io.BytesIO(b"x"), length=1)
    refused(404, received.write_chunk, "nope", file=0, chunk=0, body=io.BytesIO(b"x"), length=1)


def test_a_damaged_chunk_is_to_be_sent_again(received: Uploads) -> None:
    upload = start(received)
    refused(503, put, received, upload, 0, 0, crc32=1)
    assert received.status(upload)["files"][0]["received"] == []
    put(received, upload, 0, 0, crc32=zlib.crc32(DATA[:CHUNK]))
    assert received.status(upload)["files"][0]["received"] == [(0, 1)]


def test_completing_needs_every_chunk_and_is_harmless_twice(received: Uploads, state: State) -> None:
    upload = start(received)
    put(received, upload, 0, 0)
    assert "rank_0.pkl" in refused(409, received.complete, upload)
    put(received, upload, 0, 1)
    put(received, upload, 0, 2)
    job = received.complete(upload)
    assert received.complete(upload) == job
    assert [source.name for source in jobs.find(state, job).sources] == ["job/rank_0.pkl"]
    assert received.status(upload)["files"][0]["received"] == [(0, 3)]
    refused(409, put, received, upload, 0, 0)
    refused(409, received.cancel, upload)


def test_empty_files_need_no_chunk(received: Uploads, config: AppConfig) -> None:
    upload = start(received, WantedFile("empty.log", 0))
    received.complete(upload)
    assert content(config, upload, 0) == b""


def test_cancelling_frees_the_space_and_stays_cancelled(received: Uploads, config: AppConfig) -> None:
    upload = start(received)
    put(received, upload, 0, 0)
    received.cancel(upload)
    assert not (config.data_dir / "uploads" / upload).exists()
    refused(410, put, received, upload, 0, 0)
    refused(410, received.complete, upload)
    received.cancel(upload)
    assert received.status(upload)["status"] == "cancelled"


def test_a_chunk_that_ends_after_the_cancelling_is_not_recorded(received: Uploads, config: AppConfig) -> None:
    upload = start(received)

    class Body(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            received.cancel(upload)
            return super().read(size)

    refused(410, put, received, upload, 0, 0, body=Body(DATA[:CHUNK]))
    assert not (config.data_dir / "uploads" / upload).exists()


def test_expired_uploads_are_swept_and_others_stay(
    received: Uploads, config: AppConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, clock = start(received), uploads.now()
    put(received, old, 0, 0)
    monkeypatch.setattr(uploads, "now", lambda: clock + config.upload_expiry_s + 60)
    young = start(received)
    refused(410, put, received, old, 0, 1)
    assert received.status(old)["status"] == "expired"
    assert received.sweep() == [old]
    assert received.sweep() == []
    assert not (config.data_dir / "uploads" / old).exists()
    put(received, young, 0, 0)


def test_each_chunk_puts_the_expiry_off(received: Uploads, config: AppConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    upload, clock = start(received), uploads.now()
    monkeypatch.setattr(uploads, "now", lambda: clock + config.upload_expiry_s - 60)
    put(received, upload, 0, 0)
    monkeypatch.setattr(uploads, "now", lambda: clock + config.upload_expiry_s + 60)
    put(received, upload, 0, 1)
    assert received.sweep() == []


def test_the_quota_counts_uploads_under_way(received: Uploads) -> None:
    start(received, WantedFile("a", 3 * MIB))
    assert "quota" in refused(413, received.create, [WantedFile("b", 2 * MIB)])
    start(received, WantedFile("c", MIB))


def test_the_quota_is_free_again_after_cancel_and_complete(received: Uploads) -> None:
    received.cancel(start(received, WantedFile("a", 4 * MIB)))
    upload = start(received)
    for chunk in range(3):
        put(received, upload, 0, chunk)
    received.complete(upload)
    start(received, WantedFile("b", 4 * MIB))


def test_what_does_not_fit_on_the_disk_is_refused_before_it_is_sent(config: AppConfig, state: State) -> None:
    crowded = Uploads(dataclasses.replace(config, free_space_reserve_bytes=2**62), state)
    assert "free" in refused(507, crowded.create, [WantedFile("a", 1)])


def test_a_disk_that_fills_up_refuses_the_chunk_and_records_nothing(
    received: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = start(received)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        assert "No space left" in refused(507, put, received, upload, 0, 0)
    assert received.status(upload)["files"][0]["received"] == []
    put(received, upload, 0, 0)


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../../x", "..\\x", "C:\\..\\x", "a\0b", "a\nb", "x" * 1001, None, 7]
)
def test_names_that_climb_or_hide_are_refused(name: object) -> None:
    refused(400, wanted_files, {"files": [{"path": name, "size": 1}]}, files_max=9)


@pytest.mark.parametrize("size", [-1, 1.5, "1", None, True])
def test_sizes_are_whole_numbers(size: object) -> None:
    refused(400, wanted_files, {"files": [{"path": "a", "size": size}]}, files_max=9)


@pytest.mark.parametrize("body", [None, [], {}, {"files": []}, {"files": "x"}, {"files": [1]}])
def test_a_request_without_files_is_refused(body: object) -> None:
    refused(400, wanted_files, body, files_max=9)


def test_more_files_than_allowed_are_refused() -> None:
    refused(413, wanted_files, {"files": [{"path": "a", "size": 1}] * 10}, files_max=9)


def test_names_never_become_paths(received: Uploads, config: AppConfig) -> None:
    upload = start(received, WantedFile("weird %2e%2e name;$(x)", 0))
    received.complete(upload)
    folder = config.data_dir / "uploads" / upload
    assert [entry.name for entry in folder.iterdir()] == ["0"]


def test_the_format_is_known_after_the_first_chunk(config: AppConfig, state: State) -> None:
    seen: list[tuple[str, int, int]] = []

    def sniff(name: str, size: int, head: bytes) -> str | None:
        seen.append((name, size, len(head)))
        return "flight_recorder" if head.startswith(DATA[:4]) else None

    received = Uploads(config, state, sniff=sniff)
    upload = start(received)
    put(received, upload, 0, 1)
    assert received.status(upload)["files"][0]["format"] is None
    assert put(received, upload, 0, 0)["format"] == "flight_recorder"
    assert received.status(upload)["files"][0]["format"] == "flight_recorder"
    assert seen == [("job/rank_0.pkl", len(DATA), CHUNK)]


@pytest.mark.parametrize(
    ("paths", "title"),
    [(["run7/a", "run7/b/c"], "run7"), (["a.tar"], "a.tar"), (["x/a.log", "y/b.log", "z"], "a.log and 2 more")],
)
def test_an_upload_is_called_after_what_was_dropped(paths: list[str], title: str) -> None:
    assert uploads.title_of(paths) == title


def test_two_processes_see_the_same_upload(received: Uploads, config: AppConfig, tmp_path: Path) -> None:
    upload = start(received)
    put(received, upload, 0, 0)
    elsewhere = State(config.data_dir)
    other = Uploads(config, elsewhere)
    put(other, upload, 0, 1)
    put(other, upload, 0, 2)
    received.complete(upload)
    elsewhere.close()
    assert content(config, upload, 0) == DATA
