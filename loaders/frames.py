"""Names of stack frames, alike for every tool."""

from __future__ import annotations

import re
from typing import Final

# What lies before a library's own path: the same module of two installations has one name.
_PREFIX: Final = re.compile(
    r".*[/\\](?:site-packages|dist-packages|lib/python\d+(?:\.\d+)?|lib64/python\d+(?:\.\d+)?)[/\\]"
)


def short_file(path: str) -> str:
    """Return the path of a source file as py-spy shows it: relative to the library folder; others whole."""
    match = _PREFIX.match(path)
    return path[match.end() :] if match is not None else path
