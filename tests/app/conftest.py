"""A data folder, its state, and settings small enough for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mycroft.app.config import MIB, AppConfig
from mycroft.app.state import State

CHUNK = 64 * 1024


@pytest.fixture
def config(tmp_path: Path) -> AppConfig:
    return AppConfig(
        data_dir=tmp_path / "data", chunk_bytes=CHUNK, upload_quota_bytes=4 * MIB, free_space_reserve_bytes=0
    )


@pytest.fixture
def state(config: AppConfig) -> Iterator[State]:
    opened = State(config.data_dir)
    yield opened
    opened.close()
