"""Where the NCCL profiler plugin is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mycroft.tracer import _core

PLUGIN_NAME: Final = "libnccl-profiler-mycroft.so"


def plugin_path() -> Path:
    """Return the absolute path of the plugin: it is installed beside the compiled module.

    Never looked for beside a Python file: an editable install keeps those elsewhere.

    Raises:
        FileNotFoundError: if the build left it out.
    """
    path = Path(_core.__file__).resolve().with_name(PLUGIN_NAME)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the plugin is not there; build the project again (make build)")
    return path
