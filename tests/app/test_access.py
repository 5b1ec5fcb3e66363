"""Who may do what: every route and every callback, for every kind of visitor."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dash import Dash
from flask.testing import FlaskClient
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from mycroft.app import access, shares
from mycroft.app.config import AppConfig, ConfigError, read_token
from mycroft.app.server import create_app, secret_key
from mycroft.app.state import State

TOKEN = "a-token-of-enough-length"
WRITE = {access.WRITE_HEADER: "1"}
MINE, OTHER = "mine", "other"
# A value for each path parameter of a route; `<trace>` is filled in by the tests.
VALUES = {
    "generation": "1",
    "file": "0",
    "chunk": "0",
    "job": "j",
    "upload": "u",
    "share": "s",
    "comm": "dp-0a",
    "seq": "7",
    "metric": "late",
    "level": "0",
    "y": "0",
    "x": "0",
    "note": "n",
    "incident": "f1",
    "token": "t",
    "rest": "x",
    "path": "t/mine",
    "package_name": "dash",
    "fingerprinted_path": "x.js",
    "filename": "x.css",
}
# Reads of one trace that are for its owner alone.
OWNERS_ONLY = re.compile(r"/api/v1/traces/<trace>/shares")


@pytest.fixture(scope="module")
def token_app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    return create_app(AppConfig(data_dir=tmp_path_factory.mktemp("token"), token=TOKEN))


@pytest.fixture(scope="module")
def open_app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    return create_app(AppConfig(data_dir=tmp_path_factory.mktemp("open")))


@pytest.fixture(scope="module")
def share_token(token_app: Dash) -> str:
    return shares.create(state_of(token_app), trace=MINE, target=f"/t/{MINE}", expiry_s=3600)[1]


def state_of(app: Dash) -> State:
    return app.server.extensions["mycroft"][1]


def rules(app: Dash) -> Iterator[tuple[Rule, str]]:
    for rule in app.server.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield rule, method


def call(client: FlaskClient, rule: Rule, method: str, trace: str = MINE, **options: Any) -> TestResponse:
    path = re.sub(r"<(?:\w+:)?(\w+)>", lambda match: trace if match[1] == "trace" else VALUES[match[1]], rule.rule)
    options.setdefault("headers", WRITE)
    return client.open(path, method=method, **options)


def is_public(rule: Rule) -> bool:
    return rule.rule.startswith(access.PUBLIC_PREFIXES)


def with_share(app: Dash, token: str) -> FlaskClient:
    client = app.server.test_client()
    client.set_cookie(access.SHARE_COOKIE, token)
    return client


def with_token(app: Dash) -> FlaskClient:
    client = app.server.test_client()
    client.set_cookie(access.SESSION_COOKIE, access.session_value(TOKEN))
    return client


def test_nobody_gets_past_any_route_but_the_public_ones(token_app: Dash) -> None:
    client = token_app.server.test_client()
    for rule, method in rules(token_app):
        answer = call(client, rule, method)
        if is_public(rule):
            assert answer.status_code != 401 or rule.rule == "/login", rule
        elif method == "GET" and not rule.rule.startswith(("/api/", "/_dash")):
            assert (answer.status_code, answer.location.split("?")[0]) == (303, "/login"), rule
        else:
            assert answer.status_code == 401, (rule, method)


def test_the_public_routes_are_these_and_no_more(token_app: Dash) -> None:
    public = {rule.rule for rule, _ in rules(token_app) if is_public(rule)}
    assert public == {
        "/assets/<path:filename>",
        "/_dash-component-suites/<string:package_name>/<path:fingerprinted_path>",
        "/_favicon.ico",
        "/s/<token>",
        "/s/leave",
        "/login",
        "/healthz",
    }


def test_a_share_opens_no_route_of_another_trace_and_no_write(token_app: Dash, share_token: str) -> None:
    client = with_share(token_app, share_token)
    for rule, method in rules(token_app):
        if is_public(rule) or not rule.rule.startswith("/api/"):
            continue
        of_trace = "<trace>" in rule.rule
        assert call(client, rule, method, OTHER).status_code == 403, (rule, method)
        own = call(client, rule, method, MINE).status_code
        readable = of_trace and method == "GET" and not OWNERS_ONLY.search(rule.rule)
        assert (own != 403) if readable else (own == 403), (rule, method)


def test_the_token_opens_everything(token_app: Dash) -> None:
    for client in (with_token(token_app), token_app.server.test_client()):
        headers = WRITE | {"Authorization": f"Bearer {TOKEN}"}
        for rule, method in rules(token_app):
            answer = call(client, rule, method, headers=headers)
            assert is_public(rule) or answer.status_code not in {401, 403, 500}, (rule, method)


@pytest.mark.parametrize("value", ["", TOKEN, "x" * 64, access.session_value("another-token-of-length")])
def test_a_wrong_cookie_opens_nothing(token_app: Dash, value: str) -> None:
    client = token_app.server.test_client()
    client.set_cookie(access.SESSION_COOKIE, value)
    assert client.get("/api/v1/traces").status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_a_wrong_bearer_opens_nothing(token_app: Dash, header: str) -> None:
    client = token_app.server.test_client()
    assert client.get("/api/v1/traces", headers={"Authorization": header}).status_code == 401


def test_every_callback_needs_a_visitor(token_app: Dash) -> None:
    answer = token_app.server.test_client().post("/_dash-update-component", json={})
    assert answer.status_code == 401


def show_page(client: FlaskClient, path: str) -> str:
    answer = client.post(
        "/_dash-update-component",
        json={
            "output": "..page.children...page-title.data..",
            "outputs": [{"id": "page", "property": "children"}, {"id": "page-title", "property": "data"}],
            "inputs": [{"id": "url", "property": "pathname", "value": path}],
            "state": [{"id": "url", "property": "search", "value": ""}],
            "changedPropIds": ["url.pathname"],
        },
    )
    assert answer.status_code == 200
    return answer.text


def test_the_router_shows_a_share_nothing_of_another_trace(token_app: Dash, share_token: str) -> None:
    client = with_share(token_app, share_token)
    assert "does not cover" in show_page(client, f"/t/{OTHER}")
    assert "does not cover" not in show_page(client, f"/t/{MINE}")


def test_an_expired_or_revoked_share_is_closed(token_app: Dash) -> None:
    state = state_of(token_app)
    share, token = shares.create(state, trace=MINE, target="/t/mine", expiry_s=3600)
    _, old = shares.create(state, trace=MINE, target="/t/mine", expiry_s=-1)
    assert with_share(token_app, old).get(f"/api/v1/traces/{MINE}").status_code == 401
    assert with_share(token_app, token).get(f"/api/v1/traces/{MINE}").status_code != 401
    shares.revoke(state, trace=MINE, share_id=share.share_id)
    assert with_share(token_app, token).get(f"/api/v1/traces/{MINE}").status_code == 401
    assert token_app.server.test_client().get(f"/s/{token}").status_code == 410


def test_a_share_token_is_kept_as_a_hash_only(token_app: Dash, share_token: str) -> None:
    state = state_of(token_app)
    with state.connection() as connection:
        rows = [tuple(row) for row in connection.execute("SELECT * FROM shares")]
    assert rows and share_token not in str(rows)


def test_opening_a_share_sets_its_cookie_and_leads_to_the_clean_address(token_app: Dash) -> None:
    _, token = shares.create(state_of(token_app), trace=MINE, target="/t/mine/d/f1?g=2", expiry_s=3600)
    client = token_app.server.test_client()
    answer = client.get(f"/s/{token}")
    assert (answer.status_code, answer.location) == (303, "/t/mine/d/f1?g=2")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert client.get(f"/api/v1/traces/{MINE}").status_code != 401


def test_two_shares_in_one_browser_open_both_traces(token_app: Dash) -> None:
    client = token_app.server.test_client()
    for trace in (MINE, OTHER):
        client.get("/s/" + shares.create(state_of(token_app), trace=trace, target=f"/t/{trace}", expiry_s=60)[1])
    assert {client.get(f"/api/v1/traces/{trace}").status_code for trace in (MINE, OTHER)} == {404}
    client.get("/s/leave")
    assert client.get(f"/api/v1/traces/{MINE}").status_code == 401


def test_on_an_open_server_a_share_narrows_until_it_is_left(open_app: Dash) -> None:
    _, token = shares.create(state_of(open_app), trace=MINE, target="/t/mine", expiry_s=60)
    client = open_app.server.test_client()
    assert client.get("/api/v1/jobs").status_code == 200
    client.get(f"/s/{token}")
    assert client.get("/api/v1/jobs").status_code == 403
    client.get("/s/leave")
    assert client.get("/api/v1/jobs").status_code == 200


def test_logging_in_sets_a_cookie_that_is_not_the_token(token_app: Dash) -> None:
    client = token_app.server.test_client()
    answer = client.post("/login", data={"token": TOKEN, "next": "/t/mine"})
    assert (answer.status_code, answer.location) == (303, "/t/mine")
    assert TOKEN not in answer.headers["Set-Cookie"] and "HttpOnly" in answer.headers["Set-Cookie"]
    assert client.get("/api/v1/jobs").status_code == 200
    client.post("/logout")
    assert client.get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x", ""])
def test_a_login_never_leads_to_another_site(token_app: Dash, target: str) -> None:
    answer = token_app.server.test_client().post("/login", data={"token": TOKEN, "next": target})
    assert answer.location == "/"


def test_guessing_the_token_is_slowed_down(tmp_path: Path) -> None:
    client = create_app(AppConfig(data_dir=tmp_path, token=TOKEN)).server.test_client()
    statuses = [client.post("/login", data={"token": f"guess-{n}"}).status_code for n in range(40)]
    assert statuses[0] == 401 and statuses[-1] == 429
    assert client.post("/login", data={"token": TOKEN}).status_code == 429


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_writes_of_other_sites_are_refused(open_app: Dash, headers: dict[str, str]) -> None:
    client = open_app.server.test_client()
    wanted = {"files": [{"path": "a", "size": 1}]}
    assert client.post("/api/v1/uploads", json=wanted, headers=WRITE | headers).status_code == 403
    assert client.post("/_dash-update-component", json={}, headers=headers).status_code == 403
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/v1/uploads", json=wanted, headers=WRITE | own).status_code == 201


def test_writes_without_the_header_are_refused(open_app: Dash) -> None:
    client = open_app.server.test_client()
    assert client.post("/api/v1/uploads", json={"files": [{"path": "a", "size": 1}]}).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8050", 200),
        ("127.0.0.1", 200),
        ("[::1]:1", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ],
)
def test_an_open_server_answers_only_under_a_name_of_loopback(open_app: Dash, host: str, status: int) -> None:
    assert open_app.server.test_client().get("/api/v1/jobs", headers={"Host": host}).status_code == status


def test_a_trusted_proxy_vouches_for_its_user(tmp_path: Path) -> None:
    app = create_app(AppConfig(data_dir=tmp_path, trust_header="X-Remote-User"))
    client = app.server.test_client()
    assert client.get("/api/v1/jobs").status_code == 401
    assert client.get("/api/v1/jobs", headers={"X-Remote-User": " "}).status_code == 401
    assert client.get("/api/v1/jobs", headers={"X-Remote-User": "ada"}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.test"])
def test_listening_where_strangers_are_needs_access_control(config: AppConfig, host: str) -> None:
    exposed = dataclasses.replace(config, host=host)
    with pytest.raises(ConfigError, match="MYCROFT_TOKEN"):
        exposed.check_binding()
    dataclasses.replace(exposed, token=TOKEN).check_binding()
    dataclasses.replace(exposed, trust_header="X-User").check_binding()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_none(config: AppConfig, host: str) -> None:
    dataclasses.replace(config, host=host).check_binding()


def test_a_short_token_is_refused_and_a_file_wins_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    assert read_token(str(file), {"MYCROFT_TOKEN": "another-token-of-length"}) == TOKEN
    assert read_token(None, {}) is None
    with pytest.raises(ConfigError, match="16 characters"):
        read_token(None, {"MYCROFT_TOKEN": "short"})
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(str(tmp_path / "none"), {})


def test_pages_forbid_scripts_and_requests_of_other_origins(open_app: Dash) -> None:
    headers = open_app.server.test_client().get("/").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in policy["script-src"]
    assert policy["connect-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    assert "http" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_inline_scripts_of_the_page_are_those_that_the_policy_names(open_app: Dash) -> None:
    import base64
    import hashlib

    answer = open_app.server.test_client().get("/")
    inline = re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", answer.text, re.DOTALL)
    assert inline
    for script in inline:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in answer.headers["Content-Security-Policy"]


def test_no_page_names_another_origin(open_app: Dash) -> None:
    text = open_app.server.test_client().get("/").text
    sources = re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    assert sources and all(source.startswith("/") and not source.startswith("//") for source in sources)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/api", "/api/", "/api/v1", "/api/v1/nothing", "/api/v2/traces"])
def test_unknown_addresses_of_the_api_are_404_in_json(open_app: Dash, path: str, method: str) -> None:
    answer = open_app.server.test_client().open(path, method=method, headers=WRITE, follow_redirects=True)
    assert answer.status_code == 404
    assert "error" in answer.get_json()


def test_answers_of_the_api_are_timed_and_kept_by_nobody(open_app: Dash) -> None:
    headers = open_app.server.test_client().get("/api/v1/jobs").headers
    assert re.search(r"app;dur=\d+\.\d+", headers["Server-Timing"])
    assert headers["Cache-Control"] == "private, no-store"


def test_processes_that_start_together_agree_on_the_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    threads = [threading.Thread(target=lambda: keys.append(secret_key(tmp_path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 16 and len(set(keys)) == 1 and len(keys[0]) == 32
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret.key"]


def test_the_key_that_signs_is_made_once_and_private(config: AppConfig) -> None:
    first, second = create_app(config).server.secret_key, create_app(config).server.secret_key
    assert first == second and len(first or b"") == 32
    assert (config.data_dir / "secret.key").stat().st_mode & 0o077 == 0
