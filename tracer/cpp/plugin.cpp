// libnccl-profiler-mycroft.so: NCCL's entry points. Thin: every callback is translated to a call of
// the recorder; one template per ABI version, one process-wide recorder behind them.
//
// Everything returns 0 and always writes the handle, whatever happens: NCCL keeps a stale handle
// otherwise, and takes an error as a reason to stop. Nothing that comes from NCCL is followed
// unless it is documented to be valid: contexts and parents can be numbers of another process
// (PXN), handles can be old, doubled or null.
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "compat.h"
#include "op_names.h"
#include "profiler_abi.h"
#include "recorder.h"
#include "text.h"

namespace mycroft {
namespace {

constexpr uint64_t kDefaultBudgetMb = 512;

// Constructed in place on the first init and never destroyed: callbacks may come from detached
// threads until the process is gone. The library is linked with `nodelete`, so that dlclose leaves
// it in place.
alignas(Recorder) unsigned char recorder_memory[sizeof(Recorder)];
std::atomic<Recorder*> recorder{nullptr};

pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;
bool tried = false;        // under init_mutex: the recorder was set up, or could not be
uint32_t comms_alive = 0;  // under init_mutex
int32_t own_pid = 0;
std::atomic<int32_t*> mask_pointer{nullptr};
std::atomic<int32_t> native_abi{0};

// --- switching ---

int32_t mask_for(int32_t abi_version, uint32_t events) noexcept {
  uint64_t mask = 0;
  if ((events & kEventColl) != 0) mask |= abi::kColl;
  if ((events & kEventP2p) != 0) mask |= abi::kP2p;
  if ((events & kEventProxy) != 0) {
    // Up to 2.26 the states of the ProxyOp carry the counters; from 2.27 on those of its steps.
    mask |= abi::kProxyOp;
    if (abi_version >= 4) mask |= abi::kProxyStep;
  }
  if ((events & kEventKernel) != 0 && abi_version >= 3) mask |= abi::kKernelCh;
  return static_cast<int32_t>(mask);
}

void apply_control(void*, bool enabled, uint32_t events) noexcept {
  int32_t* mask = mask_pointer.load(std::memory_order_acquire);
  if (mask == nullptr) return;
  // While it is off, operations are still counted, so that their numbers agree between ranks later.
  const uint32_t wanted = enabled ? events : events & (kEventColl | kEventP2p);
  const int32_t value = mask_for(native_abi.load(std::memory_order_relaxed), wanted);
  __atomic_store_n(mask, value, __ATOMIC_RELAXED);  // NCCL reads it on its own threads
}

void warn(abi::Logger logger, const char* text) noexcept {
  if (logger != nullptr) {
    logger(abi::kLogWarn, abi::kLogProfile, "mycroft", 0, "%s", text);
    return;
  }
  char line[400];
  TextBuffer out(line, sizeof line);
  out.add(text).add("\n");
  (void)!write(2, line, std::strlen(line));
}

void after_fork_in_child() noexcept {
  // A child shares the mapping and has no sampler; the trace is its parent's.
  if (Recorder* r = recorder.load(std::memory_order_relaxed); r != nullptr) r->abandon();
  mask_pointer.store(nullptr, std::memory_order_relaxed);
  own_pid = static_cast<int32_t>(syscall(SYS_getpid));
}

// --- set-up ---

uint64_t number_setting(const char* name, uint64_t fallback, abi::Logger logger) noexcept {
  const char* text = getenv(name);
  uint64_t value = 0;
  if (text == nullptr || *text == '\0') return fallback;
  if (parse_whole(text, &value)) return value;
  char line[160];
  TextBuffer(line, sizeof line)
      .add("mycroft: ")
      .add(name)
      .add(" is not a number; using ")
      .add(fallback);
  warn(logger, line);
  return fallback;
}

// Under init_mutex. Sets up the recorder once per process.
void set_up(abi::Logger logger) noexcept {
  tried = true;
  const char* trace = getenv("MYCROFT_TRACE");
  if (text_equals(trace, "0") || text_equals(trace, "off")) return;
  own_pid = static_cast<int32_t>(getpid());
  RecorderOptions options;
  options.shm.directory = getenv("MYCROFT_DIR");
  options.shm.budget_bytes = number_setting("MYCROFT_BUDGET_MB", kDefaultBudgetMb, logger) << 20;
  options.shm.file_bytes = number_setting("MYCROFT_RING_MB", 0, logger) << 20;
  options.interval_ms =
      static_cast<uint32_t>(number_setting("MYCROFT_INTERVAL_MS", 100, logger) & 0xFFFFFF);
  options.control_path = getenv("MYCROFT_CONTROL");
  if (text_equals(getenv("MYCROFT_CLOCK"), "system")) options.clock = ClockChoice::system;
  uint32_t events = kEventsDefault;
  const char* wanted = getenv("MYCROFT_EVENTS");
  if (wanted != nullptr && !parse_events(wanted, &events)) {
    warn(logger, "mycroft: MYCROFT_EVENTS knows coll, p2p, proxy and kernel; using the default");
  }
  auto* made = new (recorder_memory) Recorder;
  char why[256];
  if (!made->open(options, why, sizeof why)) {
    char line[360];
    TextBuffer(line, sizeof line).add("mycroft: tracing is off: ").add(why);
    warn(logger, line);
    return;
  }
  made->set_events(events);
  made->set_hooks({apply_control, nullptr});
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  recorder.store(made, std::memory_order_release);
  if (logger != nullptr) {
    logger(abi::kLogInfo, abi::kLogProfile, "mycroft", 0, "mycroft: tracing to %s", made->path());
  }
}

int32_t begin(void** context, int32_t* mask, const CommInfo& info, abi::Logger logger) noexcept {
  if (context != nullptr) *context = nullptr;
  if (context == nullptr || mask == nullptr) return 0;
  pthread_mutex_lock(&init_mutex);
  if (!tried) set_up(logger);
  Recorder* r = recorder.load(std::memory_order_acquire);
  uint64_t made = 0;
  if (r != nullptr) {
    r->find_device();
    made = r->comm_open(info);
    if (made != 0 && !r->start_sampler()) {
      warn(logger, "mycroft: tracing is off: the sampler thread cannot be started");
      r->comm_close(made);
      r->set_enabled(false);
      made = 0;
    }
  }
  if (made != 0) {
    ++comms_alive;
    *context = reinterpret_cast<void*>(made);
    native_abi.store(info.abi, std::memory_order_relaxed);
    mask_pointer.store(mask, std::memory_order_release);
    __atomic_store_n(mask, r->enabled() ? mask_for(info.abi, r->events()) : 0, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&init_mutex);
  return 0;
}

int32_t finalize(void* context) noexcept {
  Recorder* r = recorder.load(std::memory_order_acquire);
  const auto value = reinterpret_cast<uint64_t>(context);
  if (r == nullptr || r->comm_of(value) == 0) return 0;
  pthread_mutex_lock(&init_mutex);
  bool last = false;
  if (r->comm_of(value) != 0) {
    r->comm_close(value);
    last = comms_alive != 0 && --comms_alive == 0;
  }
  if (last) {
    // NCCL may be unloaded after this: its mask is gone, and no thread of ours may be left.
    mask_pointer.store(nullptr, std::memory_order_release);
    r->stop_sampler();
    r->tick();
  }
  pthread_mutex_unlock(&init_mutex);
  return 0;
}

// --- events ---

template <int V>
uint64_t type_of(const abi::Descr<V>& d) noexcept {
  return d.type;
}

uint32_t rank_or_unknown(int32_t value) noexcept {
  return value >= 0 ? static_cast<uint32_t>(value) : kUnknown32;
}

template <int V>
Handle start_coll(Recorder& r, uint32_t comm, const abi::Descr<V>& d) noexcept {
  OpInfo info;
  const auto& c = d.coll;
  if constexpr (V == 1) {
    info.kind = kind_of_code(c.func);
    info.dtype = dtype_of_code(c.datatype);
    info.algo =
        c.algo < static_cast<uint8_t>(Algo::other) ? static_cast<Algo>(c.algo) : Algo::other;
    info.proto = c.proto <= static_cast<uint8_t>(Proto::simple) ? static_cast<Proto>(c.proto)
                                                                : Proto::unknown;
  } else {
    info.kind = kind_of_name(c.func);
    info.dtype = dtype_of_name(c.datatype);
    info.algo = algo_of_name(c.algo);
    info.proto = proto_of_name(c.proto);
  }
  if constexpr (V <= 3) {
    r.comm_learn(comm, c.comm_hash, c.name, rank_or_unknown(d.rank));
    info.channels = c.n_max_channels;
  } else {
    info.channels = c.n_channels;
  }
  info.peer = is_rooted(info.kind) ? rank_or_unknown(c.root) : kUnknown32;
  info.source_seq = c.seq_number < kUnknown32 ? static_cast<uint32_t>(c.seq_number) : kUnknown32;
  info.bytes = saturating_bytes(c.count, info.dtype);
  return r.op_start(comm, info);
}

template <int V>
Handle start_p2p(Recorder& r, uint32_t comm, const abi::Descr<V>& d) noexcept {
  OpInfo info;
  const auto& p = d.p2p;
  info.p2p = true;
  if constexpr (V == 1) {
    info.kind = kind_of_code(p.func);
    info.dtype = dtype_of_code(p.datatype);
  } else {
    info.kind = kind_of_name(p.func);
    info.dtype = dtype_of_name(p.datatype);
  }
  if constexpr (V <= 3) {
    r.comm_learn(comm, p.comm_hash, p.name, rank_or_unknown(d.rank));
  } else {
    info.channels = p.n_channels;
  }
  // 2.28 and later, seen by a plugin of v4: not filled in. Ours is native there.
  info.peer = rank_or_unknown(p.peer);
  info.bytes = saturating_bytes(p.count, info.dtype);
  return r.op_start(comm, info);
}

template <int V>
Handle start_proxy_op(Recorder& r, void* context, const abi::Descr<V>& d) noexcept {
  const auto& p = d.proxy_op;
  FlowInfo info;
  info.channel = p.channel_id;
  info.send = p.is_send != 0;
  info.peer = rank_or_unknown(p.peer);
  info.total = p.n_steps > 0 ? static_cast<uint32_t>(p.n_steps) : 0;
  // From 2.27 on the start is the announcement, InProgress the head of the connection.
  info.running = V <= 3;
  info.elastic = V == 1;
  const auto ctx = reinterpret_cast<uint64_t>(context);
  const auto parent = reinterpret_cast<uint64_t>(d.parent);
  // Equal pids prove nothing across pid namespaces, hence the salt in the context.
  const uint32_t comm = p.pid == own_pid ? r.comm_of(ctx) : 0;
  if (comm == 0) {
    if (ctx == 0 && p.pid == own_pid) return 0;
    return r.flow_start_foreign(info, static_cast<uint32_t>(p.pid), rank_or_unknown(d.rank), ctx,
                                parent);
  }
  info.window = V == 1 ? kStamps : r.window_of(parent);
  return r.flow_start(comm, parent, info);
}

template <int V>
Handle start_proxy_step(Recorder& r, const abi::Descr<V>& d) noexcept {
  const auto parent = reinterpret_cast<Handle>(d.parent);
  const auto step = static_cast<uint32_t>(d.proxy_step.step);
  if (handle_kind(parent) != HandleKind::flow || step >= kExtraMask) return 0;
  FlowSlot* f = r.flow(parent);
  if (f == nullptr) return 0;
  if ((f->mode.load(std::memory_order_relaxed) & FlowSlot::kSend) != 0) send_posted(*f, step + 1);
  // The chunk's number is in the handle: a repeated start gives the same one, and nothing is kept.
  return (parent & ~(uint64_t{7} << 61)) | uint64_t{static_cast<uint32_t>(HandleKind::step)} << 61 |
         step;
}

template <int V>
int32_t start_event(void* context, void** handle, void* descr) noexcept {
  if (handle == nullptr) return 0;
  Recorder* r = recorder.load(std::memory_order_relaxed);
  if (descr == nullptr || r == nullptr) {
    *handle = nullptr;
    return 0;
  }
  const auto& d = *static_cast<const abi::Descr<V>*>(descr);
  const uint64_t type = type_of<V>(d);
  Handle made = 0;
  if (V >= 4 && type == abi::kProxyStep) [[likely]] {
    made = start_proxy_step<V>(*r, d);
  } else if (type == abi::kProxyOp) {
    made = start_proxy_op<V>(*r, context, d);
  } else if (type == abi::kColl) {
    if (const uint32_t comm = r->comm_of(reinterpret_cast<uint64_t>(context)); comm != 0) {
      made = start_coll<V>(*r, comm, d);
    }
  } else if (type == abi::kP2p) {
    if (const uint32_t comm = r->comm_of(reinterpret_cast<uint64_t>(context)); comm != 0) {
      made = start_p2p<V>(*r, comm, d);
    }
  } else if (V >= 3 && type == abi::kKernelCh) {
    uint64_t timer = 0;
    if constexpr (V >= 4) timer = d.kernel_ch.p_timer;
    made = r->kernel_start(reinterpret_cast<Handle>(d.parent), d.kernel_ch.channel_id, timer);
  }
  *handle = reinterpret_cast<void*>(made);
  return 0;
}

template <int V>
int32_t stop_event(void* handle) noexcept {
  Recorder* r = recorder.load(std::memory_order_relaxed);
  if (r == nullptr) return 0;
  const auto h = reinterpret_cast<Handle>(handle);
  switch (handle_kind(h)) {
    case HandleKind::step: {
      FlowSlot* f = r->flow(h);
      if (f == nullptr) return 0;
      const uint32_t count = handle_extra(h) + 1;
      if ((f->mode.load(std::memory_order_relaxed) & FlowSlot::kSend) != 0) {
        send_done(*f, count, r->clock());
      } else {
        recv_done(*f, count, r->clock());
      }
      return 0;
    }
    case HandleKind::flow:
      r->flow_stop(h);
      return 0;
    case HandleKind::op:
      r->op_stop(h);
      return 0;
    case HandleKind::kernel:
      r->kernel_stop(h, 0);
      return 0;
    case HandleKind::none:
      break;
  }
  return 0;
}

// NCCL up to 2.26: the counters come as numbers of steps; bytes are cumulative.
void record_op_state(Recorder& r, Handle h, int32_t state, const abi::Args1* args) noexcept {
  if (handle_kind(h) != HandleKind::flow || args == nullptr) return;
  FlowSlot* f = r.flow(h);
  if (f == nullptr || args->proxy_op.steps <= 0) return;
  const auto count = static_cast<uint32_t>(args->proxy_op.steps);
  const Clock& clock = r.clock();
  const bool send = (f->mode.load(std::memory_order_relaxed) & FlowSlot::kSend) != 0;
  if (send != (state < abi::kProxyOpRecvPosted)) return;
  switch (state) {
    case abi::kProxyOpSendPosted:
      send_posted(*f, count);
      return;
    case abi::kProxyOpSendRemFifoWait:
      send_ready(*f, count, clock);
      return;
    case abi::kProxyOpSendTransmitted:
      send_moved(*f, count, 0, clock);
      break;
    case abi::kProxyOpSendDone:
      send_done(*f, count, clock);
      break;
    case abi::kProxyOpRecvPosted:
      recv_posted(*f, count, clock);
      return;
    case abi::kProxyOpRecvReceived:
      recv_moved(*f, count, 0, clock);
      break;
    case abi::kProxyOpRecvTransmitted:
      recv_ready(*f, count, clock);
      break;
    case abi::kProxyOpRecvDone:
      recv_done(*f, count, clock);
      break;
    default:
      return;
  }
  flow_detail::raise(f->bytes, args->proxy_op.trans_size);
}

template <int V>
int32_t record_event_state(void* handle, int32_t state, void* args) noexcept {
  Recorder* r = recorder.load(std::memory_order_relaxed);
  if (r == nullptr) return 0;
  const auto h = reinterpret_cast<Handle>(handle);
  if constexpr (V <= 3) {
    if (state >= abi::kProxyOpSendPosted && state <= abi::kProxyOpRecvDone) {
      record_op_state(*r, h, state, static_cast<const abi::Args1*>(args));
    }
    return 0;
  }
  if (handle_kind(h) == HandleKind::step) [[likely]] {
    FlowSlot* f = r->flow(h);
    if (f == nullptr) return 0;
    const uint32_t count = handle_extra(h) + 1;
    const bool send = (f->mode.load(std::memory_order_relaxed) & FlowSlot::kSend) != 0;
    // transSize is this slice's only in SendWait and RecvFlushWait.
    const auto size = [args]() -> uint64_t {
      return args != nullptr ? static_cast<const abi::Args4*>(args)->proxy_step.trans_size : 0;
    };
    switch (state) {
      case abi::kProxyStepSendPeerWait:
        if (send) send_ready(*f, count, r->clock());
        return 0;
      case abi::kProxyStepSendWait:
        if (send) send_moved(*f, count, size(), r->clock());
        return 0;
      case abi::kProxyStepRecvWait:
        if (!send) recv_posted(*f, count, r->clock());
        return 0;
      case abi::kProxyStepRecvFlushWait:
        if (!send) recv_moved(*f, count, size(), r->clock());
        return 0;
      case abi::kProxyStepRecvGpuWait:
        if (!send) recv_ready(*f, count, r->clock());
        return 0;
      default:
        return 0;
    }
  }
  if (state == abi::kProxyOpInProgress) {
    r->flow_running(h);
  } else if (state == abi::kKernelChStop) {
    r->kernel_stop(h,
                   args != nullptr ? static_cast<const abi::Args4*>(args)->kernel_ch.p_timer : 0);
  }
  return 0;
}

// --- entry points ---

template <int V>
int32_t init1(void** context, int32_t* mask) noexcept {
  CommInfo info;
  info.abi = V;
  return begin(context, mask, info, nullptr);
}

int32_t init4(void** context, int32_t* mask, const char* name, uint64_t hash, int32_t nodes,
              int32_t ranks, int32_t rank, abi::Logger logger) noexcept {
  CommInfo info;
  info.abi = 4;
  info.hash = hash;
  info.name = name;
  info.nodes = rank_or_unknown(nodes);
  info.size = rank_or_unknown(ranks);
  info.rank = rank_or_unknown(rank);
  return begin(context, mask, info, logger);
}

template <int V>
int32_t init5(void** context, uint64_t id, int32_t* mask, const char* name, int32_t nodes,
              int32_t ranks, int32_t rank, abi::Logger logger) noexcept {
  CommInfo info;
  info.abi = V;
  info.hash = id;
  info.name = name;
  info.nodes = rank_or_unknown(nodes);
  info.size = rank_or_unknown(ranks);
  info.rank = rank_or_unknown(rank);
  return begin(context, mask, info, logger);
}

// The process ends in order: say so. Threads may still call; they find it switched off.
__attribute__((destructor)) void at_exit() noexcept {
  if (Recorder* r = recorder.load(std::memory_order_acquire); r != nullptr) r->close();
}

}  // namespace
}  // namespace mycroft

#define MYCROFT_EXPORT extern "C" __attribute__((visibility("default")))
#define MYCROFT_TABLE(V, INIT)                                                      \
  MYCROFT_EXPORT const mycroft::abi::Table<decltype(&(INIT))> ncclProfiler_v##V = { \
      "mycroft",                                                                    \
      &(INIT),                                                                      \
      &mycroft::start_event<V>,                                                     \
      &mycroft::stop_event<V>,                                                      \
      &mycroft::record_event_state<V>,                                              \
      &mycroft::finalize}

MYCROFT_TABLE(1, mycroft::init1<1>);
MYCROFT_TABLE(2, mycroft::init1<2>);
MYCROFT_TABLE(3, mycroft::init1<3>);
MYCROFT_TABLE(4, mycroft::init4);
MYCROFT_TABLE(5, mycroft::init5<5>);
MYCROFT_TABLE(6, mycroft::init5<6>);
MYCROFT_TABLE(7, mycroft::init5<7>);
