// The recorder's flows: slots, the free list, their ends; see recorder.h.
#include <cstring>

#include "recorder.h"
#include "recorder_words.h"

namespace mycroft {

using flow_detail::get;
using flow_detail::set;

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

constexpr uint64_t kStoodMs = 2000;

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

void Recorder::show_flow(FlowSlot& f, Handle h) noexcept {
  const uint32_t slot = handle_slot(h);
  f.gen.store(handle_gen(h), std::memory_order_release);  // publishes the fields to the sampler
  flow_map_[slot / 64].fetch_or(uint64_t{1} << (slot % 64), std::memory_order_relaxed);
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
    reopen_op(*o, handle_slot(parent));
    o->children.fetch_add(1, std::memory_order_relaxed);
    o->flows.fetch_add(1, std::memory_order_relaxed);
  }
  reset_flow(*f, info, kind, 0, now);
  f->window = window;
  set(f->comm_seq, comm_seq);
  set(f->who, uint64_t{info.peer} | uint64_t{info.channel} << 32 | uint64_t{comm} << 48);
  set(f->parent, o != nullptr ? parent : 0);
  show_flow(*f, h);
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
  show_flow(*f, h);
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
  flow_map_[slot / 64].fetch_and(~(uint64_t{1} << (slot % 64)), std::memory_order_relaxed);
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

// Ends what is still open in a communicator: as aborted if it was at work, in order if only its
// stops are missing.
void Recorder::end_all_of(uint32_t comm) noexcept {
  const auto each_open = [&](auto&& visit) {
    for (uint32_t i = 0; i < kOpSlots; ++i) {
      OpSlot& o = ops_[i];
      if (o.state.load(std::memory_order_acquire) == OpSlot::kOpen &&
          high16(get(o.comm_seq)) == comm) {
        visit(o, i);
      }
    }
  };
  const uint64_t now = clock_.ticks();
  each_open([&](OpSlot& o, uint32_t) {
    // A kernel that has not started for long will not come in the teardown of a healthy job.
    const bool stood = waits_for_kernel(o, now) && passed_ms(now, get(o.enq_ticks), kStoodMs);
    set(o.torn, get(o.stop_ticks) == 0 || get(o.kernel_open) != 0 || stood ? 1u : 0u);
  });
  // Queued flows alone are no sign of work: those of other transports never start. They are if
  // something of this communicator was at work.
  const uint32_t high = flow_high_.load(std::memory_order_acquire);
  bool at_work = false;
  const auto each_flow = [&](auto&& visit) {
    for (uint32_t i = 0; i < high; ++i) {
      const uint32_t gen = flows_[i].gen.load(std::memory_order_acquire);
      if ((gen & 1) != 0 && high16(get(flows_[i].who)) == comm) visit(flows_[i], i, gen);
    }
  };
  const auto started = [](const FlowSlot& f) {
    return (get(f.mode) & FlowSlot::kRunning) != 0 || get(f.posted) != 0;
  };
  each_flow([&](FlowSlot& f, uint32_t, uint32_t) {
    at_work = at_work || (started(f) && get(f.done) < get(f.total));
  });
  each_flow([&](FlowSlot& f, uint32_t i, uint32_t gen) {
    const bool torn = started(f) ? get(f.done) < get(f.total) : at_work;
    if (torn) {
      if (OpSlot* o = op(get(f.parent), HandleKind::op); o != nullptr) set(o->torn, 1u);
    }
    free_flow(i, gen, torn ? kFlagAborted : 0);
  });
  each_open([&](OpSlot& o, uint32_t i) {
    // Up to NCCL 2.26 what is queued has no flows yet.
    if (at_work && get(o.flows) == 0 && get(o.kernel_seen) == 0) set(o.torn, 1u);
    close_op(o, i, get(o.torn) != 0 ? OpState::aborted : OpState::completed);
  });
}

}  // namespace mycroft
