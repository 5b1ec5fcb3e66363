// One flow half in flight: the four counters, and the sums that become its FlowRecord.
//
// One thread advances a flow (NCCL's progress thread of that channel and direction); the sampler
// reads the counters at the same time. So the shared fields are relaxed atomics, which are plain
// loads and stores on every machine we run on; only `gen` orders anything.
//
// All four counters are monotone. Every function below takes the number of chunks that have
// *reached* a stage, and returns at once, without a clock, if that is no news: NCCL repeats itself
// at poll rate exactly while it is stalled.
#pragma once

#include <atomic>
#include <cstdint>

#include "clock.h"
#include "record.h"

namespace mycroft {

inline constexpr uint32_t kStamps = 8;  // chunks in flight per flow half: NCCL_STEPS

struct alignas(64) FlowSlot {
  // Mode bits.
  static constexpr uint32_t kSend = 1;
  static constexpr uint32_t kRunning = 2;    // reached the head of its connection
  static constexpr uint32_t kForeign = 4;    // posted by another process
  static constexpr uint32_t kElastic = 8;    // the total may grow (NCCL 2.23, registered buffers)
  static constexpr uint32_t kKindShift = 8;  // OpKind

  using Word32 = std::atomic<uint32_t>;
  using Word64 = std::atomic<uint64_t>;

  // First line: what a callback touches, with `gen` odd while the slot is in use.
  Word32 gen{0};
  Word32 mode{0};
  Word32 total{0};
  Word32 posted{0};
  Word32 ready{0};
  Word32 moved{0};
  Word32 done{0};
  uint32_t window = kStamps;  // chunks that fit into the connection's slots
  Word64 bytes{0};
  uint64_t last_first = 0;  // ticks: send: last `moved`; recv: last `posted`
  Word64 last_done{0};      // ticks
  uint64_t begin = 0;       // ticks: head of the connection reached

  // Second line: sums in ticks, and who it is.
  Word64 sum_a{0};  // send: net_busy;  recv: post_delay
  Word64 max_a{0};
  Word64 sum_b{0};  // send: peer_wait; recv: flush
  Word64 max_b{0};  // send: peer_wait_max; recv: gpu_hold (a sum)
  Word64 comm_seq{0};
  Word64 who{0};      // low 32: peer, byte 4: channel, high 16: communicator of the context
  Word64 parent{0};   // handle of the operation
  Word64 started{0};  // ticks at start

  // Ticks at which the chunk in each of the connection's slots reached a stage; the flow's thread
  // only.
  uint64_t stamp_a[kStamps] = {};  // send: ready;    recv: received
  uint64_t stamp_b[kStamps] = {};  // send: moved;    recv: flushed
  uint64_t stamp_c[kStamps] = {};  //                 recv: consumed
};
static_assert(sizeof(FlowSlot) == 320);

namespace flow_detail {

inline uint64_t later(uint64_t a, uint64_t b) noexcept { return a > b ? a : b; }
inline uint64_t since(uint64_t now, uint64_t then) noexcept { return now > then ? now - then : 0; }
inline uint32_t get(const std::atomic<uint32_t>& w) noexcept {
  return w.load(std::memory_order_relaxed);
}
inline uint64_t get(const std::atomic<uint64_t>& w) noexcept {
  return w.load(std::memory_order_relaxed);
}
inline void set(std::atomic<uint32_t>& w, uint32_t v) noexcept {
  w.store(v, std::memory_order_relaxed);
}
inline void set(std::atomic<uint64_t>& w, uint64_t v) noexcept {
  w.store(v, std::memory_order_relaxed);
}
// A counter. release: whoever sees it with acquire also sees the counters that were raised before
// it, so that a reader that starts with the last stage never finds it ahead of an earlier one.
inline void reach(std::atomic<uint32_t>& w, uint32_t v) noexcept {
  w.store(v, std::memory_order_release);
}
inline void add(std::atomic<uint64_t>& w, uint64_t v) noexcept {
  w.store(w.load(std::memory_order_relaxed) + v, std::memory_order_relaxed);
}
inline void raise(std::atomic<uint64_t>& w, uint64_t v) noexcept {
  if (v > w.load(std::memory_order_relaxed)) w.store(v, std::memory_order_relaxed);
}
// Counts past the announced end belong to nobody (grouped receives), except where the total may
// grow.
inline bool beyond(FlowSlot& f, uint32_t count) noexcept {
  if (count <= get(f.total)) [[likely]]
    return false;
  if ((get(f.mode) & FlowSlot::kElastic) == 0) return true;
  set(f.total, count);
  return false;
}
inline uint32_t slot_of(uint32_t count) noexcept { return (count - 1) % kStamps; }

}  // namespace flow_detail

// Sender: `count` slots are posted. No clock.
inline void send_posted(FlowSlot& f, uint32_t count) noexcept {
  using namespace flow_detail;
  if (count > get(f.posted) && !beyond(f, count)) reach(f.posted, count);
}

// Sender: the GPU has filled `count` chunks.
inline void send_ready(FlowSlot& f, uint32_t count, const Clock& clock) noexcept {
  using namespace flow_detail;
  if (count <= get(f.ready)) [[unlikely]]
    return;  // the repeat of a stall without credit
  if (beyond(f, count)) return;
  f.stamp_a[slot_of(count)] = clock.ticks();
  reach(f.ready, count);
}

// Sender: `count` chunks were handed to the network; `size` is what this call adds to the bytes.
inline void send_moved(FlowSlot& f, uint32_t count, uint64_t size, const Clock& clock) noexcept {
  using namespace flow_detail;
  if (count <= get(f.moved) || beyond(f, count)) return;
  const uint64_t now = clock.ticks();
  const uint32_t slot = slot_of(count);
  uint64_t ready_at = now;
  if (get(f.ready) >= count) {
    ready_at = f.stamp_a[slot];
  } else {
    reach(f.ready, count);
  }
  // Waiting for the receiver's credit, or for our own proxy.
  const uint64_t wait = since(now, later(ready_at, f.last_first));
  add(f.sum_b, wait);
  raise(f.max_b, wait);
  add(f.bytes, size);
  f.stamp_b[slot] = now;
  f.last_first = now;
  if (get(f.posted) < count) reach(f.posted, count);
  reach(f.moved, count);
}

// Sender: `count` chunks are acknowledged.
inline void send_done(FlowSlot& f, uint32_t count, const Clock& clock) noexcept {
  using namespace flow_detail;
  if (count <= get(f.done) || beyond(f, count)) return;
  const uint64_t now = clock.ticks();
  if (get(f.moved) < count) send_moved(f, count, 0, clock);
  // The network was the one at work since the later of: this chunk handed over, the one before
  // done.
  const uint64_t busy = since(now, later(f.stamp_b[slot_of(count)], get(f.last_done)));
  add(f.sum_a, busy);
  raise(f.max_a, busy);
  set(f.last_done, now);
  reach(f.done, count);
}

// Receiver: `count` buffers are posted.
inline void recv_posted(FlowSlot& f, uint32_t count, const Clock& clock) noexcept {
  using namespace flow_detail;
  if (count <= get(f.posted) || beyond(f, count)) return;
  const uint64_t now = clock.ticks();
  // A free slot that nobody posted: since its last use ended, the one before was posted, or the
  // start.
  uint64_t could = later(f.last_first, f.begin);
  if (count > f.window && get(f.done) >= count - f.window) {
    could = later(could, f.stamp_c[slot_of(count - f.window)]);
  }
  const uint64_t delay = since(now, could);
  add(f.sum_a, delay);
  raise(f.max_a, delay);
  f.last_first = now;
  reach(f.posted, count);
}

// Receiver: `count` chunks have arrived; `size` is what this call adds to the bytes.
inline void recv_moved(FlowSlot& f, uint32_t count, uint64_t size, const Clock& clock) noexcept {
  using namespace flow_detail;
  if (count <= get(f.moved) || beyond(f, count)) return;
  f.stamp_a[slot_of(count)] = clock.ticks();
  add(f.bytes, size);
  if (get(f.posted) < count) reach(f.posted, count);
  reach(f.moved, count);
}

// Receiver: `count` chunks are visible to the GPU.
inline void recv_ready(FlowSlot& f, uint32_t count, const Clock& clock) noexcept {
  using namespace flow_detail;
  if (count <= get(f.ready) || beyond(f, count)) return;
  const uint64_t now = clock.ticks();
  const uint32_t slot = slot_of(count);
  if (get(f.moved) >= count) {
    add(f.sum_b, since(now, later(f.stamp_a[slot], f.begin)));
  } else {
    recv_moved(f, count, 0, clock);
  }
  f.stamp_b[slot] = now;
  reach(f.ready, count);
}

// Receiver: the GPU has consumed `count` chunks.
inline void recv_done(FlowSlot& f, uint32_t count, const Clock& clock) noexcept {
  using namespace flow_detail;
  const uint32_t before = get(f.done);
  if (count <= before || beyond(f, count)) return;
  const uint64_t now = clock.ticks();
  if (get(f.ready) >= count) {
    add(f.max_b, since(now, later(f.stamp_b[slot_of(count)], f.begin)));
  } else {
    recv_ready(f, count, clock);
  }
  // NCCL 2.24.3 - 2.26.6 report only the first of several slots freed in one poll.
  uint32_t at = before + 1;
  if (count - before > kStamps) at = count - kStamps + 1;
  for (; at <= count; ++at) f.stamp_c[slot_of(at)] = now;
  set(f.last_done, now);
  reach(f.done, count);
}

}  // namespace mycroft
