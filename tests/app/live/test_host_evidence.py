"""What an agent reads of its host's devices reaches the verdict: asked for, brought, loaded and cited."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mycroft.analysis import diagnose
from mycroft.app.live.publishing import evidence_files
from mycroft.app.live.receiver import incident_folder
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.loaders.load import load
from mycroft.loaders.store import open_store
from mycroft.tracer.agent import Agent, AgentSettings
from mycroft.tracer.agent.sender import Request
from tests.app.live.receiving import receiving
from tests.tracer.agent.batches import recorder, write_ops
from tests.tracer.agent.test_devices import GPU, IB, Host, S


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "made", now=time.time_ns())


def test_xid_of_the_host_is_brought_for_the_incident_and_cited_by_the_verdict(host: Host, tmp_path: Path) -> None:
    with receiving(tmp_path / "data") as server, recorder(tmp_path / "rings") as writer:
        write_ops(writer, 5)
        agent = Agent(
            AgentSettings(collector=server.url, folders=(tmp_path / "rings",), state=tmp_path / "agent", host="host0"),
            devices=host.devices(),
        )
        assert agent.watcher is not None
        agent.watcher.look(all_devices=True)
        host.say(999, "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus.")
        host.set(f"{IB}/counters/symbol_error", "4100")
        host.set(f"bus/pci/devices/{GPU}/current_link_width", "4")
        host.now += 10 * S
        agent.watcher.look(all_devices=True)
        agent.turn()
        assert agent.sender.send_one() == 0.0
        request = server.state.ask("incident", "host0", [])
        assert agent.serve_request(Request(id=request, incident="incident", processes=())) == []
        agent.close()
        files = evidence_files(tmp_path / "data", "incident")
        assert {"host0/host.kernel.log", "host0/host.nic_t1.txt", "host0/host.gpus.csv"} <= {name for name, _ in files}
        folder = incident_folder(tmp_path / "data", "incident")
    load([folder], tmp_path / "trace.duckdb")
    with open_store(tmp_path / "trace.duckdb") as store:
        verdict = diagnose(store).to_dict()
    first = verdict["findings"][0]
    assert (first["category"], first["root_cause"]["hosts"]) == ("gpu_fault", ("host0",))
    assert "Xid 79" in verdict["summary"]
    assert any("kernel.log" in str(evidence) for evidence in first["evidence"])


def test_readings_are_kept_as_rows_of_the_host(host: Host, tmp_path: Path) -> None:
    with receiving(tmp_path / "data") as server, recorder(tmp_path / "rings"):
        agent = Agent(
            AgentSettings(collector=server.url, folders=(tmp_path / "rings",), state=tmp_path / "agent", host="host0"),
            devices=host.devices(),
        )
        assert agent.watcher is not None
        agent.watcher.look(all_devices=True)
        agent.turn()
        assert agent.sender.send_one() == 0.0
        agent.close()
        server.collector.flush()
        (segment,) = [s for s in read_manifest(server.collector.manifest_folder).segments if s.table == "facts"]
        rows = pq.read_table(server.collector.root / segment.path, partitioning=None).drop_columns(["ts"]).to_pylist()
    assert {
        "host": "host0",
        "kind": "sm_clock_mhz",
        "device": "00000000:3b:00.0",
        "number": 1980.0,
        "text": None,
    } in rows
    assert {"host": "host0", "kind": "port_state", "device": "mlx5_0/1", "number": None, "text": "ACTIVE"} in rows
