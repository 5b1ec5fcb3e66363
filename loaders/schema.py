"""Every table of a trace, declared once: columns, types, units and a sentence each.

From this list come the DuckDB DDL (`ddl`), the Arrow and polars schemas (`arrow_schema`, `polars_schema`),
the page `docs/schema.md` and the check of the C++ record layout. Rules: surrogate ids are small integers,
times are integer ns UTC (`TIMESTAMP_NS`), a name carries its unit, unknown is NULL and never a sentinel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

SCHEMA_VERSION: Final = 1

OP_KINDS: Final = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "send",
    "recv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "coalesced",
    "other",
)
DIRS: Final = ("send", "recv")
OP_STATES: Final = ("scheduled", "started", "completed", "aborted")
LEVELS: Final = ("debug", "info", "warning", "error", "fatal")
TIME_QUALITIES: Final = ("exact", "zone_assumed", "year_assumed", "order_only")
MEMBER_SOURCES: Final = ("dump", "topology", "log", "trace", "entries")
TRANSPORTS: Final = ("net_ib", "net_socket", "net_other", "p2p", "shm", "nvls", "collnet", "other")
EVENT_KINDS: Final = (
    # what torch's watchdog and monitor say
    "watchdog_timeout",
    "pg_status",
    "dump_signal",
    "heartbeat_stuck",
    "desync_report",
    "fingerprint_mismatch",
    "fr_analysis",
    # how processes end
    "exception",
    "signal",
    "exit",
    "launcher_failure",
    "launcher_signal",
    "log_end",
    "alive",
    # connections and stores
    "connection_closed",
    "connect_failed",
    "store_error",
    "join_timeout",
    # NCCL
    "comm_init",
    "nccl_version",
    "nccl_env",
    "nccl_error",
    "nccl_abort",
    "coll_call",
    "ras_comm",
    "ras_member",
    "ras_peer",
    # device, host, network
    "cuda_error",
    "out_of_memory",
    "oom_kill",
    "xid",
    "link_down",
    "link_up",
    "ib_error",
    "pcie_error",
    "storage_error",
    "host_fault",
    "gpu_state",
    "nic_state",
    "nic_counter",
    "pcie_state",
    "pod_state",
    # measurements
    "op_perf",
    "bench_row",
    # the user's own log
    "identity",
    "step",
    "phase",
    "finished",
    "dump_written",
    # everything else
    "other",
    "unparsed",
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: DuckDB type (or an ENUM's values), whether NULL may stand in it, and a sentence with its unit."""

    name: str
    type: str
    doc: str
    nullable: bool = True
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table; `sort` is the order rows are written in."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...] = ()


def _c(name: str, type_: str, doc: str) -> Column:
    return Column(name, type_, doc)


def _k(name: str, type_: str, doc: str) -> Column:
    """A column that is never NULL."""
    return Column(name, type_, doc, nullable=False)


def _e(name: str, values: tuple[str, ...], doc: str) -> Column:
    return Column(name, "ENUM", doc, values=values)


TRACE_META = Table(
    "trace_meta",
    "What this file is: key and value (schema version, engine, evidence digest, generation).",
    (_k("key", "VARCHAR", "name of the fact"), _k("value", "VARCHAR", "its value as text")),
)

JOBS = Table(
    "jobs",
    "The jobs that the evidence speaks of; nearly always one.",
    (
        _k("job_id", "UINTEGER", "surrogate of the job"),
        _c("name", "VARCHAR", "name or id given by the launcher"),
        _c("started", "TIMESTAMP_NS", "first time seen, UTC"),
        _c("world_size", "UINTEGER", "ranks that the job should have, where a source says so"),
        _c("source", "VARCHAR", "what said so"),
        _c("note", "VARCHAR", "anything a reader should know"),
    ),
)

FILES = Table(
    "files",
    "Every file of the evidence, read or not.",
    (
        _k("file_id", "UINTEGER", "surrogate of the file; position in the sorted list of names"),
        _c("job_id", "UINTEGER", "job it belongs to"),
        _c("loader", "VARCHAR", "name of the loader that read it; NULL: unread"),
        _k("path", "VARCHAR", "path as handed over, with `!` between an archive and its member"),
        _c("size_bytes", "UBIGINT", "size after unpacking, bytes"),
        _c("sha256", "VARCHAR", "of the content, hexadecimal"),
        _c("rows", "UBIGINT", "rows taken from it, all tables together"),
        _c("dropped", "UBIGINT", "records or lines that could not be used"),
        _c("problems", "VARCHAR", "what was wrong, one per line; NULL: nothing"),
        _c("rank", "UINTEGER", "global rank that the file is of, where it is of one"),
    ),
    ("file_id",),
)

HOSTS = Table(
    "hosts",
    "Machines.",
    (
        _k("host_id", "UINTEGER", "surrogate of the host"),
        _k("name", "VARCHAR", "host name as the sources write it"),
        _c("group", "VARCHAR", "rack, pod or switch, where known"),
        _c("clock_offset_ns", "BIGINT", "added to its clock to get UTC, ns"),
        _c("clock_error_ns", "BIGINT", "bound of the error of that offset, ns"),
    ),
)

RANKS = Table(
    "ranks",
    "One row per global rank that any source mentions.",
    (
        _c("job_id", "UINTEGER", "job"),
        _k("rank", "UINTEGER", "global rank"),
        _c("host_id", "UINTEGER", "host it runs on"),
        _c("local_rank", "UINTEGER", "rank on its host"),
        _c("gpu", "VARCHAR", "device: bus id, uuid or index as known"),
        _c("pid", "UINTEGER", "process id on its host"),
        _c("dp", "UINTEGER", "coordinate in data parallelism"),
        _c("tp", "UINTEGER", "coordinate in tensor parallelism"),
        _c("pp", "UINTEGER", "pipeline stage"),
        _c("ep", "UINTEGER", "coordinate in expert parallelism"),
    ),
    ("job_id", "rank"),
)

IDENTITY = Table(
    "identity",
    "Why we believe which rank is which: one row per claim, conflicts kept.",
    (
        _c("rank", "UINTEGER", "global rank"),
        _k("attribute", "VARCHAR", "host, pid, pod, bus_id, uuid, nic, local_rank, address, comm_rank"),
        _k("value", "VARCHAR", "its value as text"),
        _c("reason", "VARCHAR", "what says so, in words"),
        _c("ambiguous", "BOOLEAN", "another source says otherwise, or more than one rank fits"),
        _c("file_id", "UINTEGER", "file of the claim"),
        _c("line", "UINTEGER", "line in that file, from 1"),
    ),
)

COMMUNICATORS = Table(
    "communicators",
    "Process groups and communicators. Two rows never describe the same (name, members).",
    (
        _k("comm_id", "UINTEGER", "surrogate of the communicator"),
        _c("job_id", "UINTEGER", "job"),
        _k("key", "VARCHAR", "role and short hash, unique in the trace: the `<comm>` of URLs"),
        _c("name", "VARCHAR", "group name as torch has it (creation counter or hash)"),
        _c("desc", "VARCHAR", "description given by the user, such as TENSOR_MODEL_PARALLEL_GROUP"),
        _c("hash", "UBIGINT", "NCCL's commHash or commId"),
        _c("kind", "VARCHAR", "role: world, tp, pp, dp, ep, cp, … or other"),
        _c("backend", "VARCHAR", "nccl, gloo, …"),
        _c("size", "UINTEGER", "members it should have; NULL where no source lists them"),
        _c("seen_size", "UINTEGER", "members that left any trace of it"),
        _c("parent", "UINTEGER", "communicator it was split from"),
    ),
    ("comm_id",),
)

MEMBERS = Table(
    "members",
    "Who is in which communicator.",
    (
        _k("comm_id", "UINTEGER", "communicator"),
        _k("rank", "UINTEGER", "global rank"),
        _c("comm_rank", "UINTEGER", "rank inside the communicator"),
        _e(
            "source",
            MEMBER_SOURCES,
            "what says so; `entries`: it has operations of that group, others may be missing",
        ),
    ),
    ("comm_id", "comm_rank"),
)

RANK_DUMPS = Table(
    "rank_dumps",
    "One row per dump of one rank (Flight Recorder or ring): what it covers.",
    (
        _k("rank", "UINTEGER", "global rank"),
        _k("file_id", "UINTEGER", "file"),
        _k("kind", "VARCHAR", "flight_recorder or ring"),
        _c("version", "VARCHAR", "layout version written in the dump; `list` for the bare list of torch 2.2"),
        _c("backend", "VARCHAR", "nccl, gloo, …: prefix of the operations' names"),
        _c("lib_version", "VARCHAR", "version of the communication library"),
        _c("entries", "UINTEGER", "operations in the dump"),
        _c("first_record", "UBIGINT", "record_id of the oldest entry; > 0: older ones were overwritten"),
        _c("last_record", "UBIGINT", "record_id of the newest entry"),
        _c("first_ts", "TIMESTAMP_NS", "enqueue time of the oldest entry"),
        _c("last_ts", "TIMESTAMP_NS", "enqueue time of the newest entry"),
        _c(
            "has_events",
            "BOOLEAN",
            "the recorder sees started/completed; false: `retired` is its only sign of an end",
        ),
        _c("has_timing", "BOOLEAN", "start events were recorded (TORCH_NCCL_ENABLE_TIMING)"),
        _c("only_active", "BOOLEAN", "the dump holds only operations that had not completed"),
    ),
    ("rank",),
)

GROUP_STATUS = Table(
    "group_status",
    "pg_status of a dump, or the status line of a log: how far one rank says it has come in one group.",
    (
        _k("rank", "UINTEGER", "global rank"),
        _k("comm_id", "UINTEGER", "communicator"),
        _c("last_enqueued", "BIGINT", "sequence number, NULL: none; the p2p number after a send/recv"),
        _c("last_started", "BIGINT", "sequence number, NULL: none or not recorded"),
        _c("last_completed", "BIGINT", "sequence number, NULL: none; not monotone, may be one too low"),
        _c("ts", "TIMESTAMP_NS", "when it was said"),
        _c("file_id", "UINTEGER", "file"),
        _c("line", "UINTEGER", "line in that file, from 1"),
    ),
    ("comm_id", "rank"),
)

COLL_OPS = Table(
    "coll_ops",
    "One operation as seen by one rank.",
    (
        _k("rank", "UINTEGER", "global rank"),
        _k("comm_id", "UINTEGER", "communicator"),
        _c(
            "op_seq",
            "UBIGINT",
            "number of the collective in its communicator; of a send/recv: the p2p number of this rank",
        ),
        _e("op_kind", OP_KINDS, "kind of operation"),
        _c("op_name", "VARCHAR", "name as the source writes it, without the backend"),
        _c(
            "start_ts",
            "TIMESTAMP_NS",
            "arrival of this rank: kernel start where the source sees it, else enqueue",
        ),
        _c("enq_ts", "TIMESTAMP_NS", "the host called it, own clock"),
        _c("kstart_ts", "TIMESTAMP_NS", "first kernel channel start; NULL: not seen or not started"),
        _c("seen_start_ts", "TIMESTAMP_NS", "a watchdog poll saw it started; late by up to the poll period"),
        _c("seen_end_ts", "TIMESTAMP_NS", "a watchdog poll saw it completed; late by up to the poll period"),
        _c("dep_end_ts", "TIMESTAMP_NS", "end of the previous blocking operation on the same stream"),
        _c("dur_ns", "BIGINT", "from start_ts; NULL: not finished when seen last, or not measured"),
        _c("end_is_derived", "BOOLEAN", "the end came from proxy events, not from the kernel"),
        _e("state", OP_STATES, "state as the source tells it"),
        _c("retired", "BOOLEAN", "the watchdog dropped it; on event-less recorders: it ended or failed"),
        _c("is_p2p", "BOOLEAN", "send or recv"),
        _c("peer", "UINTEGER", "global rank of the other side of a send/recv, where known"),
        _c("pair_seq", "UBIGINT", "n of the n-th send a->b or recv b<-a in this dump, from 0"),
        _c(
            "coalesced",
            "BOOLEAN",
            "member of a coalesced group: its own state says nothing, its closing entry does",
        ),
        _c("bytes", "UBIGINT", "bytes of the larger side of the message"),
        _c("in_numel", "UBIGINT", "elements of all inputs"),
        _c("out_numel", "UBIGINT", "elements of all outputs"),
        _c("in_sizes", "VARCHAR", "sizes as JSON, one list per tensor"),
        _c("out_sizes", "VARCHAR", "sizes as JSON, one list per tensor"),
        _c("dtype", "VARCHAR", "dtype(s) of the inputs as the source writes them, comma separated"),
        _c("out_dtype", "VARCHAR", "dtype(s) of the outputs"),
        _c("redop", "VARCHAR", "reduction"),
        _c("root", "UINTEGER", "root rank inside the communicator"),
        _c("algo", "VARCHAR", "algorithm, such as RING or TREE"),
        _c("proto", "VARCHAR", "protocol, such as SIMPLE or LL128"),
        _c("channels", "UTINYINT", "channels used"),
        _c("stream", "UINTEGER", "small id of the CUDA stream"),
        _c("timeout_ms", "UBIGINT", "timeout of the operation, ms"),
        _c("stack_id", "UBIGINT", "who called it: see stack_texts"),
        _c("record_id", "UBIGINT", "order inside the dump of this rank; not comparable across ranks"),
        _c("op_id", "UBIGINT", "per group, +1 per logical operation, unrecorded ones included"),
        _c("file_id", "UINTEGER", "file"),
        _c("line", "UINTEGER", "line, or index of the entry in the dump, from 0"),
    ),
    ("comm_id", "op_seq", "rank"),
)

FLOW_STATE = Table(
    "flow_state",
    "One flow half every 100 ms while its operation is in flight.",
    (
        _k("ts", "TIMESTAMP_NS", "one value per rank and sampling tick"),
        _k("rank", "UINTEGER", "global rank"),
        _k("comm_id", "UINTEGER", "communicator"),
        _c("peer", "UINTEGER", "global rank of the other side"),
        _k("op_seq", "UBIGINT", "number of the operation in its communicator"),
        _e("op_kind", OP_KINDS, "kind of operation"),
        _c("channel", "UTINYINT", "channel"),
        _c("qp", "UINTEGER", "queue pair; NULL on stock NCCL"),
        _e("dir", DIRS, "send or recv"),
        _c("chunks_total", "UINTEGER", "chunks of the operation on this flow"),
        _c("posted", "UINTEGER", "send: slot posted; recv: buffer posted"),
        _c("ready", "UINTEGER", "send: GPU ready; recv: flushed"),
        _c("moved", "UINTEGER", "send: handed to the network; recv: received"),
        _c("done", "UINTEGER", "send: acknowledged; recv: consumed by the GPU"),
        _c("idle_ms", "UINTEGER", "since the last counter moved, ms"),
    ),
    ("comm_id", "rank", "ts"),
)

FLOW_OPS = Table(
    "flow_ops",
    "Sums of one flow half of one finished operation, kept by the tracer while the steps pass.",
    (
        _k("rank", "UINTEGER", "global rank"),
        _k("comm_id", "UINTEGER", "communicator"),
        _k("op_seq", "UBIGINT", "number of the operation"),
        _e("op_kind", OP_KINDS, "kind of operation"),
        _c("channel", "UTINYINT", "channel"),
        _e("dir", DIRS, "send or recv"),
        _c("peer", "UINTEGER", "global rank of the other side"),
        _c("end_ts", "TIMESTAMP_NS", "last step done"),
        _c("slices", "UINTEGER", "steps"),
        _c("bytes", "UBIGINT", "bytes"),
        _c("net_busy_ns", "UBIGINT", "send: time the network was the one at work, ns"),
        _c("net_max_ns", "UBIGINT", "largest term of that sum, ns"),
        _c("peer_wait_ns", "UBIGINT", "send: waiting for credit or for the own proxy, ns"),
        _c("peer_wait_max_ns", "UBIGINT", "largest term, ns"),
        _c("post_delay_ns", "UBIGINT", "recv: free slot and nobody posted it, ns"),
        _c("post_delay_max_ns", "UBIGINT", "largest term, ns"),
        _c("flush_ns", "UBIGINT", "recv: received to flushed, ns"),
        _c("gpu_hold_ns", "UBIGINT", "recv: flushed to consumed, ns"),
    ),
    ("comm_id", "op_seq", "rank"),
)

HEARTBEAT = Table(
    "heartbeat",
    "One row per rank and second, also when idle.",
    (
        _k("ts", "TIMESTAMP_NS", "when it was written"),
        _k("rank", "UINTEGER", "global rank"),
        _c("pid_alive", "BOOLEAN", "the process exists"),
        _c("sampler_ts", "TIMESTAMP_NS", "last heartbeat record in the ring"),
        _c("n_open", "UINTEGER", "open operations"),
        _c("oldest_open_enq_ts", "TIMESTAMP_NS", "enqueue of the oldest open operation"),
        _c("last_progress_ts", "TIMESTAMP_NS", "latest completion, enqueue, kernel start or counter move"),
        _c("last_comm_id", "UINTEGER", "communicator of that progress"),
        _c("last_op_seq", "UBIGINT", "operation of that progress"),
    ),
    ("rank", "ts"),
)

HOST_EVIDENCE = Table(
    "host_evidence",
    "Readings of a host's devices: port state, error counters, clocks, PCIe width.",
    (
        _k("ts", "TIMESTAMP_NS", "when it was read"),
        _k("host_id", "UINTEGER", "host"),
        _c("device", "VARCHAR", "device name or bus id"),
        _k("kind", "VARCHAR", "what was read"),
        _c("value", "VARCHAR", "value as text"),
        _c("number", "DOUBLE", "value as a number, where it is one"),
    ),
)

RANK_SUMMARY = Table(
    "rank_summary",
    "One row per rank, communicator and 10 s window.",
    (
        _k("ts", "TIMESTAMP_NS", "start of the window"),
        _k("rank", "UINTEGER", "global rank"),
        _k("comm_id", "UINTEGER", "communicator"),
        _c("op_first", "UBIGINT", "first operation"),
        _c("op_last", "UBIGINT", "last operation"),
        _c("ops", "UINTEGER", "operations"),
        _c("start_last", "TIMESTAMP_NS", "arrival at the last one"),
        _c("dur_max_ns", "BIGINT", "longest, ns"),
        _c("dur_sum_ns", "BIGINT", "sum, ns"),
        _c("lag_chunks", "UINTEGER", "chunks behind the most advanced rank"),
        _c("idle_max_ms", "UINTEGER", "longest standstill of a flow, ms"),
        _c("prog_min", "FLOAT", "least progress of a flow, 0 to 1"),
        _c("samples", "USMALLINT", "state rows in the window"),
    ),
    ("ts", "rank"),
)

EVENTS = Table(
    "events",
    "One fact of one line or record, whatever its source. Lines that nobody understood are rows of kind `unparsed`.",
    (
        _c("ts", "TIMESTAMP_NS", "when, UTC"),
        _e("time_quality", TIME_QUALITIES, "how sure that time is"),
        _c("host_id", "UINTEGER", "host"),
        _c("pid", "UINTEGER", "process"),
        _c("rank", "UINTEGER", "global rank that the event is of"),
        _c("comm_rank", "UINTEGER", "rank inside the group, where the line gives only that"),
        _c("local_rank", "UINTEGER", "rank on its host"),
        _e("level", LEVELS, "severity"),
        _e("kind", EVENT_KINDS, "what it says"),
        _c("job", "VARCHAR", "job as the line or its prefix names it; NULL: the only one of its file"),
        _c("source", "VARCHAR", "loader that took it"),
        _c("code", "INTEGER", "exit code (negative: signal), Xid number, error code"),
        _c("comm_id", "UINTEGER", "communicator"),
        _c("group_name", "VARCHAR", "group as the line names it (PG GUID, name)"),
        _c("group_desc", "VARCHAR", "description as the line gives it"),
        _c("seq", "BIGINT", "sequence number as the line counts"),
        _e("op_kind", OP_KINDS, "operation"),
        _c("in_numel", "UBIGINT", "elements in"),
        _c("out_numel", "UBIGINT", "elements out"),
        _c("bytes", "UBIGINT", "bytes"),
        _c("dtype", "VARCHAR", "dtype"),
        _c("last_enqueued", "BIGINT", "last enqueued, as the line says"),
        _c("last_completed", "BIGINT", "last completed, as the line says"),
        _c("dur_ms", "DOUBLE", "duration the line speaks of, ms"),
        _c("device", "VARCHAR", "GPU bus id, NIC, port"),
        _c("peer", "VARCHAR", "the other end: address, host or rank as written"),
        _c("peer_rank", "UINTEGER", "the other end as a global rank, where known"),
        _c("name", "VARCHAR", "exception class, phase, counter, variable: the noun of the event"),
        _c("detail", "VARCHAR", "second word of the event: value of a variable, state of a device, unit"),
        _c("value", "DOUBLE", "number of the event: step, bandwidth, counter, …"),
        _c("stack_id", "UBIGINT", "stack of the exception or call"),
        _c("text", "VARCHAR", "the line itself, cut at 2,000 characters"),
        _c("file_id", "UINTEGER", "file"),
        _c("line", "UINTEGER", "line in that file, from 1"),
    ),
    ("file_id", "line"),
)

STACKS = Table(
    "stacks",
    "One thread of one process at one moment.",
    (
        _c("ts", "TIMESTAMP_NS", "when it was taken"),
        _c("rank", "UINTEGER", "global rank"),
        _c("pid", "UINTEGER", "process"),
        _c("thread", "VARCHAR", "thread name or id"),
        _c("is_main", "BOOLEAN", "the main thread"),
        _c("state", "VARCHAR", "idle, active, active+gil"),
        _k("stack_id", "UBIGINT", "see stack_texts"),
        _c("tool", "VARCHAR", "py_spy, gdb, faulthandler"),
        _c("file_id", "UINTEGER", "file"),
        _c("line", "UINTEGER", "line of the thread's header, from 1"),
    ),
    ("rank", "thread"),
)

STACK_TEXTS = Table(
    "stack_texts",
    "Each distinct stack once.",
    (
        _k("stack_id", "UBIGINT", "hash of the frames"),
        _k("frames", "VARCHAR[]", "`function (file:line)`, innermost first"),
    ),
    ("stack_id",),
)

FILE_BLOCKS = Table(
    "file_blocks",
    "The text of the evidence itself, so that every claim can be opened: blocks of whole lines, zstd-compressed.",
    (
        _k("file_id", "UINTEGER", "file"),
        _k("first_line", "UINTEGER", "number of its first line, from 1"),
        _k("lines", "UINTEGER", "lines in the block"),
        _k("size_bytes", "UINTEGER", "size before compression, bytes"),
        _k("content", "BLOB", "zstd frame of the lines as UTF-8, ends of lines normalised"),
    ),
    ("file_id", "first_line"),
)

EDGES = Table(
    "edges",
    "Topology: who sends to whom on which channel.",
    (
        _k("comm_id", "UINTEGER", "communicator"),
        _c("channel", "UTINYINT", "channel"),
        _c("pattern", "VARCHAR", "ring, tree or p2p"),
        _k("src", "UINTEGER", "global rank"),
        _k("dst", "UINTEGER", "global rank"),
        _e("transport", TRANSPORTS, "what carries it"),
        _c("nic", "VARCHAR", "device of the sending side"),
        _c("dst_nic", "VARCHAR", "device of the receiving side"),
    ),
)

TRIGGERS = Table(
    "triggers",
    "Moments at which a detector fired.",
    (
        _k("trigger_id", "UINTEGER", "surrogate"),
        _c("ts", "TIMESTAMP_NS", "when"),
        _c("rule", "VARCHAR", "detector"),
        _c("rank", "UINTEGER", "global rank"),
        _c("comm_id", "UINTEGER", "communicator"),
        _c("value", "DOUBLE", "measured"),
        _c("threshold", "DOUBLE", "limit it passed"),
    ),
)

INCIDENTS = Table(
    "incidents",
    "One row per finding, or per live incident.",
    (
        _k("incident_id", "VARCHAR", "`f1`, … or the live id"),
        _c("job_id", "UINTEGER", "job"),
        _c("opened", "TIMESTAMP_NS", "start"),
        _c("closed", "TIMESTAMP_NS", "end; NULL: open"),
        _c("diag_id", "UINTEGER", "newest diagnosis"),
    ),
)

DIAGNOSES = Table(
    "diagnoses",
    "Verdicts of this trace, each revision kept.",
    (
        _k("diag_id", "UINTEGER", "surrogate"),
        _c("incident_id", "VARCHAR", "incident; NULL: verdict of the whole trace"),
        _c("revision", "UINTEGER", "from 1"),
        _c("trigger_id", "UINTEGER", "what fired"),
        _c("ts", "TIMESTAMP_NS", "when it was made"),
        _c("category", "VARCHAR", "category of the first finding"),
        _c("rank", "UINTEGER", "first root-cause rank"),
        _c("comm_id", "UINTEGER", "communicator"),
        _c("confidence", "FLOAT", "0 to 1"),
        _c("evidence", "VARCHAR", "JSON, the inner form"),
        _c("verdict", "VARCHAR", "JSON, mycroft.verdict/1"),
        _c("window_start", "TIMESTAMP_NS", "start of what was looked at"),
        _c("window_end", "TIMESTAMP_NS", "end of what was looked at"),
        _c("rules_version", "VARCHAR", "version of the rules"),
    ),
)

TIMELINE_BLOCKS = Table(
    "timeline_blocks",
    "Operations as the timeline shows them when zoomed in, made when a trace is published: loaders/timeline_blocks.py.",
    (
        _k("band", "UINTEGER", "band of 256 ranks"),
        _k("from_us", "BIGINT", "where the first of them begins, microseconds after the start of the timeline"),
        _k("end_us", "BIGINT", "where the last of them ends, microseconds after the start of the timeline"),
        _k("ops", "UINTEGER", "operations in it"),
        _k("content", "BLOB", "the operations, packed"),
    ),
    ("band", "from_us"),
)
TIMELINE_TILES = Table(
    "timeline_tiles",
    "The timeline zoomed out: 256 ranks by 256 bins of one byte, gzip. A tile that is not here is empty.",
    (
        _k("metric", "VARCHAR", "late, wait, state or busy"),
        _k("level", "UTINYINT", "0 is the coarsest; bins of the next are four times shorter"),
        _k("y", "UINTEGER", "band of 256 ranks"),
        _k("x", "UINTEGER", "number of the tile in time"),
        _k("cells", "BLOB", "the worst of each cell; 0 nothing, 1-254 the scale, 255 above it"),
    ),
    ("metric", "level", "y", "x"),
)

TABLES: Final[tuple[Table, ...]] = (
    TRACE_META,
    JOBS,
    FILES,
    HOSTS,
    RANKS,
    IDENTITY,
    COMMUNICATORS,
    MEMBERS,
    RANK_DUMPS,
    GROUP_STATUS,
    COLL_OPS,
    FLOW_STATE,
    FLOW_OPS,
    HEARTBEAT,
    HOST_EVIDENCE,
    RANK_SUMMARY,
    EVENTS,
    STACKS,
    STACK_TEXTS,
    FILE_BLOCKS,
    EDGES,
    TRIGGERS,
    INCIDENTS,
    DIAGNOSES,
    TIMELINE_BLOCKS,
    TIMELINE_TILES,
)
BY_NAME: Final = {table.name: table for table in TABLES}

_ARROW: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "INTEGER": pa.int32(),
    "UINTEGER": pa.uint32(),
    "BIGINT": pa.int64(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "VARCHAR[]": pa.list_(pa.string()),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "ENUM": pa.dictionary(pa.uint32(), pa.string()),
}
_POLARS: Final[dict[str, pl.DataType]] = {
    "BOOLEAN": pl.Boolean(),
    "UTINYINT": pl.UInt8(),
    "USMALLINT": pl.UInt16(),
    "INTEGER": pl.Int32(),
    "UINTEGER": pl.UInt32(),
    "BIGINT": pl.Int64(),
    "UBIGINT": pl.UInt64(),
    "FLOAT": pl.Float32(),
    "DOUBLE": pl.Float64(),
    "VARCHAR": pl.String(),
    "BLOB": pl.Binary(),
    "VARCHAR[]": pl.List(pl.String()),
    "TIMESTAMP_NS": pl.Datetime("ns"),
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of `table`; ENUM columns are dictionaries of text."""
    return pa.schema([pa.field(c.name, _ARROW[c.type], c.nullable) for c in table.columns])


def polars_schema(table: Table) -> pl.Schema:
    """Return the polars schema of `table`; ENUM columns are `pl.Enum` of exactly the listed values."""
    return pl.Schema({c.name: pl.Enum(c.values) if c.values else _POLARS[c.type] for c in table.columns})


def enum_type_name(table: Table, column: Column) -> str:
    """Return the name of the DuckDB ENUM type of a column; equal value lists share one type."""
    for other in TABLES:
        for candidate in other.columns:
            if candidate.values == column.values:
                return f"{other.name}_{candidate.name}_t"
    raise KeyError(f"{table.name}.{column.name} is not an ENUM of a declared table")


def ddl() -> str:
    """Return the DuckDB statements that create every type and table."""
    statements: list[str] = []
    known: set[str] = set()
    for table in TABLES:
        columns: list[str] = []
        for column in table.columns:
            sql_type = column.type
            if column.values:
                sql_type = enum_type_name(table, column)
                if sql_type not in known:
                    known.add(sql_type)
                    values = ", ".join(f"'{v}'" for v in column.values)
                    statements.append(f"CREATE TYPE {sql_type} AS ENUM ({values});")
            columns.append(f'"{column.name}" {sql_type}{"" if column.nullable else " NOT NULL"}')
        statements.append(f"CREATE TABLE {table.name} ({', '.join(columns)});")
    return "\n".join(statements)


def markdown() -> str:
    """Return the reference page of all tables, the content of `docs/schema.md`."""
    lines = ["# Tables of a trace", "", "Made from `loaders/schema.py`; do not edit.", ""]
    for table in TABLES:
        lines += [f"## {table.name}", "", table.doc, ""]
        if table.sort:
            lines += [f"Sorted by {', '.join(f'`{name}`' for name in table.sort)}.", ""]
        lines += ["| column | type | meaning |", "|---|---|---|"]
        for column in table.columns:
            shown = "ENUM" if column.values else column.type
            doc = column.doc + (f": {', '.join(f'`{v}`' for v in column.values)}" if column.values else "")
            lines.append(f"| `{column.name}` | {shown}{'' if column.nullable else ', not NULL'} | {doc} |")
        lines.append("")
    return "\n".join(lines).rstrip()
