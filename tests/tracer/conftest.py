"""Fixtures of the tracer's tests."""

from __future__ import annotations

import pytest

from tests.tracer.tools import Tools, build


@pytest.fixture(scope="session")
def tools() -> Tools:
    """The replay driver and the plugin, built without Python."""
    return build()
