"""xpu_timer (DLRover): kernel timelines and stacks as protocol buffers, gauges as Prometheus text.

`<rank>-<world>.timeline` holds the kernels of one rank with the communicator's hash and its sequence number;
`<rank>-<world>.timeline.meta` the names of the kernel codes; `<rank>-<world>.stacktrace` the stacks that it took when
it saw the job hang. Kernel types: 0 matrix product, 1 communication, 2 copy of memory. Times are µs since the epoch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mycroft.loaders import protobuf as pb
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.comm_ranks import CommRanks, hash_name
from mycroft.loaders.op_names import op_kind
from mycroft.loaders.prometheus import samples
from mycroft.loaders.rows import RowBuffer, clip

_NAME: Final = re.compile(r"(?:^|/|!)(\d{5})-(\d{5})\.(timeline|timeline\.meta|stacktrace)$")
_MAX_FILE: Final = 256 << 20
_COMMUNICATION: Final = 1


class XpuTimerLoader:
    """Reads timelines and stack dumps of xpu_timer."""

    name = "xpu_timer"
    title = "xpu_timer timelines and stacks (DLRover)"
    recognised_by = "files named <rank>-<world>.timeline, .timeline.meta or .stacktrace"
    yields = "coll_ops per rank with kernel start and duration; stacks; steps of the garbage collector and loader"

    def sniff(self, file: EvidenceFile) -> bool:
        """The names are fixed and the content has no magic; the first bytes must still be a message."""
        match = _NAME.search(file.name)
        if not match:
            return False
        if match[3] == "timeline.meta":
            return bool(re.match(rb"\d+,", file.head))
        if not file.head:
            return False
        wire, number = file.head[0] & 7, file.head[0] >> 3
        return wire in (0, 2) and 0 < number <= 15

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read names first, then timelines and stacks."""
        codes: dict[str, dict[int, str]] = {}
        reports: list[LoadReport] = []
        for file in files:
            match = _NAME.search(file.name)
            if match and match[3] == "timeline.meta":
                codes[file.name.removesuffix(".meta")] = _codes(file)
        for file in files:
            report = LoadReport(file.file_id, self.name)
            reports.append(report)
            match = _NAME.search(file.name)
            if match is None or match[3] == "timeline.meta":
                continue
            rank, world = int(match[1]), int(match[2])
            report.rank = rank
            if file.size_bytes > _MAX_FILE:
                report.problems.append(f"{file.size_bytes:,} bytes; timelines over {_MAX_FILE:,} are not read")
                continue
            try:
                data = file.path.read_bytes()
                if match[3] == "timeline":
                    _timeline(file, data, codes.get(file.name, {}), rank, world, context, report)
                else:
                    _stacks(file, data, rank, context, report)
            except OSError as error:
                report.problems.append(f"cannot be read: {error.strerror or error}")
        return reports


def _codes(file: EvidenceFile) -> dict[int, str]:
    names: dict[int, str] = {}
    try:
        text = file.path.read_bytes()[: 16 << 20].decode("utf-8", "replace")
    except OSError:
        return names
    for line in text.splitlines():
        code, comma, name = line.partition(",")
        if comma and code.strip().isdigit() and len(code) < 12:
            names[int(code)] = name.strip()
    return names


def _timeline(
    file: EvidenceFile,
    data: bytes,
    codes: dict[int, str],
    rank: int,
    world: int,
    context: LoadContext,
    report: LoadReport,
) -> None:
    ops, events = RowBuffer(context, "coll_ops", report), RowBuffer(context, "events", report)
    groups = CommRanks()
    pid: int | None = None
    index = 0
    try:
        for number, _wire, value in pb.fields(data):
            if number == 3:
                pid = pb.number(value)
            elif number == 1:
                index += 1
                try:
                    _kernel(pb.message(value), index, codes, rank, world, groups, context, ops, file.file_id)
                except pb.WireError:
                    report.drop("kernel record broken")
            elif number == 2:
                index += 1
                try:
                    _host_trace(pb.message(value), index, rank, events, file.file_id)
                except pb.WireError:
                    report.drop("host record broken")
    except pb.WireError as error:
        report.problems.append(f"broken after record {index} ({error}); kept what came before")
    if pid is not None:
        context.rank(rank, pid=pid)
    ops.flush()
    events.flush()


def _kernel(
    data: bytes,
    index: int,
    codes: dict[int, str],
    rank: int,
    world: int,
    groups: CommRanks,
    context: LoadContext,
    ops: RowBuffer,
    file_id: int,
) -> None:
    values: dict[int, int | bytes] = {number: value for number, _wire, value in pb.fields(data)}
    if pb.number(values.get(1, 0)) != _COMMUNICATION or 9 not in values:
        return
    nccl: dict[int, int | bytes] = {number: value for number, _wire, value in pb.fields(pb.message(values[9]))}
    hash_ = pb.number(nccl.get(3, 0))
    size = pb.number(nccl.get(6, 0)) or None
    name = codes.get(pb.number(values.get(2, 0)), "").removeprefix("xpu_timer_") or "unknown"
    direction = pb.number(nccl.get(10, 0))
    kind = {1: "send", 2: "recv"}.get(direction, op_kind(name))
    if size == world:
        groups.see(hash_, size, rank, None)
    start, dur, delay = (pb.number(values.get(i, 0)) for i in (3, 4, 5))
    ops.add(
        rank=rank,
        comm_id=groups.comm_id(context, hash_) if size == world else _comm(context, hash_),
        op_seq=pb.number(nccl.get(8, 0)),
        op_kind=kind,
        op_name=clip(name),
        start_ts=start * 1000,
        # `delay` is what passed between the launch on the host and the start on the device.
        enq_ts=(start - delay) * 1000,
        kstart_ts=start * 1000,
        dur_ns=dur * 1000,
        end_is_derived=False,
        state="completed",
        is_p2p=direction in (1, 2),
        bytes=pb.number(nccl.get(4, 0)) or None,
        dtype=pb.text(nccl[5]) if 5 in nccl else None,
        file_id=file_id,
        line=index,
    )


def _comm(context: LoadContext, hash_: int) -> int:
    return context.comm(hash_name(hash_), hash_=hash_, backend="nccl", source="trace")


def _host_trace(data: bytes, index: int, rank: int, events: RowBuffer, file_id: int) -> None:
    values: dict[int, int | bytes] = {number: value for number, _wire, value in pb.fields(data)}
    name = pb.text(values.get(3, b""))
    word = "dataloader" if "dataloader" in name.lower() else "gc" if name == "GC" else name.replace("@", ".")
    events.add(
        ts=pb.number(values.get(1, 0)) * 1000,
        time_quality="exact",
        rank=rank,
        level="info",
        kind="phase",
        source=XpuTimerLoader.name,
        name=clip(word),
        dur_ms=pb.number(values.get(2, 0)) / 1000,
        value=float(pb.number(values.get(4, 0))),
        file_id=file_id,
        line=index,
    )


def _stacks(file: EvidenceFile, data: bytes, rank: int, context: LoadContext, report: LoadReport) -> None:
    stacks = RowBuffer(context, "stacks", report)
    events = RowBuffer(context, "events", report)
    index = 0
    try:
        for number, _wire, value in pb.fields(data):
            index += 1
            if number in (1, 2):
                try:
                    _thread(pb.message(value), number == 2, index, rank, context, stacks, file.file_id)
                except pb.WireError:
                    report.drop("thread broken")
            elif number == 11:
                state = pb.text(value)
                events.add(
                    rank=rank,
                    level="error" if state[:1] in "TZX" and state else "info",
                    kind="other",
                    source=XpuTimerLoader.name,
                    name="process_state",
                    text=clip(f"process state {state}"),
                    file_id=file.file_id,
                    line=index,
                )
    except pb.WireError as error:
        report.problems.append(f"broken after field {index} ({error}); kept what came before")
    stacks.flush()
    events.flush()


def _thread(
    data: bytes, python: bool, index: int, rank: int, context: LoadContext, stacks: RowBuffer, file_id: int
) -> None:
    values: dict[int, Any] = {}
    frames: list[str] = []
    # Python threads: 1 pid, 2 id, 3 name, 5 active, 6 owns the GIL, 7 frames; native: 1 pid, 2 name, 3 frames.
    frame_field = 7 if python else 3
    for number, _wire, value in pb.fields(data):
        if number == frame_field:
            frame = {n: pb.text(v) for n, _w, v in pb.fields(pb.message(value))}
            frames.append(f"{frame.get(1, '?')} ({frame.get(2, '')})")
        else:
            values[number] = value
    if not frames:
        return
    name = pb.text(values.get(3 if python else 2, b""))
    active, gil = bool(values.get(5)), bool(values.get(6))
    stacks.add(
        rank=rank,
        pid=pb.number(values.get(1, 0)),
        thread=clip(name),
        is_main=name == "MainThread" or None,
        state=("active+gil" if gil else "active" if active else "idle") if python else None,
        stack_id=context.stack(frames),
        tool="py_spy" if python else "gdb",
        file_id=file_id,
        line=index,
    )


class XpuTimerMetricsLoader:
    """Reads the gauges of xpu_timer."""

    name = "xpu_timer_metrics"
    title = "xpu_timer gauges (Prometheus text)"
    recognised_by = "gauges named XPU_TIMER_…"
    yields = "events: op_perf per rank and operation, and whether xpu_timer saw a hang"

    def sniff(self, file: EvidenceFile) -> bool:
        """One of the gauges in the first bytes."""
        return b"XPU_TIMER_COLL_KERNEL" in file.head or b"XPU_TIMER_COMMON_HANG" in file.head

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read the samples of communication and of hangs."""
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.file_id, self.name)
            events = RowBuffer(context, "events", report)
            for sample in samples(file.path, report):
                labels = dict(sample.labels)
                rank = int(labels["rank"]) if labels.get("rank", "").isdigit() and len(labels["rank"]) < 8 else None
                local = labels.get("local_rank", "")
                shared: dict[str, Any] = {
                    "ts": sample.ts_ns,
                    "rank": rank,
                    "local_rank": int(local) if local.isdigit() and len(local) < 8 else None,
                    "source": self.name,
                    "file_id": file.file_id,
                    "line": sample.line,
                }
                facts = {k: v for k, v in (("pod", labels.get("pod_name")), ("host", labels.get("ip"))) if v}
                if rank is not None and facts.get("host", "NOT_SET") != "NOT_SET":
                    context.rank(rank, host=facts["host"])
                if sample.name == "XPU_TIMER_COMMON_HANG":
                    events.add(
                        **shared,
                        kind="other",
                        level="error" if sample.value else "info",
                        name="hang",
                        value=sample.value,
                        text=clip(f"{sample.name} rank={rank} {sample.value:g}"),
                    )
                elif sample.name in ("XPU_TIMER_COLL_KERNEL_AVG_LATENCY", "XPU_TIMER_COLL_KERNEL_BANDWIDTH"):
                    latency = sample.name.endswith("LATENCY")
                    events.add(
                        **shared,
                        kind="op_perf",
                        level="info",
                        op_kind=op_kind(labels.get("operation", "")),
                        dtype=labels.get("dtype"),
                        dur_ms=sample.value / 1000 if latency else None,
                        value=None if latency else sample.value,
                        name=labels.get("algorithm"),
                        text=clip(" ".join(f"{k}={v}" for k, v in sample.labels)),
                    )
            events.flush()
            reports.append(report)
        return reports
