"""Frames of a stack as text."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html


def frames_list(frames: Sequence[str] | None) -> html.Pre:
    """Return the frames of a stack, innermost first, as they were taken."""
    return html.Pre("\n".join(frames) if frames else "no frames", className="frames", tabIndex="0")
