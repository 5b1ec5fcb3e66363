"""One reader of the invented trace for all tests of reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app import page_trace
from tests.app.plain_reader import PlainReader


@pytest.fixture(scope="session")
def job_reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("job") / "trace.duckdb"
    page_trace.write(path, None)
    return PlainReader(path)
