"""Compresses answers with gzip: pages and scripts of megabytes would otherwise make a remote reader wait."""

from __future__ import annotations

import gzip
import threading
from typing import Final

from flask import Flask, Response, request

COMPRESSED: Final = frozenset(
    {
        "application/json",
        "application/javascript",
        "text/javascript",
        "text/html",
        "text/css",
        "text/plain",
        "image/svg+xml",
    }
)
LEAST_BYTES: Final = 1400
LEVEL: Final = 3
"""Of 9; higher ones save little and cost the reader of a fast network more than they give."""
STATIC_LEVEL: Final = 6
STATIC_BYTES_MAX: Final = 16 * 1024 * 1024
STATIC_PREFIXES: Final = ("/_dash-component-suites/", "/assets/")


class _StaticFiles:
    """Compressed files that are the same for everybody, by their full address; bounded, for any thread."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, address: str, etag: str, plain: bytes) -> bytes:
        key = f"{address} {etag} {len(plain)}"
        with self._lock:
            known = self._content.get(key)
        if known is not None:
            return known
        packed = gzip.compress(plain, STATIC_LEVEL, mtime=0)
        with self._lock:
            if self._size + len(packed) <= STATIC_BYTES_MAX and key not in self._content:
                self._content[key] = packed
                self._size += len(packed)
        return packed


def install(server: Flask) -> None:
    """Compress the answers of `server` for whoever accepts gzip."""
    static = _StaticFiles()

    @server.after_request
    def _compress(response: Response) -> Response:  # pyright: ignore[reportUnusedFunction]
        if response.mimetype not in COMPRESSED:
            return response
        response.vary.add("Accept-Encoding")
        wanted = request.accept_encodings["gzip"] > 0
        if not wanted or response.status_code != 200 or "Content-Encoding" in response.headers:
            return response
        if request.method == "HEAD" or "Content-Range" in response.headers:
            return response
        response.direct_passthrough = False
        plain = response.get_data()
        if len(plain) < LEAST_BYTES:
            return response
        etag, _ = response.get_etag()
        if request.path.startswith(STATIC_PREFIXES):
            packed = static.get(request.full_path, etag or "", plain)
        else:
            packed = gzip.compress(plain, LEVEL, mtime=0)
        response.set_data(packed)
        response.headers["Content-Encoding"] = "gzip"
        if etag is not None:
            # The bytes are others than those that the strong tag was made for.
            response.set_etag(etag, weak=True)
        return response
