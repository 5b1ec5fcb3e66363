"""The programs' side of the server: everything below `/api/v1/`, JSON unless it says otherwise.

Access has been asked for by `access.guard` before any route runs: a route that names a `<trace>` is open to whoever
may read that trace, every other route and every write to full access only.
"""

from __future__ import annotations

from typing import Any, Final

from flask import Blueprint, Flask, Response, jsonify, request, url_for

from mycroft.app import access, api_explorer, api_pictures, export, jobs, shares
from mycroft.app.api_request import (
    RequestError,
    config_here,
    json_body,
    of_trace,
    queries_here,
    reader_of,
    state_here,
    uploads_here,
    whole_number,
)
from mycroft.app.export_data import collect
from mycroft.app.plain_rows import plain_rows
from mycroft.app.reads import evidence, verdicts
from mycroft.app.state import now
from mycroft.app.uploads import wanted_files
from mycroft.loaders.catalogue import TraceEntry

METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]
LINES_MAX: Final = 5000
FILES_MAX: Final = 10_000
JOBS_LISTED: Final = 100
CRC_HEADER: Final = "X-Chunk-CRC32"
STALLED_BODY_S: Final = 60.0
SHARE_DAYS_MAX: Final = 365
SQL_CHARS_MAX: Final = 8000


def _entry(entry: TraceEntry) -> dict[str, Any]:
    return {
        "trace": entry.trace_id,
        "title": entry.title,
        "created": entry.created,
        "generation": entry.generation,
        "published": entry.published,
        "size_bytes": entry.size_bytes,
        **{name: value for name, value in entry.summary.items() if name not in {"trace", "title"}},
    }


def register(server: Flask) -> None:
    """Add the routes to `server`."""
    root = Blueprint("api", __name__, url_prefix="/api")
    _job_routes(root)
    _upload_routes(root)
    _trace_routes(root)
    _share_routes(root)
    api_explorer.add_routes(root)
    api_pictures.add_routes(root)

    # Dash answers any path it does not know with its own page; a program that mistypes an address must not get that.
    @root.route("/", defaults={"rest": ""}, methods=METHODS)
    @root.route("/<path:rest>", methods=METHODS)
    def nothing_here(rest: str) -> tuple[Response, int]:  # pyright: ignore[reportUnusedFunction]
        return jsonify(error=f"/api/{rest}: no such address"), 404

    server.register_blueprint(root)


# pyright: reportUnusedFunction=false
# The routes below are used by Flask alone.


def _job_routes(root: Blueprint) -> None:
    @root.get("/v1/jobs")
    def job_list() -> Response:
        return jsonify(jobs=[job.to_dict() for job in jobs.newest(state_here(), JOBS_LISTED)])

    @root.get("/v1/jobs/<job>")
    def job_state(job: str) -> Response | tuple[str, int]:
        found = jobs.find(state_here(), job)
        if request.args.get("since") == str(found.rev):
            return "", 204
        return jsonify(found.to_dict())

    @root.delete("/v1/jobs/<job>")
    def job_cancel(job: str) -> Response:
        return jsonify(jobs.cancel(state_here(), job).to_dict())


def _upload_routes(root: Blueprint) -> None:
    @root.post("/v1/uploads")
    def upload_create() -> tuple[Response, int]:
        files = wanted_files(json_body(), files_max=config_here().upload_files_max)
        return jsonify(uploads_here().create(files)), 201

    @root.get("/v1/uploads/<upload>")
    def upload_state(upload: str) -> Response:
        return jsonify(uploads_here().status(upload))

    @root.put("/v1/uploads/<upload>/<int:file>/<int:chunk>")
    def upload_chunk(upload: str, file: int, chunk: int) -> Response:
        crc_text = request.headers.get(CRC_HEADER)
        try:
            crc32 = None if crc_text is None else int(crc_text, 16)
        except ValueError as error:
            raise RequestError(f"{CRC_HEADER}: eight hexadecimal digits were expected") from error
        connection = request.environ.get("gunicorn.socket")
        if connection is not None:
            # A client that stops sending must not hold a thread for ever.
            connection.settimeout(STALLED_BODY_S)
        written = uploads_here().write_chunk(
            upload,
            file=file,
            chunk=chunk,
            body=request.stream,
            length=request.content_length,
            crc32=crc32,
        )
        return jsonify(written)

    @root.post("/v1/uploads/<upload>/complete")
    def upload_complete(upload: str) -> Response:
        return jsonify(job=uploads_here().complete(upload))

    @root.delete("/v1/uploads/<upload>")
    def upload_cancel(upload: str) -> tuple[str, int]:
        uploads_here().cancel(upload)
        return "", 204


def _trace_routes(root: Blueprint) -> None:
    @root.get("/v1/traces")
    def trace_list() -> Response:
        return jsonify(traces=[_entry(entry) for entry in queries_here().traces()])

    @root.delete("/v1/traces/<trace>")
    def trace_delete(trace: str) -> tuple[str, int]:
        queries_here().remove(trace)
        return "", 204

    @of_trace(root, "")
    def trace_facts(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        known = list(queries_here().generations(trace))
        return jsonify({**_entry(queries_here().entry(trace)), "generation": reader.generation, "generations": known})

    @of_trace(root, "/verdict")
    def trace_verdict(trace: str, generation: int | None = None) -> Response:
        found = verdicts.verdict_of(reader_of(trace, generation))
        if found is None:
            raise RequestError(f"{trace} holds no verdict; load the evidence again", http_status=404)
        return jsonify(found)

    @of_trace(root, "/files")
    def trace_files(trace: str, generation: int | None = None) -> Response:
        listed, total = evidence.files(reader_of(trace, generation), limit=FILES_MAX)
        return jsonify(files=listed, total=total)

    @of_trace(root, "/files/<int:file>/lines")
    def trace_lines(trace: str, file: int, generation: int | None = None) -> Response:
        first = whole_number("from", default=1, least=1, most=2**53 - 1)
        count = whole_number("count", default=200, least=1, most=LINES_MAX)
        reader = reader_of(trace, generation)
        if evidence.file(reader, file) is None:
            raise RequestError(f"trace {trace} has no file {file}", http_status=404)
        window = evidence.text_of(reader, file, first=first, last=first + count - 1)
        return jsonify(file=file, first=window.first, lines=window.lines, total=window.total)

    @of_trace(root, "/sql")
    def trace_sql(trace: str, generation: int | None = None) -> Response:
        query = request.args.get("q", "")
        if not query.strip() or len(query) > SQL_CHARS_MAX:
            raise RequestError(f"q: a SELECT of 1 to {SQL_CHARS_MAX} characters was expected")
        config = config_here()
        reader = reader_of(trace, generation)
        answer = reader.sql(query, rows_max=config.sql_rows_max, timeout_s=config.sql_timeout_s)
        rows = plain_rows(answer.frame, for_browser=True)
        return jsonify(columns=answer.frame.columns, rows=rows, cut=answer.cut)

    @of_trace(root, "/export.json")
    def export_json(trace: str, generation: int | None = None) -> Response:
        return _exported(trace, generation, "json")

    @of_trace(root, "/export.html")
    def export_html(trace: str, generation: int | None = None) -> Response:
        return _exported(trace, generation, "html")


def _exported(trace: str, generation: int | None, kind: str) -> Response:
    reader = reader_of(trace, generation)
    data = collect(reader, state=state_here(), pictures=kind == "html")
    redact = request.args.get("redact", "0") not in {"", "0", "false"}
    if kind == "html":
        answer = Response(export.to_html(data, redact=redact), mimetype="text/html")
    else:
        answer = Response(export.to_json(data, redact=redact), mimetype="application/json")
    name = f"{reader.trace}-g{reader.generation}{'-redacted' if redact else ''}.{kind}"
    # The id of a trace is of lower-case letters, digits and `-` only (catalogue); nothing in it needs quoting.
    answer.headers["Content-Disposition"] = f'attachment; filename="mycroft-{name}"'
    return answer


def _share_routes(root: Blueprint) -> None:
    def listed(share: shares.Share) -> dict[str, Any]:
        return {
            "share": share.share_id,
            "trace": share.trace,
            "target": share.target,
            "note": share.note,
            "created": share.created,
            "expires": share.expires,
            "revoked": share.revoked,
            "active": share.revoked is None and share.expires > now(),
        }

    @root.get("/v1/traces/<trace>/shares")
    def share_list(trace: str) -> Response:
        # Who else has a link is no business of those who came by one.
        access.check(request, None)
        return jsonify(shares=[listed(share) for share in shares.of_trace(state_here(), trace)])

    @root.post("/v1/traces/<trace>/shares")
    def share_create(trace: str) -> tuple[Response, int]:
        reader = reader_of(trace, None)
        body = json_body()
        target = body.get("target", f"/t/{reader.trace}")
        if not isinstance(target, str) or not shares.covers(target, trace=trace):
            raise RequestError(f"target: a path of trace {trace} on this server was expected")
        days = body.get("days", config_here().share_expiry_s / 86400)
        if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days <= SHARE_DAYS_MAX:
            raise RequestError(f"days: a number above 0, of at most {SHARE_DAYS_MAX}, was expected")
        note = body.get("note", "")
        share, token = shares.create(
            state_here(), trace=trace, target=target, expiry_s=days * 86400, note=note if isinstance(note, str) else ""
        )
        path = url_for("login.open_share", token=token)
        return jsonify({**listed(share), "path": path, "url": request.host_url.rstrip("/") + path}), 201

    @root.delete("/v1/traces/<trace>/shares/<share>")
    def share_revoke(trace: str, share: str) -> tuple[str, int]:
        shares.revoke(state_here(), trace=trace, share_id=share)
        return "", 204
