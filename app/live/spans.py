"""Incidents and the operations they are about, as OpenTelemetry spans over OTLP/HTTP: `--otlp URL`, extra `[otel]`.

One trace per incident, with numbers made from its name, so that a watch that was started anew goes on with it:

    incident               from opened to closed, with its revisions as events; sent when it closes
    ├── incident opened    a moment; an open incident is seen by it
    ├── incident revised   a moment, once a revision
    └── all_reduce …       one per rank: the operation that stands or is slow, as that rank saw it

A receiver that is away or slow costs spans, never a tick: they wait in a bounded queue of a thread of its own.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from mycroft.app.alerts import incident_link
from mycroft.app.config import ConfigError
from mycroft.app.live.state import Incident, LiveState

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from mycroft.loaders.store import Store

LOG: Final = logging.getLogger("mycroft.otlp")
MOST_OPERATIONS: Final = 256
QUEUE: Final = 4096
TIMEOUT_S: Final = 5.0
_NS: Final = 1_000_000_000
_TRACES: Final = "/v1/traces"

OPERATIONS: Final = """
SELECT o.rank::BIGINT AS rank, o.op_kind::VARCHAR AS kind, $2::BIGINT AS seq, c.key AS comm, h.name AS host,
    epoch_ns(coalesce(o.enq_ts, o.start_ts)) AS begun, epoch_ns(o.start_ts) + o.dur_ns AS ended,
    o.state::VARCHAR AS state, o.bytes::BIGINT AS bytes, o.peer::BIGINT AS peer
FROM coll_ops o
JOIN communicators c USING (comm_id)
LEFT JOIN ranks r ON r.rank = o.rank
LEFT JOIN hosts h USING (host_id)
WHERE c.key = $1 AND (CASE WHEN coalesce(o.is_p2p, FALSE) THEN coalesce(o.pair_seq, o.op_seq) ELSE o.op_seq END) = $2
    AND coalesce(o.enq_ts, o.start_ts) IS NOT NULL
ORDER BY o.rank, o.op_seq
LIMIT $3
"""
"""What each rank saw of one operation. NULL `ended`: it was open when it was seen last."""


def operations_of(store: Store, finding: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the operation that a finding is about, as each rank saw it: rows of `OPERATIONS`, the first ranks first.

    Empty where the finding names none.
    """
    collective = finding.get("collective") or {}
    if collective.get("comm") is None or collective.get("seq") is None:
        return []
    return store.frame(OPERATIONS, (collective["comm"], collective["seq"], MOST_OPERATIONS)).to_dicts()


def trace_id(incident: str) -> int:
    """Return the number of the trace of an incident; never 0."""
    return int.from_bytes(hashlib.sha256(incident.encode()).digest()[:16], "big") or 1


def root_id(incident: str) -> int:
    """Return the number of the span that stands for the incident; never 0."""
    return int.from_bytes(hashlib.sha256(incident.encode()).digest()[16:24], "big") or 1


class Spans:
    """Sends spans to one receiver. Its methods return at once and raise nothing about the receiver."""

    def __init__(self, endpoint: str, state: LiveState, *, url: str) -> None:
        """Start the thread that sends.

        Args:
            endpoint: address of an OTLP/HTTP receiver, as http://127.0.0.1:4318; `/v1/traces` is added where missing.
                Headers, certificates and compression come from OpenTelemetry's own environment variables.
            state: where revisions are read.
            url: address of the dashboard, for links.

        Raises:
            ConfigError: the packages are not installed, or the address is none.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        except ImportError as error:
            raise ConfigError(
                f"--otlp needs OpenTelemetry ({error}): pip install opentelemetry-exporter-otlp-proto-http"
            ) from error
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"--otlp {endpoint!r}: expected an http or https address, as http://127.0.0.1:4318")
        address = endpoint.rstrip("/")
        exporter = OTLPSpanExporter(address if address.endswith(_TRACES) else address + _TRACES, timeout=TIMEOUT_S)
        self._ids = _ids()
        self._state = state
        self._url = url
        self._provider = TracerProvider(
            # Not what OTEL_TRACES_SAMPLER says: an incident is rare, and half of one is none.
            sampler=ALWAYS_ON,
            resource=Resource.create({"service.name": "mycroft"}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=QUEUE, schedule_delay_millis=1000)
        )
        self._tracer: Tracer = self._provider.get_tracer("mycroft.watch")

    def told(self, event: str, incident: Incident, title: str) -> None:
        """Send what a change of an incident is."""
        about = _about(incident, title, incident_link(self._url, incident))
        revisions = self._state.revisions(incident.incident)
        if event in ("closed", "merged"):
            self._whole(incident, about, revisions)
            return
        at = round(revisions[-1].at * _NS) if revisions else round(incident.seen * _NS)
        why = revisions[-1].why if revisions else ""
        span = self._tracer.start_span(
            f"incident {event}",
            context=_below(incident.incident),
            start_time=at,
            attributes={**about, "mycroft.revision": incident.revisions, "mycroft.why": why},
        )
        _mark(span, incident)
        span.end(at)

    def _whole(self, incident: Incident, about: Mapping[str, Any], revisions: Sequence[Any]) -> None:
        began, ended = round(incident.opened * _NS), round((incident.closed or incident.seen) * _NS)
        with self._ids.next_is(trace_id(incident.incident), root_id(incident.incident)):
            span = self._tracer.start_span("incident", context=_nothing(), start_time=began, attributes=about)
        for revision in revisions:
            said = {"mycroft.summary": str(revision.finding["summary"]), "mycroft.why": revision.why}
            span.add_event(f"revision {revision.revision}", said, timestamp=round(revision.at * _NS))
        _mark(span, incident)
        span.end(max(began, ended))

    def operations(self, incident: Incident, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send the operation of an incident, one span a rank; one that is open ends when the incident was seen last."""
        seen = round(incident.seen * _NS)
        accused = set(incident.ranks)
        for row in rows[:MOST_OPERATIONS]:
            begun = int(row["begun"])
            ended = row["ended"]
            about = {
                "mycroft.rank": row["rank"],
                "mycroft.communicator": row["comm"],
                "mycroft.sequence": row["seq"],
                "mycroft.state": row["state"],
                "mycroft.bytes": row["bytes"],
                "mycroft.peer": row["peer"],
                "host.name": row["host"],
                "mycroft.open": ended is None,
                "mycroft.accused": row["rank"] in accused,
            }
            span = self._tracer.start_span(
                str(row["kind"] or "operation"),
                context=_below(incident.incident),
                start_time=begun,
                attributes={name: value for name, value in about.items() if value is not None},
            )
            span.end(max(begun, seen if ended is None else int(ended)))

    def stop(self) -> None:
        """Send what waits, for a moment, and end."""
        self._provider.force_flush(timeout_millis=int(TIMEOUT_S * 1000))
        self._provider.shutdown()


def _about(incident: Incident, title: str, link: str) -> dict[str, Any]:
    return {
        "mycroft.incident": incident.incident,
        "mycroft.job": incident.job,
        "mycroft.job_title": title,
        "mycroft.status": incident.status,
        "mycroft.category": incident.category,
        "mycroft.confidence": incident.confidence,
        "mycroft.summary": incident.summary,
        "mycroft.ranks": list(incident.ranks),
        "mycroft.hosts": list(incident.hosts),
        "mycroft.one_of": bool(incident.finding["root_cause"].get("one_of")),
        "mycroft.link": link,
    }


def _mark(span: Any, incident: Incident) -> None:
    from opentelemetry.trace import Status, StatusCode

    if incident.status != "cannot_tell":
        span.set_status(Status(StatusCode.ERROR, incident.summary))


def _nothing() -> Any:
    from opentelemetry.context import Context

    return Context()


def _below(incident: str) -> Any:
    """Return the context of spans below that of an incident, which is sent later or was by an earlier watch."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    parent = SpanContext(trace_id(incident), root_id(incident), is_remote=True, trace_flags=TraceFlags(1))
    return set_span_in_context(NonRecordingSpan(parent), _nothing())


def _ids() -> Any:
    """Return a generator of numbers; a thread may set those of the next span that it makes."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        def __init__(self) -> None:
            self._mine = threading.local()

        @contextmanager
        def next_is(self, trace: int, span: int) -> Iterator[None]:
            self._mine.next = (trace, span)
            try:
                yield
            finally:
                self._mine.next = None

        def generate_trace_id(self) -> int:
            mine = getattr(self._mine, "next", None)
            return mine[0] if mine else super().generate_trace_id()

        def generate_span_id(self) -> int:
            mine = getattr(self._mine, "next", None)
            return mine[1] if mine else super().generate_span_id()

    return Ids()
