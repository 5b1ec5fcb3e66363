"""NPKit: what the GPU primitives and the network proxies of NCCL did, raw records or the trace made of them.

The network events are transfers of single slots, thousands a second. A trace needs how fast each rank, channel and
direction was, so each becomes one `op_perf` event with the bytes moved, the median time of a transfer and the rate;
a second event of the slowest hundredth tells of stalls.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from mycroft.loaders import json_values as jv
from mycroft.loaders._core import JsonElements
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.byte_stream import pieces
from mycroft.loaders.rows import RowBuffer

_RAW: Final = re.compile(
    r"(?:^|/|!)(?:(cpu_events)_rank_(\d{1,7})_channel_(\d{1,4})|(gpu_events)_rank_(\d{1,7})_buf_(\d{1,6})"
    r"|(cpu_clock_period_num|cpu_clock_period_den|gpu_clock_rate)_rank_(\d{1,7}))$"
)
_RECORD: Final = struct.Struct("<BIHBQ")
# The numbers of the network events are compiled in and differ between the two families of builds. A file of the
# proxy holds no others, so its greatest number tells which family wrote it.
_FAMILIES: Final = ({0x2F: "send", 0x31: "recv"}, {0x25: "send", 0x27: "recv"})
_MAX_TIMES: Final = 4_000_000


@dataclass(slots=True)
class _Transfers:
    """Durations of the transfers of one rank, channel and direction, ns."""

    count: int = 0
    bytes: int = 0
    times: array[int] = field(default_factory=lambda: array("Q"))
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, start: int, end: int, size: int) -> None:
        self.count += 1
        self.bytes += size
        if len(self.times) < _MAX_TIMES:
            self.times.append(end - start)
        self.first_ns = start if self.first_ns is None else min(self.first_ns, start)
        self.last_ns = end if self.last_ns is None else max(self.last_ns, end)


Key = tuple[int, int, str]


class NpkitLoader:
    """Reads NPKit dumps, raw and processed."""

    name = "npkit"
    title = "NPKit dump (raw event buffers, or npkit_event_trace.json)"
    recognised_by = "files cpu_events_rank_…, gpu_events_rank_…, cpu_clock_period_…; JSON with NPKIT_EVENT or NET_SEND"
    yields = "op_perf events: transfer times and rates per rank, channel and direction"

    def sniff(self, file: EvidenceFile) -> bool:
        """Raw files by their fixed names, the trace by its event names."""
        if _RAW.search(file.name):
            return True
        head = file.head
        return head.lstrip()[:1] == b"{" and b'"traceEvents"' in head and b"NPKIT_EVENT" in head

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read clocks first, then events."""
        clocks: dict[tuple[str, int], float] = {}
        for file in files:
            match = _RAW.search(file.name)
            if match and match[7]:
                number = jv.as_float(file.head[:64].decode("ascii", "replace").strip())
                if number is not None and number > 0:
                    clocks[match[7], int(match[8])] = number
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.file_id, self.name)
            reports.append(report)
            match = _RAW.search(file.name)
            found: dict[Key, _Transfers] = {}
            if match is None:
                _processed(file, report, found)
            elif match[1]:
                rank = int(match[2])
                report.rank = rank
                period = clocks.get(("cpu_clock_period_num", rank)), clocks.get(("cpu_clock_period_den", rank))
                if period[0] is None or period[1] is None:
                    report.problems.append(f"no cpu_clock_period_num/den_rank_{rank} beside it: times taken as ns")
                tick_ns = period[0] / period[1] * 1e9 if period[0] and period[1] else 1.0
                _proxy(file, report, found, rank, int(match[3]), tick_ns)
            elif match[4]:
                report.rank = int(match[5])
                report.drop("GPU primitive", file.size_bytes // _RECORD.size)
            events = RowBuffer(context, "events", report)
            for (rank, channel, direction), transfers in sorted(found.items()):
                _emit(events, file, rank, channel, direction, transfers)
            events.flush()
        return reports


def _proxy(
    file: EvidenceFile, report: LoadReport, found: dict[Key, _Transfers], rank: int, channel: int, tick_ns: float
) -> None:
    records = bytearray()
    for piece in pieces(file.path, report):
        records += piece
        if len(records) > 1 << 28:
            report.problems.append("more than 256 MiB; read the first part")
            break
    whole = len(records) - len(records) % _RECORD.size
    if whole != len(records):
        report.drop("record cut short")
    ids = {records[i] for i in range(0, whole, _RECORD.size)}
    family = next((f for f in _FAMILIES if ids <= {i + d for i in f for d in (0, 1)}), None)
    if family is None:
        report.problems.append(f"event numbers {sorted(ids)[:8]} are of a build we do not know")
        return
    open_: dict[tuple[str, int], tuple[int, int]] = {}
    for id_, size, low, high, stamp in _RECORD.iter_unpack(memoryview(records)[:whole]):
        slot = low | high << 16
        if id_ in family:
            open_[family[id_], slot] = (stamp, size)
            continue
        direction = family[id_ - 1]
        begun = open_.pop((direction, slot), None)
        if begun is None:
            report.drop("end without a beginning")
        elif stamp >= begun[0]:
            key = (rank, channel, direction)
            found.setdefault(key, _Transfers()).add(round(begun[0] * tick_ns), round(stamp * tick_ns), size or begun[1])
    if open_:
        report.drop("transfer had not ended", len(open_))


def _processed(file: EvidenceFile, report: LoadReport, found: dict[Key, _Transfers]) -> None:
    scanner = JsonElements(["traceEvents"], [], 1 << 16)
    open_: dict[tuple[Any, Any], tuple[int, Key, int]] = {}
    decoder = msgspec.json.Decoder(dict[str, Any])
    for piece in pieces(file.path, report):
        for is_member, _key, raw, _offset in scanner.feed(piece):
            if is_member:
                continue
            try:
                event = decoder.decode(raw)
            except (msgspec.MsgspecError, RecursionError, ValueError):
                report.drop("event not understood")
                continue
            ts, thread = jv.as_float(event.get("ts")), (str(event.get("pid")), str(event.get("tid")))
            if ts is None:
                continue
            args, name = jv.as_dict(event.get("args")), str(event.get("name", ""))
            if event.get("ph") == "B":
                direction = "send" if "NET_SEND" in name else "recv" if "NET_RECV" in name else None
                rank, channel = jv.as_int(args.get("rank")), jv.as_int(args.get("channel"))
                if direction and rank is not None and channel is not None and len(open_) < 1_000_000:
                    size = jv.as_int(args.get("size_0")) or 0
                    open_[thread] = (round(ts * 1000), (rank, channel, direction), size)
            elif event.get("ph") == "E" and thread in open_:
                start, key, size = open_.pop(thread)
                end = round(ts * 1000)
                if end >= start:
                    found.setdefault(key, _Transfers()).add(start, end, jv.as_int(args.get("size")) or size)
    counts = scanner.finish()
    if counts["open"]:
        report.problems.append("the trace ends in the middle; kept what came before")
    ranks = {rank for rank, _channel, _direction in found}
    report.rank = ranks.pop() if len(ranks) == 1 else None


def _emit(
    events: RowBuffer, file: EvidenceFile, rank: int, channel: int, direction: str, transfers: _Transfers
) -> None:
    times = sorted(transfers.times)
    busy = sum(times) or 1
    shared: dict[str, Any] = {
        "time_quality": "order_only",
        "rank": rank,
        "kind": "op_perf",
        "source": NpkitLoader.name,
        "op_kind": direction,
        "device": f"channel {channel}",
        "file_id": file.file_id,
    }
    text = (
        f"{transfers.count} transfers of rank {rank}, channel {channel}, {direction}: {transfers.bytes} bytes, "
        f"median {times[len(times) // 2] / 1000:.1f} µs, longest {times[-1] / 1000:.1f} µs"
    )
    events.add(
        **shared,
        level="info",
        name=f"net_{direction}",
        bytes=transfers.bytes,
        seq=transfers.count,
        dur_ms=times[len(times) // 2] / 1e6,
        # Bytes per ns of transfer time are GB/s.
        value=transfers.bytes / busy,
        text=text,
    )
    events.add(
        **shared,
        level="info",
        name=f"net_{direction}_slowest",
        seq=max(1, len(times) // 100),
        dur_ms=times[min(len(times) - 1, len(times) * 99 // 100)] / 1e6,
    )
