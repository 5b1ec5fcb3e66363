"""A diagnosis as one file that needs nothing else, redacted on request: HTML, Markdown, JSON, ranks as CSV.

The HTML shows what the diagnosis page shows, made by the same code and the same style sheets, without a request to
anywhere. Flow and timeline are drawn by the dashboard's own modules, from what the file holds; where there is neither,
there is no script. Links of the dashboard lead to places inside the document.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Final

import mycroft
from mycroft.app import export_script, markdown_summary, urls, words
from mycroft.app.export_pictures import Pictures
from mycroft.app.reads.blame import Sent
from mycroft.app.reads.coverage import Coverage
from mycroft.app.redaction import Redactor
from mycroft.app.tabular import csv_text

EXPORT_SCHEMA: Final = "mycroft.export/1"
RANKS_SHOWN: Final = 2048
NOT_KEPT: Final = "…"
CONTEXT_LINES: Final = 3
"""Lines of a file shown before and after the one that a claim rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """What is known of a rank; None is unknown. `progress` is text such as `dp-3f: 1842 of 1843`.

    `sent` and `waits_ns` are of the operation of the first finding, as in the table of the dashboard, `nic` and
    `stands` (place in ring or tree) of the one rank that it names.
    """

    rank: int
    role: str
    host: str | None = None
    gpu: str | None = None
    pid: int | None = None
    progress: str | None = None
    sent: Sent | None = None
    waits_ns: int | None = None
    nic: str | None = None
    stands: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of a file around one that a claim rests on: `first` is the number of the first, from 1.

    None is a line whose text the trace has not kept.
    """

    file: str
    line: int
    first: int
    lines: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedNote:
    """What somebody wrote on an incident; `author` may be empty, `created` is in seconds since the epoch."""

    incident: str
    author: str
    created: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportData:
    """Everything that an export holds. `hosts` are all names of hosts that the trace knows, for redaction."""

    trace: str
    title: str
    generation: int
    verdict: Mapping[str, Any]
    ranks: Sequence[RankRow] = ()
    excerpts: Sequence[Excerpt] = ()
    hosts: Sequence[str] = ()
    group_sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    notes: Sequence[ExportedNote] = ()
    pictures: Pictures = field(default_factory=Pictures)
    shown: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """Claim -> keys of the view that move the pictures of the document to its rows."""
    coverage: Coverage | None = None


def redacted(data: ExportData) -> ExportData:
    """Return the export with the names of hosts, addresses, users and directories replaced."""
    redactor = Redactor(data.hosts)
    return replace(
        data,
        title=redactor.text(data.title),
        trace=redactor.text(data.trace),
        verdict=redactor.tree(data.verdict),
        ranks=[
            replace(row, host=None if row.host is None else redactor.text(row.host), progress=row.progress)
            for row in data.ranks
        ],
        excerpts=[
            replace(part, file=redactor.text(part.file), lines=tuple(map(redactor.line, part.lines)))
            for part in data.excerpts
        ],
        hosts=(),
        # Who wrote is a name of the site as well; that somebody wrote, and when, is not.
        pictures=data.pictures.redacted(redactor),
        notes=[replace(note, author="", text=redactor.text(note.text)) for note in data.notes],
    )


def to_json(data: ExportData, *, redact: bool = False) -> str:
    """Return the verdict with the ranks and the lines that its claims rest on."""
    data = redacted(data) if redact else data
    body = {
        "schema": EXPORT_SCHEMA,
        "trace": data.trace,
        "title": data.title,
        "generation": data.generation,
        "redacted": redact,
        "verdict": data.verdict,
        "ranks": [
            {
                "rank": row.rank,
                "role": row.role,
                "host": row.host,
                "gpu": row.gpu,
                "pid": row.pid,
                "progress": row.progress,
                "sent": None if row.sent is None else asdict(row.sent),
                "waits_ns": row.waits_ns,
            }
            for row in data.ranks
        ],
        "excerpts": [
            {"file": part.file, "line": part.line, "first": part.first, "lines": list(part.lines)}
            for part in data.excerpts
        ],
        "notes": [
            {"incident": note.incident, "author": note.author, "created": note.created, "text": note.text}
            for note in data.notes
        ],
    }
    return json.dumps(body, indent=2, ensure_ascii=False)


def to_csv(data: ExportData, *, redact: bool = False) -> str:
    """Return the ranks as CSV, those first that the verdict names."""
    data = redacted(data) if redact else data
    names = ("rank", "role", "host", "gpu", "pid", "progress")
    sent = ("channel", "peer", "ready", "moved", "done", "total")
    rows = (
        [
            *(getattr(row, name) for name in names),
            *(getattr(row.sent, name) if row.sent else None for name in sent),
            row.waits_ns,
        ]
        for row in data.ranks
    )
    return csv_text((*names, *(f"sent_{name}" for name in sent), "waits_ns"), rows)


def to_markdown(data: ExportData, *, redact: bool = False) -> str:
    """Return the summary that goes into the channel of an incident."""
    data = redacted(data) if redact else data
    return markdown_summary.to_markdown(
        data.verdict, title=data.title, notes=[(note.author, note.created, note.text) for note in data.notes]
    )


def to_html(data: ExportData, *, redact: bool = False) -> str:
    """Return the diagnosis of every finding as one HTML document."""
    from dash import html

    from mycroft.app.pages import diagnosis_view as diagnosis
    from mycroft.app.pages.links import TraceLinks
    from mycroft.app.pages.verdict_band import Context, RankFacts
    from mycroft.app.static_html import write

    data = redacted(data) if redact else data
    files = {part.file: number for number, part in enumerate({part.file: part for part in data.excerpts}.values())}
    context = Context(
        links=TraceLinks(data.trace, data.generation),
        files=files,
        ranks={row.rank: RankFacts(row.host, row.gpu, row.nic, ring=row.stands) for row in data.ranks},
        group_sizes=data.group_sizes,
        coverage=data.coverage,
    )
    findings = data.verdict["findings"] or [None]
    anchors = {f"rank-{row.rank}" for row in data.ranks[:RANKS_SHOWN]}
    anchors |= {f"file-{files[part.file]}-{part.line}" for part in data.excerpts}
    anchors |= {f"finding-{finding['id']}" for finding in findings if finding}
    parts: list[str] = []
    for finding in findings:
        prefix = f"{finding['id']}-" if finding else ""
        body = write(
            diagnosis.view(
                data.verdict,
                finding,
                context,
                flow=_flow_panel(html, data.pictures, finding),
                timeline=_timeline_panel(html, data.pictures, finding),
                shown=data.shown,
            ),
            relink=lambda href, at=prefix: _inside(href, anchors, at),
        )
        # Each finding is a page of the dashboard with ids of its own; here they share one document.
        body = re.sub(r' id="(claim-[^"]*|quality|flow|timeline)"', rf' id="{prefix}\1"', body)
        own = [note for note in data.notes if note.incident == (finding["id"] if finding else diagnosis.WHOLE)]
        body += write(_notes(html, own), relink=lambda _: None)
        parts.append(f'<section id="finding-{escape(finding["id"]) if finding else "none"}">{body}</section>')
    parts.append(write([_ranks_table(html, data), _excerpts(html, data, files)], relink=lambda _: None))
    script = _script(data.pictures)
    note = "Names of hosts, addresses, users and directories are replaced." if redact else ""
    return _DOCUMENT.format(
        title=escape(f"{data.title}: {data.verdict['summary']}"[:300]),
        css=_style(),
        head=escape(f"{data.title} · generation {data.generation} · Mycroft {mycroft.__version__}"),
        note=escape(note),
        body="\n".join(parts),
        policy=escape(export_script.policy() if script else NO_SCRIPT, quote=True),
        script=script,
    )


_DOCUMENT: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" \
content="{policy}">
<title>{title}</title>
<style>
{css}
</style>
</head>
<body class="export">
<main class="page">
<p class="muted">{head} {note}</p>
{body}
</main>
{script}</body>
</html>
"""
NO_SCRIPT: Final = "default-src 'none'; style-src 'unsafe-inline'; font-src data:; img-src data:"
_WITHOUT: Final = "A script of this file draws the picture here. Where it may not run, all else can still be read."
_OWN_CSS: Final = """
.export .page { max-width: 1280px; margin: 0 auto; padding: 16px; }
.export pre { overflow-x: auto; margin: 4px 0 0; }
.export pre span { display: block; }
.export pre .hit { font-weight: 700; border-left: 3px solid currentColor; padding-left: 4px; }
.export :target { outline: 2px solid currentColor; outline-offset: 2px; }
.export section { margin-bottom: 16px; }
.export .row--chosen { background: var(--selection); }
"""


def _script(pictures: Pictures) -> str:
    """Return the script of the document and what its pictures are drawn from; empty where there is no picture."""
    if pictures.timeline is None and not any(picture.flow for picture in pictures.flows.values()):
        return ""
    # In JSON only texts hold `<`, where it may be written otherwise; nothing can then end the element.
    answers = json.dumps(pictures.answers(), separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<div id="live-region" class="sr-only" aria-live="polite"></div>\n'
        f'<script type="application/json" id="answers">{answers}</script>\n'
        f"<script>{export_script.script()}</script>\n"
    )


def _flow_panel(html: Any, pictures: Pictures, finding: Mapping[str, Any] | None) -> Any:
    from mycroft.app.pages.flow_panel import SHAPES
    from mycroft.app.pages.panel import attributes, panel

    picture = None if finding is None else pictures.flows.get(finding["id"])
    if finding is None or picture is None:
        return None
    if picture.flow is None:
        content = html.P(
            f"The flow of {words.plural(picture.ranks, 'rank')} is too large for a file; it is on the dashboard."
        )
    else:
        content = html.Div(html.P(_WITHOUT, className="muted"), **attributes(data_flow=f"flow/{finding['id']}"))
    note = f"{picture.named} · {words.plural(picture.ranks, 'rank')}"
    return panel(f"Chunk flow, {SHAPES[picture.shape]}", content, note=note, id="flow")


def _timeline_panel(html: Any, pictures: Pictures, finding: Mapping[str, Any] | None) -> Any:
    from mycroft.app.pages.panel import attributes, panel

    picture = pictures.timeline
    if finding is None or (picture is None and not pictures.said):
        return None
    if picture is None:
        return panel("Timeline", html.P(pictures.said), id="timeline")
    window = picture.windows.get(finding["id"])
    place = html.Div(
        html.P(_WITHOUT, className="muted"),
        **attributes(
            data_timeline="timeline",
            data_height="240",
            data_embedded="",
            data_window=None if window is None else f"{window[0]}-{window[1]}",
        ),
    )
    said = html.P(f"{picture.said[:1].upper()}{picture.said[1:]}.", className="muted") if picture.said else None
    return panel("Timeline", place, said, note="rows are ranks", id="timeline")


def _inside(href: str, anchors: set[str], prefix: str) -> str | None:
    """Return where a link of the dashboard leads inside the document; None: nowhere."""
    if href.startswith("#"):
        return f"#{prefix}{href[1:]}"
    address = urls.parse(href)
    line = re.search(r"#L(\d+)\Z", href)
    wanted = {
        "rank": f"rank-{address.params.get('rank')}",
        "file": f"file-{address.params.get('file')}-{line.group(1) if line else ''}",
        "diagnosis": f"finding-{address.params.get('incident')}",
    }.get(address.page or "")
    return f"#{wanted}" if wanted in anchors else None


def _ranks_table(html: Any, data: ExportData) -> Any:
    if not data.ranks:
        return None
    names = ["Rank", "Role", "Host", "GPU", "Process", "Progress"]
    has_sent, has_waits = any(row.sent for row in data.ranks), any(row.waits_ns is not None for row in data.ranks)
    names += ["G", "T", "D", "of"] if has_sent else []
    names += ["Waits"] if has_waits else []
    rows: list[Any] = []
    for row in data.ranks[:RANKS_SHOWN]:
        values: list[Any] = [row.rank, row.role, row.host, row.gpu, row.pid, row.progress]
        if has_sent:
            sent = row.sent
            values += [sent.ready, sent.moved, sent.done, sent.total] if sent else [None] * 4
        if has_waits:
            values.append(None if row.waits_ns is None else words.duration(row.waits_ns))
        cells = [html.Td(value if value is not None else "–") for value in values]
        rows.append(html.Tr(cells, id=f"rank-{row.rank}"))
    meaning = (
        "G chunks filled by the GPU, T handed to the network, D acknowledged, of the send that is furthest behind"
        if has_sent
        else ""
    )
    hidden = len(data.ranks) - len(rows)
    more = [html.P(f"{hidden:,} more ranks are in the JSON export.")] if hidden > 0 else []
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in names]))
    table = html.Table([head, html.Tbody(rows)], className="table", **{"data-ranks": ""})
    said = [html.P(f"{meaning}.", className="muted")] if meaning else []
    return html.Section(
        [html.H2(f"Ranks ({len(data.ranks):,})"), *said, html.Div(table, className="table-scroll"), *more],
        className="panel",
    )


def _notes(html: Any, notes: Sequence[ExportedNote]) -> Any:
    if not notes:
        return None
    items = [
        html.Li(
            [
                html.Div(
                    [
                        html.Strong(note.author or "somebody"),
                        html.Span(words.day_and_time(note.created), className="muted"),
                    ],
                    className="notes__head",
                ),
                html.P(note.text, className="notes__said"),
            ]
        )
        for note in notes
    ]
    return html.Section([html.H2(f"Notes ({len(notes):,})"), html.Ol(items, className="notes")], className="panel")


def _excerpts(html: Any, data: ExportData, files: Mapping[str, int]) -> Any:
    if not data.excerpts:
        return None
    blocks: list[Any] = [html.H2("Lines that the claims rest on")]
    for part in data.excerpts:
        lines = [
            html.Span(
                f"{number:>7}  {NOT_KEPT if text is None else text}", className="hit" if number == part.line else None
            )
            for number, text in enumerate(part.lines, start=part.first)
        ]
        blocks.append(
            html.Div(
                [html.Code(f"{part.file}:{part.line}"), html.Pre(lines)], id=f"file-{files[part.file]}-{part.line}"
            )
        )
    return html.Section(blocks, className="panel")


_URL: Final = re.compile(r"url\((['\"]?)([^)'\"]+)\1\)")


_DARK_RULE: Final = re.compile(r':root\[data-theme="dark"\]([^{}]*)\{([^{}]*)\}')


def _style() -> str:
    """Return the style sheets of the dashboard in one text, their fonts inside."""
    assets = Path(mycroft.__file__).parent / "assets"
    sheets = sorted((assets / "css").glob("*.css"))
    whole = "\n".join([_with_fonts(sheet) for sheet in sheets])
    # The dashboard chooses the theme by an attribute that a script sets; here the reader's system chooses.
    return _DARK_RULE.sub(r"@media (prefers-color-scheme: dark) { :root\1 {\2} }", whole) + _OWN_CSS


def _with_fonts(sheet: Path) -> str:
    def embed(match: re.Match[str]) -> str:
        target = match.group(2)
        if target.startswith(("data:", "#")):
            return match.group(0)
        path = (sheet.parent / target.split("?", 1)[0]).resolve()
        kind = {".woff2": "font/woff2", ".svg": "image/svg+xml", ".png": "image/png"}.get(path.suffix)
        if kind is None or not path.is_file():
            return "none"
        return f"url(data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()})"

    return _URL.sub(embed, sheet.read_text(encoding="utf-8"))
