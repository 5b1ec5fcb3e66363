// The recorder: communicators, operations and flows of one process, written to its trace file.
//
// Callers are NCCL's threads (through the plugin), Python and the testbed. Functions are marked:
//   [record]  any thread, wait-free but for bounded retries; no lock, allocation or system call
//   [control] may lock and allocate; init and teardown only
// Everything is handed out as encoded numbers with a generation, never as pointers: a stale,
// foreign or doubled handle fails a comparison and nothing else.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "clock.h"
#include "flow.h"
#include "record.h"
#include "ring.h"
#include "shm.h"

namespace mycroft {

// handle := kind 3 | slot 12 | generation 25 | extra 24 (chunk number, or channel)
using Handle = uint64_t;
enum class HandleKind : uint32_t { none = 0, flow = 1, step = 2, op = 3, kernel = 4 };

inline constexpr uint32_t kSlotBits = 12;
inline constexpr uint32_t kGenBits = 25;
inline constexpr uint32_t kExtraBits = 24;
inline constexpr uint32_t kGenMask = (1u << kGenBits) - 1;
inline constexpr uint32_t kExtraMask = (1u << kExtraBits) - 1;
inline constexpr uint32_t kFlowSlots = 1u << kSlotBits;
inline constexpr uint32_t kOpSlots = 1024;
inline constexpr uint32_t kCommSlots = kDirectoryEntries - 1;
inline constexpr uint32_t kPairSlots = 8192;

constexpr Handle make_handle(HandleKind kind, uint32_t slot, uint32_t gen, uint32_t extra) {
  return uint64_t{static_cast<uint32_t>(kind)} << 61 | uint64_t{slot} << (kGenBits + kExtraBits) |
         uint64_t{gen & kGenMask} << kExtraBits | extra;
}
constexpr HandleKind handle_kind(Handle h) { return static_cast<HandleKind>(h >> 61); }
constexpr uint32_t handle_slot(Handle h) {
  return static_cast<uint32_t>(h >> (kGenBits + kExtraBits)) & (kFlowSlots - 1);
}
constexpr uint32_t handle_gen(Handle h) {
  return static_cast<uint32_t>(h >> kExtraBits) & kGenMask;
}
constexpr uint32_t handle_extra(Handle h) { return static_cast<uint32_t>(h) & kExtraMask; }
// What records call a flow or an operation: slot and the low 20 bits of the generation.
constexpr uint32_t short_id(Handle h) {
  return handle_slot(h) | (handle_gen(h) & 0xFFFFFu) << kSlotBits;
}

struct RecorderOptions {
  ShmOptions shm;
  ClockChoice clock = ClockChoice::automatic;
  uint32_t interval_ms = 100;
  const char* control_path = nullptr;  // nullptr: `control` in the trace directory; "": none
  // Overrides of what the environment says; kUnknown32 or nullptr: do not override.
  uint32_t rank = kUnknown32;
  uint32_t world_size = kUnknown32;
  uint32_t local_rank = kUnknown32;
  const char* host = nullptr;
};

struct CommInfo {
  uint64_t hash = 0;
  const char* name = nullptr;
  const char* backend = "nccl";
  uint32_t rank = kUnknown32;
  uint32_t size = kUnknown32;
  uint32_t nodes = kUnknown32;
  uint8_t abi = 0;
};

struct OpInfo {
  OpKind kind = OpKind::other;
  bool p2p = false;
  uint32_t peer = kUnknown32;        // send/recv: the other rank; else the root
  uint32_t source_seq = kUnknown32;  // the library's own number
  uint64_t bytes = 0;
  DataType dtype = DataType::unknown;
  Algo algo = Algo::unknown;
  Proto proto = Proto::unknown;
  uint8_t channels = kUnknown8;
};

struct FlowInfo {
  uint8_t channel = kUnknown8;
  bool send = false;
  bool running = true;   // already at the head of its connection
  bool elastic = false;  // the total may grow
  uint32_t peer = kUnknown32;
  uint32_t total = 0;
  uint32_t window = kStamps;
};

// Set by the control file; called on the sampler thread.
struct ControlHooks {
  void (*apply)(void* user, bool enabled, uint32_t events) = nullptr;
  void* user = nullptr;
};

// Kinds of events that can be asked for at run time.
inline constexpr uint32_t kEventColl = 1;
inline constexpr uint32_t kEventP2p = 2;
inline constexpr uint32_t kEventProxy = 4;
inline constexpr uint32_t kEventKernel = 8;
inline constexpr uint32_t kEventsDefault = kEventColl | kEventP2p | kEventProxy;
// Comma separated names; returns false if one is unknown.
bool parse_events(const char* text, uint32_t* events) noexcept;

class Recorder {
 public:
  Recorder() = default;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();

  // [control] Creates the trace file; returns false with the reason. Does not start the sampler.
  bool open(const RecorderOptions& options, char* why, uint32_t why_bytes) noexcept;
  // [control] Starts the sampler thread if it does not run. Returns false if it cannot.
  bool start_sampler() noexcept;
  // [control] Stops and joins it.
  void stop_sampler() noexcept;
  // [control] Ends the trace in order: last tick, `closed`. Idempotent.
  void close() noexcept;
  // [control] Looks for the device of the calling thread, once.
  void find_device() noexcept;

  bool is_open() const noexcept { return memory_ != nullptr; }
  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }
  // [control] Switches recording. While it is off, new operations are counted and not recorded.
  void set_enabled(bool on) noexcept;
  // [record] In a forked child: nothing of ours is touched any more.
  void abandon() noexcept {
    enabled_.store(false, std::memory_order_relaxed);
    abandoned_.store(true, std::memory_order_relaxed);
  }
  void set_hooks(const ControlHooks& hooks) noexcept { hooks_ = hooks; }
  void set_events(uint32_t events) noexcept;
  uint32_t events() const noexcept;

  const Clock& clock() const noexcept { return clock_; }
  const char* path() const noexcept { return file_.path(); }
  uint64_t salt() const noexcept { return salt_; }
  const RingWriter& ring() const noexcept { return ring_; }

  // [control] Returns the context, 0 if there is no room.
  uint64_t comm_open(const CommInfo& info) noexcept;
  // [control] Closes the communicator and what is still open in it.
  void comm_close(uint64_t context) noexcept;
  // [record] Number of the communicator (from 1) if the context is ours and alive, else 0.
  uint32_t comm_of(uint64_t context) const noexcept;
  // [record] Adds what the first operation tells (profiler ABI v1-v3).
  void comm_learn(uint32_t comm, uint64_t hash, const char* name, uint32_t rank) noexcept;
  uint8_t comm_abi(uint32_t comm) const noexcept;

  // [record] 0 if it is not recorded.
  Handle op_start(uint32_t comm, const OpInfo& info) noexcept;
  // [record] The host has handed it over; not its end.
  void op_stop(Handle op) noexcept;
  // [record] Nothing more will come: the end is now. For recorders that know it (Python).
  void op_end(Handle op) noexcept;
  // [record] `gpu_ns` 0: not known.
  Handle kernel_start(Handle op, uint8_t channel, uint64_t gpu_ns) noexcept;
  void kernel_stop(Handle kernel, uint64_t gpu_ns) noexcept;

  // [record] `op` may be stale or 0: the flow is then of no known operation.
  Handle flow_start(uint32_t comm, Handle op, const FlowInfo& info) noexcept;
  // [record] A flow half posted by another process.
  Handle flow_start_foreign(const FlowInfo& info, uint32_t pid, uint32_t rank, uint64_t context,
                            uint64_t parent) noexcept;
  // [record] Chunks that fit into a connection's slots for this operation.
  uint32_t window_of(Handle op) const noexcept;
  // [record] It reached the head of its connection.
  void flow_running(Handle flow) noexcept;
  // [record] Ends it and writes its sums. A second call with the same handle does nothing.
  void flow_stop(Handle flow) noexcept;

  // [record] The slot of a flow or step handle, nullptr if stale.
  FlowSlot* flow(Handle h) const noexcept {
    const uint32_t slot = handle_slot(h);
    FlowSlot* f = flows_ + slot;
    // relaxed: the handle came to this thread through NCCL, which orders it after flow_start.
    if ((f->gen.load(std::memory_order_relaxed) & kGenMask) != handle_gen(h)) [[unlikely]] {
      return nullptr;
    }
    return f;
  }

  // [control] One tick of the sampler, for callers without a thread (tests, simulator).
  void tick() noexcept;

 private:
  struct alignas(64) OpSlot {
    using Word32 = std::atomic<uint32_t>;
    using Word64 = std::atomic<uint64_t>;
    static constexpr uint32_t kFree = 0, kOpen = 1, kClosing = 2, kClosed = 3;
    Word32 gen{0};  // odd: in use
    Word32 state{kFree};
    Word64 comm_seq{0};
    Word64 meta{0};  // kind, dtype, algo, proto, channels, p2p; one byte each
    Word64 bytes{0};
    Word64 peer_seq{0};  // low: peer or root, high: source_seq
    Word64 enq_ticks{0};
    Word64 enq_ns{0};       // the same, converted once: all records of an operation agree on it
    Word64 stop_ticks{0};   // handed over; 0: not yet
    Word64 event_ticks{0};  // last start or stop of a child
    Word32 children{0};     // flows not stopped
    Word32 running{0};      // of those, at the head of their connection
    Word32 flows{0};        // ever
    Word32 reopened{0};
    Word64 end_ticks{0};    // latest last chunk
    Word64 kernel_open{0};  // bit per channel
    Word64 kernel_seen{0};
    Word64 kstart_ticks{0};
    Word64 kend_ticks{0};
    Word64 kstart_gpu{0};
    Word64 kend_gpu{0};
    Word32 shown{0};         // sampler: 1 once an open record was written
    Word32 torn{0};          // still going on when its communicator was destroyed
    Word32 kernel_asked{0};  // kernel events were asked for when it was enqueued
    Word64 shown_ticks{0};   // sampler
  };
  struct alignas(64) CommSlot {
    static constexpr uint32_t kFree = 0, kOpen = 1, kClosed = 2;
    std::atomic<uint32_t> serial{0};
    std::atomic<uint32_t> state{kFree};
    std::atomic<uint64_t> hash{0};
    std::atomic<uint64_t> next_seq{0};
    std::atomic<uint64_t> p2p_seq{0};
    std::atomic<uint64_t> running_seq{0};  // newest collective with a flow at the head, + 1
    std::atomic<uint32_t> running{0};      // flows at the head now
    std::atomic<uint32_t> abi{0};
    std::atomic<uint32_t> naming{0};  // comm_learn: one at a time
    // Newest operation whose kernel has started, + 1: collectives, sends and receives.
    std::atomic<uint64_t> kernel_seq[2]{};
    std::atomic<uint64_t> last_enq_ticks{0};
    std::atomic<uint32_t> kernel_missed{0};  // bits: events of collectives, of p2p have gaps
  };
  struct PairSlot {
    std::atomic<uint64_t> key{0};
    std::atomic<uint64_t> next{0};
  };
  struct SamplerFlow {  // the sampler's own memory of a flow
    uint32_t gen;
    uint32_t unused;
    uint64_t sum;
    uint64_t moved_ticks;
    uint64_t written_ticks;
  };
  struct Memory;  // all of the above, one anonymous mapping

  uint64_t* entry_words(uint32_t comm) const noexcept;
  CommSlot& comm_slot(uint32_t comm) const noexcept;
  OpSlot* op(Handle h, HandleKind kind) const noexcept;
  uint64_t pair_number(uint32_t comm, uint32_t peer, OpKind kind) noexcept;
  void mark_open(uint32_t slot) noexcept {
    op_map_[slot / 64].fetch_or(uint64_t{1} << (slot % 64), std::memory_order_relaxed);
  }
  bool reopen_op(OpSlot& o, uint32_t slot) noexcept;
  bool op_finished(const OpSlot& o) const noexcept;
  bool waits_for_kernel(const OpSlot& o, uint64_t now_ticks) noexcept;
  bool close_op(OpSlot& o, uint32_t slot, OpState state) noexcept;
  void write_op(const OpSlot& o, uint32_t slot, uint32_t gen, OpState state) noexcept;
  Handle place_flow(FlowSlot*& f) noexcept;
  void show_flow(FlowSlot& f, Handle h) noexcept;
  bool free_flow(uint32_t slot, uint32_t gen, uint8_t more_flags) noexcept;
  void write_flow(const FlowSlot& f, Handle h, uint8_t more_flags) noexcept;
  void end_all_of(uint32_t comm) noexcept;
  void leave_op(Handle parent, bool was_running, uint64_t end_ticks) noexcept;

  static void* sampler_main(void* self) noexcept;
  void tick_locked() noexcept;
  void sample_flows(uint64_t now_ticks, uint64_t now_ns) noexcept;
  void sample_ops(uint64_t now_ticks) noexcept;
  void expire_queued(Handle op, uint64_t now_ticks) noexcept;
  void heartbeat(uint64_t now_ns) noexcept;
  bool passed_ms(uint64_t now_ticks, uint64_t then_ticks, uint64_t ms) const noexcept;
  void write_gaps(uint64_t now_ns) noexcept;
  void write_gap(GapReason reason, uint64_t now_ns, uint64_t since_ns, uint64_t count) noexcept;
  void read_control() noexcept;
  void progress(uint64_t at_ns, uint64_t comm_seq) noexcept;

  TraceFile file_;
  RingWriter ring_;
  Clock clock_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> abandoned_{false};
  uint64_t salt_ = 0;  // 40 bits
  Memory* memory_ = nullptr;
  FlowSlot* flows_ = nullptr;
  OpSlot* ops_ = nullptr;
  CommSlot* comms_ = nullptr;
  PairSlot* pairs_ = nullptr;
  SamplerFlow* seen_ = nullptr;
  std::atomic<uint32_t>* next_free_ = nullptr;
  alignas(64) std::atomic<uint64_t> free_flows_{0};  // tag 32 | index 32, index kFlowSlots: none
  alignas(64) std::atomic<uint64_t> next_op_{0};
  std::atomic<uint32_t> flow_high_{0};
  // One bit per slot in use, so that the sampler touches nothing else.
  alignas(64) std::atomic<uint64_t> flow_map_[kFlowSlots / 64] = {};
  alignas(64) std::atomic<uint64_t> op_map_[kOpSlots / 64] = {};
  std::atomic<uint64_t> lost_flows_{0}, lost_ops_{0}, lost_comms_{0};
  std::atomic<int64_t> gpu_offset_{INT64_MAX};  // host UTC minus GPU timer, least seen
  std::atomic<uint32_t> kernels_come_{0};       // bits: events of collectives, of p2p have come

  // Under mutex_: control and sampler.
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  ControlHooks hooks_;
  uint32_t next_serial_ = 1;
  bool device_known_ = false;
  char control_path_[300] = {};
  uint64_t control_stamp_ = 0;
  uint64_t control_checked_ticks_ = 0;
  uint64_t last_tick_ticks_ = 0;
  uint64_t last_heartbeat_ticks_ = 0;
  uint64_t late_ms_ = 0;
  uint64_t told_flows_ = 0, told_ops_ = 0, told_comms_ = 0, told_ring_ = 0;
  uint32_t open_ops_ = 0, open_flows_ = 0;
  uint64_t oldest_open_ns_ = 0;
  uint64_t progress_ns_ = 0, progress_comm_seq_ = 0;
  std::atomic<uint64_t> last_enq_ticks_{0}, last_enq_comm_seq_{0};
  std::atomic<uint64_t> last_end_ticks_{0}, last_end_comm_seq_{0};

  std::atomic<uint32_t> interval_ms_{100};
  std::atomic<uint32_t> wake_{0};  // futex: 1 asks the sampler to end
  pthread_t thread_{};
  bool thread_runs_ = false;
};

}  // namespace mycroft
