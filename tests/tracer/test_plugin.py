"""The plugin as a file, and what it does to a process when something is wrong."""

from __future__ import annotations

import re
import resource
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from mycroft.app.cli import main
from mycroft.tracer import Recorder, open_trace, plugin_path
from tests.tracer.comparison import compare, load, rows
from tests.tracer.tools import ROOT, Tools, clean_environment

OLDEST_GLIBC = (2, 17)
ALLOWED_LIBRARIES = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(params=["installed", "without Python"])
def plugin(request: pytest.FixtureRequest, tools: Tools) -> Path:
    return plugin_path() if request.param == "installed" else tools.plugin


def test_plugin_needs_no_nccl_no_cuda_no_python_no_cxx_runtime(plugin: Path) -> None:
    undefined = output("nm", "-D", "--undefined-only", str(plugin))
    assert re.findall(r"\b(nccl\w*|cuda\w*|cu[A-Z]\w*|_?Py\w*|_Z\w*)\b", undefined) == []
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", str(plugin))))
    assert needed <= ALLOWED_LIBRARIES


def test_plugin_loads_on_old_systems(plugin: Path) -> None:
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", str(plugin)))
    assert versions
    assert max((int(a), int(b)) for a, b in versions) <= OLDEST_GLIBC


def test_plugin_exports_the_seven_tables_and_nothing_else(plugin: Path) -> None:
    exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", str(plugin)).splitlines()}
    assert exported == {f"ncclProfiler_v{n}" for n in range(1, 8)}


def test_plugin_stays_when_nccl_unloads_it(plugin: Path) -> None:
    assert "NODELETE" in output("readelf", "-d", str(plugin))


def test_plugin_loads_by_bare_name(tools: Tools, tmp_path: Path) -> None:
    done = tools.replay(
        "ring_all_reduce", 7, tmp_path, plugin=Path(tools.plugin.name), LD_LIBRARY_PATH=str(tools.plugin.parent)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(compare(truth, trace, exact_times=True) == [] for truth, trace in load(tmp_path))


def test_installed_plugin_is_found_and_plays(tools: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugin-path"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.is_absolute()
    assert main(["plugin-path", "--folder"]) == 0
    assert capsys.readouterr().out.strip() == str(path.parent)

    done = tools.replay("send_recv", 5, tmp_path, plugin=path)

    assert done.returncode == 0
    assert all(compare(truth, trace, exact_times=True) == [] for truth, trace in load(tmp_path))


def warned(tools: Tools, folder: Path, *, abi: int = 3, **environment: str) -> list[str]:
    """Play two ranks of a job and return what is on standard error; the job itself must not notice."""
    done = tools.replay("reuse", abi, folder, **environment)
    assert done.returncode == 0
    return done.stderr.splitlines()


def test_full_file_system_switches_tracing_off_with_one_warning(tools: Tools, tmp_path: Path) -> None:
    # A limit on the size of files refuses the blocks as a full file system does, before any is written.
    done = subprocess.run(
        [str(tools.driver), "--plugin", str(tools.plugin), "--abi", "3", "--scenario", "reuse", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        env=clean_environment(),
        preexec_fn=_small_files,
    )
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 2  # one for each of the two processes
    assert all(line.startswith("mycroft: tracing is off: ") and "no room" in line for line in lines)
    assert list(tmp_path.glob("*.ring")) == []


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000))


def test_folder_that_cannot_be_used_switches_tracing_off(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    lines = warned(tools, tmp_path / "out", MYCROFT_RING_MB="4", **{"REPLAY_TRACES": str(tmp_path / "file")})
    assert len(lines) == 2
    assert all("not a directory" in line for line in lines)


def test_bad_settings_are_told_and_replaced(tools: Tools, tmp_path: Path) -> None:
    lines = warned(tools, tmp_path, MYCROFT_INTERVAL_MS="soon", MYCROFT_EVENTS="coll,everything")
    assert sorted(set(lines)) == [
        "mycroft: MYCROFT_EVENTS knows coll, p2p, proxy and kernel; using the default",
        "mycroft: MYCROFT_INTERVAL_MS is not a number; using 100",
    ]
    assert len(list(tmp_path.glob("*.ring"))) == 2


def test_switched_off_plugin_asks_nccl_for_nothing(tools: Tools, tmp_path: Path) -> None:
    assert warned(tools, tmp_path, MYCROFT_TRACE="0", abi=7) == []
    assert list(tmp_path.glob("*.ring")) == []
    assert all('"ops": []' in p.read_text() for p in tmp_path.glob("truth-*.json"))


def test_only_what_was_asked_for_is_recorded(tools: Tools, tmp_path: Path) -> None:
    assert tools.replay("intra_node", 7, tmp_path, MYCROFT_EVENTS="coll").returncode == 0
    assert tools.replay("send_recv", 7, tmp_path / "p2p", MYCROFT_EVENTS="coll").returncode == 0
    (ring,) = tmp_path.glob("rank0-*.ring")
    assert len({o["op_seq"] for o in rows(open_trace(ring).tables["op"])}) == 3
    for path in (tmp_path / "p2p").glob("*.ring"):
        assert open_trace(path).tables["op"].num_rows == 0


def test_trace_of_a_killed_process_reads_back_to_its_last_record(tools: Tools, tmp_path: Path) -> None:
    assert tools.replay("crash", 7, tmp_path).returncode == 0
    for truth, trace in load(tmp_path):
        assert compare(truth, trace, exact_times=True) == []
        assert not trace.closed


def test_process_tells_host_addresses_and_device(tools: Tools, tmp_path: Path) -> None:
    assert tools.replay("intra_node", 7, tmp_path, REPLAY_GPU="3", NCCL_SOCKET_IFNAME="lo").returncode == 0
    (ring,) = tmp_path.glob("rank0-*.ring")
    who = open_trace(ring).process
    assert (who.device, who.bus_id, who.addresses) == (3, "0000:13:00.0", "127.0.0.1")
    assert (who.rank, who.world_size, who.local_rank, who.local_world_size) == (0, 1, 0, 1)
    assert who.host == socket.gethostname()[:63]


def test_process_without_a_device_says_nothing_of_one(tools: Tools, tmp_path: Path) -> None:
    assert tools.replay("intra_node", 7, tmp_path, NCCL_SOCKET_IFNAME="^lo").returncode == 0
    (ring,) = tmp_path.glob("rank0-*.ring")
    who = open_trace(ring).process
    assert (who.device, who.bus_id) == (None, "")
    assert "127.0.0.1" not in who.addresses.split(",")


@pytest.mark.parametrize(
    ("variables", "rank", "source"),
    [
        ({"SLURM_PROCID": "7"}, 7, "SLURM_PROCID"),
        ({"OMPI_COMM_WORLD_RANK": "8"}, 8, "OMPI_COMM_WORLD_RANK"),
        ({"PMI_RANK": "9"}, 9, "PMI_RANK"),
        ({"RANK": "1", "SLURM_PROCID": "7"}, 1, "RANK"),
        ({"RANK": "none", "SLURM_PROCID": "7"}, 7, "SLURM_PROCID"),
        ({}, None, ""),
    ],
)
def test_rank_comes_from_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int | None, source: str
) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Recorder(directory=tmp_path, ring_mb=1, sampler=False) as r:
        who = open_trace(r.path).process
    assert (who.rank, who.rank_source) == (rank, source)


def test_settings_are_on_the_page() -> None:
    source = "".join(p.read_text() for p in (ROOT / "tracer/cpp").glob("*.cpp"))
    page = (ROOT / "docs/plugin.md").read_text()
    used = set(re.findall(r'"(MYCROFT_[A-Z_]+)"', source))
    assert used
    assert {name for name in used if f"`{name}`" not in page} == set()
