#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "compat.h"
#include "identity.h"
#include "text.h"

namespace mycroft {

using flow_detail::get;
using flow_detail::set;

// One anonymous mapping; pages are touched as slots come into use, lowest first.
struct Recorder::Memory {
  FlowSlot flows[kFlowSlots];
  OpSlot ops[kOpSlots];
  CommSlot comms[kCommSlots];
  PairSlot pairs[kPairSlots];
  SamplerFlow seen[kFlowSlots];
  std::atomic<uint32_t> next_free[kFlowSlots];
};

namespace {

constexpr uint64_t kContextTag = uint64_t{0xC5} << 56;  // salt 40 bits | serial 16 bits below it
constexpr uint64_t kSaltMask = (uint64_t{1} << 40) - 1;
constexpr uint32_t kLastSerial = 0xFFFE;

void raise_atomic(std::atomic<uint64_t>& word, uint64_t value) noexcept {
  uint64_t old = word.load(std::memory_order_relaxed);
  while (old < value && !word.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
}

uint8_t byte_of(uint64_t word, unsigned index) noexcept {
  return static_cast<uint8_t>(word >> (8 * index));
}

}  // namespace

bool parse_events(const char* text, uint32_t* events) noexcept {
  struct Name {
    const char* text;
    uint32_t bit;
  };
  static constexpr Name kNames[] = {
      {"coll", kEventColl}, {"p2p", kEventP2p}, {"proxy", kEventProxy}, {"kernel", kEventKernel}};
  uint32_t result = 0;
  const char* at = text;
  while (at != nullptr && *at != '\0') {
    const char* end = at;
    while (*end != '\0' && *end != ',') ++end;
    bool known = false;
    for (const Name& name : kNames) {
      const size_t n = std::strlen(name.text);
      if (static_cast<size_t>(end - at) == n && std::strncmp(at, name.text, n) == 0) {
        result |= name.bit;
        known = true;
      }
    }
    if (!known) return false;
    at = *end == ',' ? end + 1 : end;
  }
  *events = result;
  return true;
}

Recorder::~Recorder() {
  close();
  if (memory_ != nullptr) munmap(memory_, sizeof(Memory));
}

// --- life ---------------------------------------------------------------------------------------

bool Recorder::open(const RecorderOptions& options, char* why, uint32_t why_bytes) noexcept {
  if (memory_ != nullptr) return true;
  ProcessEntry who{};
  read_identity(&who);
  if (options.rank != kUnknown32) {
    who.rank = options.rank;
    TextBuffer(who.rank_source, sizeof who.rank_source).add("caller");
  }
  if (options.world_size != kUnknown32) who.world_size = options.world_size;
  if (options.local_rank != kUnknown32) who.local_rank = options.local_rank;
  if (options.host != nullptr) TextBuffer(who.host, sizeof who.host).add(options.host);

  ShmOptions shm = options.shm;
  char label[32];
  if (shm.label == nullptr && who.rank != kUnknown32) {
    TextBuffer(label, sizeof label).add("rank").add(uint64_t{who.rank});
    shm.label = label;
  }
  const uint32_t processes = local_world_size();
  if (processes > shm.processes) shm.processes = processes;
  if (!file_.create(shm, why, why_bytes)) return false;

  void* memory =
      mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    TextBuffer(why, why_bytes).add("no memory for the tables of the tracer");
    return false;
  }
  // The kernel hands out zero pages, which is what every member starts as: nothing is touched here.
  static_assert(OpSlot::kFree == 0 && CommSlot::kFree == 0);
  memory_ = static_cast<Memory*>(memory);
  flows_ = memory_->flows;
  ops_ = memory_->ops;
  comms_ = memory_->comms;
  pairs_ = memory_->pairs;
  seen_ = memory_->seen;
  next_free_ = memory_->next_free;

  clock_.start(options.clock);
  salt_ = random_salt() & kSaltMask;
  ring_ = RingWriter(file_.header(), file_.ring(), file_.records());
  FileHeader* h = file_.header();
  h->clock = clock_.cycles() ? 1 : 2;
  interval_ms_.store(options.interval_ms != 0 ? options.interval_ms : 1, std::memory_order_relaxed);
  std::atomic_ref<uint32_t>(h->interval_ms).store(interval_ms_.load(), std::memory_order_relaxed);

  who.salt = salt_;
  who.started_ns = Clock::realtime_ns();
  who.word0 = entry_word0(0, EntryType::none, 0);
  std::memcpy(file_.directory(), &who, sizeof who);
  // release: the entry is whole before it has a type.
  std::atomic_ref<uint64_t>(file_.directory()[0])
      .store(entry_word0(2, EntryType::process, 0), std::memory_order_release);

  TextBuffer control(control_path_, sizeof control_path_);
  if (options.control_path != nullptr) {
    control.add(options.control_path);
  } else {
    control.add(file_.path());
    char* slash = strrchr(control_path_, '/');
    if (slash != nullptr) {
      *slash = '\0';
      TextBuffer(slash, static_cast<uint32_t>(sizeof control_path_ - (slash - control_path_)))
          .add("/control");
    }
  }
  last_tick_ticks_ = last_heartbeat_ticks_ = clock_.ticks();
  set_enabled(true);
  return true;
}

void Recorder::set_enabled(bool on) noexcept {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  enabled_.store(on, std::memory_order_relaxed);
  std::atomic_ref<uint32_t>(file_.header()->enabled).store(on ? 1 : 0, std::memory_order_relaxed);
}

void Recorder::set_events(uint32_t events) noexcept {
  std::atomic_ref<uint32_t>(file_.header()->events).store(events, std::memory_order_relaxed);
}

uint32_t Recorder::events() const noexcept {
  return std::atomic_ref<uint32_t>(file_.header()->events).load(std::memory_order_relaxed);
}

void Recorder::find_device() noexcept {
  if (memory_ == nullptr || device_known_ || abandoned_.load(std::memory_order_relaxed)) return;
  pthread_mutex_lock(&mutex_);
  if (!device_known_) {
    ProcessEntry found{};
    found.device = kUnknown32;
    read_device(&found);
    device_known_ = true;
    if (found.device != kUnknown32) {
      auto* entry = reinterpret_cast<ProcessEntry*>(file_.directory());
      std::atomic_ref<uint64_t> word0(entry->word0);
      const auto change = static_cast<uint32_t>(word0.load(std::memory_order_relaxed));
      word0.store(entry_word0(change + 1, EntryType::process, 0), std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);  // odd before the fields change
      std::atomic_ref<uint32_t>(entry->device).store(found.device, std::memory_order_relaxed);
      uint64_t bus[2];
      std::memcpy(bus, found.bus_id, sizeof bus);
      auto* words = reinterpret_cast<uint64_t*>(entry->bus_id);
      for (int i = 0; i < 2; ++i) {
        std::atomic_ref<uint64_t>(words[i]).store(bus[i], std::memory_order_relaxed);
      }
      word0.store(entry_word0(change + 2, EntryType::process, 0), std::memory_order_release);
    }
  }
  pthread_mutex_unlock(&mutex_);
}

bool Recorder::start_sampler() noexcept {
  if (memory_ == nullptr || abandoned_.load(std::memory_order_relaxed)) return false;
  pthread_mutex_lock(&mutex_);
  if (!thread_runs_) {
    wake_.store(0, std::memory_order_relaxed);
    // The job's signals are not for this thread.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    thread_runs_ = pthread_create(&thread_, nullptr, sampler_main, this) == 0;
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }
  const bool runs = thread_runs_;
  pthread_mutex_unlock(&mutex_);
  return runs;
}

void Recorder::stop_sampler() noexcept {
  if (memory_ == nullptr || abandoned_.load(std::memory_order_relaxed)) return;
  pthread_mutex_lock(&mutex_);
  const bool runs = thread_runs_;
  thread_runs_ = false;
  pthread_mutex_unlock(&mutex_);
  if (!runs) return;
  wake_.store(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&wake_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
  pthread_join(thread_, nullptr);
}

void Recorder::close() noexcept {
  if (memory_ == nullptr || abandoned_.load(std::memory_order_relaxed)) return;
  stop_sampler();
  const FileHeader* h = file_.header();
  if (std::atomic_ref<uint32_t>(const_cast<FileHeader*>(h)->state)
          .load(std::memory_order_relaxed) == static_cast<uint32_t>(FileState::closed)) {
    return;
  }
  tick();
  set_enabled(false);
  file_.close(Clock::realtime_ns());
}

void* Recorder::sampler_main(void* self) noexcept {
  auto* recorder = static_cast<Recorder*>(self);
  prctl(PR_SET_NAME, "mycroft", 0, 0, 0);
  while (recorder->wake_.load(std::memory_order_acquire) == 0) {
    const uint32_t ms = recorder->interval_ms_.load(std::memory_order_relaxed);
    timespec wait{};
    wait.tv_sec = static_cast<time_t>(ms / 1000);
    wait.tv_nsec = static_cast<long>(ms % 1000) * 1000000;
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&recorder->wake_), FUTEX_WAIT_PRIVATE, 0, &wait,
            nullptr, 0);
    if (recorder->wake_.load(std::memory_order_acquire) != 0) break;
    recorder->tick();
  }
  return nullptr;
}

// --- communicators
// --------------------------------------------------------------------------------

uint64_t* Recorder::entry_words(uint32_t comm) const noexcept {
  return file_.directory() + (1 + (comm - 1) % kCommSlots) * (kEntryBytes / 8);
}

Recorder::CommSlot& Recorder::comm_slot(uint32_t comm) const noexcept {
  return comms_[(comm - 1) % kCommSlots];
}

uint64_t Recorder::comm_open(const CommInfo& info) noexcept {
  if (memory_ == nullptr || abandoned_.load(std::memory_order_relaxed)) return 0;
  pthread_mutex_lock(&mutex_);
  uint32_t serial = 0;
  for (uint32_t tries = 0; tries < kCommSlots && serial == 0; ++tries) {
    const uint32_t candidate = next_serial_;
    next_serial_ = next_serial_ == kLastSerial ? 1 : next_serial_ + 1;
    if (comm_slot(candidate).state.load(std::memory_order_relaxed) != CommSlot::kOpen) {
      serial = candidate;
    }
  }
  if (serial == 0) {
    lost_comms_.fetch_add(1, std::memory_order_relaxed);
    pthread_mutex_unlock(&mutex_);
    return 0;
  }
  CommSlot& c = comm_slot(serial);
  c.state.store(CommSlot::kFree, std::memory_order_relaxed);
  c.serial.store(serial, std::memory_order_relaxed);
  set(c.hash, info.hash);
  set(c.next_seq, uint64_t{0});
  set(c.p2p_seq, uint64_t{0});
  set(c.running_seq, uint64_t{0});
  set(c.running, 0u);
  set(c.abi, uint32_t{info.abi});
  set(c.naming, info.name != nullptr || info.hash != 0 ? 1u : 0u);

  CommunicatorEntry entry{};
  entry.hash = info.hash;
  entry.opened_ns = Clock::realtime_ns();
  entry.rank = info.rank;
  entry.size = info.size;
  entry.nodes = info.nodes;
  entry.abi = info.abi;
  TextBuffer(entry.name, sizeof entry.name).add(info.name);
  TextBuffer(entry.backend, sizeof entry.backend).add(info.backend);
  uint64_t words[kEntryBytes / 8];
  std::memcpy(words, &entry, sizeof words);
  uint64_t* at = entry_words(serial);
  std::atomic_ref<uint64_t> word0(at[0]);
  const auto change = static_cast<uint32_t>(word0.load(std::memory_order_relaxed));
  word0.store(entry_word0(change | 1, EntryType::communicator, static_cast<uint16_t>(serial)),
              std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // odd before the fields change
  for (uint32_t i = 1; i < kEntryBytes / 8; ++i) {
    std::atomic_ref<uint64_t>(at[i]).store(words[i], std::memory_order_relaxed);
  }
  word0.store(entry_word0((change | 1) + 1, EntryType::communicator, static_cast<uint16_t>(serial)),
              std::memory_order_release);
  c.state.store(CommSlot::kOpen, std::memory_order_release);
  pthread_mutex_unlock(&mutex_);
  return kContextTag | salt_ << 16 | serial;
}

uint32_t Recorder::comm_of(uint64_t context) const noexcept {
  if ((context & ~uint64_t{0xFFFF}) != (kContextTag | salt_ << 16) || memory_ == nullptr) return 0;
  const auto serial = static_cast<uint32_t>(context & 0xFFFF);
  if (serial == 0 || serial > kLastSerial) return 0;
  const CommSlot& c = comm_slot(serial);
  return c.state.load(std::memory_order_acquire) == CommSlot::kOpen &&
                 c.serial.load(std::memory_order_relaxed) == serial
             ? serial
             : 0;
}

uint8_t Recorder::comm_abi(uint32_t comm) const noexcept {
  return static_cast<uint8_t>(get(comm_slot(comm).abi));
}

void Recorder::comm_learn(uint32_t comm, uint64_t hash, const char* name, uint32_t rank) noexcept {
  CommSlot& c = comm_slot(comm);
  uint32_t nobody = 0;
  if (get(c.naming) != 0 ||
      !c.naming.compare_exchange_strong(nobody, 1, std::memory_order_relaxed)) {
    return;
  }
  set(c.hash, hash);
  uint64_t* at = entry_words(comm);
  auto* entry = reinterpret_cast<CommunicatorEntry*>(at);
  std::atomic_ref<uint64_t> word0(at[0]);
  const auto change = static_cast<uint32_t>(word0.load(std::memory_order_relaxed));
  word0.store(entry_word0(change + 1, EntryType::communicator, static_cast<uint16_t>(comm)),
              std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::atomic_ref<uint64_t>(entry->hash).store(hash, std::memory_order_relaxed);
  std::atomic_ref<uint32_t>(entry->rank).store(rank, std::memory_order_relaxed);
  char text[sizeof entry->name];
  std::memset(text, 0, sizeof text);
  TextBuffer(text, sizeof text).add(name);
  auto* words = reinterpret_cast<uint64_t*>(entry->name);
  for (uint32_t i = 0; i < sizeof text / 8; ++i) {
    uint64_t word;
    std::memcpy(&word, text + 8 * i, 8);
    std::atomic_ref<uint64_t>(words[i]).store(word, std::memory_order_relaxed);
  }
  word0.store(entry_word0(change + 2, EntryType::communicator, static_cast<uint16_t>(comm)),
              std::memory_order_release);
}

void Recorder::comm_close(uint64_t context) noexcept {
  if (memory_ == nullptr || abandoned_.load(std::memory_order_relaxed)) return;
  pthread_mutex_lock(&mutex_);
  const uint32_t comm = comm_of(context);
  if (comm != 0) {
    comm_slot(comm).state.store(CommSlot::kClosed, std::memory_order_relaxed);
    // Queued flows alone are no sign of work: those of other transports never start. They are if
    // something of this communicator was at work.
    const bool at_work = get(comm_slot(comm).running) != 0;
    const auto each_open = [&](auto&& visit) {
      for (uint32_t i = 0; i < kOpSlots; ++i) {
        OpSlot& o = ops_[i];
        if (o.state.load(std::memory_order_acquire) == OpSlot::kOpen &&
            high16(get(o.comm_seq)) == comm) {
          visit(o, i);
        }
      }
    };
    each_open([&](OpSlot& o, uint32_t) {
      const bool queued = get(o.children) != 0 && get(o.running) == 0;
      set(o.torn, op_finished(o) || (queued && !at_work) ? 0u : 1u);
    });
    const uint32_t high = flow_high_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < high; ++i) {
      const uint32_t gen = flows_[i].gen.load(std::memory_order_acquire);
      if ((gen & 1) != 0 && high16(get(flows_[i].who)) == comm) free_flow(i, gen, kFlagAborted);
    }
    each_open([&](OpSlot& o, uint32_t i) {
      close_op(o, i, get(o.torn) != 0 ? OpState::aborted : OpState::completed);
    });
    const uint64_t now = clock_.to_utc(clock_.ticks());
    auto* entry = reinterpret_cast<CommunicatorEntry*>(entry_words(comm));
    std::atomic_ref<uint64_t>(entry->closed_ns).store(now, std::memory_order_relaxed);
  }
  pthread_mutex_unlock(&mutex_);
}

// --- operations
// -----------------------------------------------------------------------------------

Recorder::OpSlot* Recorder::op(Handle h, HandleKind kind) const noexcept {
  if (handle_kind(h) != kind || handle_slot(h) >= kOpSlots) return nullptr;
  OpSlot* o = ops_ + handle_slot(h);
  return (o->gen.load(std::memory_order_relaxed) & kGenMask) == handle_gen(h) ? o : nullptr;
}

uint64_t Recorder::pair_number(uint32_t comm, uint32_t peer, OpKind kind) noexcept {
  const uint64_t key =
      uint64_t{comm} << 48 | uint64_t{static_cast<uint8_t>(kind)} << 40 | uint64_t{1} << 39 | peer;
  uint64_t hash = key * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 29;
  for (uint32_t probe = 0; probe < 16; ++probe) {
    PairSlot& p = pairs_[(hash + probe) % kPairSlots];
    uint64_t found = get(p.key);
    if (found == 0 && p.key.compare_exchange_strong(found, key, std::memory_order_relaxed)) {
      found = key;
    }
    if (found == key) return p.next.fetch_add(1, std::memory_order_relaxed);
  }
  // Full here: take over a pair of a communicator that is gone.
  for (uint32_t probe = 0; probe < 16; ++probe) {
    PairSlot& p = pairs_[(hash + probe) % kPairSlots];
    uint64_t found = get(p.key);
    const auto other = static_cast<uint32_t>(found >> 48);
    const CommSlot& c = comm_slot(other);
    if (get(c.serial) == other && c.state.load(std::memory_order_relaxed) == CommSlot::kOpen) {
      continue;
    }
    if (p.key.compare_exchange_strong(found, key, std::memory_order_relaxed)) {
      set(p.next, uint64_t{1});
      return 0;
    }
  }
  return kUnknown48;
}

bool Recorder::op_finished(const OpSlot& o) const noexcept {
  return get(o.stop_ticks) != 0 && get(o.children) == 0 && get(o.kernel_open) == 0;
}

void Recorder::write_op(const OpSlot& o, uint32_t slot, uint32_t gen, OpState state) noexcept {
  const uint64_t meta = get(o.meta);
  const uint64_t enq = get(o.enq_ticks);
  const uint64_t seen = get(o.kernel_seen);
  OpRecord r{};
  r.enq_ns = clock_.to_utc(enq);
  r.comm_seq = get(o.comm_seq);
  uint64_t start = kUnknown48;
  uint64_t end = kUnknown48;
  bool kernel = false;
  if (seen != 0) {
    const uint64_t gpu_start = get(o.kstart_gpu), gpu_end = get(o.kend_gpu);
    const int64_t offset = gpu_offset_.load(std::memory_order_relaxed);
    const auto on_host = [&](uint64_t gpu) {
      const int64_t at = static_cast<int64_t>(gpu) + offset - static_cast<int64_t>(r.enq_ns);
      return at > 0 ? clamp48(static_cast<uint64_t>(at)) : uint64_t{0};
    };
    start = gpu_start != 0 ? on_host(gpu_start)
                           : clamp48(clock_.to_ns(flow_detail::since(get(o.kstart_ticks), enq)));
    if (get(o.kernel_open) == 0) {
      kernel = true;
      end = gpu_end != 0 ? on_host(gpu_end)
                         : clamp48(clock_.to_ns(flow_detail::since(get(o.kend_ticks), enq)));
    }
  }
  if (!kernel && get(o.end_ticks) != 0 && state != OpState::open && get(o.children) == 0) {
    end = clamp48(clock_.to_ns(flow_detail::since(get(o.end_ticks), enq)));
  }
  if (state == OpState::completed && end == kUnknown48) state = OpState::enqueued;
  if (state == OpState::open || state == OpState::aborted) end = kUnknown48;
  r.kstart = pack48(start, uint64_t{byte_of(meta, 1)} | uint64_t{byte_of(meta, 2)} << 8);
  r.end = pack48(end, uint64_t{byte_of(meta, 3)} | uint64_t{static_cast<uint8_t>(state)} << 8);
  r.bytes = pack48(get(o.bytes), static_cast<uint64_t>(__builtin_popcountll(seen)));
  r.peer = low32(get(o.peer_seq));
  r.source_seq = high32(get(o.peer_seq));
  r.op_id = short_id(make_handle(HandleKind::op, slot, gen, 0));
  r.flows = get(o.flows);
  const auto more =
      static_cast<uint8_t>((get(o.reopened) != 0 ? kFlagReopened : 0) | (kernel ? kFlagKernel : 0));
  ring_.write(r, RecordType::op, byte_of(meta, 4),
              make_flags(byte_of(meta, 5) != 0, static_cast<OpKind>(byte_of(meta, 0)), more));
}

bool Recorder::close_op(OpSlot& o, uint32_t slot, OpState state) noexcept {
  uint32_t expected = OpSlot::kOpen;
  // acq_rel: one closer only; it sees what the others stored before.
  if (!o.state.compare_exchange_strong(expected, OpSlot::kClosing, std::memory_order_acq_rel)) {
    return false;
  }
  write_op(o, slot, get(o.gen), state);
  o.state.store(OpSlot::kClosed, std::memory_order_release);
  return true;
}

Handle Recorder::op_start(uint32_t comm, const OpInfo& info) noexcept {
  if (!enabled() || comm == 0) return 0;
  CommSlot& c = comm_slot(comm);
  OpSlot* o = nullptr;
  uint32_t slot = 0;
  for (uint32_t tries = 0; tries < 64 && o == nullptr; ++tries) {
    slot = static_cast<uint32_t>(next_op_.fetch_add(1, std::memory_order_relaxed) % kOpSlots);
    OpSlot& candidate = ops_[slot];
    uint32_t state = candidate.state.load(std::memory_order_acquire);
    // A full lap later a finished operation need not wait for the sampler.
    if (state == OpSlot::kOpen && op_finished(candidate)) {
      close_op(candidate, slot, OpState::completed);
      state = candidate.state.load(std::memory_order_acquire);
    }
    if ((state == OpSlot::kFree || state == OpSlot::kClosed) &&
        candidate.state.compare_exchange_strong(state, OpSlot::kClosing,
                                                std::memory_order_acq_rel)) {
      o = &candidate;
    }
  }
  // Numbers advance also for what is not recorded: they must agree between ranks.
  uint64_t seq;
  uint32_t source_seq = info.source_seq;
  const uint64_t now = clock_.ticks();
  if (info.p2p) {
    seq = pair_number(comm, info.peer, info.kind);
    source_seq = static_cast<uint32_t>(c.p2p_seq.fetch_add(1, std::memory_order_relaxed));
  } else {
    seq = c.next_seq.fetch_add(1, std::memory_order_relaxed);
  }
  auto* entry = reinterpret_cast<CommunicatorEntry*>(entry_words(comm));
  if (info.p2p) {
    std::atomic_ref<uint64_t>(entry->p2p_started)
        .store(uint64_t{source_seq} + 1, std::memory_order_relaxed);
  } else {
    std::atomic_ref<uint64_t>(entry->last_seq).store(seq + 1, std::memory_order_relaxed);
  }
  std::atomic_ref<uint64_t>(entry->last_enq_ns)
      .store(clock_.to_utc(now), std::memory_order_relaxed);
  const uint64_t comm_seq = pack48(seq, comm);
  set(last_enq_ticks_, now);
  set(last_enq_comm_seq_, comm_seq);
  if (o == nullptr) {
    lost_ops_.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  const uint32_t gen = (get(o->gen) + 2) | 1;
  o->gen.store(gen, std::memory_order_relaxed);
  set(o->comm_seq, comm_seq);
  set(o->meta, uint64_t{static_cast<uint8_t>(info.kind)} |
                   uint64_t{static_cast<uint8_t>(info.dtype)} << 8 |
                   uint64_t{static_cast<uint8_t>(info.algo)} << 16 |
                   uint64_t{static_cast<uint8_t>(info.proto)} << 24 |
                   uint64_t{info.channels} << 32 | uint64_t{info.p2p ? 1u : 0u} << 40);
  set(o->bytes, info.bytes);
  set(o->peer_seq, pack32(info.peer, source_seq));
  set(o->enq_ticks, now);
  set(o->event_ticks, now);
  for (auto* word :
       {&o->stop_ticks, &o->end_ticks, &o->kernel_open, &o->kernel_seen, &o->kstart_ticks,
        &o->kend_ticks, &o->kstart_gpu, &o->kend_gpu, &o->shown_ticks}) {
    set(*word, uint64_t{0});
  }
  for (auto* word : {&o->children, &o->running, &o->flows, &o->reopened, &o->shown, &o->torn}) {
    set(*word, 0u);
  }
  o->state.store(OpSlot::kOpen, std::memory_order_release);  // publishes the fields to the sampler
  return make_handle(HandleKind::op, slot, gen, 0);
}

void Recorder::op_stop(Handle h) noexcept {
  OpSlot* o = op(h, HandleKind::op);
  if (o == nullptr || get(o->stop_ticks) != 0) return;
  const uint64_t now = clock_.ticks();
  set(o->event_ticks, now);
  set(o->stop_ticks, now);
}

void Recorder::op_end(Handle h) noexcept {
  OpSlot* o = op(h, HandleKind::op);
  if (o == nullptr) return;
  const uint64_t now = clock_.ticks();
  set(o->stop_ticks, now);
  raise_atomic(o->end_ticks, now);
  set(last_end_ticks_, now);
  set(last_end_comm_seq_, get(o->comm_seq));
  if (op_finished(*o)) close_op(*o, handle_slot(h), OpState::completed);
}

Handle Recorder::kernel_start(Handle h, uint8_t channel, uint64_t gpu_ns) noexcept {
  OpSlot* o = op(h, HandleKind::op);
  if (o == nullptr || channel >= 64) return 0;
  const uint64_t now = clock_.ticks();
  const uint64_t bit = uint64_t{1} << channel;
  if (gpu_ns != 0) {
    const auto offset = static_cast<int64_t>(clock_.to_utc(now) - gpu_ns);
    int64_t least = gpu_offset_.load(std::memory_order_relaxed);
    while (offset < least &&
           !gpu_offset_.compare_exchange_weak(least, offset, std::memory_order_relaxed)) {
    }
    const uint64_t old = get(o->kstart_gpu);
    if (old == 0 || gpu_ns < old) set(o->kstart_gpu, gpu_ns);
  }
  if (get(o->kstart_ticks) == 0) set(o->kstart_ticks, now);
  set(o->event_ticks, now);
  o->kernel_seen.fetch_or(bit, std::memory_order_relaxed);
  o->kernel_open.fetch_or(bit, std::memory_order_relaxed);
  uint32_t closed = OpSlot::kClosed;
  if (o->state.compare_exchange_strong(closed, OpSlot::kOpen, std::memory_order_acq_rel)) {
    set(o->reopened, 1u);
  }
  return make_handle(HandleKind::kernel, handle_slot(h), handle_gen(h), channel);
}

void Recorder::kernel_stop(Handle h, uint64_t gpu_ns) noexcept {
  OpSlot* o = op(h, HandleKind::kernel);
  if (o == nullptr) return;
  const uint64_t bit = uint64_t{1} << (handle_extra(h) & 63);
  if ((get(o->kernel_open) & bit) == 0) return;
  const uint64_t now = clock_.ticks();
  if (gpu_ns != 0) raise_atomic(o->kend_gpu, gpu_ns);
  raise_atomic(o->kend_ticks, now);
  set(o->event_ticks, now);
  set(last_end_ticks_, now);
  set(last_end_comm_seq_, get(o->comm_seq));
  o->kernel_open.fetch_and(~bit, std::memory_order_release);
}

// --- flows
// ------------------------------------------------------------------------------------------

// Takes a slot from the free list, or the next one never used. 0 if all are in use.
Handle Recorder::place_flow(FlowSlot*& f) noexcept {
  uint64_t head = free_flows_.load(std::memory_order_acquire);
  uint32_t index = 0;
  for (;;) {
    index = low32(head);  // + 1; 0: empty
    if (index == 0) break;
    const uint32_t next = next_free_[index - 1].load(std::memory_order_relaxed);
    // The tag in the high half makes a head that went away and came back different.
    if (free_flows_.compare_exchange_weak(head, pack32(next, high32(head) + 1),
                                          std::memory_order_acq_rel, std::memory_order_acquire)) {
      break;
    }
  }
  if (index == 0) {
    uint32_t high = flow_high_.load(std::memory_order_relaxed);
    do {
      if (high >= kFlowSlots) {
        lost_flows_.fetch_add(1, std::memory_order_relaxed);
        return 0;
      }
    } while (!flow_high_.compare_exchange_weak(high, high + 1, std::memory_order_acq_rel));
    index = high + 1;
  }
  f = flows_ + (index - 1);
  return make_handle(HandleKind::flow, index - 1, (get(f->gen) + 1) | 1, 0);
}

namespace {

void reset_flow(FlowSlot& f, const FlowInfo& info, OpKind kind, uint32_t more_mode,
                uint64_t now) noexcept {
  set(f.mode, (info.send ? FlowSlot::kSend : 0u) | (info.elastic ? FlowSlot::kElastic : 0u) |
                  more_mode | static_cast<uint32_t>(kind) << FlowSlot::kKindShift);
  set(f.total, info.total);
  for (auto* word : {&f.posted, &f.ready, &f.moved, &f.done}) set(*word, 0u);
  for (auto* word : {&f.bytes, &f.last_done, &f.sum_a, &f.max_a, &f.sum_b, &f.max_b}) {
    set(*word, uint64_t{0});
  }
  f.window = info.window;
  f.begin = f.last_first = now;
  set(f.started, now);
}

}  // namespace

uint32_t Recorder::window_of(Handle h) const noexcept {
  const OpSlot* o = op(h, HandleKind::op);
  if (o == nullptr) return kStamps;
  const uint64_t meta = get(o->meta);
  // Ring with the simple protocol moves two of the eight slots at a time.
  const bool doubled = byte_of(meta, 0) <= static_cast<uint8_t>(OpKind::reduce_scatter) &&
                       byte_of(meta, 2) == static_cast<uint8_t>(Algo::ring) &&
                       byte_of(meta, 3) == static_cast<uint8_t>(Proto::simple);
  return doubled ? kStamps / 2 : kStamps;
}

Handle Recorder::flow_start(uint32_t comm, Handle parent, const FlowInfo& info) noexcept {
  if (!enabled() || comm == 0) return 0;
  FlowSlot* f = nullptr;
  const Handle h = place_flow(f);
  if (h == 0) return 0;
  const uint64_t now = clock_.ticks();
  OpKind kind = OpKind::other;
  uint64_t comm_seq = pack48(kUnknown48, comm);
  OpSlot* o = op(parent, HandleKind::op);
  uint32_t window = info.window;
  if (o != nullptr) {
    const uint64_t meta = get(o->meta);
    kind = static_cast<OpKind>(byte_of(meta, 0));
    comm_seq = get(o->comm_seq);
    set(o->event_ticks, now);  // before reopening: gives it the grace again
    uint32_t closed = OpSlot::kClosed;
    if (o->state.load(std::memory_order_relaxed) == OpSlot::kClosed &&
        o->state.compare_exchange_strong(closed, OpSlot::kOpen, std::memory_order_acq_rel)) {
      set(o->reopened, 1u);
    }
    o->children.fetch_add(1, std::memory_order_relaxed);
    o->flows.fetch_add(1, std::memory_order_relaxed);
  }
  reset_flow(*f, info, kind, 0, now);
  f->window = window;
  set(f->comm_seq, comm_seq);
  set(f->who, uint64_t{info.peer} | uint64_t{info.channel} << 32 | uint64_t{comm} << 48);
  set(f->parent, o != nullptr ? parent : 0);
  f->gen.store(handle_gen(h), std::memory_order_release);  // publishes the fields to the sampler
  if (info.running) flow_running(h);
  return h;
}

Handle Recorder::flow_start_foreign(const FlowInfo& info, uint32_t pid, uint32_t rank,
                                    uint64_t context, uint64_t parent) noexcept {
  if (!enabled()) return 0;
  FlowSlot* f = nullptr;
  const Handle h = place_flow(f);
  if (h == 0) return 0;
  const uint64_t now = clock_.ticks();
  reset_flow(*f, info, OpKind::other, FlowSlot::kForeign, now);
  // The flow's own number stands where its operation would: the foreign record joins the two.
  set(f->comm_seq, pack48(short_id(h), kForeignComm));
  set(f->who, uint64_t{info.peer} | uint64_t{info.channel} << 32 | uint64_t{kForeignComm} << 48);
  set(f->parent, uint64_t{0});
  f->gen.store(handle_gen(h), std::memory_order_release);
  if (info.running) flow_running(h);
  ForeignRecord r{};
  r.ts_ns = clock_.to_utc(now);
  r.context = context;
  r.parent = parent;
  r.pid = pid;
  r.rank = rank;
  r.peer = info.peer;
  r.total = info.total;
  r.flow_id = short_id(h);
  ring_.write(r, RecordType::foreign, info.channel, info.send ? kFlagSend : 0);
  return h;
}

void Recorder::flow_running(Handle h) noexcept {
  FlowSlot* f = handle_kind(h) == HandleKind::flow ? flow(h) : nullptr;
  if (f == nullptr) return;
  const uint32_t mode = get(f->mode);
  if ((mode & FlowSlot::kRunning) != 0) return;
  const uint64_t now = clock_.ticks();
  f->begin = f->last_first = now;
  set(f->mode, mode | FlowSlot::kRunning);
  const uint64_t comm_seq = get(f->comm_seq);
  const uint32_t comm = high16(comm_seq);
  if (comm == 0 || comm == kForeignComm) return;
  CommSlot& c = comm_slot(comm);
  c.running.fetch_add(1, std::memory_order_relaxed);
  if (OpSlot* o = op(get(f->parent), HandleKind::op); o != nullptr) {
    o->running.fetch_add(1, std::memory_order_relaxed);
    if (byte_of(get(o->meta), 5) == 0) raise_atomic(c.running_seq, low48(comm_seq) + 1);
  }
}

void Recorder::write_flow(const FlowSlot& f, Handle h, uint8_t more_flags) noexcept {
  const uint32_t mode = get(f.mode);
  const uint64_t last = get(f.last_done);
  FlowRecord r{};
  r.end_ns = clock_.to_utc(last != 0 ? last : clock_.ticks());
  r.comm_seq = get(f.comm_seq);
  r.peer = low32(get(f.who));
  r.slices = get(f.done);
  r.bytes = pack48(clamp48(get(f.bytes)), short_id(h) & 0xFFFF);
  const uint64_t values[4] = {get(f.sum_a), get(f.max_a), get(f.sum_b), get(f.max_b)};
  for (int i = 0; i < 4; ++i) {
    const uint64_t ns = clamp48(clock_.to_ns(values[i]));
    std::memcpy(r.durations + 6 * i, &ns, 6);
  }
  if (get(f.done) < get(f.total)) more_flags |= kFlagPartial;
  if ((mode & FlowSlot::kForeign) != 0) more_flags |= kFlagForeign;
  ring_.write(r, RecordType::flow, byte_of(get(f.who), 4),
              make_flags((mode & FlowSlot::kSend) != 0,
                         static_cast<OpKind>((mode >> FlowSlot::kKindShift) & 0xF), more_flags));
}

void Recorder::leave_op(Handle parent, bool was_running, uint64_t end_ticks) noexcept {
  OpSlot* o = op(parent, HandleKind::op);
  if (o == nullptr) return;
  if (end_ticks != 0) raise_atomic(o->end_ticks, end_ticks);
  set(o->event_ticks, clock_.ticks());
  if (was_running) o->running.fetch_sub(1, std::memory_order_relaxed);
  // release: whoever sees no children left also sees the end.
  o->children.fetch_sub(1, std::memory_order_release);
}

// Ends a flow if `gen` is still its generation; the winner of a race writes the record.
bool Recorder::free_flow(uint32_t slot, uint32_t gen, uint8_t more_flags) noexcept {
  FlowSlot& f = flows_[slot];
  const uint32_t next = (gen + 1) & kGenMask;
  if (!f.gen.compare_exchange_strong(gen, next, std::memory_order_acq_rel)) return false;
  const Handle h = make_handle(HandleKind::flow, slot, gen, 0);
  const bool ran = (get(f.mode) & FlowSlot::kRunning) != 0;
  const bool moved = get(f.posted) != 0;
  const uint64_t comm_seq = get(f.comm_seq);
  const uint32_t comm = high16(comm_seq);
  const Handle parent = get(f.parent);
  // What never reached the head of a connection left no trace on the network: no record.
  if (ran || moved) write_flow(f, h, more_flags);
  if (ran && comm != 0 && comm != kForeignComm) {
    comm_slot(comm).running.fetch_sub(1, std::memory_order_relaxed);
  }
  if (get(f.last_done) != 0) {
    set(last_end_ticks_, get(f.last_done));
    set(last_end_comm_seq_, comm_seq);
  }
  leave_op(parent, ran, get(f.last_done));
  uint64_t head = free_flows_.load(std::memory_order_relaxed);
  do {
    next_free_[slot].store(low32(head), std::memory_order_relaxed);
  } while (!free_flows_.compare_exchange_weak(head, pack32(slot + 1, high32(head) + 1),
                                              std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
  return true;
}

void Recorder::flow_stop(Handle h) noexcept {
  if (handle_kind(h) != HandleKind::flow || flow(h) == nullptr) return;
  free_flow(handle_slot(h), handle_gen(h), 0);
}

}  // namespace mycroft
