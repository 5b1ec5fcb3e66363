"""Compression: the same bytes after unpacking, and only for whoever asks for it."""

from __future__ import annotations

import gzip

import pytest
from flask import Flask, Response

from mycroft.app.compression import LEAST_BYTES, install
from mycroft.app.config import AppConfig
from mycroft.app.server import create_app


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Flask:
    return create_app(AppConfig(data_dir=tmp_path_factory.mktemp("gzip"))).server


@pytest.mark.parametrize("path", ["/_dash-dependencies", "/assets/css/1_tokens.css", "/assets/css/2_base.css"])
def test_what_is_unpacked_is_what_would_have_been_sent(server: Flask, path: str) -> None:
    client = server.test_client()
    with client.get(path) as plain:
        content = plain.data
        assert "Content-Encoding" not in plain.headers
        assert "Accept-Encoding" in plain.headers["Vary"]
    for _ in range(2):
        with client.get(path, headers={"Accept-Encoding": "gzip"}) as packed:
            assert packed.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(packed.data) == content
            assert len(packed.data) == int(packed.headers["Content-Length"]) < len(content)


def test_small_answers_and_refusals_stay_plain(server: Flask) -> None:
    client = server.test_client()
    for path in ("/healthz", "/api/v1/jobs", "/api/v1/nothing"):
        assert "Content-Encoding" not in client.get(path, headers={"Accept-Encoding": "gzip"}).headers


@pytest.mark.parametrize(
    ("mimetype", "accept", "packed"),
    [
        ("application/json", "gzip, br", True),
        ("application/json", "gzip;q=0", False),
        ("application/json", "br", False),
        ("image/png", "gzip", False),
        ("application/octet-stream", "gzip", False),
    ],
)
def test_only_text_is_packed_and_only_on_request(mimetype: str, accept: str, packed: bool) -> None:
    app = Flask("x")
    install(app)

    @app.get("/")
    def index() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response("x" * LEAST_BYTES, mimetype=mimetype)

    answer = app.test_client().get("/", headers={"Accept-Encoding": accept})
    assert ("Content-Encoding" in answer.headers) is packed


def test_a_changed_file_is_not_answered_from_what_was_packed_before() -> None:
    app = Flask("x")
    install(app)
    content = ["a" * LEAST_BYTES]

    @app.get("/assets/x.css")
    def sheet() -> Response:  # pyright: ignore[reportUnusedFunction]
        response = Response(content[0], mimetype="text/css")
        response.add_etag()
        return response

    client = app.test_client()
    for text in ("a" * LEAST_BYTES, "b" * LEAST_BYTES):
        content[0] = text
        answer = client.get("/assets/x.css", headers={"Accept-Encoding": "gzip"})
        assert gzip.decompress(answer.data).decode() == text
        assert answer.headers["ETag"].startswith("W/")
