"""Which program and which rules made a verdict: part of every cache key and of every published trace."""

from __future__ import annotations

from typing import Final

from mycroft import __version__
from mycroft.analysis.verdict import RULES_VERSION

ANALYSIS_VERSION: Final = f"{__version__}+{RULES_VERSION}"
