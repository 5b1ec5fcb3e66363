"""A receiver of OTLP/HTTP as a process of its own: decodes what it is sent with the protocol's own messages.

`python -m tests.app.live.otlp_receiver` prints its port, then one line of JSON per span.
"""

from __future__ import annotations

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind)


def spans(data: bytes) -> list[dict[str, Any]]:
    asked = ExportTraceServiceRequest()
    asked.ParseFromString(data)
    return [
        {
            "service": {a.key: plain(a.value) for a in resource.resource.attributes}["service.name"],
            "name": span.name,
            "trace": span.trace_id.hex(),
            "span": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "start": span.start_time_unix_nano,
            "end": span.end_time_unix_nano,
            "error": span.status.code == span.status.STATUS_CODE_ERROR,
            "attributes": {a.key: plain(a.value) for a in span.attributes},
            "events": [(event.name, event.time_unix_nano) for event in span.events],
        }
        for resource in asked.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        right = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
        answer = ExportTraceServiceResponse().SerializeToString() if right else b""
        if right:
            for span in spans(data):
                print(json.dumps(span), flush=True)
        self.send_response(200 if right else 404)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def main() -> int:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    print(server.server_port, flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
