"""Answers as files."""

from __future__ import annotations

import csv
import io
from datetime import datetime

import polars as pl
import pytest

from mycroft.app.figures import query_chart
from mycroft.app.tabular import csv_text, frame_csv, frame_parquet

FRAME = pl.DataFrame(
    {"at": [datetime(2026, 3, 2, 4, 10)], "n": [2**60], "text": ['a "b",\nc'], "list": [[1, 2]], "none": [None]},
    schema_overrides={"at": pl.Datetime("ns")},
)


def test_csv_holds_every_value_as_it_is() -> None:
    names, row = csv.reader(io.StringIO(frame_csv(FRAME)))
    assert names == FRAME.columns
    assert row == ["2026-03-02T04:10:00.000000000Z", str(2**60), 'a "b",\nc', "[1, 2]", ""]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-cmd|x", "@SUM(A1)", "\t=1", "\r=1"])
def test_text_that_a_spreadsheet_would_run_is_text(text: str) -> None:
    _, row = csv.reader(io.StringIO(csv_text(["a", "b"], [[text, -3]]), newline=""))
    assert row == [f"'{text}", "-3"]


def test_parquet_keeps_types_and_values() -> None:
    assert pl.read_parquet(io.BytesIO(frame_parquet(FRAME))).equals(FRAME)


def test_a_chart_begins_with_a_name_across_and_a_number_up() -> None:
    rows = [["dp", 3, 1.5, True], ["tp", None, 2.5, False]]
    assert query_chart.first_choice(["role", "n", "ms", "flag"], rows) == ("role", "ms")
    assert query_chart.axes(["role", "n", "ms", "flag"], rows) == ([0, 1, 2, 3], [1, 2])
    assert query_chart.first_choice(["role"], [["dp"]]) is None
    assert query_chart.first_choice(["n"], []) is None


def test_a_chart_draws_each_row_once_and_no_markup() -> None:
    rows = [["<b>dp</b>%{y}", 1], ["<b>dp</b>%{y}", 2], ["tp", None]]
    chart = query_chart.query_figure(["<i>role", "n"], rows, kind="bar", across="<i>role", up="n")
    assert list(chart.data[0].x) == ["&lt;b&gt;dp&lt;/b&gt;% {y}", "&lt;b&gt;dp&lt;/b&gt;% {y} (2)"]
    assert list(chart.data[0].y) == [1, 2]
    assert chart.layout.xaxis.title.text == "&lt;i&gt;role"


def test_times_make_an_axis_of_time_and_numbers_one_of_numbers() -> None:
    rows = [["2026-03-02T04:10:00.000000000Z", 3, 1]]
    names = ["at", "rank", "n"]
    assert query_chart.query_figure(names, rows, kind="line", across="at", up="n").layout.xaxis.type == "date"
    assert query_chart.query_figure(names, rows, kind="points", across="rank", up="n").layout.xaxis.type is None
    assert query_chart.query_figure(names, rows, kind="bar", across="rank", up="n").layout.xaxis.type == "category"
