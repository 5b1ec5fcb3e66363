"""Hosts as network namespaces: one interface per rank, joined by a router in a namespace of its own.

    host namespace (agent and its ranks)              fabric namespace
    eth0  10.77.<rank>.1/24  ---- veth pair ----  v<rank>  10.77.<rank>.254/24
    eth1  ...

All namespaces are nameless and live as long as their process: when it dies, however it dies, its interfaces go with
it, so a crash of the launcher leaves nothing behind. Traffic between ranks of one host stays inside the host.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from mycroft.tracer.testbed.scenarios import TestbedError

_CLONE_NEWNET: Final = 0x40000000
_CLONE_NEWUTS: Final = 0x04000000
_PR_SET_PDEATHSIG: Final = 1
_TABLE: Final = 100
_BURST_BYTES: Final = 65536
_FLOOR_BYTES_PER_S: Final = 1000


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def isolate(hostname: str | None) -> Callable[[], None]:
    """Return what a child runs before its program: own network, own host name, dies with its parent."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if libc.unshare(_CLONE_NEWNET | _CLONE_NEWUTS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        if hostname is not None:
            socket.sethostname(hostname)

    return prepare


def available() -> str:
    """Return "" if hosts can be namespaces here, else why not."""
    if os.geteuid() != 0:
        return "not root"
    script = (
        "ip link add mt0 type veth peer name mt1 && ip link set lo up && "
        f"tc qdisc add dev mt0 root tbf rate 8mbit burst {_BURST_BYTES} latency 50ms && "
        "ip rule add from 10.77.0.1 lookup 100"
    )
    try:
        done = subprocess.run(["sh", "-c", script], preexec_fn=isolate(None), capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no namespaces ({error})"
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


class Network:
    """The fabric and the interfaces of every rank."""

    def __init__(self, *, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._fabric = subprocess.Popen(
            ["sleep", "infinity"], preexec_fn=isolate(None), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self._agents: dict[int, int] = {}
        self._inside(self._fabric.pid, ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward && ip link set lo up"])

    @staticmethod
    def address(rank: int) -> str:
        """Return the address of a rank."""
        return f"10.77.{rank}.1"

    def _inside(self, pid: int, command: Sequence[str], text: str = "") -> None:
        done = subprocess.run(["nsenter", "-t", str(pid), "-n", *command], input=text, capture_output=True, text=True)
        if done.returncode:
            raise TestbedError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")

    def add_host(self, pid: int, ranks: Sequence[int]) -> None:
        """Give the host of an agent one interface per rank."""
        fabric: list[str] = []
        host = ["link set lo up"]
        limits: list[tuple[int, str]] = []
        for local, rank in enumerate(ranks):
            self._agents[rank] = pid
            fabric += [
                f"link add v{rank} type veth peer name eth{local} netns {pid}",
                f"addr add 10.77.{rank}.254/24 dev v{rank}",
                f"link set v{rank} up",
            ]
            host += [
                f"addr add {self.address(rank)}/24 dev eth{local}",
                f"link set eth{local} up",
                f"rule add from {self.address(rank)} lookup {_TABLE + local}",
                f"route add default via 10.77.{rank}.254 dev eth{local} table {_TABLE + local}",
            ]
            limits += [(self._fabric.pid, f"v{rank}"), (pid, f"eth{local}")]
        self._inside(self._fabric.pid, ["ip", "-batch", "-"], "\n".join(fabric) + "\n")
        self._inside(pid, ["ip", "-batch", "-"], "\n".join(host) + "\n")
        for where, device in limits:
            self._limit(where, device, self.bytes_per_s)

    def _limit(self, pid: int, device: str, bytes_per_s: float) -> None:
        bits = int(max(bytes_per_s, _FLOOR_BYTES_PER_S) * 8)
        self._inside(
            pid,
            ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{bits}bit", "burst", str(_BURST_BYTES),
             "latency", "400ms"],
        )  # fmt: skip

    def set_link(self, rank: int, *, up: bool) -> None:
        """Switch the port of a rank's interface on or off: the interface loses its carrier."""
        self._inside(self._fabric.pid, ["ip", "link", "set", f"v{rank}", "up" if up else "down"])

    def set_rate(self, rank: int, local: int, bytes_per_s: float) -> None:
        """Limit what a rank's interface carries, in both directions."""
        self._limit(self._fabric.pid, f"v{rank}", bytes_per_s)
        self._limit(self._agents[rank], f"eth{local}", bytes_per_s)

    def close(self) -> None:
        """End the fabric; the interfaces end with it."""
        self._fabric.kill()
        self._fabric.wait()
