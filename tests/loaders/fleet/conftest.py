from __future__ import annotations

from pathlib import Path

import pytest

from mycroft.loaders.fleet import Place, open_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty place. `tests/scale/test_s3.py` runs the tests of these modules with one in a bucket."""
    return open_place(str(tmp_path / "place"))
