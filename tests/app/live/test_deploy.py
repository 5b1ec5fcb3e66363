"""The examples of deploy/: the program takes their command lines, and systemd, Kubernetes and a shell take the rest."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from mycroft.app.alerts import read_targets
from mycroft.app.cli import parser
from mycroft.app.commands.serve import agents_command
from mycroft.app.config import ConfigError
from mycroft.app.live.config import LiveConfig
from mycroft.tracer import plugin_path

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def command_lines() -> Iterator[tuple[str, list[str]]]:
    for path in sorted(DEPLOY.glob("*.service")):
        for line in re.findall(r"^ExecStart=(.*)$", path.read_text(), re.MULTILINE):
            program, *arguments = shlex.split(line.replace("${COLLECTOR}", "http://c:8060").replace("%i", "alice"))
            assert program.endswith("/mycroft")
            yield path.name, arguments
    text = (DEPLOY / "Containerfile").read_text()
    yield "Containerfile", json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0])
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        text = path.read_text()
        inline = re.findall(r"args: \[(.*)\]", text)
        listed = re.findall(r"args:\n((?:\s+- .*\n)+)", text)
        if "image: mycroft" not in text or "args:" not in text:
            continue  # a job of somebody's
        found = [[word.strip().strip('"') for word in line.split(",")] for line in inline]
        found += [[item.strip()[2:] for item in block.strip().splitlines()] for block in listed]
        assert found, path.name
        for arguments in found:
            yield path.name, arguments


LINES = list(command_lines())


@pytest.mark.parametrize(("name", "arguments"), LINES, ids=[name for name, _ in LINES])
def test_command_lines_are_taken(name: str, arguments: list[str]) -> None:
    assert parser().parse_args(arguments).verb in ("agent", "collect", "watch", "serve", "fleet")


def test_every_port_that_others_reach_asks_for_a_token() -> None:
    for name, arguments in LINES:
        given = vars(parser().parse_args(arguments))
        if given.get("host") == "0.0.0.0":
            assert given["token_file"] or given["trust_proxy_header"], name
        if given.get("collect_host") == "0.0.0.0":
            assert given["agent_tokens"], name


def units() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(DEPLOY.glob("*.service"))}


def test_units_name_no_path_that_the_instructions_do_not() -> None:
    told = (DEPLOY / "README.md").read_text().replace("USER", "%i")
    for name, text in units().items():
        for path in set(re.findall(r"/(?:etc|opt)/mycroft[^\s:,]*", text.partition("[Service]")[2])):
            assert path in told, name


def test_services_keep_their_data_in_the_folder_that_systemd_gives_them() -> None:
    states = 0
    for name, text in units().items():
        for line in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE):
            for folder in re.findall(r"--(?:data|state) (\S+)", line):
                assert f"StateDirectory={Path(folder).relative_to('/var/lib')}\n" in text, name
                states += 1
    assert states >= 6


def test_ports_are_those_of_the_program() -> None:
    serve = parser().parse_args(["serve"])
    web, agents = serve.port, serve.collect_port
    assert parser().parse_args(["collect"]).collect_port == agents
    image = (DEPLOY / "Containerfile").read_text()
    assert f"EXPOSE {web} {agents}\n" in image
    text = "".join(path.read_text() for path in sorted(DEPLOY.rglob("*")) if path.is_file())
    assert set(re.findall(r"//(?:collector|mycroft-collect)\S*?:(\d+)", text)) == {str(agents)}
    # Of what listens, only a consumer's numbers have a port of their own.
    assert set(re.findall(r"--port (\d+)", text)) == {str(web), str(agents)}
    by_kind = {manifest["kind"]: manifest for _, manifest in MANIFESTS}
    assert {port["name"]: port["port"] for port in by_kind["Service"]["spec"]["ports"]} == {
        "web": web,
        "agents": agents,
    }


def test_image_is_built_from_all_that_the_package_has_and_from_nothing_else() -> None:
    root = DEPLOY.parent
    first, *let_in = [line for line in (root / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    taken = {line.removeprefix("!") for line in let_in if line.startswith("!")}
    package = {link.readlink().name for link in (root / "src" / "mycroft").iterdir() if link.is_symlink()}
    build = {"pyproject.toml", "CMakeLists.txt", "constraints.txt", "README.md", "LICENSE", "src"}
    assert (first, taken) == ("*", package | build)


def test_server_says_how_agents_reach_it() -> None:
    here = socket.gethostname()
    for config, said in (
        (LiveConfig(data_dir=Path(), port=8060), "mycroft agent http://127.0.0.1:8060"),
        (
            LiveConfig(data_dir=Path(), host="0.0.0.0", token_file="t"),
            f"mycroft agent http://{here}:8060 --token-file FILE",
        ),
        (
            LiveConfig(data_dir=Path(), host="fd00::5", token_file="t"),
            "mycroft agent http://[fd00::5]:8060 --token-file FILE",
        ),
    ):
        assert agents_command(config) == said
        assert parser().parse_args(said.split()[1:]).collector


def verified(path: Path) -> tuple[int, str]:
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True)
    return done.returncode, done.stderr + done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something that systemd takes for the program: it looks whether that is there."""
    stub = tmp_path_factory.mktemp("bin") / "mycroft"
    stub.write_text("#!/bin/sh\n")
    stub.chmod(0o755)
    return stub


@pytest.mark.parametrize("unit", sorted(path.name for path in DEPLOY.glob("*.service")))
def test_units_are_taken_by_systemd(unit: str, program: Path, tmp_path: Path) -> None:
    text = (DEPLOY / unit).read_text().replace("/opt/mycroft/bin/mycroft", str(program))
    path = tmp_path / unit.replace("@.", "@alice.")
    path.write_text(text)
    assert verified(path) == (0, "")
    # It would have said so.
    path.write_text(text.replace("[Service]\n", "[Service]\nProtectSytem=strict\n"))
    assert "ProtectSytem" in verified(path)[1]


@pytest.mark.parametrize("timer", sorted(path.name for path in DEPLOY.glob("*.timer")))
def test_timers_are_taken_by_systemd_and_have_their_service(timer: str, program: Path, tmp_path: Path) -> None:
    service = timer.replace(".timer", ".service")
    text = (DEPLOY / service).read_text().replace("/opt/mycroft/bin/mycroft", str(program))
    assert "Type=oneshot" in text
    (tmp_path / service).write_text(text)
    path = tmp_path / timer
    path.write_text((DEPLOY / timer).read_text())
    assert verified(path) == (0, "")
    path.write_text((DEPLOY / timer).read_text().replace("OnCalendar=", "OnCalender="))
    assert "OnCalender" in verified(path)[1]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


MANIFESTS = [(path.name, one) for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for one in documents(path)]


@pytest.mark.parametrize(("name", "manifest"), MANIFESTS, ids=[f"{m['kind']}-{name}" for name, m in MANIFESTS])
def test_manifests_have_the_schema_of_kubernetes(name: str, manifest: dict[str, Any]) -> None:
    newest = kubernetes_validate.latest_version()
    kubernetes_validate.validate(manifest, newest, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**manifest, "specs": {}}, newest, strict=True)


def test_manifests_fit_each_other() -> None:
    by_kind = {manifest["kind"]: manifest for _, manifest in MANIFESTS}
    service = by_kind["Service"]
    pods = {kind: by_kind[kind]["spec"]["template"] for kind in ("DaemonSet", "StatefulSet")}
    for kind, pod in pods.items():
        labels = pod["metadata"]["labels"]
        assert by_kind[kind]["spec"]["selector"]["matchLabels"].items() <= labels.items()
        claims = {c["metadata"]["name"] for c in by_kind[kind]["spec"].get("volumeClaimTemplates", [])}
        volumes = claims | {volume["name"] for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    collector = pods["StatefulSet"]
    assert service["spec"]["selector"].items() <= collector["metadata"]["labels"].items()
    open_ports = {port["containerPort"] for port in collector["spec"]["containers"][0]["ports"]}
    assert {port["port"] for port in service["spec"]["ports"]} <= open_ports
    # What the agent reads is what the job writes, and the plugin is where the job looks for it.
    job = by_kind["Job"]["spec"]["template"]["spec"]
    (trainer,) = job["containers"]
    environment = {one["name"]: one["value"] for one in trainer["env"]}
    mounts = {one["mountPath"]: one["name"] for one in trainer["volumeMounts"]}
    folders = {one["name"]: one.get("hostPath", {}).get("path") for one in job["volumes"]}
    agent = pods["DaemonSet"]["spec"]
    given = parser().parse_args(agent["containers"][0]["args"])
    mounted = {one["mountPath"]: one["name"] for one in agent["containers"][0]["volumeMounts"]}
    hosts = {one["name"]: one.get("hostPath", {}).get("path") for one in agent["volumes"]}
    (traces,) = given.folders
    assert folders[mounts[environment["MYCROFT_DIR"]]] == hosts[mounted[traces]]
    assert hosts[mounted[given.state]]
    plugin = Path(environment["NCCL_PROFILER_PLUGIN"])
    assert (plugin.name, mounts[str(plugin.parent)]) == (Path(plugin_path()).name, "plugin")
    # Every secret that is read is made by the lines at the top.
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        text = path.read_text()
        for name in re.findall(r"/secrets/([\w.]+)", text):
            assert f"--from-file={name}" in text, path.name
    # The agents are told of this service.
    address = pods["DaemonSet"]["spec"]["containers"][0]["args"][1]
    assert address == f"http://{service['metadata']['name']}:8060"


def test_slurm_script_is_plain_shell() -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([str(checker), str(DEPLOY / "slurm-agent.sh")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_slurm_script_is_one(tmp_path: Path) -> None:
    script = DEPLOY / "slurm-agent.sh"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    program = tmp_path / "mycroft"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MYCROFT_COLLECTOR": "http://c:8060"}
    for token in ({}, {"MYCROFT_AGENT_TOKEN_FILE": "/t o/ken"}):
        done = subprocess.run([str(script)], env={**environment, **token}, capture_output=True, text=True, check=True)
        given = parser().parse_args(done.stdout.splitlines())
        assert (given.collector, given.token_file) == ("http://c:8060", next(iter(token.values()), None))
    environment.pop("MYCROFT_COLLECTOR")
    done = subprocess.run([str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "http://collector:8060" in done.stderr


def test_example_of_alerts_is_taken_once_it_is_filled_in(tmp_path: Path) -> None:
    assert [target.kind for target in read_targets(DEPLOY / "alerts.toml")] == [
        "pagerduty",
        "slack",
        "webhook",
        "deadman",
    ]
    broken = tmp_path / "alerts.toml"
    broken.write_text((DEPLOY / "alerts.toml").read_text().replace("routing key of the service", ""))
    with pytest.raises(ConfigError, match="routing key"):
        read_targets(broken)
