"""Readers of a host's devices, against a made sysfs tree: what changes is told, what is missing is left out."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mycroft.tracer.agent import Agent, AgentSettings, decode
from mycroft.tracer.agent.batch import HostFact
from mycroft.tracer.agent.devices import MOST_COUNTERS, MOST_DEVICES, MOST_WAITING, Devices, Watcher
from tests.tracer.agent.batches import recorder, write_ops
from tests.tracer.agent.test_spool import no_room_beyond

NOW = 1_800_000_000 * 10**9
S = 10**9
IB = "class/infiniband/mlx5_0/ports/1"
GPU = "0000:3b:00.0"
SMI_HEAD = (
    "pci.bus_id, clocks.current.sm [MHz], clocks.max.sm [MHz], temperature.gpu, power.draw [W], utilization.gpu [%], "
    "pcie.link.width.current, pcie.link.width.max, clocks_throttle_reasons.hw_slowdown, "
    "clocks_throttle_reasons.hw_thermal_slowdown, clocks_throttle_reasons.sw_thermal_slowdown, "
    "clocks_throttle_reasons.hw_power_brake_slowdown"
)


class Host:
    """A sysfs tree, a kernel log and an nvidia-smi that were made up, and a clock that moves when it is told to."""

    def __init__(self, folder: Path, *, now: int = NOW) -> None:
        self.root = folder / "sys"
        self.kmsg = folder / "kmsg"
        self.smi = folder / "nvidia-smi"
        self.began = now - 1000 * S
        self.now = now
        self.set(f"{IB}/state", "4: ACTIVE")
        self.set(f"{IB}/phys_state", "5: LinkUp")
        self.set(f"{IB}/counters/symbol_error", "0")
        self.set(f"{IB}/counters/port_xmit_data", "1000")
        self.set(f"{IB}/counters/something_else", "7")
        self.set(f"{IB}/hw_counters/packet_seq_err", "2")
        self.set("class/net/eth0/operstate", "up")
        self.set("class/net/eth0/device/vendor", "0x15b3")
        self.set("class/net/eth0/statistics/rx_crc_errors", "0")
        self.set("class/net/lo/operstate", "unknown")
        self.set("class/net/lo/statistics/rx_errors", "99")
        for name, value in (
            ("class", "0x030200"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("max_link_speed", "16.0 GT/s PCIe"),
        ):
            self.set(f"bus/pci/devices/{GPU}/{name}", value)
        self.set("bus/pci/devices/0000:00:1f.0/class", "0x060100")
        self.gpus("1980", "Not Active")

    def set(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def gpus(self, clock: str, thermal: str) -> None:
        row = (
            f"00000000:3B:00.0, {clock} MHz, 1980 MHz, 88, 300.10 W, 99 %, 16, 16, {thermal}, {thermal}, Not Active, x"
        )
        self.smi.write_text(f"#!/bin/sh\ncat <<'END'\n{SMI_HEAD.replace('current.', '')}\n{row}\nEND\n")
        self.smi.chmod(stat.S_IRWXU)

    def say(self, at_s: float, text: str) -> None:
        """One record of the kernel, `at_s` seconds after the host began."""
        with self.kmsg.open("a") as file:
            file.write(f"6,1,{int(at_s * 1e6)},-;{text}\n SUBSYSTEM=pci\n")

    def devices(self, **settings: object) -> Devices:
        """The readers; the host began a thousand seconds before."""
        given = {"root": self.root, "kmsg": self.kmsg, "smi": str(self.smi), **settings}
        return Devices(clock=lambda: self.now, uptime=lambda: self.now - self.began, **given)  # type: ignore[arg-type]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def told(facts: list[HostFact]) -> dict[tuple[str, str, str], float | None]:
    return {(fact.kind, fact.device, fact.text): fact.number for fact in facts}


def test_everything_is_told_at_first_and_then_what_changes(host: Host) -> None:
    devices = host.devices()
    assert told(devices.read()) == {
        ("port_state", "mlx5_0/1", "ACTIVE"): None,
        ("port_counter", "mlx5_0/1", "symbol_error"): 0.0,
        ("port_data", "mlx5_0/1", "port_xmit_data"): 1000.0,
        ("port_counter", "mlx5_0/1", "packet_seq_err"): 2.0,
        ("port_state", "eth0", "up"): None,
        ("port_counter", "eth0", "rx_crc_errors"): 0.0,
        ("pcie_width", GPU, "x16 of x16"): 16.0,
        ("sm_clock_mhz", "00000000:3b:00.0", ""): 1980.0,
        ("temperature_c", "00000000:3b:00.0", ""): 88.0,
        ("power_w", "00000000:3b:00.0", ""): 300.1,
        ("utilisation_pct", "00000000:3b:00.0", ""): 99.0,
        ("throttle", "00000000:3b:00.0", ""): 0.0,
    }
    host.now += 10 * S
    assert devices.read() == []
    host.set(f"{IB}/counters/symbol_error", "41")
    host.set(f"{IB}/counters/port_xmit_data", "5000")
    host.set(f"bus/pci/devices/{GPU}/current_link_width", "8")
    host.gpus("510", "Active")
    host.now += 10 * S
    assert told(devices.read()) == {
        ("port_counter", "mlx5_0/1", "symbol_error"): 41.0,
        ("pcie_width", GPU, "x8 of x16"): 8.0,
        ("throttle", "00000000:3b:00.0", "hw_slowdown, hw_thermal_slowdown"): 2.0,
    }
    host.now += 60 * S
    again = told(devices.read())
    assert again["sm_clock_mhz", "00000000:3b:00.0", ""] == 510.0
    assert again["port_data", "mlx5_0/1", "port_xmit_data"] == 5000.0


def test_port_that_goes_down_is_an_error_once_and_one_that_was_never_up_is_none(host: Host) -> None:
    host.set("class/net/eth1/operstate", "down")
    host.set("class/net/eth1/device/vendor", "0x15b3")
    devices = host.devices(smi="")
    assert not [fact for fact in devices.read() if fact.kind == "port_down"]
    host.set(f"{IB}/state", "1: DOWN")
    downs = []
    for _ in range(3):
        host.now += 10 * S
        downs += [fact for fact in devices.read() if fact.kind == "port_down"]
    assert [(fact.device, fact.text) for fact in downs] == [("mlx5_0/1", "DOWN")]


def test_xid_and_out_of_memory_of_the_kernel_have_their_time_and_device(host: Host) -> None:
    host.say(990.5, "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus.")
    host.say(995, "usb 1-1: new device")
    host.say(100, "NVRM: Xid (PCI:0000:5e:00): 31, long before")
    devices = host.devices(smi="")
    (fact,) = devices.kernel()
    assert (fact.kind, fact.device, fact.number, fact.ts_ns) == ("xid", "0000:3b:00", 79.0, NOW - 9 * S - S // 2)
    assert devices.kernel() == []
    host.say(999, "Out of memory: Killed process 77 (python) total-vm:1kB")
    assert [(found.kind, found.number) for found in devices.kernel()] == [("oom_kill", 77.0)]
    # The file for an incident has nothing of what was long over when it began.
    lines = devices.files("gpu-1")["host.kernel.log"].decode().splitlines()
    assert [line.partition(" gpu-1 kernel: ")[2][:9] for line in lines] == ["NVRM: Xid", "Out of me"]


def test_files_hold_what_is_news_and_not_what_was_always_so(host: Host) -> None:
    host.set("class/infiniband/mlx5_1/ports/1/state", "1: DOWN")
    host.set("class/infiniband/mlx5_1/ports/1/phys_state", "3: Disabled")
    for name in ("class", "max_link_width", "current_link_speed", "max_link_speed"):
        host.set(f"bus/pci/devices/0000:5e:00.0/{name}", (host.root / f"bus/pci/devices/{GPU}/{name}").read_text())
    host.set("bus/pci/devices/0000:5e:00.0/class", "0x020700")
    host.set("bus/pci/devices/0000:5e:00.0/current_link_width", "8")  # the slot has no more
    devices = host.devices(smi="")
    devices.read()
    host.now += 10 * S
    devices.read()
    files = devices.files("gpu-1")
    assert sorted(files) == ["host.nic_t0.txt", "host.nic_t1.txt", "host.ports.txt"]
    assert files["host.ports.txt"] == b"link mlx5_0/1 state ACTIVE physical_state LinkUp\n"
    host.set(f"bus/pci/devices/{GPU}/current_link_width", "4")
    host.set(f"{IB}/state", "1: DOWN")
    devices.read()
    files = devices.files("gpu-1")
    assert b"state DOWN" in files["host.ports.txt"]
    assert files["host.pcie.txt"].count(b"LnkSta") == 1
    assert b"Width x4 (downgraded)" in files["host.pcie.txt"]


def test_link_that_is_narrower_than_others_of_its_kind_is_news(host: Host) -> None:
    for name in ("class", "current_link_width", "max_link_width", "current_link_speed", "max_link_speed"):
        host.set(f"bus/pci/devices/0000:5e:00.0/{name}", (host.root / f"bus/pci/devices/{GPU}/{name}").read_text())
    host.set("bus/pci/devices/0000:5e:00.0/current_link_width", "2")
    devices = host.devices(smi="")
    devices.read()
    assert devices.files("gpu-1")["host.pcie.txt"].startswith(b"0000:5e:00.0 3D controller")


def test_host_without_any_of_it_tells_nothing_but_what_it_may_not_read(tmp_path: Path) -> None:
    devices = Devices(root=tmp_path / "none", kmsg=tmp_path / "none", smi="")
    assert devices.read() == []
    (fact,) = devices.kernel()
    assert (fact.kind, fact.text) == ("not_readable", "No such file or directory")
    assert devices.kernel() == []
    assert devices.files("h") == {}


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 9", "ended with 9"), ("echo 'No devices were found'; exit 6", "No devices were found")],
)
def test_nvidia_smi_that_fails_is_said_once(host: Host, script: str, why: str) -> None:
    host.smi.write_text(f"#!/bin/sh\n{script}\n")
    devices = host.devices()
    said = [fact for fact in devices.read() if fact.kind == "not_readable"]
    assert len(said) == 1 and why in said[0].text
    assert not [fact for fact in devices.read() if fact.kind == "not_readable"]


def test_nvidia_smi_that_hangs_is_ended(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mycroft.tracer.agent.devices.SMI_S", 0.2)
    host.smi.write_text("#!/bin/sh\nexec sleep 3600\n")
    devices = host.devices()
    said = [fact for fact in devices.read() if fact.kind == "not_readable"]
    assert [fact.text for fact in said] == ["TimeoutExpired"]


def test_host_with_very_many_devices_and_counters_is_bounded(host: Host) -> None:
    for device in range(3 * MOST_DEVICES):
        host.set(f"class/net/e{device:03}/operstate", "up")
        host.set(f"class/net/e{device:03}/device/vendor", "1")
    for counter in range(4 * MOST_COUNTERS):
        host.set(f"{IB}/hw_counters/err_{counter:03}", "1")
        host.set(f"{IB}/counters/err_long_{counter:03}", "9" * 5000)
    facts = host.devices(smi="").read()
    assert len({fact.device for fact in facts if fact.kind == "port_state"}) <= MOST_DEVICES + 1
    assert len([fact for fact in facts if fact.device == "mlx5_0/1" and fact.kind == "port_counter"]) <= MOST_COUNTERS


def test_what_no_batch_has_taken_yet_is_bounded_and_keeps_its_order(host: Host) -> None:
    watcher = Watcher(host.devices(smi=""))
    watcher._add([HostFact(ts_ns=number, kind="kernel") for number in range(MOST_WAITING + 10)])
    assert watcher.dropped == 10
    first = watcher.take(3)
    assert [fact.ts_ns for fact in first] == [10, 11, 12]
    watcher.give_back(first)
    assert [fact.ts_ns for fact in watcher.take(4)] == [10, 11, 12, 13]


def test_files_that_cannot_be_read_leave_the_others(host: Host) -> None:
    secret = host.root / IB / "counters/symbol_error"
    secret.unlink()
    secret.mkdir()  # reading it is an error, also for root
    facts = host.devices(smi="").read()
    assert ("port_counter", "mlx5_0/1", "packet_seq_err") in told(facts)
    assert ("port_counter", "mlx5_0/1", "symbol_error") not in told(facts)


def test_readings_travel_in_batches_and_survive_a_full_disk(host: Host, tmp_path: Path) -> None:
    settings = AgentSettings(
        collector="http://127.0.0.1:9", folders=(tmp_path / "rings",), state=tmp_path / "agent", host="host0"
    )
    with recorder(tmp_path / "rings") as writer:
        write_ops(writer, 3)
        agent = Agent(settings, devices=host.devices(smi=""))
        assert agent.watcher is not None
        agent.watcher.look(all_devices=True)
        with no_room_beyond(50):
            agent.turn()
        agent.turn()
        lent = agent.spool.take()
        assert lent is not None
        batch = decode(lent[1])
        agent.close()
    assert ("port_state", "mlx5_0/1", "ACTIVE") in told(list(batch.facts))
    assert batch.rows > 0


def test_nothing_of_the_host_is_written_or_opened_for_writing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []
    opened: Callable[..., int] = os.open

    def noting(path: object, how: int, *rest: int) -> int:
        flags.append(how)
        return opened(path, how, *rest)

    monkeypatch.setattr("mycroft.tracer.agent.devices.os.open", noting)
    before = sorted((path, path.stat().st_mtime_ns) for path in host.root.rglob("*"))
    devices = host.devices(smi="")
    devices.read()
    devices.kernel()
    assert flags
    assert all(how & (os.O_WRONLY | os.O_RDWR) == 0 for how in flags)
    assert sorted((path, path.stat().st_mtime_ns) for path in host.root.rglob("*")) == before
