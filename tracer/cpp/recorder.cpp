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

// --- life ---

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
  // What came under an earlier wish says nothing of what comes now.
  if ((events & kEventKernel) == 0) set(kernels_come_, 0u);
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

// --- communicators ---

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
  for (auto& seq : c.kernel_seq) set(seq, uint64_t{0});
  set(c.last_enq_ticks, uint64_t{0});
  set(c.kernel_missed, 0u);
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
    end_all_of(comm);
    const uint64_t now = clock_.to_utc(clock_.ticks());
    auto* entry = reinterpret_cast<CommunicatorEntry*>(entry_words(comm));
    std::atomic_ref<uint64_t>(entry->closed_ns).store(now, std::memory_order_relaxed);
  }
  pthread_mutex_unlock(&mutex_);
}

}  // namespace mycroft
