"""Fixtures of servers. Nothing here is skipped where one is missing: `make test-scale` installs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scale.servers import S3Server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def broker_storage(s3: S3Server) -> dict[str, str]:
    """What a broker that keeps its messages in the bucket finds it by."""
    return {**s3.environment, "AWS_ENDPOINT": s3.url, "AWS_ALLOW_HTTP": "true", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def s3_url(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An empty prefix of a bucket of the server."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://mycroft/{tmp_path.parent.name}/{tmp_path.name}"
