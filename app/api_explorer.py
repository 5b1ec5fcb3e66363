"""Routes of the explorer below `/api/v1/traces/<trace>`: find anything, answers of SQL as files, exports, notes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import polars as pl
from flask import Blueprint, Response, jsonify, request

from mycroft.app import access, chrome_trace, export, notes, pages, similar, tabular
from mycroft.app.api_request import (
    RequestError,
    config_here,
    json_body,
    of_trace,
    queries_here,
    reader_of,
    state_here,
    whole_number,
)
from mycroft.app.export_data import collect
from mycroft.app.pages.links import TraceLinks
from mycroft.app.queries import TraceReader
from mycroft.app.reads import find, verdicts

SQL_CHARS_MAX: Final = 8000
SIMILAR_MAX: Final = 100
PERFETTO_DEFAULT: Final = 200_000
PACK_LEVEL: Final = 3
TEXTS_AT_ONCE: Final = 512
CUT_HEADER: Final = "X-Mycroft-Cut"
"""Header of a file that holds only the first rows of more: how many it holds."""

# pyright: reportUnusedFunction=false
# The routes below are used by Flask alone.


def add_routes(root: Blueprint) -> None:
    """Add the routes to the blueprint of the API."""
    _find_routes(root)
    _sql_routes(root)
    _export_routes(root)
    _note_routes(root)


def _find_routes(root: Blueprint) -> None:
    @of_trace(root, "/find")
    def trace_find(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        text = request.args.get("q", "")
        found = find.find(
            reader,
            text,
            TraceLinks(trace, generation),
            verdict=verdicts.verdict_of(reader),
            has_timeline=any(page.name == "timeline" for page in pages.PAGES),
        )
        return jsonify(
            query=text[: find.CHARS_MAX],
            hits=[{"kind": hit.kind, "title": hit.title, "detail": hit.detail, "href": hit.href} for hit in found.hits],
            more=list(found.more),
            limits=list(found.limits),
            of_a_kind=find.OF_A_KIND,
        )


def asked_query() -> str:
    """Return the SELECT that the request carries.

    Raises:
        RequestError: it carries none, or too long a one.
    """
    query = request.args.get("q", "")
    if not query.strip() or len(query) > SQL_CHARS_MAX:
        raise RequestError(f"q: a SELECT of 1 to {SQL_CHARS_MAX} characters was expected")
    return query


def attachment(reader: TraceReader, body: str | bytes, *, name: str, mimetype: str) -> Response:
    """Return a file to keep; its name begins with that of the trace, whose id is safe to stand in a header."""
    answer = Response(body, mimetype=mimetype)
    answer.headers["Content-Disposition"] = f'attachment; filename="mycroft-{reader.trace}-g{reader.generation}{name}"'
    return answer


def _sql_routes(root: Blueprint) -> None:
    def answered(trace: str, generation: int | None) -> tuple[TraceReader, pl.DataFrame, bool]:
        config = config_here()
        reader = reader_of(trace, generation)
        found = reader.sql(asked_query(), rows_max=config.sql_rows_max, timeout_s=config.sql_timeout_s)
        return reader, found.frame, found.cut

    def written(reader: TraceReader, body: str | bytes, kind: str, mimetype: str, rows: int, *, cut: bool) -> Response:
        # A limit that was reached is said where it cannot be lost: in the name of the file.
        name = f"-query{f'-first-{rows}-rows' if cut else ''}.{kind}"
        answer = attachment(reader, body, name=name, mimetype=mimetype)
        if cut:
            answer.headers[CUT_HEADER] = str(rows)
        return answer

    @of_trace(root, "/sql.csv")
    def sql_csv(trace: str, generation: int | None = None) -> Response:
        reader, frame, cut = answered(trace, generation)
        return written(reader, tabular.frame_csv(frame), "csv", "text/csv", frame.height, cut=cut)

    @of_trace(root, "/sql.parquet")
    def sql_parquet(trace: str, generation: int | None = None) -> Response:
        reader, frame, cut = answered(trace, generation)
        body = tabular.frame_parquet(frame)
        return written(reader, body, "parquet", "application/vnd.apache.parquet", frame.height, cut=cut)


def is_redacted() -> bool:
    """Whether the request asks for names to be replaced."""
    return request.args.get("redact", "0") not in {"", "0", "false"}


def _export_routes(root: Blueprint) -> None:
    @of_trace(root, "/export.md")
    def export_markdown(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        text = export.to_markdown(collect(reader, state=state_here()), redact=is_redacted())
        return attachment(reader, text, name=f"{_REDACTED[is_redacted()]}.md", mimetype="text/markdown")

    @of_trace(root, "/ranks.csv")
    def export_ranks(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        text = export.to_csv(collect(reader, state=state_here()), redact=is_redacted())
        return attachment(reader, text, name=f"-ranks{_REDACTED[is_redacted()]}.csv", mimetype="text/csv")

    @of_trace(root, "/perfetto.json.gz")
    def export_operations(trace: str, generation: int | None = None) -> Response:
        most = whole_number("n", default=PERFETTO_DEFAULT, least=1, most=chrome_trace.OPERATIONS_MAX)
        reader = reader_of(trace, generation)
        limits = chrome_trace.extent(reader, most=most)
        cut = f"-newest-{limits.written}-operations" if limits.written < limits.operations else ""
        packed = _packed(chrome_trace.chrome_trace(reader, limits))
        answer = Response(packed, mimetype="application/gzip", direct_passthrough=True)
        name = f"mycroft-{reader.trace}-g{reader.generation}{cut}.perfetto.json.gz"
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
        if cut:
            answer.headers[CUT_HEADER] = str(limits.written)
        return answer


_REDACTED: Final = {False: "", True: "-redacted"}


def _packed(texts: Iterator[str]) -> Iterator[bytes]:
    """Yield texts as one gzip stream, in pieces of some ten kB."""
    packer = zlib.compressobj(PACK_LEVEL, wbits=31)
    held: list[str] = []
    for text in texts:
        held.append(text)
        if len(held) == TEXTS_AT_ONCE:
            yield packer.compress("".join(held).encode())
            held.clear()
    yield packer.compress("".join(held).encode()) + packer.flush()


def _note_routes(root: Blueprint) -> None:
    @of_trace(root, "/notes")
    def note_list(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        found = notes.of_trace(state_here(), reader.trace, request.args.get("incident"))
        return jsonify(notes=[note.to_dict() for note in found])

    @root.post("/v1/traces/<trace>/notes")
    def note_add(trace: str) -> tuple[Response, int]:
        reader = reader_of(trace, None)
        body = json_body()
        verdict = verdicts.verdict_of(reader)
        incident, text, author = (body.get(key, "") for key in ("incident", "text", "author"))
        known = [finding["id"] for finding in verdict["findings"]] if verdict else []
        if incident not in known and (known or incident != "verdict"):
            raise RequestError(f"incident: one of {', '.join(known) or 'verdict'} was expected")
        if not isinstance(text, str) or not isinstance(author, str):
            raise RequestError("text, author: text was expected")
        who = access.grant_here().user or author
        note = notes.add(state_here(), trace=reader.trace, incident=incident, author=who, text=text)
        return jsonify(note.to_dict()), 201

    @root.delete("/v1/traces/<trace>/notes/<note>")
    def note_remove(trace: str, note: str) -> tuple[str, int]:
        notes.remove(state_here(), trace=reader_of(trace, None).trace, note_id=note)
        return "", 204

    @of_trace(root, "/d/<incident>/similar")
    def incident_similar(trace: str, incident: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        verdict = verdicts.verdict_of(reader)
        finding = next((found for found in (verdict or {}).get("findings", ()) if found["id"] == incident), None)
        if finding is None:
            raise RequestError(f"{trace} has no incident {incident[:40]}", http_status=404)
        # A share sees its own trace only, and so does this list.
        compared = similar.similar(finding, queries_here().traces(), trace=reader.trace)
        return jsonify(
            similar=[
                {
                    "trace": item.trace,
                    "incident": item.incident.incident,
                    "summary": item.incident.summary,
                    "since": item.incident.since,
                    "same_shape": item.alike.same_shape,
                    "hosts": list(item.alike.hosts),
                    "devices": list(item.alike.devices),
                }
                for item in compared.found[:SIMILAR_MAX]
            ],
            total=len(compared.found),
            incidents=compared.incidents,
            traces=compared.traces,
        )
