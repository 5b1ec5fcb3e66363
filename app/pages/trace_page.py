"""What the pages of one trace have in common: opening it, its frame, its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dash import html
from flask import current_app

from mycroft.app import markdown_summary, notes, words
from mycroft.app.pages import frame, links, share_dialog
from mycroft.app.pages.diagnosis_view import first_incident
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.page import PageContext
from mycroft.app.pages.panel import Child, attributes, link, note
from mycroft.app.queries import TraceReader
from mycroft.app.reads import links as links_reads
from mycroft.app.reads import verdicts
from mycroft.app.urls import build


@dataclass(frozen=True, slots=True)
class TracePage:
    """One trace, opened for a page. `verdict` None: no analysis has been run on it."""

    ctx: PageContext | None
    reader: TraceReader
    verdict: Mapping[str, Any] | None
    links: TraceLinks

    @classmethod
    def of_reader(cls, reader: TraceReader, verdict: Mapping[str, Any] | None, generation: int | None) -> TracePage:
        """Return the page for a callback, which fills a part and draws no frame."""
        return cls(None, reader, verdict, TraceLinks(reader.trace, generation))

    @property
    def culprits(self) -> dict[int, str]:
        """Return the ranks of the root causes, with what the verdict is sure of: root cause or suspect."""
        found: dict[int, str] = {}
        for finding in self.verdict["findings"] if self.verdict else ():
            cause = finding["root_cause"]
            for rank in cause["ranks"]:
                found.setdefault(rank, "suspect" if cause["one_of"] else "root cause")
        return found

    def frame(
        self,
        name: str,
        *children: Child,
        crumbs: Sequence[tuple[str, str | None]] = (),
        tab: str = "",
    ) -> html.Div:
        """Return the page: `crumbs` follow the name of the trace."""
        trace = self.reader.trace
        way: list[tuple[str, str | None]] = [
            ("Traces", links.traces()),
            (words.shorten(self.reader.title, 60), self.links.overview() if crumbs else None),
        ]
        can_write = self.ctx is not None and self.ctx.grant.can_write
        if not can_write:
            way = way[1:]
        base = f"/api/v1/traces/{trace}/g/{self.reader.generation}"
        exports = [
            ("One HTML file", f"{base}/export.html"),
            ("One HTML file, names replaced", f"{base}/export.html?redact=1"),
            ("Markdown summary", f"{base}/export.md"),
            ("JSON", f"{base}/export.json"),
            ("Ranks as CSV", f"{base}/ranks.csv"),
            ("Operations for Perfetto, the newest 200,000", f"{base}/perfetto.json.gz"),
        ]
        return frame.page(
            name,
            *children,
            crumbs=[*way, *crumbs],
            trace=self.links,
            tab=tab,
            incident=first_incident(self.verdict),
            top=frame.actions(
                can_share=can_write,
                exports=exports,
                copied=self.summary(),
                is_shared=not can_write,
            ),
            dialogs=[share_dialog.dialog(trace)] if can_write else [],
            banner=self._banner(),
            generation=self.reader.generation,
            left_out=() if links_reads.any_links(self.reader) else ("links",),
        )

    def summary(self) -> str | None:
        """Return the verdict and the notes on it as text for a channel; None where there is no verdict."""
        if self.verdict is None:
            return None
        _, state = current_app.extensions["mycroft"]
        written = notes.signed(notes.of_trace(state, self.reader.trace))
        return markdown_summary.to_markdown(self.verdict, title=self.reader.title, notes=written)

    def _banner(self) -> Child:
        """Return what the reader must know of the address: parts that were ignored, a newer generation."""
        if self.ctx is None:
            return None
        address = self.ctx.address
        said: list[Child] = [html.Div(problem) for problem in address.problems]
        said += self._several_jobs(self.ctx)
        newest = max(self.ctx.queries.generations(self.reader.trace), default=self.reader.generation)
        if newest > self.reader.generation:
            view = {key: value for key, value in address.view.items() if key != "g"}
            said.append(
                html.Div(
                    [
                        f"This is generation {self.reader.generation} of the trace; there is a newer one. ",
                        # The path stays the same, so the page has to be loaded anew.
                        html.A(
                            "Open the newest",
                            href=build(replace(address, view=view)),
                            **attributes(data_reload=""),
                        ),
                    ]
                )
            )
        return note(*said) if said else None

    def _jobs(self, ctx: PageContext) -> list[tuple[str, str]]:
        """Return trace and name of each job of the evidence, in order; empty where it was of one."""
        jobs = ctx.queries.entry(self.reader.trace).summary.get("jobs")
        return [(str(job["trace"]), str(job["name"])) for job in jobs] if isinstance(jobs, list) else []

    def file_elsewhere(self, job: int, file: int) -> Child:
        """Return where the content of a file of another job of the evidence is; None for one of this job."""
        jobs = self._jobs(self.ctx) if self.ctx is not None else []
        if not 0 < job < len(jobs) or jobs[job][0] == self.reader.trace:
            return None
        trace, name = jobs[job]
        can_write = self.ctx is not None and self.ctx.grant.can_write
        there: Child = link(name, TraceLinks(trace).file(file)) if can_write else html.Code(name)
        return note(html.Div(["This file is of another job of the evidence, and its content is there: ", there, "."]))

    def _several_jobs(self, ctx: PageContext) -> list[Child]:
        """Return what to know where the evidence was of several jobs: which this trace is, and where the others are."""
        named = self._jobs(ctx)
        if len(named) < 2:
            return []
        mine = next((name for trace, name in named if trace == self.reader.trace), "")
        others: list[Child] = []
        for trace, name in named:
            if trace != self.reader.trace:
                # A visitor by a share link may read this trace only.
                shown: Child = links_to(trace, name) if ctx.grant.can_write else html.Code(name)
                others += [", " if others else "", shown]
        first = named[0][0] == self.reader.trace
        verdict = " The verdict is that of all jobs together." if first else ""
        head = f"The evidence is of {words.plural(len(named), 'job')}. The tables and pictures here are those of "
        return [html.Div([head, html.Code(mine), f".{verdict} The others: ", *others, "."])]


def links_to(trace: str, name: str) -> Child:
    """Return a link to another trace."""
    return link(name, TraceLinks(trace).overview())


def open_trace(ctx: PageContext, trace: str) -> TracePage:
    """Open a trace in the generation that the address asks for.

    Raises:
        UnknownTraceError: there is no such trace or generation.
        AccessError: the visitor may not read it.
    """
    reader = ctx.queries.trace(trace, ctx.address.generation)
    return TracePage(ctx, reader, verdicts.verdict_of(reader), TraceLinks(trace, ctx.address.generation))
