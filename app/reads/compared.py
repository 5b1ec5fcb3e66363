"""One side of a comparison: a trace, or a window of it, summed up by the analysis."""

from __future__ import annotations

from mycroft.analysis.compare import Profile, profile
from mycroft.app.queries import TraceReader
from mycroft.app.reads.extent import extent_of


def window_of(reader: TraceReader, window_us: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a window of µs from the start of the trace as ns UTC; None: the whole trace, or one without times."""
    extent = extent_of(reader)
    if window_us is None or extent is None:
        return None
    return extent[0] + window_us[0] * 1000, extent[0] + window_us[1] * 1000


def profile_of(reader: TraceReader, window_us: tuple[int, int] | None) -> Profile:
    """Return the sums of a trace, or of a window of it, kept with the trace's generation."""
    window = window_of(reader, window_us)
    kept = reader.cached("compare", list(window or ()), lambda store: profile(store, window).to_dict())
    return Profile.from_dict(kept)
