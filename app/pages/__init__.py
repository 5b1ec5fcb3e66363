"""The pages of the dashboard. One module per page; the tuple is the list of what exists."""

from mycroft.app.pages import (
    comm,
    compare,
    diagnosis,
    file,
    files,
    fleet,
    host,
    job,
    link_matrix,
    live,
    op,
    overview,
    rank,
    sql,
    stacks,
    timeline,
    traces,
)
from mycroft.app.pages.page import Page, PageContext

PAGES: tuple[Page, ...] = (
    traces.PAGE,
    job.PAGE,
    overview.PAGE,
    diagnosis.PAGE,
    timeline.PAGE,
    op.PAGE,
    rank.PAGE,
    comm.PAGE,
    host.PAGE,
    stacks.PAGE,
    link_matrix.PAGE,
    files.PAGE,
    file.PAGE,
    sql.PAGE,
    compare.PAGE,
    fleet.PAGE,
    live.FLEET,
    live.JOB,
    live.INCIDENT,
)

__all__ = ["PAGES", "Page", "PageContext"]
