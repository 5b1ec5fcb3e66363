"""The panel of a shape in words."""

from __future__ import annotations

from mycroft.analysis.measures import Band
from mycroft.app.pages.shape_panel import band_text, outside, shape_key, shape_name


def test_a_shape_has_a_name_and_a_key() -> None:
    assert shape_name(("all_reduce", 1 << 20, "Float")) == "all_reduce, 1.0 MiB, Float"
    assert shape_key(("all_reduce", 1 << 20, "Float")) == "all_reduce:1048576:Float"
    assert (shape_name(("barrier", None, None)), shape_key(("barrier", None, None))) == ("barrier", "barrier::")


def test_the_band_is_said_in_the_unit_of_the_axis_and_who_is_outside() -> None:
    band = Band(1e6, 2e6, 3e6, 40)
    assert band_text(band, "ms", 1e6) == "usual: 1 to 3 ms (median 2, three deviations to both sides, 40 operations)"
    rows = [{"seq": n, "duration": value} for n, value in enumerate([2e6, 4e6, None, 0.5e6, 3e6])]
    assert outside(rows, "duration", band) == [1, 3]
    assert outside(rows, "duration", None) == []
    assert "no usual range" in band_text(None, "ms", 1e6)
