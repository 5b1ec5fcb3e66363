"""A command that is ended from outside: whatever it was doing, it clears up and says so in its status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.http_client import until

# Each does what has been seen to lose the exception that a handler raises, or to keep it from being raised.
WORK = {
    # DuckDB looks for signals while it works, and throws an error of its own: it once made status 2 of it.
    "engine": "duckdb.connect().execute(ENDLESS)",
    # As of a loader, to which one bad file is no reason to leave the others unread.
    "loader": """
while True:
    try:
        duckdb.connect().execute(ENDLESS)
    except Exception:
        pass
""",
    # The main thread is held by native code, and no handler runs.
    "native": "duckdb.connect().sql(SELECT).to_arrow_table()",
    # An exception in a finalizer is printed and forgotten.
    "finalizer": """
class Kept:
    def __del__(self):
        signal.pause()
del_me = Kept()
del del_me
while True:
    signal.pause()
""",
    "waiting": "signal.pause()",
    # What it was given to do raises when it is broken off.
    "clearing": """
try:
    signal.pause()
finally:
    raise OSError('cannot be cleared')
""",
}
SCRIPT = """
import argparse, signal, sys
import duckdb
from mycroft.app import cli, termination
from mycroft.app.commands.command import Command
from mycroft.scratch import scratch_folder

termination.Termination.__init__.__kwdefaults__["grace_s"] = 0.5
SELECT = "SELECT count(*) AS n FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3"
ENDLESS = f"CREATE TABLE t AS {SELECT}"
work = sys.argv[1]

def run(arguments):
    with scratch_folder() as folder:
        (folder / "rows").write_bytes(b"x" * 1000)
        print("working", flush=True)
        exec(work, globals())
    return 0

cli.COMMANDS = (Command(name="work", summary="work", configure=lambda parser: None, run=run),)
sys.exit(cli.main(["work"]))
"""


@pytest.mark.parametrize(
    ("work", "number"),
    [*((work, signal.SIGTERM) for work in WORK), ("engine", signal.SIGINT), ("loader", signal.SIGINT)],
)
def test_a_command_ends_whatever_it_does(tmp_path: Path, work: str, number: signal.Signals) -> None:
    status = 128 + number
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", SCRIPT, WORK[work]]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as working:
        assert working.stdout is not None and working.stderr is not None
        assert working.stdout.readline() == b"working\n"
        working.send_signal(number)
        told = working.stderr.read()
        assert working.wait() == status, told
    assert list(tmp_path.iterdir()) == []
    assert told.splitlines()[-1] == (b"mycroft: terminated" if status == 143 else b"mycroft: interrupted")


def test_ctrl_c_twice_does_not_wait(tmp_path: Path) -> None:
    work = """
try:
    print('begun', flush=True)
    signal.pause()
finally:
    print('clearing', flush=True)
    while True:
        signal.pause()
"""
    script = SCRIPT.replace("0.5", "3600.0")
    command = [sys.executable, "-c", script, work]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as working:
        assert working.stdout is not None
        assert [working.stdout.readline() for _ in range(2)] == [b"working\n", b"begun\n"]
        working.send_signal(signal.SIGINT)
        assert working.stdout.readline() == b"clearing\n"
        working.send_signal(signal.SIGINT)
        assert working.wait() == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_terminated_clears_up(tmp_path: Path, number: signal.Signals) -> None:
    pipe, temporary = tmp_path / "pipe", tmp_path / "tmp"
    os.mkfifo(pipe)
    temporary.mkdir()
    command = [sys.executable, "-m", "mycroft.app.cli", "diagnose", str(pipe)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as working:
        # From here on it makes the tables, and then waits for the pipe: the engine or the loader gets the signal.
        until(lambda: any(temporary.rglob("*.duckdb")), lambda: "the trace is begun")
        working.send_signal(number)
        assert working.wait() == 128 + number
    assert list(temporary.iterdir()) == []
