"""The page of one incident of a trace."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dash import html
from dash.development.base_component import Component

from mycroft.app import injected, words
from mycroft.app.figures import lateness_bars
from mycroft.app.pages import diagnosis_view, injected_panel, notes_panel, ranks_grid
from mycroft.app.pages.flow_panel import flow_panel
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, empty, figure, link, panel
from mycroft.app.pages.timeline_panel import timeline_panel
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.pages.verdict_band import Context, Finding, RankFacts
from mycroft.app.reads import blame, coverage, flows, operations, ranks, shown, surroundings, verdicts
from mycroft.app.reads.ranks import RankRow


def context_of(
    page: TracePage, rows: list[RankRow], finding: Finding | None = None, stalled: tuple[str, int] | None = None
) -> Context:
    """Return the names that the verdict of a trace is written with; of `finding`, also where its one rank stands."""
    verdict = page.verdict
    facts = {row.rank: RankFacts(row.host, _device(row), None, row.place) for row in rows}
    since_ns = _since_ns(finding) if finding else None
    if finding and len(finding["root_cause"]["ranks"]) == 1:
        rank = finding["root_cause"]["ranks"][0]
        known = facts.get(rank, RankFacts())
        channel = (finding["root_cause"]["flow"] or {}).get("channel")
        facts[rank] = replace(
            known,
            nic=surroundings.nics_of(page.reader, rank, channel),
            ring=surroundings.place_in_flow(page.reader, *stalled, rank, channel) if stalled else None,
        )
    return Context(
        links=page.links,
        files=verdicts.file_ids(page.reader, verdict) if verdict else {},
        ranks=facts,
        group_sizes=verdicts.group_sizes(page.reader, verdict) if verdict else {},
        number_of=partial(flows.number_in_addresses, page.reader),
        iteration=None if since_ns is None else surroundings.iteration_before(page.reader, since_ns),
        coverage=coverage.coverage_of(page.reader),
        waited_ns=_waited_ns(page, finding),
    )


def _waited_ns(page: TracePage, finding: Finding | None) -> int | None:
    """Return the longest wait of those that a finding keeps waiting, by the end of the evidence; None: not known."""
    if finding is None or finding["status"] == "slow":
        return None
    waits = blame.open_waits(page.reader)
    return max((waits[rank] for rank in finding["victims"]["ranks"] if rank in waits), default=None)


def _device(row: RankRow) -> str | None:
    if row.gpu is not None:
        return f"GPU {row.gpu}"
    return None if row.local_rank is None else f"local rank {row.local_rank}"


def _lateness_panel(page: TracePage, finding: Finding | None, rows: list[RankRow]) -> Child:
    """Return who comes late, where that is what the finding is about and the trace has times; else None."""
    comm = (finding.get("collective") or {}).get("comm") if finding and finding["status"] == "slow" else None
    late = operations.lateness_by_rank(page.reader, comm) if comm else []
    if not late:
        return None
    picture = lateness_bars.lateness_bars_svg(
        late,
        culprits=page.culprits,
        hosts={row.rank: row.host for row in rows if row.host},
        rank_href=page.links.rank,
    )
    rest = lateness_bars.left_out(late)
    return panel(
        "Who comes late",
        figure(picture),
        html.P(rest, className="muted") if rest else None,
        note=f"arrival after the median of the group, {words.plural(max(row['ops'] for row in late), 'operation')} "
        "· bar: median · line: to the 90 % quantile · each host's own clock",
    )


def _injected_panel(page: TracePage, finding: Finding | None) -> Child:
    """Return the verdict beside the truth, where the newest generation came with one; else None."""
    if page.ctx is None or page.verdict is None:
        return None
    entry = page.ctx.queries.entry(page.reader.trace)
    truth = injected.from_json(entry.summary.get("injected"))
    if truth is None or entry.generation != page.reader.generation:
        return None
    return injected_panel.injected_panel(truth, page.verdict, finding)


def _shown(page: TracePage, finding: Finding) -> dict[str, dict[str, Any]]:
    """Return what the pictures move to for each claim that they can show."""
    claims = finding["evidence"][: shown.CLAIMS_MAX]
    return {claim["id"]: shown.shown(page.reader, claim.get("key"), claim.get("table")) for claim in claims}


def _since_ns(finding: Finding) -> int | None:
    """Return when a finding began, ns since the epoch; None where the verdict does not say."""
    try:
        moment = datetime.fromisoformat(finding.get("since") or "")
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000) * 1000


def layout(ctx: PageContext, trace: str, incident: str) -> Component:
    """Return the diagnosis: the finding of that id, or the answer of a trace without findings."""
    page = open_trace(ctx, trace)
    if page.verdict is None:
        missing = panel(
            "No diagnosis",
            empty(
                "This trace has been loaded and not been analysed.",
                html.P(["Load it again, or look at its ", link("overview", page.links.overview()), "."]),
            ),
        )
        return page.frame("diagnosis", missing, crumbs=[("Diagnosis", None)], tab="diagnosis")
    finding = diagnosis_view.finding_of(page.verdict, incident)
    if finding is None and page.verdict["findings"]:
        first = diagnosis_view.first_incident(page.verdict)
        missing = panel(
            "No such incident",
            empty(
                f"The verdict of this trace has no finding {incident}.",
                html.P(link("Open its first finding", page.links.incident(first))),
            ),
        )
        return page.frame("diagnosis", missing, crumbs=[("Diagnosis", None)], tab="diagnosis")
    rows = ranks.all_ranks(page.reader)
    stalled = flows.stalled_of(page.reader, finding)
    flow = flow_panel(page.reader, *stalled, links=page.links) if stalled else None
    timeline = timeline_panel(page.reader, page.links, around_ns=_since_ns(finding)) if finding else None
    content = diagnosis_view.view(
        page.verdict,
        finding,
        context_of(page, rows, finding, stalled),
        lateness=_lateness_panel(page, finding, rows),
        flow=flow,
        timeline=timeline,
        shown=_shown(page, finding) if finding and (flow or timeline) else None,
        ranks_grid=ranks_grid.ranks_panel(
            rows,
            finding,
            page.links,
            title="Ranks by blame" if finding else "Ranks",
            progress=ranks_grid.progress_of(page.reader, finding, stalled),
            selects=flow is not None or timeline is not None,
            selected=chosen if isinstance(chosen := ctx.address.view.get("r"), int) else None,
        ),
        injected=_injected_panel(page, finding),
    )
    name = "Diagnosis" if finding is None else f"Incident {finding['id']}"
    content += [notes_panel.similar_panel(page, finding), notes_panel.notes_panel(page, incident)]
    return page.frame("diagnosis", *content, crumbs=[(name, None)], tab="diagnosis")


PAGE = Page(
    name="diagnosis",
    layout=layout,
    title=lambda ctx, trace, incident: f"Diagnosis of {trace}",
    register_callbacks=notes_panel.register_callbacks,
)
