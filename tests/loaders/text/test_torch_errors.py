"""Gloo, the store, memory, devices and data loader workers."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loaders.text.recorder import read

GLOO = "[../third_party/gloo/gloo/transport/tcp/"
CASES = [
    (f"RuntimeError: {GLOO}pair.cc:534] Connection closed by peer [10.12.0.13]:22004", "connection_closed", {"peer": "10.12.0.13:22004", "name": "gloo"}),
    (f"{GLOO}pair.cc:537] Read error [127.0.0.1]:57528: Connection reset by peer. This is …", "connection_closed", {"peer": "127.0.0.1:57528", "name": "gloo_reset"}),
    (f"{GLOO}pair.cc:1] Connection reset by peer [fe80::1]:5", "connection_closed", {"peer": "fe80::1:5"}),
    (f"{GLOO}unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete", "watchdog_timeout", {"name": "gloo_recv", "value": 1800000.0}),
    (f"{GLOO}unbound_buffer.cc:129] Timed out waiting 20000ms for send operation to complete", "watchdog_timeout", {"name": "gloo_send"}),
    ("Application timeout caused pair closure", "connect_failed", {"name": "Application timeout caused pair closure"}),
    ("Gloo connectFullMesh failed with [../x.cc:144] no error", "connect_failed", {"name": "Gloo connectFullMesh failed"}),
    ("RuntimeError: Timed out after 601 seconds waiting for clients. 24/32 clients joined.", "join_timeout", {"value": 24.0, "name": "24/32 clients joined", "dur_ms": 601000.0}),
    ("[c10d] recvValue failed on SocketImpl(fd=58, addr=[a]:41212, remote=[b]:29500): Failed to recv, got 0 bytes.", "store_error", {"peer": "[b]:29500", "name": "recvValue"}),
    ("[W217 09:14:03.1 TCPStore.cpp:115] [c10d] sendBytes failed on SocketImpl(fd=5, addr=[x]:1, remote=[h0]:29500): Broken pipe", "store_error", {"peer": "[h0]:29500"}),
    ("[c10d] waitForInput: socket SocketImpl(fd=9, addr=[a]:1, remote=[b]:29500) timed out after 1800000ms", "store_error", {"name": "store_timeout", "dur_ms": 1800000.0}),
    ("[c10d] The client socket has failed to connect to [h0.local]:29500 (errno: 111 - Connection refused).", "connect_failed", {"peer": "[h0.local]:29500", "code": 111}),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.44 GiB. GPU 1 has a total capacity of 79.11 GiB of which 5.18 GiB is free.", "out_of_memory", {"device": "1", "bytes": int(7.44 * 2**30), "name": "cuda"}),
    ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 3; 15.78 GiB total capacity; …)", "out_of_memory", {"device": "3", "bytes": 20 << 20}),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "cuda_error", {"name": "uncorrectable ECC error encountered"}),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error", {"name": "an illegal memory access was encountered"}),
    ("RuntimeError: CUDA error: device-side assert triggered", "cuda_error", {"name": "device-side assert triggered"}),
    ("RuntimeError: DataLoader worker (pid 108) is killed by signal: Killed. ", "signal", {"pid": 108, "code": -9, "name": "dataloader_worker"}),
    ("RuntimeError: DataLoader worker (pid(s) 108, 109) exited unexpectedly", "exit", {"pid": 108}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "expected"), CASES, ids=[case[0][:50] for case in CASES])
def test_errors_of_one_line(tmp_path: Path, text: str, kind: str, expected: dict[str, object]) -> None:
    row = read(tmp_path, f"[rank4]: {text}\n").rows(kind=kind)[0]
    assert row["rank"] == 4
    assert {key: row.get(key) for key in expected} == expected


def test_each_worker_that_exited_is_a_row(tmp_path: Path) -> None:
    rows = read(tmp_path, "DataLoader worker (pid(s) 108, 109) exited unexpectedly\n").rows(kind="exit")
    assert [row["pid"] for row in rows] == [108, 109]


def test_the_same_error_in_message_and_traceback_is_one_row(tmp_path: Path) -> None:
    line = f"RuntimeError: {GLOO}pair.cc:534] Connection closed by peer [10.12.0.13]:22004"
    text = f'ERROR communication error: {line}\nTraceback (most recent call last):\n  File "t.py", line 1, in main\n{line}\n'
    assert read(tmp_path, text).event("connection_closed")["line"] == 1


def test_a_wrong_size_seen_by_gloo(tmp_path: Path) -> None:
    text = "  what():  [enforce fail at x/pair.cc:456] op.preamble.length <= op.nbytes. 40 vs 32. Received data size doesn't match expected size. Is there …\n"
    event = read(tmp_path, text, "rank_5.log").event("fingerprint_mismatch")
    assert (event["rank"], event["name"], event["value"]) == (5, "gloo_size", 40.0)
