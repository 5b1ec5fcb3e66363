"""What is said of a process by its numbers: of this machine only, and nothing where it cannot be seen."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mycroft.tracer import process_state as module
from mycroft.tracer.process_state import local_pid, process_state
from mycroft.tracer.trace import Process, ProcessState


def myself() -> Process:
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    return Process(
        pid=os.getpid(), boot_id=boot, proc_start=int(start), pid_namespace=Path("/proc/self/ns/pid").stat().st_ino
    )


def test_process_that_runs_is_seen_and_one_with_its_number_is_another() -> None:
    state = process_state(myself())
    assert state is not None and state.exists
    assert local_pid(myself()) == os.getpid()
    assert process_state(replace(myself(), proc_start=1)) == ProcessState(exists=False)


@pytest.mark.parametrize("other", [{"boot_id": "0" * 32}, {"boot_id": ""}, {"proc_start": 0}])
def test_nothing_is_said_of_another_machine_or_without_a_start(other: dict[str, int | str]) -> None:
    process = replace(myself(), **other)  # pyright: ignore[reportArgumentType]
    assert process_state(process) is None and local_pid(process) is None


@pytest.mark.parametrize("outermost", [True, False])
def test_process_of_a_container_is_gone_only_if_a_new_look_from_outside_all_did_not_find_it(
    monkeypatch: pytest.MonkeyPatch, outermost: bool
) -> None:
    own = Path("/proc/self/ns/pid").stat().st_ino
    monkeypatch.setattr(module, "_OUTERMOST", own if outermost else own + 1)
    containers = module._Containers()
    process = replace(myself(), pid_namespace=own + 7)
    assert containers.find(process)[0] is None
    looked = containers._looked
    # It may have begun since: the next one waits for a new look.
    assert containers.find(process) == (None, False)
    assert containers._looked == looked
    if not outermost:
        containers._looked = float("-inf")
        assert containers.find(process) == (None, False)


def test_every_container_is_looked_for_where_all_processes_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path("/proc/self/ns/pid").stat().st_ino
    monkeypatch.setattr(module, "_OUTERMOST", own)
    monkeypatch.setattr(module, "_PROC", tmp_path)
    process = replace(myself(), pid=7, pid_namespace=99)
    for number, status in (("1", "NSpid:\t1\n"), ("41", "NSpid:\t41\t8\n")):
        (tmp_path / number / "ns").mkdir(parents=True)
        (tmp_path / number / "status").write_text(f"Name:\tpython\n{status}")
        (tmp_path / number / "ns" / "pid").touch()
    assert module._Containers().find(process) == (None, True)
    # What the first process is, is hidden: so may others be.
    (tmp_path / "1" / "status").unlink()
    assert module._Containers().find(process) == (None, False)
