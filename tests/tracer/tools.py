"""Builds the C++ test tools of the tracer once, and runs them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Tools:
    """One build: `folder` holds the driver, the plugin and the rest."""

    folder: Path
    environment: dict[str, str]

    @property
    def plugin(self) -> Path:
        return self.folder / "tracer/cpp/libnccl-profiler-mycroft.so"

    @property
    def driver(self) -> Path:
        return self.folder / "tracer/cpp/replay/mycroft_replay"

    @property
    def empty_plugin(self) -> Path:
        return self.folder / "tracer/cpp/replay/libnccl-profiler-empty.so"

    def tool(self, name: str) -> Path:
        return self.folder / "tracer/cpp/replay" / name

    def replay(
        self,
        scenario: str,
        abi: int,
        out: Path,
        *,
        plugin: Path | None = None,
        real_clock: bool = False,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Play one scenario; traces and truths land in `out`. On the real clock times are not known beforehand."""
        out.mkdir(parents=True, exist_ok=True)
        arguments = ["--abi", str(abi), "--scenario", scenario, "--dir", str(out)]
        arguments += ["--real-clock"] if real_clock else []
        return subprocess.run(
            [str(self.driver), "--plugin", str(plugin or self.plugin), *arguments],
            capture_output=True,
            text=True,
            env={**clean_environment(), **self.environment, **environment},
        )


def clean_environment() -> dict[str, str]:
    """The environment without what would reach the plugin from outside."""
    strange = ("MYCROFT_", "NCCL_", "SLURM_", "OMPI_", "PMI")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return {k: v for k, v in os.environ.items() if not k.startswith(strange) and k not in names}


def _cmake() -> str:
    beside = Path(sys.executable).with_name("cmake")
    found = str(beside) if beside.exists() else shutil.which("cmake")
    assert found is not None, "cmake is not installed"
    return found


def build(*, sanitize: str = "", targets: tuple[str, ...] = ()) -> Tools:
    """Build the tools with a set of sanitizers; a second call finds them built. Parallel runs wait."""
    folder = ROOT / "build" / f"tools-{sanitize.replace(';', '-') or 'plain'}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        configure = [_cmake(), "-S", str(ROOT), "-B", str(folder), f"-DMYCROFT_SANITIZE={sanitize}"]
        # Sanitizers need no optimiser, and building with one takes most of the time.
        kind = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -g1") if sanitize else ("-DCMAKE_BUILD_TYPE=Release",)
        wanted = targets or ("mycroft_plugin", "mycroft_replay", "mycroft_empty_plugin")
        for command in (
            [*configure, *kind],
            [_cmake(), "--build", str(folder), "--parallel", "2", "--target", *wanted],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    environment = {}
    if "address" in sanitize:
        environment["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=0:exitcode=97"
        environment["UBSAN_OPTIONS"] = "halt_on_error=1:exitcode=97:print_stacktrace=1"
    if "thread" in sanitize:
        environment["TSAN_OPTIONS"] = "exitcode=98:halt_on_error=0"
    return Tools(folder, environment)
