// The trace file: header, directory and ring of records. This header is the contract between every
// writer (NCCL plugin, Python, testbed) and every reader; docs/record-format.md says the same in
// words.
//
//   0                4096                       ring_offset
//   | FileHeader     | directory: 1024 x 256 B  | ring: ring_records x 64 B ... |
//
// A position p counts every record ever reserved; it lives in slot p % ring_records. Word 0 of a
// record holds (p + 1) modulo 2^40, so a reader that knows p tells a whole record (number matches)
// from one that was overwritten (number of a later lap), one that is being written (type `busy`)
// and one whose writer died before it began (number of an earlier lap).
//
// Everything is little endian, fixed width and naturally aligned. No STL, no pointers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mycroft {

inline constexpr char kMagic[8] = {'M', 'Y', 'C', 'R', 'O', 'F', 'T', 'R'};
inline constexpr uint32_t kLayoutVersion = 1;
inline constexpr char kWriterName[] = "mycroft 0.1.0";

inline constexpr uint32_t kHeaderBytes = 4096;
inline constexpr uint32_t kRecordBytes = 64;
inline constexpr uint32_t kEntryBytes = 256;
inline constexpr uint32_t kDirectoryEntries = 1024;

// Unknown is all ones in the field's own width; the decoder turns it into NULL.
inline constexpr uint32_t kUnknown32 = 0xFFFFFFFFu;
inline constexpr uint64_t kUnknown48 = (uint64_t{1} << 48) - 1;
inline constexpr uint8_t kUnknown8 = 0xFF;
// Communicator number of operations that another process posted (PXN): see ForeignRecord.
inline constexpr uint16_t kForeignComm = 0xFFFF;

enum class RecordType : uint8_t {
  none = 0,
  state = 1,      // one flow half at one tick of the sampler
  flow = 2,       // one flow half, finished: sums
  op = 3,         // one operation: open, completed, ...
  heartbeat = 4,  // the process lives, once a second
  gap = 5,        // something was not recorded, and why
  foreign = 6,    // a flow half run for another process
  busy = 0xFF,    // being written
};

enum class EntryType : uint8_t { none = 0, process = 1, communicator = 2 };

// The order is that of OP_KINDS in loaders/schema.py; a test holds the two together.
enum class OpKind : uint8_t {
  all_reduce = 0,
  all_gather,
  reduce_scatter,
  send,
  recv,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  coalesced,
  other,
};

enum class OpState : uint8_t {
  open = 0,       // started, not known to have ended
  completed = 1,  // everything that can be seen of it has ended
  enqueued = 2,   // handed over; nothing of it can be seen (intra-node, no kernel events)
  aborted = 3,    // still open when its communicator was destroyed
};

enum class DataType : uint8_t {
  int8 = 0,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  float8e4m3,
  float8e5m2,
  unknown = kUnknown8,
};

enum class Algo : uint8_t {
  tree = 0,
  ring,
  collnet_direct,
  collnet_chain,
  nvls,
  nvls_tree,
  pat,
  other,
  unknown = kUnknown8,
};

enum class Proto : uint8_t { ll = 0, ll128, simple, unknown = kUnknown8 };

enum class GapReason : uint8_t {
  switched_off = 1,  // by the control file, or by an internal error
  switched_on = 2,
  no_flow_slot = 3,  // more flow halves in flight than slots
  no_op_slot = 4,    // more operations open than slots
  no_comm_slot = 5,  // more communicators alive than directory entries
  ring_busy = 6,     // a record was dropped because its slot was still being written a lap later
  sampler_late =
      7,  // the sampler did not run for more than ten intervals: process stopped or swapped
};

// --- words ---

inline constexpr uint64_t kSequenceMask = (uint64_t{1} << 40) - 1;

constexpr uint64_t record_word0(uint64_t position, RecordType type, uint8_t channel,
                                uint8_t flags) {
  return ((position + 1) & kSequenceMask) | uint64_t{static_cast<uint8_t>(type)} << 40 |
         uint64_t{channel} << 48 | uint64_t{flags} << 56;
}
constexpr RecordType word0_type(uint64_t word) {
  return static_cast<RecordType>(static_cast<uint8_t>(word >> 40));
}
constexpr uint8_t word0_channel(uint64_t word) { return static_cast<uint8_t>(word >> 48); }
constexpr uint8_t word0_flags(uint64_t word) { return static_cast<uint8_t>(word >> 56); }

// Flags of state, flow and op records.
inline constexpr uint8_t kFlagSend =
    1;  // state, flow: direction; op: send or recv, not a collective
inline constexpr uint8_t kFlagKindShift = 1;    // bits 1-4: OpKind
inline constexpr uint8_t kFlagForeign = 0x20;   // state, flow: posted by another process
inline constexpr uint8_t kFlagReopened = 0x20;  // op: closed before and opened again by a late flow
inline constexpr uint8_t kFlagPartial = 0x40;   // flow: ended before its last chunk
inline constexpr uint8_t kFlagKernel = 0x40;    // op: the end is the kernel's, not the proxy's
inline constexpr uint8_t kFlagRunning = 0x40;   // state: reached the head of its connection
inline constexpr uint8_t kFlagAborted = 0x80;   // state, flow: communicator destroyed meanwhile

constexpr uint8_t make_flags(bool first, OpKind kind, uint8_t more) {
  return static_cast<uint8_t>((first ? 1u : 0u) | static_cast<unsigned>(kind) << kFlagKindShift |
                              more);
}
constexpr OpKind flags_kind(uint8_t flags) {
  return static_cast<OpKind>((flags >> kFlagKindShift) & 0xF);
}

// A 48-bit number and 16 bits beside it.
constexpr uint64_t pack48(uint64_t low48, uint64_t high16) {
  return (low48 & kUnknown48) | high16 << 48;
}
constexpr uint64_t low48(uint64_t word) { return word & kUnknown48; }
constexpr uint16_t high16(uint64_t word) { return static_cast<uint16_t>(word >> 48); }
constexpr uint64_t pack32(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }
constexpr uint32_t low32(uint64_t word) { return static_cast<uint32_t>(word); }
constexpr uint32_t high32(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
// Sums saturate one below "unknown".
constexpr uint64_t clamp48(uint64_t value) { return value < kUnknown48 ? value : kUnknown48 - 1; }

// --- ring records, 64 bytes each ---
// Every record is eight words. Times are UTC ns; durations ns; counters chunks (one network
// transfer).

struct StateRecord {
  uint64_t word0;     // channel, flags: send, kind, foreign, running, aborted
  uint64_t ts_ns;     // tick of the sampler, one value for all rows of the tick
  uint64_t comm_seq;  // low 48: op_seq (send/recv: number within the pair), high 16: communicator
  uint32_t peer;      // rank inside the communicator
  uint32_t total;     // chunks of the operation on this flow half
  uint32_t posted;    // send: slot posted; recv: buffer posted
  uint32_t ready;     // send: filled by the GPU; recv: flushed
  uint32_t moved;     // send: handed to the network; recv: received
  uint32_t done;      // send: acknowledged; recv: consumed by the GPU
  uint32_t idle_ms;   // since the sampler last saw a counter move
  uint32_t flow_id;   // slot and generation of the flow half
  uint64_t bytes;     // low 48: bytes moved so far
};

struct FlowRecord {
  uint64_t word0;         // channel, flags: send, kind, foreign, partial, aborted
  uint64_t end_ns;        // last chunk done
  uint64_t comm_seq;      // as in StateRecord
  uint32_t peer;          // as in StateRecord
  uint32_t slices;        // chunks done
  uint64_t bytes;         // low 48: bytes; high 16: low 16 bits of the flow id
  uint8_t durations[24];  // four 48-bit ns: send net_busy, net_max, peer_wait, peer_wait_max;
                          // recv post_delay, post_delay_max, flush, gpu_hold
};

struct OpRecord {
  uint64_t word0;     // channel: channels used; flags: p2p, kind, reopened, kernel
  uint64_t enq_ns;    // the host called it
  uint64_t comm_seq;  // as in StateRecord
  uint64_t kstart;    // low 48: ns from enq_ns to the first kernel start; byte 6: DataType, 7: Algo
  uint64_t end;       // low 48: ns from enq_ns to the end; byte 6: Proto, byte 7: OpState
  uint64_t bytes;     // low 48: as passed by the caller; high 16: channels with kernel events
  uint32_t peer;      // send/recv: the other rank; rooted collectives: the root
  uint32_t source_seq;  // NCCL's own number (per function); send/recv: number on this rank
  uint32_t op_id;       // slot and generation of the operation
  uint32_t flows;       // flow halves seen under it
};

struct HeartbeatRecord {
  uint64_t word0;           // no flags
  uint64_t ts_ns;           // tick of the sampler
  uint64_t comm_seq;        // of the last progress
  uint64_t oldest_open_ns;  // enqueue time of the oldest open operation; 0: none
  uint64_t progress_ns;     // latest enqueue, kernel start, counter move or completion; 0: none yet
  uint32_t open_ops;        // operations
  uint32_t open_flows;      // flow halves, queued ones included
  uint32_t lost;            // records, flows and operations that could not be kept so far
  uint32_t late_ms;         // longest delay of the sampler since the last heartbeat
  uint64_t ticks;           // of the sampler so far
};

struct GapRecord {
  uint64_t word0;     // channel: GapReason
  uint64_t ts_ns;     // when it was noticed
  uint64_t since_ns;  // since when; 0: unknown
  uint64_t count;     // what was lost; 0: unknown
  uint64_t reserved[4];
};

struct ForeignRecord {
  uint64_t word0;    // channel, flags: send
  uint64_t ts_ns;    // start
  uint64_t context;  // as the origin's plugin made it: see process entry `salt`
  uint64_t parent;   // the origin's handle of the operation
  uint32_t pid;      // of the origin
  uint32_t rank;     // of the origin in its communicator
  uint32_t peer;     // the other side
  uint32_t total;    // chunks
  uint32_t flow_id;  // as in the state and flow records
  uint32_t reserved0;
  uint64_t reserved1;
};

static_assert(sizeof(StateRecord) == kRecordBytes);
static_assert(sizeof(FlowRecord) == kRecordBytes);
static_assert(sizeof(OpRecord) == kRecordBytes);
static_assert(sizeof(HeartbeatRecord) == kRecordBytes);
static_assert(sizeof(GapRecord) == kRecordBytes);
static_assert(sizeof(ForeignRecord) == kRecordBytes);

// --- directory entries, 256 bytes each
// ------------------------------------------------------------ Entry 0 is the process; communicator
// number n (from 1) lives in entry 1 + (n - 1) % 1023. Never overwritten while its communicator is
// alive. Word 0: low 32 a change count (odd while being changed), byte 4 EntryType, high 16 the
// communicator's number.

struct ProcessEntry {
  uint64_t word0;          // change count, type 1
  uint64_t started_ns;     // UTC, when the trace was opened
  uint64_t proc_start;     // start time of the process, clock ticks since boot (/proc/<pid>/stat)
  uint64_t salt;           // random, part of every context this process hands to NCCL
  uint64_t pid_namespace;  // inode, 0: unknown
  uint8_t boot_id[16];     // of the host's kernel
  uint32_t pid;            // in its own namespace
  uint32_t rank;           // global
  uint32_t world_size;     // ranks of the job, as the launcher says
  uint32_t local_rank;     // on this host
  uint32_t local_world_size;  // ranks on this host
  uint32_t device;            // CUDA ordinal in this process
  char bus_id[16];            // PCI bus id of that device, text
  char rank_source[24];       // which variable gave the rank
  char host[64];              // its name, text
  char addresses[56];         // of this host, comma separated
  uint64_t reserved[2];
};

struct CommunicatorEntry {
  uint64_t word0;      // change count, type 2, number
  uint64_t hash;       // NCCL's commHash or commId, equal on all ranks; 0: not known yet
  uint64_t opened_ns;  // UTC
  uint64_t closed_ns;  // 0: alive
  uint32_t rank;       // inside the communicator
  uint32_t size;       // members
  uint32_t nodes;      // hosts
  uint32_t abi;        // NCCL profiler ABI, 1-7; 0: not NCCL
  // Live words: written at every start of an operation, readable after a kill.
  uint64_t last_seq;     // newest collective started, + 1; 0: none
  uint64_t last_enq_ns;  // its time
  uint64_t p2p_started;  // send/recv started so far
  char name[128];        // text
  char backend[16];      // nccl, python, ...
  uint64_t reserved[5];
};

static_assert(sizeof(ProcessEntry) == kEntryBytes);
static_assert(sizeof(CommunicatorEntry) == kEntryBytes);

constexpr uint64_t entry_word0(uint32_t change, EntryType type, uint16_t number) {
  return change | uint64_t{static_cast<uint8_t>(type)} << 32 | uint64_t{number} << 48;
}

enum class FileState : uint32_t { open = 1, closed = 2 };

struct FileHeader {
  char magic[8];               // MYCROFTR, written last
  uint32_t version;            // of the layout: 1
  uint32_t header_bytes;       // 4096
  uint32_t record_bytes;       // 64
  uint32_t entry_bytes;        // 256
  uint32_t directory_entries;  // 1024
  uint32_t clock;              // 1: cycle counter, 2: system clock
  uint64_t directory_offset;   // 4096
  uint64_t ring_offset;        // 266240
  uint64_t ring_records;       // slots of the ring
  uint64_t created_ns;         // UTC
  char writer[56];             // program and version that wrote it, text
  // Own cache lines: written by every recording thread, and by the sampler.
  alignas(64) uint64_t head;   // records reserved so far
  uint64_t lost;               // records dropped because their slot was busy
  alignas(64) uint64_t ticks;  // of the sampler; odd while a tick is being written
  uint64_t tick_ns;            // time of the last one
  uint32_t state;              // 1 open, 2 closed in order
  uint32_t interval_ms;        // of the sampler
  uint32_t enabled;            // 0: switched off
  uint32_t events;             // bits: 0 coll, 1 p2p, 2 proxy, 3 kernel
  uint64_t closed_ns;          // 0: not closed
};
static_assert(sizeof(FileHeader) <= kHeaderBytes);
static_assert(offsetof(FileHeader, head) == 128);
static_assert(offsetof(FileHeader, ticks) == 192);

}  // namespace mycroft
