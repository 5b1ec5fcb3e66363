"""Tables that sort, filter and scroll: AG Grid in the look of the dashboard.

A cell becomes a link where its row has `<field>_href`, and a tag where it has `<field>_kind`; None is written as a
dash, with the reason as the column's help. Everything is client side: callers cut long tables and say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dash_ag_grid as dag
from dash import html

from mycroft.app.pages.panel import attributes

ROW_HEIGHT: Final = 28
HEADER_HEIGHT: Final = 32
FILTER_FROM: Final = 30
"""Rows from which the columns offer a filter; shorter tables are read at a glance."""
ROWS_SHOWN: Final = 14
"""Rows up to which a table is as high as its content; longer ones scroll."""

# Colours and fonts come from the style sheet, so that the theme can change under a table.
THEME: Final = {
    "function": "themeQuartz.withParams({"
    "backgroundColor: 'var(--panel)', foregroundColor: 'var(--text)', headerBackgroundColor: 'var(--raised)',"
    "headerTextColor: 'var(--muted)', borderColor: 'var(--line)', accentColor: 'var(--focus)',"
    "rowHoverColor: 'var(--button-hover)', selectedRowBackgroundColor: 'var(--selection)',"
    "chromeBackgroundColor: 'var(--raised)', fontFamily: 'inherit', headerFontFamily: 'inherit',"
    f"fontSize: 13, headerFontSize: 13, rowHeight: {ROW_HEIGHT}, headerHeight: {HEADER_HEIGHT},"
    "cellHorizontalPadding: 12, wrapperBorder: false, wrapperBorderRadius: 0, borderRadius: 4, spacing: 6,"
    "headerFontWeight: 550, browserColorScheme: 'inherit'})"
}


@dataclass(frozen=True, slots=True)
class Col:
    """One column; `width` in px, None shares what is left. `numeric` sets right-aligned and sorts as numbers.

    `shown` names the field with the text that stands for the number that it sorts by.
    """

    field: str
    title: str
    width: int | None = None
    numeric: bool = False
    mono: bool = False
    help: str | None = None
    flex: int = 1
    shown: str | None = None


def _definition(col: Col) -> dict[str, Any]:
    made: dict[str, Any] = {
        "field": col.field,
        "headerName": col.title,
        "cellRenderer": "MycroftCell",
        "filter": "agNumberColumnFilter" if col.numeric else "agTextColumnFilter",
        "tooltipField": col.shown or col.field,
    }
    if col.shown:
        made |= {"cellRendererParams": {"shown": col.shown}}
    if col.help:
        made["headerTooltip"] = col.help
    if col.width is None:
        made |= {"flex": col.flex, "minWidth": 120}
    else:
        made |= {"width": col.width}
    if col.numeric:
        made |= {"type": "rightAligned"}
    if col.mono:
        made |= {"cellClass": "mono"}
    return made


def grid(
    id: str,  # noqa: A002 - the name Dash gives it
    columns: Sequence[Col],
    rows: Sequence[Mapping[str, Any]],
    *,
    label: str,
    rows_shown: int = ROWS_SHOWN,
    row_class: Mapping[str, str] | None = None,
    csv_name: str | None = None,
    selects: str | None = None,
    selected: int | None = None,
) -> html.Div:
    """Return a table of `rows`.

    Args:
        id: id of the component.
        columns: its columns in order.
        rows: one mapping per row; fields that no column names are carried along and not shown.
        label: name of the table for readers.
        rows_shown: how many rows fit without scrolling.
        row_class: CSS class and the expression in `params.data` that gives it to a row.
        csv_name: file name of an export; None: the table has no export.
        selects: key of the view that choosing a row sets, to the number in its first column; None: rows are not chosen.
        selected: number in the field `rank` of the row that is chosen at first.
    """
    height = HEADER_HEIGHT + 2 + ROW_HEIGHT * min(max(len(rows), 1), rows_shown) + (8 if len(rows) > rows_shown else 2)
    options: dict[str, Any] = {
        "theme": THEME,
        "tooltipShowDelay": 400,
        "enableCellTextSelection": True,
        "ensureDomOrder": True,
        "suppressMovableColumns": True,
        "animateRows": False,
        # Else a table below the fold hides its cells until it is scrolled to: empty for a screen reader.
        "suppressContentVisibilityAuto": True,
    }
    extra: dict[str, Any] = {"csvExportParams": {"fileName": csv_name}} if csv_name else {}
    if selects:
        options["rowSelection"] = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}
        if selected is not None:
            extra["selectedRows"] = {"function": f"params.data.rank === {selected:d}"}
    if row_class:
        options["rowClassRules"] = dict(row_class)
    return html.Div(
        dag.AgGrid(
            id=id,
            columnDefs=[_definition(col) for col in columns],
            rowData=[dict(row) for row in rows],
            defaultColDef={
                "sortable": True,
                "resizable": True,
                "suppressHeaderMenuButton": True,
                "suppressHeaderFilterButton": len(rows) < FILTER_FROM,
            },
            dashGridOptions=options,
            style={"height": f"{height}px", "width": "100%"},
            className="grid",
            **extra,
        ),
        className="grid-place",
        role="region",
        **attributes(aria_label=label, data_selects=selects),
    )
