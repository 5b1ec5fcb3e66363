"""Numbers for Prometheus, in its text format. Labels come from fixed lists: no host, rank, job or communicator."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from mycroft.app.live.state import LiveState
from mycroft.loaders.collector import Collector
from mycroft.loaders.fleet.stream import StreamCounts

AGENT_SILENT_S: Final = 15.0
_FORGOTTEN_S: Final = 3600.0
_MOST_CATEGORIES: Final = 40


@dataclass(frozen=True, slots=True)
class Metric:
    """One name with its samples: labels (already bounded) and value."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[dict[str, str], float], ...] = field(default_factory=tuple)


def one(name: str, kind: Literal["counter", "gauge"], help_: str, value: float) -> Metric:
    """Return a metric without labels."""
    return Metric(name, kind, help_, (({}, value),))


def render(metrics: Sequence[Metric]) -> str:
    """Return the page."""
    lines: list[str] = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{'{' + inside + '}' if inside else ''} {_written(value)}")
    return "\n".join(lines) + "\n"


def _written(value: float) -> str:
    """Return a number with all its digits: a count that is rounded has no rate, a time that is none."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def of_collector(collector: Collector) -> list[Metric]:
    """Return what the collector counts since its start."""
    counts = collector.counters
    now = time.time()
    # A copy: it changes with every batch.
    seen = [at for at in list(collector.last_seen.values()) if now - at < _FORGOTTEN_S]
    manifest = collector.manifest
    return [
        one("mycroft_batches_total", "counter", "Batches taken from agents.", counts.batches),
        one("mycroft_batches_repeated_total", "counter", "Batches that were there already.", counts.repeated),
        one("mycroft_batch_bytes_total", "counter", "Bytes of batches on the wire.", counts.wire_bytes),
        one("mycroft_rows_total", "counter", "Trace records in them.", counts.rows),
        one("mycroft_batches_unreadable_total", "counter", "Batches left out as damaged.", counts.unreadable),
        Metric(
            "mycroft_batches_refused_total",
            "counter",
            "Batches that agents were asked to send again.",
            (({"reason": "disk"}, counts.refused_full), ({"reason": "busy"}, counts.refused_busy)),
        ),
        one("mycroft_commits_total", "counter", "Writes to the log that were waited for.", counts.commits),
        one(
            "mycroft_log_waiting_bytes", "gauge", "Bytes of the log that are not segments yet.", collector.waiting_bytes
        ),
        one("mycroft_segments", "gauge", "Segments that the manifest lists.", len(manifest.segments)),
        one("mycroft_segment_bytes", "gauge", "Bytes of these segments.", manifest.size_bytes),
        one("mycroft_rows_dropped_total", "counter", "Rows that retention removed.", sum(manifest.dropped.values())),
        one("mycroft_disk_problem", "gauge", "1 while the collector's disk takes no batches.", bool(collector.problem)),
        Metric(
            "mycroft_agents",
            "gauge",
            "Agents seen in the last hour.",
            (
                ({"state": "speaking"}, sum(now - at <= AGENT_SILENT_S for at in seen)),
                ({"state": "silent"}, sum(now - at > AGENT_SILENT_S for at in seen)),
            ),
        ),
    ]


def of_stream(counts: StreamCounts) -> list[Metric]:
    """Return what a consumer of a topic counts since its start."""
    known = () if counts.waiting is None else (({}, float(counts.waiting)),)
    return [
        one("mycroft_stream_messages_total", "counter", "Messages brought into the store.", counts.messages),
        one("mycroft_stream_bytes_total", "counter", "Bytes of these messages.", counts.wire_bytes),
        one("mycroft_stream_rows_total", "counter", "Trace records in them.", counts.rows),
        one("mycroft_stream_unreadable_total", "counter", "Messages left out as damaged.", counts.unreadable),
        one("mycroft_stream_segments_total", "counter", "Segments published.", counts.segments),
        one(
            "mycroft_stream_overtaken_total", "counter", "Messages another consumer was faster with.", counts.overtaken
        ),
        one("mycroft_stream_rounds_total", "counter", "Rounds, also those without messages.", counts.rounds),
        one("mycroft_stream_failures_total", "counter", "Rounds that the store or the topic failed.", counts.failures),
        one("mycroft_stream_round_timestamp_seconds", "gauge", "End of the last good round, UTC.", counts.round_at),
        one("mycroft_stream_partitions", "gauge", "Partitions of the topic it has.", counts.partitions),
        Metric("mycroft_stream_waiting_messages", "gauge", "Messages of these that are not in the store yet.", known),
    ]


def of_watch(state: LiveState) -> list[Metric]:
    """Return what the watch has noted; a watch that stands shows by its time."""
    numbers = state.numbers()
    opened = state.incidents(only_open=True, limit=10_000)
    found = Counter(incident.category for incident in opened)
    # Categories are a fixed list of the rules; the bound holds even if that were broken.
    by_category = dict(sorted(found.most_common(_MOST_CATEGORIES)))
    unsent = state.alerts(unsent=True)
    tick = numbers.get("tick", (0.0, {}))
    values = tick[1] if isinstance(tick[1], dict) else {}
    relays = values.get("relays") or {}
    return [
        one("mycroft_watch_tick_timestamp_seconds", "gauge", "When the watch last looked, UTC.", tick[0]),
        one("mycroft_watch_tick_seconds", "gauge", "How long its last look took.", float(values.get("seconds", 0.0))),
        one("mycroft_watch_jobs", "gauge", "Jobs that are watched.", float(values.get("jobs", 0))),
        one("mycroft_watch_ranks", "gauge", "Processes that are watched.", float(values.get("processes", 0))),
        Metric(
            "mycroft_relays",
            "gauge",
            "Relays that tell summaries.",
            (
                ({"state": "speaking"}, relays.get("relays", 0) - relays.get("silent", 0)),
                ({"state": "silent"}, relays.get("silent", 0)),
            ),
        ),
        one("mycroft_relayed_ranks", "gauge", "Processes that relays tell of.", float(relays.get("ranks", 0))),
        one("mycroft_watch_window_rows", "gauge", "Rows that the watch holds.", float(values.get("rows", 0))),
        one("mycroft_incidents_open_all", "gauge", "Open incidents of all categories.", float(len(opened))),
        Metric(
            "mycroft_incidents_open",
            "gauge",
            "Open incidents.",
            tuple(({"category": name}, float(count)) for name, count in by_category.items()),
        ),
        one("mycroft_alerts_unsent", "gauge", "Alerts that no target has taken yet.", float(len(unsent))),
    ]
