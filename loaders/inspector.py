"""NCCL Inspector: one JSON object per finished operation, or gauges in Prometheus text.

Only *finished* operations appear, small ones are left out, and rings may overflow: a gap in the numbers says nothing.
`exec_time` runs from the kernel's start on that rank, so the rank that arrives last has the shortest one. The time of
a record is when it was written; only verbose records carry the times of the operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mycroft.loaders import json_values as jv
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.byte_stream import split_lines
from mycroft.loaders.comm_ranks import CommRanks, hash_name
from mycroft.loaders.op_names import op_kind
from mycroft.loaders.prometheus import Sample, samples
from mycroft.loaders.rows import RowBuffer, clip
from mycroft.loaders.wrapped_json import plain_head, plain_pieces

_WORDS: Final = (b'"coll_perf"', b'"p2p_perf"', b'"inspector_output_format_version"')
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_KNOWN_TOP: Final = {"header", "metadata", "coll_perf", "p2p_perf"}
_KNOWN: Final = {
    f"{prefix}{key}"
    for prefix in ("coll_", "p2p_")
    for key in ("sn", "msg_size_bytes", "exec_time_us", "timing_source", "algobw_gbs", "busbw_gbs", "peer")
} | {"coll", "p2p", "event_trace_sn", "event_trace_ts", "coll_algo", "coll_proto"}
_SIZE: Final = re.compile(r"([\d.]+)(?:-([\d.]+))?\s*([KMGT]?)B?", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class InspectorLoader:
    """Reads the JSON lines of NCCL's Inspector, plain and verbose."""

    name = "inspector"
    title = "NCCL Inspector records (JSON lines, v4 and v5)"
    recognised_by = "lines of JSON with header and coll_perf or p2p_perf"
    yields = "events of kind op_perf; coll_ops with real times from verbose records; hosts and processes of ranks"

    def sniff(self, file: EvidenceFile) -> bool:
        """A record in the first bytes."""
        head = plain_head(file)
        return any(word in head for word in _WORDS)

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read twice: first who is who, then the records, so that every record knows its rank."""
        ranks = CommRanks()
        for file in files:
            seen: set[bytes] = set()
            for _number, _who, record in _records(file, None, seen):
                origin = _origin(record)
                if origin is not None:
                    ranks.see(origin.hash, origin.size, origin.rank, origin.process, desc=origin.desc)
        reports = [self._load_one(file, context, ranks) for file in files]
        ranks.tell(context, "header of Inspector records")
        return reports

    def _load_one(self, file: EvidenceFile, context: LoadContext, ranks: CommRanks) -> LoadReport:
        report = LoadReport(file.file_id, self.name)
        events = RowBuffer(context, "events", report)
        ops = RowBuffer(context, "coll_ops", report)
        found: set[int | None] = set()
        known: dict[bytes, tuple[_Origin, int, int | None, int | None]] = {}
        for number, writer, record in _records(file, report):
            perf, prefix = jv.as_dict(record.get("coll_perf")), "coll_"
            if not perf:
                perf, prefix = jv.as_dict(record.get("p2p_perf")), "p2p_"
            name = jv.as_text(perf.get(prefix[:-1]))
            places = known.get(writer) if writer else None
            if places is None and (origin := _origin(record)) is not None:
                host = context.host(origin.process[0]) if origin.process else None
                rank = ranks.global_rank(origin.hash, origin.rank)
                places = (origin, ranks.comm_id(context, origin.hash), rank, host)
                known[writer] = places
            if places is None or name is None:
                report.drop("record without communicator, rank or operation")
                continue
            origin, comm, rank, host_id = places
            found.add(rank)
            hash_, meta = origin.hash, jv.as_dict(record.get("metadata"))
            peer = jv.as_int(perf.get("p2p_peer"))
            peer_rank = ranks.global_rank(hash_, peer) if peer is not None else None
            micros = jv.as_float(perf.get(prefix + "exec_time_us"))
            common: dict[str, Any] = {
                "rank": rank,
                "comm_id": comm,
                "op_kind": op_kind(name),
                "bytes": jv.as_int(perf.get(prefix + "msg_size_bytes")),
                "file_id": file.file_id,
                "line": number,
            }
            dumped = jv.as_int(meta.get("dump_timestamp_us"))
            times = jv.as_dict(perf.get("event_trace_ts"))
            started = jv.as_int(times.get(prefix + "start_ts"))
            sn = jv.as_int(perf.get(prefix + "sn"))
            extra: dict[str, Any] = {}
            if not perf.keys() <= _KNOWN or not record.keys() <= _KNOWN_TOP:
                extra = {k: v for k, v in perf.items() if k not in _KNOWN}
                extra |= {k: v for k, v in record.items() if k not in _KNOWN_TOP}
            events.add(
                **common,
                ts=started * 1000 if started else dumped * 1000 if dumped else None,
                time_quality="exact" if started else "order_only",
                host_id=host_id,
                pid=origin.process[1] if origin.process else None,
                comm_rank=origin.rank,
                level="info",
                kind="op_perf",
                source=self.name,
                group_name=hash_name(hash_),
                group_desc=origin.title,
                seq=sn,
                dur_ms=micros / 1000 if micros is not None else None,
                value=jv.as_float(perf.get(prefix + "busbw_gbs")),
                name=jv.as_text(perf.get(prefix + "timing_source")),
                detail=f"{origin.size} ranks" if origin.size else None,
                peer=str(peer) if peer is not None else None,
                peer_rank=peer_rank,
                text=clip(msgspec.json.encode(extra).decode()) if extra else None,
            )
            if times and rank is not None and sn is not None:
                self._op(ops, common, prefix, name, sn, times, peer_rank, perf)
        events.flush()
        ops.flush()
        if len(found) == 1:
            report.rank = next(iter(found))
        return report

    def _op(
        self,
        ops: RowBuffer,
        common: dict[str, Any],
        prefix: str,
        name: str,
        sn: int,
        times: dict[str, Any],
        peer_rank: int | None,
        perf: dict[str, Any],
    ) -> None:
        """Add the operation of a verbose record: enqueue, first kernel start, last kernel stop."""
        kernels = [jv.as_dict(k) for k in jv.as_list(times.get("kernel_events"))]
        starts = [t for k in kernels if (t := jv.as_int(k.get("kernel_start_ts")))]
        stops = [t for k in kernels if (t := jv.as_int(k.get("kernel_stop_ts")))]
        enqueued = jv.as_int(times.get(prefix + "start_ts"))
        start = min(starts) if starts else enqueued
        stop = max(stops) if stops else None
        if not start:
            return
        ops.add(
            **common,
            op_seq=sn,
            op_name=clip(name),
            start_ts=start * 1000,
            enq_ts=enqueued * 1000 if enqueued else None,
            kstart_ts=min(starts) * 1000 if starts else None,
            dur_ns=(stop - start) * 1000 if stop and stop >= start else None,
            end_is_derived=False,
            state="completed",
            is_p2p=prefix == "p2p_",
            peer=peer_rank,
            algo=jv.as_text(perf.get("coll_algo")),
            proto=jv.as_text(perf.get("coll_proto")),
            channels=len(kernels) or None,
        )


@dataclass(frozen=True, slots=True)
class _Origin:
    """Who wrote a record: a member of a communicator, and its process."""

    hash: int
    rank: int
    size: int | None
    title: str | None
    process: tuple[str, int] | None

    @property
    def desc(self) -> str | None:
        """The name of the communicator, where it has one."""
        return self.title if self.title != "unknown" else None


def _origin(record: dict[str, Any]) -> _Origin | None:
    header, meta = jv.as_dict(record.get("header")), jv.as_dict(record.get("metadata"))
    hash_, rank = jv.as_int(header.get("id")), jv.as_int(header.get("rank"))
    if hash_ is None or hash_ < 0 or rank is None:
        return None
    host, pid = jv.as_text(meta.get("hostname")), jv.as_int(meta.get("pid"))
    process = (host, pid) if host and pid is not None and pid > 0 else None
    return _Origin(hash_, rank, jv.as_int(header.get("n_ranks")), jv.as_text(header.get("comm_name")), process)


def _writer(line: bytes) -> bytes:
    """Return the bytes of a record that say who wrote it: all records of one communicator and process share them."""
    begin = line.find(b'"hostname"')
    if begin < 0:
        return b""
    return line[: line.find(b'"metadata"')] + line[begin : line.find(b"}", begin)]


def _records(
    file: EvidenceFile, report: LoadReport | None, seen: set[bytes] | None = None
) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    """Yield line number, writer and record; with `seen` one record per writer. With a report what is broken is counted.

    The writer is empty where it is not plain from the bytes.
    """
    scrap = report if report is not None else LoadReport(file.file_id, "inspector")
    for number, line in split_lines(plain_pieces(file, scrap, _WORDS), scrap):
        brace = line.find(b"{")
        if brace < 0:
            if line.strip():
                scrap.drop("line is no record")
            continue
        writer = _writer(line[brace:])
        if seen is not None and writer and writer in seen:
            continue
        record = _decoded(line[brace:])
        if record is None:
            # Two writers may share a file: the second half of a torn line can be a whole record.
            again = line.rfind(b'{"header"')
            record = _decoded(line[again:]) if again > brace else None
            writer = b""
            scrap.drop("record cut short or broken" if record is None else "torn record")
            if record is None:
                continue
        if seen is not None:
            seen.add(writer)
        yield number, writer, record


def _decoded(text: bytes) -> dict[str, Any] | None:
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


class InspectorPrometheusLoader:
    """Reads the gauges that Inspector leaves for a Prometheus node exporter."""

    name = "inspector_prometheus"
    title = "NCCL Inspector gauges (Prometheus text)"
    recognised_by = "nccl_bus_bandwidth_gbs or nccl_collective_exec_time_microseconds with labels"
    yields = "events of kind op_perf: last duration and bus bandwidth per operation, size and GPU"

    def sniff(self, file: EvidenceFile) -> bool:
        """One of the gauges in the first bytes."""
        return any(
            gauge in file.head
            for gauge in (b"nccl_bus_bandwidth_gbs", b"nccl_collective_exec_time_micro", b"nccl_p2p_exec_time_micro")
        )

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read the samples; duration and bandwidth of the same labels become one event."""
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.file_id, self.name)
            events = RowBuffer(context, "events", report)
            pairs: dict[tuple[tuple[str, str], ...], dict[str, Sample]] = {}
            for sample in samples(file.path, report):
                if not sample.name.startswith("nccl_"):
                    report.drop("gauge of another program")
                elif len(pairs) < 1_000_000:
                    pairs.setdefault(sample.labels, {})["bw" if "bandwidth" in sample.name else "time"] = sample
            for labels, pair in pairs.items():
                self._add(events, file, dict(labels), pair, context)
            events.flush()
            reports.append(report)
        return reports

    def _add(
        self,
        events: RowBuffer,
        file: EvidenceFile,
        labels: dict[str, str],
        pair: dict[str, Sample],
        context: LoadContext,
    ) -> None:
        sample = pair.get("time") or pair["bw"]
        node = labels.get("node", "")
        op = labels.get("collective") or labels.get("p2p_operation") or ""
        events.add(
            ts=sample.ts_ns,
            time_quality="order_only" if sample.ts_ns else None,
            host_id=context.host(node) if node and node != "unknown" else None,
            level="info",
            kind="op_perf",
            source=self.name,
            group_desc=labels.get("comm_name"),
            op_kind=op_kind(op),
            bytes=size_of_label(labels.get("message_size", "")),
            dur_ms=pair["time"].value / 1000 if "time" in pair else None,
            value=pair["bw"].value if "bw" in pair else None,
            device=labels.get("gpu"),
            name=labels.get("algo_proto"),
            text=clip(" ".join(f"{k}={v}" for k, v in labels.items())),
            file_id=file.file_id,
            line=sample.line,
        )


def size_of_label(label: str) -> int | None:
    """Return the upper end of a size class such as `1-2MB`, in bytes."""
    match = _SIZE.fullmatch(label.strip())
    if not match:
        return None
    number = jv.as_float(match[2] or match[1])
    return round(number * _UNITS[match[3].upper()]) if number is not None and number < 2**20 else None
