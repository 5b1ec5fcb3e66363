"""Every table of a trace, declared once: columns, types, units and a sentence each.

From this list come the DuckDB DDL (`ddl`), the Arrow and polars schemas (`arrow_schema`, `polars_schema`),
the page `docs/schema.md` and the check of the C++ record layout. Rules: surrogate ids are small integers,
times are integer ns UTC (`TIMESTAMP_NS`), a name carries its unit, unknown is NULL and never a sentinel.
`loaders/table.py` says what a table is, `loaders/vocabulary.py` which words an ENUM has; import both from here.
"""

from __future__ import annotations

from typing import Final

from mycroft.loaders.table import Column, Table, key, one_of, optional
from mycroft.loaders.table import arrow_schema as arrow_schema
from mycroft.loaders.table import polars_schema as polars_schema
from mycroft.loaders.vocabulary import (
    DIRS,
    EVENT_KINDS,
    LEVELS,
    MEMBER_SOURCES,
    OP_KINDS,
    OP_STATES,
    TIME_QUALITIES,
    TRANSPORTS,
)

SCHEMA_VERSION: Final = 2

TRACE_META = Table(
    "trace_meta",
    "What this file is: key and value (schema version, engine, evidence digest, generation).",
    (key("key", "VARCHAR", "name of the fact"), key("value", "VARCHAR", "its value as text")),
)

JOBS = Table(
    "jobs",
    "The jobs that the evidence speaks of; nearly always one.",
    (
        key("job_id", "UINTEGER", "surrogate of the job"),
        optional("name", "VARCHAR", "name or id given by the launcher"),
        optional("started", "TIMESTAMP_NS", "first time seen, UTC"),
        optional("world_size", "UINTEGER", "ranks that the job should have, where a source says so"),
        optional("source", "VARCHAR", "what said so"),
        optional("note", "VARCHAR", "anything a reader should know"),
    ),
)

FILES = Table(
    "files",
    "Every file of the evidence, read or not.",
    (
        key("file_id", "UINTEGER", "surrogate of the file; position in the sorted list of names"),
        optional("job_id", "UINTEGER", "job it belongs to"),
        optional("loader", "VARCHAR", "name of the loader that read it; NULL: unread"),
        key("path", "VARCHAR", "path as handed over, with `!` between an archive and its member"),
        optional("size_bytes", "UBIGINT", "size after unpacking, bytes"),
        optional("sha256", "VARCHAR", "of the content, hexadecimal"),
        optional("rows", "UBIGINT", "rows taken from it, all tables together"),
        optional("dropped", "UBIGINT", "records or lines that could not be used"),
        optional("problems", "VARCHAR", "what was wrong, one per line; NULL: nothing"),
        optional("rank", "UINTEGER", "global rank that the file is of, where it is of one"),
    ),
    ("file_id",),
)

HOSTS = Table(
    "hosts",
    "Machines.",
    (
        key("host_id", "UINTEGER", "surrogate of the host"),
        key("name", "VARCHAR", "host name as the sources write it"),
        optional("group", "VARCHAR", "rack, pod or switch, where known"),
        optional("clock_offset_ns", "BIGINT", "added to its clock to get UTC, ns"),
        optional("clock_error_ns", "BIGINT", "bound of the error of that offset, ns"),
    ),
)

RANKS = Table(
    "ranks",
    "One row per global rank that any source mentions.",
    (
        optional("job_id", "UINTEGER", "job"),
        key("rank", "UINTEGER", "global rank"),
        optional("host_id", "UINTEGER", "host it runs on"),
        optional("local_rank", "UINTEGER", "rank on its host"),
        optional("gpu", "VARCHAR", "device: bus id, uuid or index as known"),
        optional("pid", "UINTEGER", "process id on its host"),
        optional("dp", "UINTEGER", "coordinate in data parallelism"),
        optional("tp", "UINTEGER", "coordinate in tensor parallelism"),
        optional("pp", "UINTEGER", "pipeline stage"),
        optional("ep", "UINTEGER", "coordinate in expert parallelism"),
    ),
    ("job_id", "rank"),
)

IDENTITY = Table(
    "identity",
    "Why we believe which rank is which: one row per claim, conflicts kept.",
    (
        optional("rank", "UINTEGER", "global rank"),
        key("attribute", "VARCHAR", "host, pid, pod, bus_id, uuid, nic, local_rank, address, comm_rank"),
        key("value", "VARCHAR", "its value as text"),
        optional("reason", "VARCHAR", "what says so, in words"),
        optional("ambiguous", "BOOLEAN", "another source says otherwise, or more than one rank fits"),
        optional("file_id", "UINTEGER", "file of the claim"),
        optional("line", "UINTEGER", "line in that file, from 1"),
    ),
)

COMMUNICATORS = Table(
    "communicators",
    "Process groups and communicators. Two rows never describe the same (name, members).",
    (
        key("comm_id", "UINTEGER", "surrogate of the communicator"),
        optional("job_id", "UINTEGER", "job"),
        key("key", "VARCHAR", "role and short hash, unique in the trace: the `<comm>` of URLs"),
        optional("name", "VARCHAR", "group name as torch has it (creation counter or hash)"),
        optional("desc", "VARCHAR", "description given by the user, such as TENSOR_MODEL_PARALLEL_GROUP"),
        optional("hash", "UBIGINT", "NCCL's commHash or commId"),
        optional("kind", "VARCHAR", "role: world, tp, pp, dp, ep, cp, … or other"),
        optional("backend", "VARCHAR", "nccl, gloo, …"),
        optional("size", "UINTEGER", "members it should have; NULL where no source lists them"),
        optional("seen_size", "UINTEGER", "members that left any trace of it"),
        optional("parent", "UINTEGER", "communicator it was split from"),
    ),
    ("comm_id",),
)

MEMBERS = Table(
    "members",
    "Who is in which communicator.",
    (
        key("comm_id", "UINTEGER", "communicator"),
        key("rank", "UINTEGER", "global rank"),
        optional("comm_rank", "UINTEGER", "rank inside the communicator"),
        one_of(
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
        key("rank", "UINTEGER", "global rank"),
        key("file_id", "UINTEGER", "file"),
        key("kind", "VARCHAR", "flight_recorder or ring"),
        optional("version", "VARCHAR", "layout version written in the dump; `list` for the bare list of torch 2.2"),
        optional("backend", "VARCHAR", "nccl, gloo, …: prefix of the operations' names"),
        optional("lib_version", "VARCHAR", "version of the communication library"),
        optional("entries", "UINTEGER", "operations in the dump"),
        optional("first_record", "UBIGINT", "record_id of the oldest entry; > 0: older ones were overwritten"),
        optional("last_record", "UBIGINT", "record_id of the newest entry"),
        optional("first_ts", "TIMESTAMP_NS", "enqueue time of the oldest entry"),
        optional("last_ts", "TIMESTAMP_NS", "enqueue time of the newest entry"),
        optional(
            "has_events",
            "BOOLEAN",
            "the recorder sees started/completed; false: `retired` is its only sign of an end",
        ),
        optional("has_timing", "BOOLEAN", "start events were recorded (TORCH_NCCL_ENABLE_TIMING)"),
        optional("only_active", "BOOLEAN", "the dump holds only operations that had not completed"),
    ),
    ("rank",),
)

GROUP_STATUS = Table(
    "group_status",
    "pg_status of a dump, or the status line of a log: how far one rank says it has come in one group.",
    (
        key("rank", "UINTEGER", "global rank"),
        key("comm_id", "UINTEGER", "communicator"),
        optional("last_enqueued", "BIGINT", "sequence number, NULL: none; the p2p number after a send/recv"),
        optional("last_started", "BIGINT", "sequence number, NULL: none or not recorded"),
        optional("last_completed", "BIGINT", "sequence number, NULL: none; not monotone, may be one too low"),
        optional("ts", "TIMESTAMP_NS", "when it was said"),
        optional("file_id", "UINTEGER", "file"),
        optional("line", "UINTEGER", "line in that file, from 1"),
    ),
    ("comm_id", "rank"),
)

COLL_OPS = Table(
    "coll_ops",
    "One operation as seen by one rank.",
    (
        key("rank", "UINTEGER", "global rank"),
        key("comm_id", "UINTEGER", "communicator"),
        optional(
            "op_seq",
            "UBIGINT",
            "number of the collective in its communicator; of a send/recv: the p2p number of this rank",
        ),
        one_of("op_kind", OP_KINDS, "kind of operation"),
        optional("op_name", "VARCHAR", "name as the source writes it, without the backend"),
        optional(
            "start_ts",
            "TIMESTAMP_NS",
            "arrival of this rank: kernel start where the source sees it, else enqueue",
        ),
        optional("enq_ts", "TIMESTAMP_NS", "the host called it, own clock"),
        optional("kstart_ts", "TIMESTAMP_NS", "first kernel channel start; NULL: not seen or not started"),
        optional("seen_start_ts", "TIMESTAMP_NS", "a watchdog poll saw it started; late by up to the poll period"),
        optional("seen_end_ts", "TIMESTAMP_NS", "a watchdog poll saw it completed; late by up to the poll period"),
        optional("dep_end_ts", "TIMESTAMP_NS", "end of the previous blocking operation on the same stream"),
        optional("dur_ns", "BIGINT", "from start_ts; NULL: not finished when seen last, or not measured"),
        optional("end_is_derived", "BOOLEAN", "the end came from proxy events, not from the kernel"),
        one_of("state", OP_STATES, "state as the source tells it"),
        optional("retired", "BOOLEAN", "the watchdog dropped it; on event-less recorders: it ended or failed"),
        optional("is_p2p", "BOOLEAN", "send or recv"),
        optional("peer", "UINTEGER", "global rank of the other side of a send/recv, where known"),
        optional("pair_seq", "UBIGINT", "n of the n-th send a->b or recv b<-a in this dump, from 0"),
        optional(
            "coalesced",
            "BOOLEAN",
            "member of a coalesced group: its own state says nothing, its closing entry does",
        ),
        optional("bytes", "UBIGINT", "bytes of the larger side of the message"),
        optional("in_numel", "UBIGINT", "elements of all inputs"),
        optional("out_numel", "UBIGINT", "elements of all outputs"),
        optional("in_sizes", "VARCHAR", "sizes as JSON, one list per tensor"),
        optional("out_sizes", "VARCHAR", "sizes as JSON, one list per tensor"),
        optional("dtype", "VARCHAR", "dtype(s) of the inputs as the source writes them, comma separated"),
        optional("out_dtype", "VARCHAR", "dtype(s) of the outputs"),
        optional("redop", "VARCHAR", "reduction"),
        optional("root", "UINTEGER", "root rank inside the communicator"),
        optional("algo", "VARCHAR", "algorithm, such as RING or TREE"),
        optional("proto", "VARCHAR", "protocol, such as SIMPLE or LL128"),
        optional("channels", "UTINYINT", "channels used"),
        optional("stream", "UINTEGER", "small id of the CUDA stream"),
        optional("timeout_ms", "UBIGINT", "timeout of the operation, ms"),
        optional("stack_id", "UBIGINT", "who called it: see stack_texts"),
        optional("record_id", "UBIGINT", "order inside the dump of this rank; not comparable across ranks"),
        optional("op_id", "UBIGINT", "per group, +1 per logical operation, unrecorded ones included"),
        optional("file_id", "UINTEGER", "file"),
        optional("line", "UINTEGER", "line, or index of the entry in the dump, from 0"),
    ),
    ("comm_id", "op_seq", "rank"),
)

FLOW_STATE = Table(
    "flow_state",
    "One flow half every 100 ms while its operation is in flight.",
    (
        key("ts", "TIMESTAMP_NS", "one value per rank and sampling tick"),
        key("rank", "UINTEGER", "global rank"),
        key("comm_id", "UINTEGER", "communicator"),
        optional("peer", "UINTEGER", "global rank of the other side"),
        key("op_seq", "UBIGINT", "number of the operation in its communicator"),
        one_of("op_kind", OP_KINDS, "kind of operation"),
        optional("channel", "UTINYINT", "channel"),
        optional("qp", "UINTEGER", "queue pair; NULL on stock NCCL"),
        one_of("dir", DIRS, "send or recv"),
        optional("chunks_total", "UINTEGER", "chunks of the operation on this flow"),
        optional("posted", "UINTEGER", "send: slot posted; recv: buffer posted"),
        optional("ready", "UINTEGER", "send: GPU ready; recv: flushed"),
        optional("moved", "UINTEGER", "send: handed to the network; recv: received"),
        optional("done", "UINTEGER", "send: acknowledged; recv: consumed by the GPU"),
        optional("idle_ms", "UINTEGER", "since the last counter moved, ms"),
    ),
    ("comm_id", "rank", "ts"),
)

FLOW_OPS = Table(
    "flow_ops",
    "Sums of one flow half of one finished operation, kept by the tracer while the steps pass.",
    (
        key("rank", "UINTEGER", "global rank"),
        key("comm_id", "UINTEGER", "communicator"),
        key("op_seq", "UBIGINT", "number of the operation"),
        one_of("op_kind", OP_KINDS, "kind of operation"),
        optional("channel", "UTINYINT", "channel"),
        one_of("dir", DIRS, "send or recv"),
        optional("peer", "UINTEGER", "global rank of the other side"),
        optional("end_ts", "TIMESTAMP_NS", "last step done"),
        optional("slices", "UINTEGER", "steps"),
        optional("bytes", "UBIGINT", "bytes"),
        optional("net_busy_ns", "UBIGINT", "send: time the network was the one at work, ns"),
        optional("net_max_ns", "UBIGINT", "largest term of that sum, ns"),
        optional("peer_wait_ns", "UBIGINT", "send: waiting for credit or for the own proxy, ns"),
        optional("peer_wait_max_ns", "UBIGINT", "largest term, ns"),
        optional("post_delay_ns", "UBIGINT", "recv: free slot and nobody posted it, ns"),
        optional("post_delay_max_ns", "UBIGINT", "largest term, ns"),
        optional("flush_ns", "UBIGINT", "recv: received to flushed, ns"),
        optional("gpu_hold_ns", "UBIGINT", "recv: flushed to consumed, ns"),
    ),
    ("comm_id", "op_seq", "rank"),
)

HEARTBEAT = Table(
    "heartbeat",
    "One row per rank and second, also when idle.",
    (
        key("ts", "TIMESTAMP_NS", "when it was written"),
        key("rank", "UINTEGER", "global rank"),
        optional("pid_alive", "BOOLEAN", "the process exists"),
        optional("sampler_ts", "TIMESTAMP_NS", "last heartbeat record in the ring"),
        optional("n_open", "UINTEGER", "open operations"),
        optional("oldest_open_enq_ts", "TIMESTAMP_NS", "enqueue of the oldest open operation"),
        optional("last_progress_ts", "TIMESTAMP_NS", "latest completion, enqueue, kernel start or counter move"),
        optional("last_comm_id", "UINTEGER", "communicator of that progress"),
        optional("last_op_seq", "UBIGINT", "operation of that progress"),
        optional(
            "late_ms", "UINTEGER", "longest delay of the sampler since the row before: nobody ran its process, ms"
        ),
    ),
    ("rank", "ts"),
)

HOST_EVIDENCE = Table(
    "host_evidence",
    "Readings of a host's devices: port state, error counters, clocks, PCIe width.",
    (
        optional("ts", "TIMESTAMP_NS", "when it was read; NULL: its source does not say"),
        key("host_id", "UINTEGER", "host"),
        optional("device", "VARCHAR", "device name or bus id"),
        key("kind", "VARCHAR", "what was read"),
        optional("value", "VARCHAR", "value as text"),
        optional("number", "DOUBLE", "value as a number, where it is one"),
    ),
)

RANK_SUMMARY = Table(
    "rank_summary",
    "One row per rank, communicator and 10 s window.",
    (
        key("ts", "TIMESTAMP_NS", "start of the window"),
        key("rank", "UINTEGER", "global rank"),
        key("comm_id", "UINTEGER", "communicator"),
        optional("op_first", "UBIGINT", "first operation"),
        optional("op_last", "UBIGINT", "last operation"),
        optional("ops", "UINTEGER", "operations"),
        optional("start_last", "TIMESTAMP_NS", "arrival at the last one"),
        optional("dur_max_ns", "BIGINT", "longest, ns"),
        optional("dur_sum_ns", "BIGINT", "sum, ns"),
        optional("lag_chunks", "UINTEGER", "chunks behind the most advanced rank"),
        optional("idle_max_ms", "UINTEGER", "longest standstill of a flow, ms"),
        optional("prog_min", "FLOAT", "least progress of a flow, 0 to 1"),
        optional("samples", "USMALLINT", "state rows in the window"),
    ),
    ("ts", "rank"),
)

EVENTS = Table(
    "events",
    "One fact of one line or record, whatever its source. Lines that nobody understood are rows of kind `unparsed`.",
    (
        optional("ts", "TIMESTAMP_NS", "when, UTC"),
        one_of("time_quality", TIME_QUALITIES, "how sure that time is"),
        optional("host_id", "UINTEGER", "host"),
        optional("pid", "UINTEGER", "process"),
        optional("rank", "UINTEGER", "global rank that the event is of"),
        optional("comm_rank", "UINTEGER", "rank inside the group, where the line gives only that"),
        optional("local_rank", "UINTEGER", "rank on its host"),
        one_of("level", LEVELS, "severity"),
        one_of("kind", EVENT_KINDS, "what it says"),
        optional("job", "VARCHAR", "job as the line or its prefix names it; NULL: the only one of its file"),
        optional("source", "VARCHAR", "loader that took it"),
        optional("code", "INTEGER", "exit code (negative: signal), Xid number, error code"),
        optional("comm_id", "UINTEGER", "communicator"),
        optional("group_name", "VARCHAR", "group as the line names it (PG GUID, name)"),
        optional("group_desc", "VARCHAR", "description as the line gives it"),
        optional("seq", "BIGINT", "sequence number as the line counts"),
        one_of("op_kind", OP_KINDS, "operation"),
        optional("in_numel", "UBIGINT", "elements in"),
        optional("out_numel", "UBIGINT", "elements out"),
        optional("bytes", "UBIGINT", "bytes"),
        optional("dtype", "VARCHAR", "dtype"),
        optional("last_enqueued", "BIGINT", "last enqueued, as the line says"),
        optional("last_completed", "BIGINT", "last completed, as the line says"),
        optional("dur_ms", "DOUBLE", "duration the line speaks of, ms"),
        optional("device", "VARCHAR", "GPU bus id, NIC, port"),
        optional("peer", "VARCHAR", "the other end: address, host or rank as written"),
        optional("peer_rank", "UINTEGER", "the other end as a global rank, where known"),
        optional("name", "VARCHAR", "exception class, phase, counter, variable: the noun of the event"),
        optional("detail", "VARCHAR", "second word of the event: value of a variable, state of a device, unit"),
        optional("value", "DOUBLE", "number of the event: step, bandwidth, counter, …"),
        optional("stack_id", "UBIGINT", "stack of the exception or call"),
        optional("text", "VARCHAR", "the line itself, cut at 2,000 characters"),
        optional("file_id", "UINTEGER", "file"),
        optional("line", "UINTEGER", "line in that file, from 1"),
    ),
    ("file_id", "line"),
)

STACKS = Table(
    "stacks",
    "One thread of one process at one moment.",
    (
        optional("ts", "TIMESTAMP_NS", "when it was taken"),
        optional("rank", "UINTEGER", "global rank"),
        optional("pid", "UINTEGER", "process"),
        optional("thread", "VARCHAR", "thread name or id"),
        optional("is_main", "BOOLEAN", "the main thread"),
        optional("state", "VARCHAR", "idle, active, active+gil"),
        key("stack_id", "UBIGINT", "see stack_texts"),
        optional("tool", "VARCHAR", "py_spy, gdb, faulthandler"),
        optional("file_id", "UINTEGER", "file"),
        optional("line", "UINTEGER", "line of the thread's header, from 1"),
    ),
    ("rank", "thread"),
)

STACK_TEXTS = Table(
    "stack_texts",
    "Each distinct stack once.",
    (
        key("stack_id", "UBIGINT", "hash of the frames"),
        key("frames", "VARCHAR[]", "`function (file:line)`, innermost first"),
    ),
    ("stack_id",),
)

FILE_BLOCKS = Table(
    "file_blocks",
    "The text of the evidence itself, so that every claim can be opened: blocks of whole lines, zstd-compressed.",
    (
        key("file_id", "UINTEGER", "file"),
        key("first_line", "UINTEGER", "number of its first line, from 1"),
        key("lines", "UINTEGER", "lines in the block"),
        key("size_bytes", "UINTEGER", "size before compression, bytes"),
        key("content", "BLOB", "zstd frame of the lines as UTF-8, ends of lines normalised"),
    ),
    ("file_id", "first_line"),
)

EDGES = Table(
    "edges",
    "Topology: who sends to whom on which channel.",
    (
        key("comm_id", "UINTEGER", "communicator"),
        optional("channel", "UTINYINT", "channel"),
        optional("pattern", "VARCHAR", "ring, tree or p2p"),
        key("src", "UINTEGER", "global rank"),
        key("dst", "UINTEGER", "global rank"),
        one_of("transport", TRANSPORTS, "what carries it"),
        optional("nic", "VARCHAR", "device of the sending side"),
        optional("dst_nic", "VARCHAR", "device of the receiving side"),
    ),
)

TRIGGERS = Table(
    "triggers",
    "Moments at which a detector fired.",
    (
        key("trigger_id", "UINTEGER", "surrogate"),
        optional("ts", "TIMESTAMP_NS", "when"),
        optional("rule", "VARCHAR", "detector"),
        optional("rank", "UINTEGER", "global rank"),
        optional("comm_id", "UINTEGER", "communicator"),
        optional("value", "DOUBLE", "measured"),
        optional("threshold", "DOUBLE", "limit it passed"),
    ),
)

INCIDENTS = Table(
    "incidents",
    "One row per finding, or per live incident.",
    (
        key("incident_id", "VARCHAR", "`f1`, … or the live id"),
        optional("job_id", "UINTEGER", "job"),
        optional("opened", "TIMESTAMP_NS", "start"),
        optional("closed", "TIMESTAMP_NS", "end; NULL: open"),
        optional("diag_id", "UINTEGER", "newest diagnosis"),
    ),
)

DIAGNOSES = Table(
    "diagnoses",
    "Verdicts of this trace, each revision kept.",
    (
        key("diag_id", "UINTEGER", "surrogate"),
        optional("incident_id", "VARCHAR", "incident; NULL: verdict of the whole trace"),
        optional("revision", "UINTEGER", "from 1"),
        optional("trigger_id", "UINTEGER", "what fired"),
        optional("ts", "TIMESTAMP_NS", "when it was made"),
        optional("category", "VARCHAR", "category of the first finding"),
        optional("rank", "UINTEGER", "first root-cause rank"),
        optional("comm_id", "UINTEGER", "communicator"),
        optional("confidence", "FLOAT", "0 to 1"),
        optional("evidence", "VARCHAR", "JSON, the inner form"),
        optional("verdict", "VARCHAR", "JSON, mycroft.verdict/1"),
        optional("window_start", "TIMESTAMP_NS", "start of what was looked at"),
        optional("window_end", "TIMESTAMP_NS", "end of what was looked at"),
        optional("rules_version", "VARCHAR", "version of the rules"),
    ),
)

TIMELINE_BLOCKS = Table(
    "timeline_blocks",
    "Operations as the timeline shows them when zoomed in, made when a trace is published: loaders/timeline_blocks.py.",
    (
        key("band", "UINTEGER", "band of 256 ranks"),
        key("from_us", "BIGINT", "where the first of them begins, microseconds after the start of the timeline"),
        key("end_us", "BIGINT", "where the last of them ends, microseconds after the start of the timeline"),
        key("ops", "UINTEGER", "operations in it"),
        key("content", "BLOB", "the operations, packed"),
    ),
    ("band", "from_us"),
)
TIMELINE_TILES = Table(
    "timeline_tiles",
    "The timeline zoomed out: 256 ranks by 256 bins of one byte, gzip. A tile that is not here is empty.",
    (
        key("metric", "VARCHAR", "late, wait, state or busy"),
        key("level", "UTINYINT", "0 is the coarsest; bins of the next are four times shorter"),
        key("y", "UINTEGER", "band of 256 ranks"),
        key("x", "UINTEGER", "number of the tile in time"),
        key("cells", "BLOB", "the worst of each cell; 0 nothing, 1-254 the scale, 255 above it"),
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
