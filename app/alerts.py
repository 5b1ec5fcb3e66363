"""Alerts: who is told of an incident, in which form, once.

Targets come from a TOML file. An alert is noted before it is sent, so that it is sent once however often the watch
starts; a target that does not answer is tried again for an hour, also by the next watch.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import re
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import urllib3

from mycroft.app.config import ConfigError
from mycroft.app.live.state import Incident, LiveError, LiveState

LOG: Final = logging.getLogger("mycroft.alerts")
Kind = Literal["webhook", "slack", "pagerduty", "deadman"]
KINDS: Final = ("webhook", "slack", "pagerduty", "deadman")
PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"
TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=10.0)
GIVE_UP_S: Final = 3600.0
RETRY_S: Final = 5.0
RETRY_MOST_S: Final = 120.0
STOP_S: Final = 15.0
MOST_WAITING: Final = 1000
_SLACK_MOST: Final = 2900
# Answers that are about the message, not about the target: it would be refused again.
_NOT_THIS_ONE: Final = frozenset({400, 413, 415, 422})
DEADMAN_S: Final = 60.0
_SEVERITY: Final = {"hang": "critical", "crash": "critical", "slow": "warning", "cannot_tell": "warning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target. `secret` signs webhooks, `key` is PagerDuty's routing key; `least` confidence that is worth it.

    Who has Slack's address may write there: like the other secrets it is not shown.
    """

    name: str
    kind: Kind
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
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
    if not _is_address(url):
        # Not shown: it may be a secret.
        raise ConfigError(f"{where}: url: expected an http or https address")
    if kind == "pagerduty" and not row.get("key"):
        raise ConfigError(f"{where}: PagerDuty needs the routing key as `key`")
    if row.get("least", "low") not in ("low", "medium", "high"):
        raise ConfigError(f"{where}: least {row['least']!r}; expected low, medium or high")
    return Target(**{**row, "url": url, "name": row.get("name") or f"{kind}-{number}"})


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


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
        # The same when it is sent again because no answer came: receivers tell repeated ones by it.
        "id": f"{incident.incident}/{event}-{incident.revisions}",
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
        "merged_into": incident.merged_into,
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
    ]
    way = f"\n<{link}|Open the diagnosis>"
    # The link is what they need most; a character that was written as several is left out whole.
    said = re.sub(r"&[a-z]*$", "", "\n".join(lines)[: _SLACK_MOST - len(way)])
    text = {"type": "mrkdwn", "text": said + way}
    return {"text": head[:_SLACK_MOST], "blocks": [{"type": "section", "text": text}]}


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
    return f"t={at},v1={_mac(secret, data, at)}"


def is_signed(secret: str, data: bytes, header: str, *, now: float, within_s: float = 300.0) -> bool:
    """Say whether a body was signed with the secret, not long ago: what a receiver of webhooks has to ask.

    The time is part of what is signed, so that an old message cannot be sent again as a new one; within `within_s` the
    `id` of the body tells a repeated one.
    """
    first, _, second = header.partition(",")
    at, mac = first.removeprefix("t="), second.removeprefix("v1=")
    if not at.isascii() or not at.isdigit() or len(at) > 12 or abs(now - int(at)) > within_s:
        return False
    return hmac.compare_digest(_mac(secret, data, int(at)).encode(), mac.encode())


def _mac(secret: str, data: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + data, hashlib.sha256).hexdigest()


# ---- sending ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Message:
    alert: str
    data: bytes
    first: float
    tries: int = 0


class Lane:
    """The messages of one target, sent in their order by a thread of its own: a target that hangs holds up no other.

    In order, because a trigger that comes after its resolve would page somebody about what is over.
    """

    def __init__(self, target: Target, state: LiveState, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = target
        self._state = state
        self._clock = clock
        self._pool = urllib3.PoolManager(timeout=TIMEOUT, retries=False)
        self._messages: deque[_Message] = deque()
        self._due = 0.0
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"alerts-{target.name}"[:15], daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, alert: str, data: bytes) -> None:
        """Have a message sent; `alert` is its name among those that are noted, empty: it is not."""
        with self._changed:
            if not alert and self._messages:
                return  # a sign of life that waits is as good as another
            if len(self._messages) < MOST_WAITING:
                self._messages.append(_Message(alert, data, self._clock()))
                self._changed.notify()
                return
        LOG.warning("too many alerts wait for %s", self.target.name)
        self._state.alert_tried(alert, error="too many alerts wait")

    @property
    def waiting(self) -> int:
        """How many messages have not been taken."""
        return len(self._messages)

    def turn(self) -> bool:
        """Try the oldest message if it is due; True: it is off the lane, taken or given up."""
        with self._changed:
            if not self._messages or self._clock() < self._due:
                return False
            message = self._messages[0]
        error, given_up = self._send(message.data)
        message.tries += 1
        if message.alert:
            self._state.alert_tried(message.alert, error=error)
        if error:
            LOG.warning("alert to %s: %s", self.target.name, error)
            given_up = given_up or not message.alert or self._clock() - message.first > GIVE_UP_S
            if not given_up:
                self._due = self._clock() + min(RETRY_MOST_S, RETRY_S * 2 ** min(message.tries - 1, 5))
                return False
        with self._changed:
            self._messages.popleft()
            self._due = 0.0
        return True

    def _send(self, data: bytes) -> tuple[str, bool]:
        """Return what went wrong (empty: it was taken), and whether another try would be of no use."""
        headers = {"Content-Type": "application/json", "User-Agent": "mycroft"}
        if self.target.secret:
            headers["X-Mycroft-Signature"] = signature(self.target.secret, data, int(time.time()))
        try:
            answer = self._pool.request("POST", self.target.url, body=data, headers=headers, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # Some name the whole address, which is kept where users of the dashboard read.
            said = str(error).replace(self.target.url, self.target.name)
            return " ".join(said.split())[:300] or type(error).__name__, False
        if 200 <= answer.status < 300:
            return "", False
        return f"answered {answer.status}", answer.status in _NOT_THIS_ONE

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._ending and (not self._messages or self._clock() < self._due):
                    self._changed.wait(max(0.01, self._due - self._clock()) if self._messages else None)
                if self._ending and (not self._messages or self._due):
                    return
            try:
                self.turn()
            except Exception:
                LOG.exception("an alert to %s failed", self.target.name)
                with self._changed:
                    self._due = self._clock() + RETRY_S

    def stop(self, *, until: float) -> None:
        """Send what waits, once, and end; wait for that until a time of the clock at most."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(max(0.0, until - self._clock()))
        self._pool.clear()


class Alerter:
    """Tells every target of the changes of incidents, each once."""

    def __init__(
        self,
        targets: tuple[Target, ...],
        state: LiveState,
        *,
        url: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._url = url
        self._clock = clock
        self.lanes = {target.name: Lane(target, state, clock=clock) for target in targets}
        self._pinged = -DEADMAN_S

    def start(self) -> None:
        """Begin to send; first what an earlier watch could not."""
        self.resume()
        for lane in self.lanes.values():
            lane.start()

    def resume(self) -> None:
        """Take up the alerts that were noted and not taken, unless they are too old or their target is gone."""
        since = time.time() - GIVE_UP_S
        for row in self._state.alerts(unsent=True):
            lane = self.lanes.get(row["target"])
            if lane is None or row["at"] < since:
                continue
            with contextlib.suppress(LiveError):
                incident = self._state.incident(row["incident"])
                title = self._state.job(incident.job).title
                self._put(lane, row["alert"], row["event"].partition("-")[0], incident, title)

    def told(self, event: str, incident: Incident, title: str) -> None:
        """Tell every target of a change, unless it was told already or would not want to know."""
        words = ("low", "medium", "high")
        for target, lane in ((lane.target, lane) for lane in self.lanes.values()):
            if target.kind == "deadman":
                continue
            unsure = words.index(incident.confidence) < words.index(target.least)
            if unsure and incident.status != "cannot_tell" and event not in ("closed", "merged"):
                continue
            if event in ("closed", "merged") and not self._was_told(incident, target):
                continue
            # The other incident goes on, and people hear of that one; what keeps this one open has to end it.
            if event == "merged" and target.kind == "slack":
                continue
            said = "closed" if event == "merged" else event
            # A revision is a new event; what is said twice of one revision is the same.
            name = f"{said}-{incident.revisions}" if said == "revised" else said
            alert = self._state.plan_alert(incident.incident, target.name, name)
            if alert is not None:
                self._put(lane, alert, said, incident, title)

    def _put(self, lane: Lane, alert: str, event: str, incident: Incident, title: str) -> None:
        lane.put(alert, body(lane.target, event, incident, title=title, link=incident_link(self._url, incident)))

    def _was_told(self, incident: Incident, target: Target) -> bool:
        return any(row["target"] == target.name for row in self._state.alerts(incident=incident.incident))

    def beat(self) -> None:
        """Say to dead-man targets that the watch is alive; called by each tick. Silence is what they alarm about."""
        now = self._clock()
        if now - self._pinged < DEADMAN_S:
            return
        self._pinged = now
        for lane in self.lanes.values():
            if lane.target.kind == "deadman":
                lane.put("", json.dumps({"schema": "mycroft.alive/1", "at": time.time()}).encode())

    def stop(self) -> None:
        """Send what is queued, once, and end."""
        until = self._clock() + STOP_S
        for lane in self.lanes.values():
            lane.stop(until=until)
