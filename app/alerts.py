"""Alerts: who is told of an incident, in which form, once.

Targets come from a TOML file. An alert is noted before it is sent, so that it is sent once however often the watch
starts; a target that does not answer is tried again for an hour.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import queue
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import urllib3

from mycroft.app.config import ConfigError
from mycroft.app.live.state import Incident, LiveState

LOG: Final = logging.getLogger("mycroft.alerts")
Kind = Literal["webhook", "slack", "pagerduty", "deadman"]
KINDS: Final = ("webhook", "slack", "pagerduty", "deadman")
PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"
TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=10.0)
GIVE_UP_S: Final = 3600.0
RETRY_S: Final = 5.0
RETRY_MOST_S: Final = 120.0
DEADMAN_S: Final = 60.0
_SEVERITY: Final = {"hang": "critical", "crash": "critical", "slow": "warning", "cannot_tell": "warning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target. `secret` signs webhooks, `key` is PagerDuty's routing key; `least` confidence that is worth it."""

    name: str
    kind: Kind
    url: str
    secret: str = ""
    key: str = ""
    least: Literal["low", "medium", "high"] = "low"


def read_targets(path: str | Path) -> tuple[Target, ...]:
    """Return the targets of a file of `[[target]]` tables.

    Raises:
        ConfigError: if it cannot be read, or a target cannot be used.
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: the targets of alerts cannot be read ({error})") from error
    rows = found.get("target", [])
    if not isinstance(rows, list) or set(found) - {"target"}:
        raise ConfigError(f"{path}: expected [[target]] tables and nothing else")
    targets = tuple(_target(path, number, row) for number, row in enumerate(rows, 1))
    names = [target.name for target in targets]
    if len(set(names)) != len(names):
        raise ConfigError(f"{path}: two targets have one name; alerts are told apart by it")
    return targets


def _target(path: str | Path, number: int, row: Any) -> Target:
    where = f"{path}: target {number}"
    known = ("name", "kind", "url", "secret", "key", "least")
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise ConfigError(f"{where}: expected texts: {', '.join(known)}")
    if unknown := sorted(set(row) - set(known)):
        raise ConfigError(f"{where}: {unknown[0]!r} is not known; expected {', '.join(known)}")
    kind = row.get("kind", "")
    if kind not in KINDS:
        raise ConfigError(f"{where}: kind {kind!r}; expected one of {', '.join(KINDS)}")
    url = row.get("url") or (PAGERDUTY if kind == "pagerduty" else "")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{where}: url {url!r}; expected an http or https address")
    if kind == "pagerduty" and not row.get("key"):
        raise ConfigError(f"{where}: PagerDuty needs the routing key as `key`")
    if row.get("least", "low") not in ("low", "medium", "high"):
        raise ConfigError(f"{where}: least {row['least']!r}; expected low, medium or high")
    return Target(**{**row, "url": url, "name": row.get("name") or f"{kind}-{number}"})


# ---- what is said -----------------------------------------------------------------------


def incident_link(url: str, incident: Incident) -> str:
    """Return the address of an incident's page."""
    return f"{url.rstrip('/')}/live/{quote(incident.job, safe='')}/d/{quote(incident.incident, safe='')}"


def chain_of(finding: Mapping[str, Any], *, most: int = 6) -> list[str]:
    """Return who waits for whom, in words, the first links of it."""
    links = [
        f"rank {link['waiter']} waits for rank {link['blocker']}"
        + (f" in {link['group']}" if link.get("group") else "")
        + (f" ({link['why']})" if link.get("why") else "")
        for link in finding.get("chain", [])
    ]
    return links[:most] + ([f"and {len(links) - most} more"] if len(links) > most else [])


def body(target: Target, event: str, incident: Incident, *, title: str, link: str) -> bytes:
    """Return what a target is sent about an incident."""
    makers = {"webhook": _webhook, "slack": _slack, "pagerduty": _pagerduty}
    return json.dumps(makers[target.kind](target, event, incident, title, link), ensure_ascii=False).encode()


def _webhook(_target: Target, event: str, incident: Incident, title: str, link: str) -> dict[str, Any]:
    finding = incident.finding
    return {
        "schema": "mycroft.alert/1",
        "event": event,
        "incident": incident.incident,
        "revision": incident.revisions,
        "job": incident.job,
        "job_title": title,
        "status": incident.status,
        "category": incident.category,
        "confidence": incident.confidence,
        "summary": incident.summary,
        "ranks": list(incident.ranks),
        "hosts": list(incident.hosts),
        "one_of": bool(finding["root_cause"].get("one_of")),
        "chain": chain_of(finding),
        "next_steps": list(finding.get("next_steps", []))[:4],
        "opened": incident.opened,
        "closed": incident.closed,
        "link": link,
    }


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack(_target: Target, event: str, incident: Incident, title: str, link: str) -> dict[str, Any]:
    word = {"opened": "New", "revised": "Changed", "closed": "Over"}[event]
    # Text of the job must not become a mention or a link of Slack's.
    head = f"{word}: {_escape(incident.summary)}"
    lines = [
        f"*{head}*",
        f"{_escape(title)} · {incident.status} · {_escape(incident.category)} · {incident.confidence} confidence",
        *(f"• {_escape(line)}" for line in chain_of(incident.finding, most=4)),
        f"<{link}|Open the diagnosis>",
    ]
    return {"text": head, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(lines)[:2900]}}]}


def _pagerduty(target: Target, event: str, incident: Incident, title: str, link: str) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "routing_key": target.key,
        "event_action": "resolve" if event == "closed" else "trigger",
        "dedup_key": f"mycroft-{incident.incident}",
    }
    if event != "closed":
        answer |= {
            "payload": {
                "summary": f"{title}: {incident.summary}"[:1024],
                "source": (incident.hosts or (title,))[0],
                "severity": _SEVERITY.get(incident.status, "warning"),
                "component": incident.category,
                "group": incident.job,
                "custom_details": {
                    "confidence": incident.confidence,
                    "ranks": list(incident.ranks),
                    "hosts": list(incident.hosts),
                    "chain": chain_of(incident.finding),
                    "next_steps": list(incident.finding.get("next_steps", []))[:4],
                },
            },
            "links": [{"href": link, "text": "Diagnosis"}],
        }
    return answer


def signature(secret: str, data: bytes, at: int) -> str:
    """Return the value of `X-Mycroft-Signature`: the time and an HMAC-SHA256 over `<time>.<body>`."""
    mac = hmac.new(secret.encode(), f"{at}.".encode() + data, hashlib.sha256).hexdigest()
    return f"t={at},v1={mac}"


# ---- sending ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Message:
    alert: str
    target: Target
    data: bytes
    first: float
    due: float
    tries: int = 0


class Alerter:
    """Sends alerts from a thread of its own; a target that hangs holds up nothing but itself and those after it."""

    def __init__(
        self,
        targets: tuple[Target, ...],
        state: LiveState,
        *,
        url: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._targets = tuple(target for target in targets if target.kind != "deadman")
        self._deadmen = tuple(target for target in targets if target.kind == "deadman")
        self._state = state
        self._url = url
        self._clock = clock
        self._pool = urllib3.PoolManager(timeout=TIMEOUT, retries=False)
        self._queue: queue.Queue[_Message | None] = queue.Queue(maxsize=1000)
        self._waiting: list[_Message] = []
        self._pinged = -DEADMAN_S
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def told(self, event: str, incident: Incident, title: str) -> None:
        """Tell every target of a change, unless it was told already or would not want to know."""
        words = ("low", "medium", "high")
        for target in self._targets:
            unsure = words.index(incident.confidence) < words.index(target.least)
            if unsure and incident.status != "cannot_tell":
                continue
            if event == "closed" and not self._was_told(incident, target):
                continue
            # A revision is a new event; what is said twice of one revision is the same.
            name = f"{event}-{incident.revisions}" if event == "revised" else event
            alert = self._state.plan_alert(incident.incident, target.name, name)
            if alert is None:
                continue
            data = body(target, event, incident, title=title, link=incident_link(self._url, incident))
            now = self._clock()
            try:
                self._queue.put_nowait(_Message(alert, target, data, now, now))
            except queue.Full:
                self._state.alert_tried(alert, error="too many alerts wait")

    def _was_told(self, incident: Incident, target: Target) -> bool:
        return any(row["target"] == target.name for row in self._state.alerts(incident=incident.incident))

    def beat(self) -> None:
        """Say to dead-man targets that the watch is alive; called by each tick. Silence is what they alarm about."""
        now = self._clock()
        if not self._deadmen or now - self._pinged < DEADMAN_S:
            return
        self._pinged = now
        for target in self._deadmen:
            data = json.dumps({"schema": "mycroft.alive/1", "at": time.time()}).encode()
            message = _Message("", target, data, now, now)
            try:
                self._queue.put_nowait(message)
            except queue.Full:
                LOG.warning("too many alerts wait; the dead-man target is not told")

    def send(self, message: _Message) -> str:
        """Send one message and return what went wrong; empty: it was taken."""
        target = message.target
        headers = {"Content-Type": "application/json", "User-Agent": "mycroft"}
        if target.secret:
            headers["X-Mycroft-Signature"] = signature(target.secret, message.data, int(time.time()))
        try:
            answer = self._pool.request("POST", target.url, body=message.data, headers=headers, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return " ".join(str(error).split())[:300] or type(error).__name__
        return "" if 200 <= answer.status < 300 else f"answered {answer.status}"

    def deliver(self, message: _Message) -> None:
        """Try once; what is not taken waits for its next turn, until it is too old."""
        error = self.send(message)
        message.tries += 1
        if message.alert:
            self._state.alert_tried(message.alert, error=error)
        if not error:
            return
        age = self._clock() - message.first
        LOG.warning("alert to %s: %s", message.target.name, error)
        if not message.alert or age > GIVE_UP_S:
            return
        message.due = self._clock() + min(RETRY_MOST_S, RETRY_S * 2 ** min(message.tries - 1, 5))
        self._waiting.append(message)

    def _run(self) -> None:
        while True:
            due = [message for message in self._waiting if message.due <= self._clock()]
            for message in due:
                self._waiting.remove(message)
                self._guarded(message)
            try:
                message = self._queue.get(timeout=0.5)
            except queue.Empty:
                continue
            if message is None:
                return
            self._guarded(message)

    def _guarded(self, message: _Message) -> None:
        try:
            self.deliver(message)
        except Exception:
            LOG.exception("an alert failed")

    def stop(self) -> None:
        """Send what is queued, and end."""
        self._queue.put(None)
        self._thread.join(15.0)
        self._pool.clear()
