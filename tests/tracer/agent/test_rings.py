"""Following rings: everything once, in order, across restarts; other hosts' files and damaged ones left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from mycroft.tracer import open_trace
from mycroft.tracer.agent.batch import tables_of
from mycroft.tracer.agent.rings import Rings, job_of
from mycroft.tracer.trace import Process
from tests.tracer.agent.batches import recorder, write_ops


def positions(rings: Rings) -> list[int]:
    """Positions that the next turn tells; it counts as told."""
    turn = rings.turn()
    found = [p for table in tables_of(turn.parts).values() for p in table.column("position").to_pylist()]
    rings.told()
    return sorted(found)


def test_every_record_is_told_once_and_in_order(tmp_path: Path) -> None:
    rings = Rings((tmp_path / "r",), host="host0")
    with recorder(tmp_path / "r") as writer:
        found: list[int] = []
        for name in ("a", "b", "c"):
            write_ops(writer, 7, comm=name)
            found += positions(rings)
        path = writer.path
    found += positions(rings)
    assert found == list(range(open_trace(path).next))


def test_small_turns_lose_nothing(tmp_path: Path) -> None:
    with recorder(tmp_path / "r", rank=0) as one, recorder(tmp_path / "r", rank=1) as two:
        for writer in (one, two):
            write_ops(writer, 40)
        rings = Rings((tmp_path / "r",), host="host0", most=16)
        told = 0
        while True:
            turn = rings.turn()
            assert turn.rows <= 17
            told += turn.rows
            rings.told()
            if not turn.more:
                break
        assert told == sum(ring.file.header["head"] for ring in rings.live)


def test_turn_that_was_not_kept_is_told_again(tmp_path: Path) -> None:
    with recorder(tmp_path / "r") as writer:
        write_ops(writer, 5)
        rings = Rings((tmp_path / "r",), host="host0")
        first = rings.turn()
        second = rings.turn()
        assert first.rows == second.rows > 0


def test_next_agent_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    with recorder(tmp_path / "r") as writer:
        write_ops(writer, 5)
        rings = Rings((tmp_path / "r",), host="host0")
        rings.turn()
        cursors = rings.told()
        write_ops(writer, 1, comm="later")
        again = positions(Rings((tmp_path / "r",), host="host0", cursors=cursors))
        assert again and min(again) == next(iter(cursors.values()))


def test_history_is_bounded_and_the_rest_is_a_gap(tmp_path: Path) -> None:
    with recorder(tmp_path / "r") as writer:
        write_ops(writer, 50)
        rings = Rings((tmp_path / "r",), host="host0", history=20)
        turn = rings.turn()
        assert turn.rows == 20
        head = rings.live[0].file.header["head"]
        assert [(gap.why, gap.rows) for gap in turn.gaps] == [("before the agent began", head - 20)]


def test_overwritten_records_are_a_gap(tmp_path: Path) -> None:
    with recorder(tmp_path / "r") as writer:
        rings = Rings((tmp_path / "r",), host="host0")
        write_ops(writer, 1)
        positions(rings)
        before = rings.live[0].position
        write_ops(writer, 9000, comm="many")
        turn = rings.turn()
        gaps = [gap for gap in turn.gaps if "overwritten" in gap.why]
        lost = sum(gap.rows for gap in gaps)
        assert lost > 0
        status = turn.rings[0]
        assert before + lost + turn.rows == status.next
        assert status.losses["overwritten"] == lost


def test_end_of_a_process_is_told_once_more(tmp_path: Path) -> None:
    rings = Rings((tmp_path / "r",), host="host0")
    with recorder(tmp_path / "r") as writer:
        write_ops(writer, 2)
        positions(rings)
    turn = rings.turn()
    assert [ring.closed for ring in turn.rings] == [True]
    rings.told()
    assert rings.turn().rings == ()


def test_files_of_other_hosts_and_damaged_ones_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with recorder(folder, host="elsewhere") as writer:
        write_ops(writer, 2)
        (folder / "rank9-1-1.ring").write_bytes(b"MYCROFTR" + bytes(100))
        (folder / "rank8-1-1.ring").write_bytes(b"")
        assert Rings((folder, tmp_path / "missing"), host="host0").turn().rings == ()


def test_file_that_was_half_made_when_it_was_seen_is_followed_once_it_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "r"
    with recorder(tmp_path / "made") as writer:
        write_ops(writer, 2)
        whole = writer.path.read_bytes()
    folder.mkdir()
    path = folder / "rank0-1-1.ring"
    path.write_bytes(bytes(len(whole)))
    rings = Rings((folder,), host="host0")
    assert rings.turn().rings == () and not caplog.records
    with path.open("r+b") as file:
        file.write(whole)
    assert [ring.process.rank for ring in rings.turn().rings] == [0]


def test_file_that_cannot_be_read_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(path: Path) -> None:
        raise OSError(24, "Too many open files")

    with recorder(tmp_path / "r") as writer:
        write_ops(writer, 2)
        rings = Rings((tmp_path / "r",), host="host0")
        with monkeypatch.context() as patched:
            patched.setattr("mycroft.tracer.agent.rings.TraceFile", fails)
            for _ in range(3):
                assert rings.turn().rings == ()
        assert len(caplog.records) == 1
        assert len(rings.turn().rings) == 1


def test_agents_leave_a_trace_file_as_it_is(tmp_path: Path) -> None:
    with recorder(tmp_path / "r") as writer:
        write_ops(writer, 3)
        before = writer.path.read_bytes()
        rings = Rings((tmp_path / "r",), host="host0")
        rings.turn()
        rings.told()
        assert writer.path.read_bytes() == before


def test_tables_have_the_index_of_their_ring(tmp_path: Path) -> None:
    with recorder(tmp_path / "r", rank=0) as one, recorder(tmp_path / "r", rank=1) as two:
        write_ops(one, 1)
        write_ops(two, 2)
        turn = Rings((tmp_path / "r",), host="host0").turn()
        ops = tables_of(turn.parts)["op"]
        counts = {
            turn.rings[item["values"].as_py()].process.rank: item["counts"].as_py()
            for item in ops.column("ring").combine_chunks().value_counts()
        }
        assert counts == {0: 1, 1: 2}
        assert ops.schema.field("ring").type == pa.uint16()


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"TORCHELASTIC_RUN_ID": "run-7"}, "run-7"),
        ({"TORCHELASTIC_RUN_ID": "run-7", "SLURM_JOB_ID": "41"}, "41"),
        ({"SLURM_JOB_ID": "41", "MYCROFT_JOB": "llama"}, "llama"),
        # torchrun's word for a job without a name, and the number of a pod, which is no name of a job.
        ({"TORCHELASTIC_RUN_ID": "none", "JOB_COMPLETION_INDEX": "3"}, ""),
    ],
)
def test_job_goes_by_the_name_that_its_launcher_gave_it(environment: dict[str, str], name: str) -> None:
    with subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **environment}) as child:
        try:
            # For a moment after its start the kernel knows of no environment of a process.
            while not Path(f"/proc/{child.pid}/environ").read_bytes():
                assert child.poll() is None
            start = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
            namespace = Path("/proc/self/ns/pid").stat().st_ino
            process = Process(pid=child.pid, boot_id=boot, proc_start=int(start), pid_namespace=namespace)
            assert job_of(process) == name
        finally:
            child.kill()
