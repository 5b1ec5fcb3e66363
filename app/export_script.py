"""The script of an exported file: the dashboard's own modules for flow and timeline, in one text without imports.

Modules become functions that are called once, in an order in which each finds what it imports. Those that speak with a
server or write the address of the page are replaced by `assets/modules/exported/`, of the same names.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

import mycroft
from mycroft.errors import MycroftError

ENTRY: Final = "exported/start.mjs"
REPLACED: Final = {
    "view_state.mjs": "exported/view_state.mjs",
    "urls.mjs": "exported/urls.mjs",
    "navigation.mjs": "exported/urls.mjs",
}
# The answers come first: they are what every other module fetches from.
_ANSWERS: Final = "exported/answers.mjs"

_IMPORT: Final = re.compile(r"^import \{([^}]*)\} from \"([^\"]+)\";$", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT: Final = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*(?://.*|/\*\*.*\*/)\n", re.MULTILINE)


class ScriptError(MycroftError):
    """A module that is not written in the way that can be put into one text."""


def _folder() -> Path:
    return Path(mycroft.__file__).parent / "assets" / "modules"


def _resolved(importer: str, target: str) -> str:
    parts: list[str] = []
    for part in (*PurePosixPath(importer).parent.parts, *PurePosixPath(target).parts):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    path = "/".join(parts)
    return REPLACED.get(path, path)


def _ordered() -> dict[str, str]:
    """Return the modules that the entry needs, each after those that it imports.

    Raises:
        ScriptError: a module imports itself through others.
    """
    found: dict[str, str] = {}
    open_: list[str] = []

    def visit(name: str) -> None:
        if name in found:
            return
        if name in open_:
            raise ScriptError(f"{name} imports itself: {' -> '.join([*open_, name])}")
        open_.append(name)
        text = (_folder() / name).read_text(encoding="utf-8")
        for match in _IMPORT.finditer(text):
            visit(_resolved(name, match[2]))
        open_.pop()
        found[name] = text

    visit(_ANSWERS)
    visit(ENTRY)
    return found


@cache
def script() -> str:
    """Return the script; the same text for every export of one build.

    Raises:
        ScriptError: a module has an import or export of another form, or imports what is not there.
    """
    modules = _ordered()
    number = {name: f"m{at}" for at, name in enumerate(modules)}
    names = {name: {match[2] for match in _EXPORT.finditer(text)} for name, text in modules.items()}
    parts: list[str] = []
    for name, text in modules.items():

        def bound(match: re.Match[str], name: str = name) -> str:
            source = _resolved(name, match[2])
            wanted = [part.strip() for part in match[1].split(",") if part.strip()]
            missing = {part.split(" as ")[0] for part in wanted} - names[source]
            if missing:
                raise ScriptError(f"{name} imports {', '.join(sorted(missing))}, which {source} does not export")
            return f"const {{ {', '.join(part.replace(' as ', ': ') for part in wanted)} }} = {number[source]};"

        body = _EXPORT.sub(r"\1", _IMPORT.sub(bound, _COMMENT.sub("", text)))
        left = _LEFT.search(body)
        if left:
            raise ScriptError(f"{name}: {left[0].strip()[:80]}: an import or export of a form that is not known here")
        parts.append(
            f"const {number[name]} = (() => {{\n{body}return {{ {', '.join(sorted(names[name]))} }};\n}})();\n"
        )
        if name == _ANSWERS:
            parts.append(f"const fetch = {number[name]}.answer;\n")
    whole = f'(() => {{\n"use strict";\n{"".join(parts)}}})();\n'
    if "</script" in whole.lower() or "<!--" in whole:
        raise ScriptError("a module holds what would end the script of a document")
    return whole


def policy() -> str:
    """Return what a document with the script allows: this very script, styles and pictures of its own, no request."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; font-src data:; img-src data:"
