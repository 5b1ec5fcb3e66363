// The sampler's part of the recorder: every interval one state record per flow half in flight,
// every second a heartbeat; it closes operations that have ended, expires what will never start,
// reads the control file. All of it runs under the recorder's mutex, none of it in a record path.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compat.h"
#include "recorder.h"
#include "recorder_words.h"
#include "text.h"

namespace mycroft {

using flow_detail::get;
using flow_detail::set;

namespace {

// The proxy adds its part after the host has handed the operation over: wait before calling it
// ended.
constexpr uint64_t kGraceMs = 50;
// An open operation is written again now and then, so that it outlives a lap of the ring.
constexpr uint64_t kRepeatOpenMs = 10000;
// A flow that stands for long is written once a second: a hang must not push its own beginning out.
constexpr uint64_t kStandsLongMs = 10000;
constexpr uint64_t kStandsRepeatMs = 900;
constexpr uint64_t kHeartbeatMs = 1000;
constexpr uint64_t kControlMs = 1000;
// Flows of transports without a proxy are announced and never start.
constexpr uint64_t kQueuedExpiryMs = 2000;
constexpr uint64_t kQueuedAhead = 64;
// A host does not enqueue for this long behind a kernel that does not start: then its event is
// missing, not the kernel.
constexpr uint64_t kKernelMissingMs = 10000;
constexpr uint64_t kLateMs = 1000;
constexpr size_t kControlBytes = 4096;

// Calls `visit` with every slot whose bit is set.
template <size_t Words, typename Visit>
void each_slot(const std::atomic<uint64_t> (&map)[Words], Visit&& visit) noexcept {
  for (uint32_t word = 0; word < Words; ++word) {
    for (uint64_t bits = map[word].load(std::memory_order_relaxed); bits != 0; bits &= bits - 1) {
      visit(word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits)));
    }
  }
}

}  // namespace

bool Recorder::passed_ms(uint64_t now_ticks, uint64_t then_ticks, uint64_t ms) const noexcept {
  return clock_.to_ns(flow_detail::since(now_ticks, then_ticks)) >= ms * 1000000u;
}

void Recorder::tick() noexcept {
  if (memory_ == nullptr || abandoned_.load(std::memory_order_relaxed)) return;
  pthread_mutex_lock(&mutex_);
  tick_locked();
  pthread_mutex_unlock(&mutex_);
}

void Recorder::tick_locked() noexcept {
  FileHeader* h = file_.header();
  std::atomic_ref<uint64_t> ticks(h->ticks);
  const uint64_t number = ticks.load(std::memory_order_relaxed);
  ticks.store(number + 1, std::memory_order_release);
  clock_.calibrate();
  const uint64_t now_ticks = clock_.ticks();
  const uint64_t now_ns = clock_.to_utc(now_ticks);
  const uint64_t passed_ns = clock_.to_ns(flow_detail::since(now_ticks, last_tick_ticks_));
  const uint64_t interval = interval_ms_.load(std::memory_order_relaxed);
  const uint64_t late_ms = passed_ns / 1000000u > interval ? passed_ns / 1000000u - interval : 0;
  if (late_ms > late_ms_) late_ms_ = late_ms;
  if (late_ms > 10 * interval && late_ms > kLateMs && number > 1) {
    write_gap(GapReason::sampler_late, now_ns, now_ns - passed_ns, 0);
  }
  last_tick_ticks_ = now_ticks;
  sample_flows(now_ticks, now_ns);
  sample_ops(now_ticks);
  write_gaps(now_ns);
  if (number == 0 || passed_ms(now_ticks, last_heartbeat_ticks_, kHeartbeatMs)) {
    last_heartbeat_ticks_ = now_ticks;
    heartbeat(now_ns);
  }
  if (number == 0 || passed_ms(now_ticks, control_checked_ticks_, kControlMs)) {
    control_checked_ticks_ = now_ticks;
    read_control();
  }
  std::atomic_ref<uint64_t>(h->tick_ns).store(now_ns, std::memory_order_relaxed);
  ticks.store(number + 2, std::memory_order_release);
}

void Recorder::progress(uint64_t at_ns, uint64_t comm_seq) noexcept {
  if (at_ns < progress_ns_) return;
  progress_ns_ = at_ns;
  progress_comm_seq_ = comm_seq;
}

void Recorder::sample_flows(uint64_t now_ticks, uint64_t now_ns) noexcept {
  uint32_t live = 0;
  each_slot(flow_map_, [&](uint32_t i) {
    FlowSlot& f = flows_[i];
    // acquire: pairs with the store that ends flow_start; the fields are those of this generation.
    const uint32_t gen = f.gen.load(std::memory_order_acquire);
    if ((gen & 1) == 0) return;
    ++live;
    const uint32_t mode = get(f.mode);
    StateRecord r{};
    // The last stage first, each with acquire: the flow moves on meanwhile, and what is read later
    // may only be further along.
    const auto reached = [](const std::atomic<uint32_t>& counter) {
      return counter.load(std::memory_order_acquire);
    };
    r.done = reached(f.done);
    if ((mode & FlowSlot::kSend) != 0) {
      r.moved = reached(f.moved);
      r.ready = reached(f.ready);
    } else {
      r.ready = reached(f.ready);
      r.moved = reached(f.moved);
    }
    r.posted = reached(f.posted);
    r.total = get(f.total);
    if ((mode & FlowSlot::kRunning) == 0 && r.posted == 0) return;
    r.comm_seq = get(f.comm_seq);
    const uint64_t who = get(f.who);
    r.bytes = clamp48(get(f.bytes));
    // The loads above come before this one: a changed generation means that they are a mixture.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (f.gen.load(std::memory_order_relaxed) != gen) return;

    SamplerFlow& seen = seen_[i];
    const uint64_t sum = uint64_t{r.posted} + r.ready + r.moved + r.done;
    if (seen.gen != gen || seen.sum != sum) {
      if (seen.gen != gen) seen.written_ticks = 0;
      seen.gen = gen;
      seen.sum = sum;
      seen.moved_ticks = now_ticks;
      progress(now_ns, r.comm_seq);
    }
    const uint64_t idle_ns = clock_.to_ns(flow_detail::since(now_ticks, seen.moved_ticks));
    r.idle_ms = static_cast<uint32_t>(idle_ns / 1000000u < kUnknown32 ? idle_ns / 1000000u
                                                                      : kUnknown32 - 1);
    // Complete for long and never stopped: the stop is not going to come.
    if (r.total != 0 && r.done >= r.total && r.idle_ms > kStandsLongMs) {
      free_flow(i, gen, 0);
      return;
    }
    if (r.idle_ms > kStandsLongMs && seen.written_ticks != 0 &&
        !passed_ms(now_ticks, seen.written_ticks, kStandsRepeatMs)) {
      return;
    }
    seen.written_ticks = now_ticks;
    r.ts_ns = now_ns;
    r.peer = low32(who);
    r.flow_id = short_id(make_handle(HandleKind::flow, i, gen, 0));
    const auto more = static_cast<uint8_t>(((mode & FlowSlot::kRunning) != 0 ? kFlagRunning : 0) |
                                           ((mode & FlowSlot::kForeign) != 0 ? kFlagForeign : 0));
    ring_.write(r, RecordType::state, static_cast<uint8_t>(who >> 32),
                make_flags((mode & FlowSlot::kSend) != 0,
                           static_cast<OpKind>((mode >> FlowSlot::kKindShift) & 0xF), more));
  });
  open_flows_ = live;
}

// Gives back the announced flows of an operation that did not start; they leave no record.
void Recorder::expire_queued(Handle parent, uint64_t now_ticks) noexcept {
  const uint32_t high = flow_high_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < high; ++i) {
    FlowSlot& f = flows_[i];
    const uint32_t gen = f.gen.load(std::memory_order_acquire);
    if ((gen & 1) == 0 || get(f.parent) != parent) continue;
    if ((get(f.mode) & FlowSlot::kRunning) != 0 || get(f.posted) != 0) continue;
    if (passed_ms(now_ticks, get(f.started), kQueuedExpiryMs)) free_flow(i, gen, 0);
  }
}

// Whether the kernel of an operation that was handed over has yet to start, as far as events tell:
// they were asked for, they come for such operations, and nothing says that this one's was lost.
bool Recorder::waits_for_kernel(const OpSlot& o, uint64_t now_ticks) noexcept {
  if (get(o.kernel_asked) == 0 || get(o.kernel_seen) != 0 || get(o.end_ticks) != 0) return false;
  // Its flows came and went: the kernel was there.
  if (get(o.flows) != 0) return false;
  const bool p2p = byte_of(get(o.meta), 5) != 0;
  const uint32_t bit = p2p ? 2 : 1;
  if ((get(kernels_come_) & bit) == 0) return false;
  const uint64_t comm_seq = get(o.comm_seq);
  CommSlot& c = comm_slot(high16(comm_seq));
  if ((get(c.kernel_missed) & bit) != 0) return false;
  const uint64_t seq = p2p ? high32(get(o.peer_seq)) : low48(comm_seq);
  const uint64_t enq = get(o.enq_ticks);
  // Kernels of a communicator run in the order of their operations.
  const bool overtaken = get(c.kernel_seq[p2p]) > seq + 1;
  const bool enqueued_on = passed_ms(get(c.last_enq_ticks), enq, kKernelMissingMs);
  if (!overtaken && !enqueued_on) return true;
  if (!passed_ms(now_ticks, enq, kQueuedExpiryMs)) return true;  // events of threads may cross
  c.kernel_missed.fetch_or(bit, std::memory_order_relaxed);
  return false;
}

void Recorder::sample_ops(uint64_t now_ticks) noexcept {
  open_ops_ = 0;
  oldest_open_ns_ = 0;
  each_slot(op_map_, [&](uint32_t i) {
    OpSlot& o = ops_[i];
    if (o.state.load(std::memory_order_acquire) != OpSlot::kOpen) return;
    const uint32_t gen = get(o.gen);
    const uint64_t comm_seq = get(o.comm_seq);
    const CommSlot& c = comm_slot(high16(comm_seq));
    if (get(o.children) != 0 && get(o.running) == 0 && get(o.end_ticks) == 0 &&
        get(o.stop_ticks) != 0 && passed_ms(now_ticks, get(o.event_ticks), kQueuedExpiryMs)) {
      const bool p2p = (get(o.meta) >> 40 & 0xFF) != 0;
      const uint64_t seq = low48(comm_seq);
      // A later operation has run on the network, or many have passed and none is at work.
      const bool overtaken = !p2p && get(c.running_seq) > seq + 1;
      const bool idle = get(c.running) == 0 && get(c.next_seq) > seq + kQueuedAhead;
      if (overtaken || (idle && !p2p)) {
        expire_queued(make_handle(HandleKind::op, i, gen, 0), now_ticks);
      }
    }
    // acquire in `children`: whoever sees none left also sees their end.
    // Up to NCCL 2.26 an operation has no flows before it reaches the head of its connections:
    // while its communicator is at work it may be waiting for that.
    const bool may_wait = get(o.flows) == 0 && get(o.kernel_seen) == 0 && get(c.running) != 0;
    if (o.children.load(std::memory_order_acquire) == 0 && op_finished(o) && !may_wait &&
        !waits_for_kernel(o, now_ticks)) {
      if (passed_ms(now_ticks, get(o.event_ticks), kGraceMs)) close_op(o, i, OpState::completed);
      return;
    }
    ++open_ops_;
    const uint64_t enq_ns = get(o.enq_ns);
    if (oldest_open_ns_ == 0 || enq_ns < oldest_open_ns_) oldest_open_ns_ = enq_ns;
    // That the kernel had not started must not stay the last word once it has.
    const bool started_since = get(o.kstart_ticks) > get(o.shown_ticks);
    if (get(o.shown) != gen || started_since ||
        passed_ms(now_ticks, get(o.shown_ticks), kRepeatOpenMs)) {
      set(o.shown, gen);
      set(o.shown_ticks, now_ticks);
      write_op(o, i, gen, OpState::open);
    }
  });
  if (const uint64_t at = get(last_enq_ticks_); at != 0) {
    progress(clock_.to_utc(at), get(last_enq_comm_seq_));
  }
  if (const uint64_t at = get(last_end_ticks_); at != 0) {
    progress(clock_.to_utc(at), get(last_end_comm_seq_));
  }
}

void Recorder::heartbeat(uint64_t now_ns) noexcept {
  HeartbeatRecord r{};
  r.ts_ns = now_ns;
  r.comm_seq = progress_comm_seq_;
  r.oldest_open_ns = oldest_open_ns_;
  r.progress_ns = progress_ns_;
  r.open_ops = open_ops_;
  r.open_flows = open_flows_;
  const uint64_t lost = get(lost_flows_) + get(lost_ops_) + get(lost_comms_) + ring_.lost();
  r.lost = lost < kUnknown32 ? static_cast<uint32_t>(lost) : kUnknown32 - 1;
  r.late_ms = late_ms_ < kUnknown32 ? static_cast<uint32_t>(late_ms_) : kUnknown32 - 1;
  r.ticks = std::atomic_ref<uint64_t>(file_.header()->ticks).load(std::memory_order_relaxed) / 2;
  late_ms_ = 0;
  ring_.write(r, RecordType::heartbeat, 0, 0);
}

void Recorder::write_gap(GapReason reason, uint64_t now_ns, uint64_t since_ns,
                         uint64_t count) noexcept {
  GapRecord r{};
  r.ts_ns = now_ns;
  r.since_ns = since_ns;
  r.count = count;
  ring_.write(r, RecordType::gap, static_cast<uint8_t>(reason), 0);
}

void Recorder::write_gaps(uint64_t now_ns) noexcept {
  const auto tell = [&](GapReason reason, uint64_t now, uint64_t& told) {
    if (now == told) return;
    write_gap(reason, now_ns, 0, now - told);
    told = now;
  };
  tell(GapReason::no_flow_slot, get(lost_flows_), told_flows_);
  tell(GapReason::no_op_slot, get(lost_ops_), told_ops_);
  tell(GapReason::no_comm_slot, get(lost_comms_), told_comms_);
  tell(GapReason::ring_busy, ring_.lost(), told_ring_);
}

// Lines `key = value`: trace = on|off, interval_ms = N, events = coll,p2p,proxy,kernel. What is not
// understood is left as it is.
void Recorder::read_control() noexcept {
  if (control_path_[0] == '\0') return;
  struct stat st;
  if (syscall(SYS_newfstatat, AT_FDCWD, control_path_, &st, 0) != 0) return;
  if ((st.st_mode & 0170000) != 0100000) return;
  const uint64_t stamp = (static_cast<uint64_t>(st.st_mtim.tv_sec) * 1000000000u +
                          static_cast<uint64_t>(st.st_mtim.tv_nsec)) ^
                         static_cast<uint64_t>(st.st_size) << 56 ^ st.st_ino;
  if (stamp == control_stamp_) return;
  control_stamp_ = stamp;
  const int fd = ::open(control_path_, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  char text[kControlBytes];
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return;
  text[n] = '\0';

  bool on = enabled();
  uint32_t wanted = events();
  for (char* line = text; line != nullptr && *line != '\0';) {
    char* end = std::strchr(line, '\n');
    if (end != nullptr) *end = '\0';
    char packed[128];
    size_t used = 0;
    for (const char* at = line; *at != '\0' && *at != '#' && used + 1 < sizeof packed; ++at) {
      if (*at != ' ' && *at != '\t' && *at != '\r') packed[used++] = *at;
    }
    packed[used] = '\0';
    uint64_t number = 0;
    if (text_equals(packed, "trace=on")) on = true;
    if (text_equals(packed, "trace=off")) on = false;
    if (text_starts(packed, "interval_ms=") && parse_whole(packed + 12, &number) && number >= 1 &&
        number <= 60000) {
      interval_ms_.store(static_cast<uint32_t>(number), std::memory_order_relaxed);
      std::atomic_ref<uint32_t>(file_.header()->interval_ms)
          .store(static_cast<uint32_t>(number), std::memory_order_relaxed);
    }
    if (text_starts(packed, "events=")) parse_events(packed + 7, &wanted);
    line = end != nullptr ? end + 1 : nullptr;
  }
  if (on != enabled()) {
    const uint64_t now = clock_.to_utc(clock_.ticks());
    set_enabled(on);
    write_gap(on ? GapReason::switched_on : GapReason::switched_off, now, 0, 0);
  }
  set_events(wanted);
  if (hooks_.apply != nullptr) hooks_.apply(hooks_.user, on, wanted);
}

}  // namespace mycroft
