// The recorder's operations: slots, numbers, records; see recorder.h.
#include "recorder.h"
#include "recorder_words.h"

namespace mycroft {

using flow_detail::get;
using flow_detail::set;

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
  r.enq_ns = get(o.enq_ns);
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
  op_map_[slot / 64].fetch_and(~(uint64_t{1} << (slot % 64)), std::memory_order_relaxed);
  o.state.store(OpSlot::kClosed, std::memory_order_release);
  return true;
}

// A part of it came after it was taken for ended.
bool Recorder::reopen_op(OpSlot& o, uint32_t slot) noexcept {
  uint32_t closed = OpSlot::kClosed;
  if (o.state.load(std::memory_order_relaxed) != OpSlot::kClosed ||
      !o.state.compare_exchange_strong(closed, OpSlot::kOpen, std::memory_order_acq_rel)) {
    return false;
  }
  set(o.reopened, 1u);
  mark_open(slot);
  return true;
}

Handle Recorder::op_start(uint32_t comm, const OpInfo& info) noexcept {
  if (comm == 0 || abandoned_.load(std::memory_order_relaxed)) return 0;
  const bool on = enabled();
  CommSlot& c = comm_slot(comm);
  OpSlot* o = nullptr;
  uint32_t slot = 0;
  for (uint32_t tries = 0; on && tries < 64 && o == nullptr; ++tries) {
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
  // Numbers advance also for what is not recorded, be it switched off: they must agree between
  // ranks.
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
  const uint64_t now_ns = clock_.to_utc(now);
  std::atomic_ref<uint64_t>(entry->last_enq_ns).store(now_ns, std::memory_order_relaxed);
  const uint64_t comm_seq = pack48(seq, comm);
  set(c.last_enq_ticks, now);
  set(last_enq_ticks_, now);
  set(last_enq_comm_seq_, comm_seq);
  if (o == nullptr) {
    if (on) lost_ops_.fetch_add(1, std::memory_order_relaxed);
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
  set(o->enq_ns, now_ns);
  set(o->event_ticks, now);
  for (auto* word :
       {&o->stop_ticks, &o->end_ticks, &o->kernel_open, &o->kernel_seen, &o->kstart_ticks,
        &o->kend_ticks, &o->kstart_gpu, &o->kend_gpu, &o->shown_ticks}) {
    set(*word, uint64_t{0});
  }
  for (auto* word : {&o->children, &o->running, &o->flows, &o->reopened, &o->shown, &o->torn}) {
    set(*word, 0u);
  }
  set(o->kernel_asked, (events() & kEventKernel) != 0 ? 1u : 0u);
  o->state.store(OpSlot::kOpen, std::memory_order_release);  // publishes the fields to the sampler
  mark_open(slot);
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
  if (get(o->kstart_ticks) == 0) {
    set(o->kstart_ticks, now);
    const uint64_t comm_seq = get(o->comm_seq);
    const bool p2p = byte_of(get(o->meta), 5) != 0;
    const uint64_t seq = p2p ? high32(get(o->peer_seq)) : low48(comm_seq);
    raise_atomic(comm_slot(high16(comm_seq)).kernel_seq[p2p], seq + 1);
    const uint32_t bit = p2p ? 2 : 1;
    if ((get(kernels_come_) & bit) == 0) {
      kernels_come_.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  set(o->event_ticks, now);
  o->kernel_seen.fetch_or(bit, std::memory_order_relaxed);
  o->kernel_open.fetch_or(bit, std::memory_order_relaxed);
  reopen_op(*o, handle_slot(h));
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

}  // namespace mycroft
