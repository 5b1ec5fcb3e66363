// The device thread: streams of kernels, each a state machine that is advanced as far as its data
// and slots allow. Never blocks in a kernel, so that one that waits does not hold the others.
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "engine.h"

namespace mycroft::testbed {
namespace {

// Real arithmetic: about a microsecond a unit on a machine of today.
float work_units(uint64_t units, float seed) {
  float a = seed, b = 1.0f;
  for (uint64_t i = 0; i < units * 256; ++i) {
    a = a * 0.999999f + b;
    b = b * 0.999998f + 0.5f;
  }
  return a + b;
}

constexpr uint64_t kUnitsPerTurn = 200;
volatile float work_sink;  // keeps the arithmetic

}  // namespace

void Engine::run_slice(Operation& op, Kernel& k, const Primitive& p) {
  const uint32_t parts = k.program.slices_per_chunk, steps = k.program.slice_steps;
  const uint32_t count = part_elements(p.elements, parts, k.slice);
  const uint64_t offset = part_offset(p.elements, parts, k.slice);
  const size_t bytes = size_t{count} * sizeof(float);
  const auto slot = [&](int edge) {
    return reinterpret_cast<float*>(
        k.links[edge]->slot(k.base[edge] + uint64_t{k.passed[edge]} * steps));
  };
  const float* source = nullptr;
  if (p.source != ~uint64_t{0}) {
    source = (p.from_output ? op.output : op.input) + p.source + offset;
  }
  // Where the result is made: the first slot to send from, else the output.
  float* out = p.send[0] >= 0 ? slot(p.send[0]) : nullptr;
  for (int i = 0; i < kMostPeers && out == nullptr; ++i) {
    if (p.send[i] >= 0) out = slot(p.send[i]);
  }
  float* target = p.target != ~uint64_t{0} ? op.output + p.target + offset : nullptr;
  float* result = out != nullptr ? out : target;
  bool first = true;
  if (source != nullptr && count != 0) {
    if (result != source) std::memmove(result, source, bytes);
    first = false;
  }
  for (int8_t edge : p.recv) {
    if (edge < 0) continue;
    const float* in = slot(edge);
    // A sender of another mind may have sent less: what is not there is not added.
    const uint32_t there = std::min<uint32_t>(
        count,
        k.links[edge]->sizes[(k.base[edge] + uint64_t{k.passed[edge]} * steps) % kSlots].load(
            std::memory_order_relaxed) /
            4);
    if (first) {
      std::memcpy(result, in, size_t{there} * 4);
      first = false;
    } else {
      for (uint32_t i = 0; i < there; ++i) result[i] += in[i];
    }
  }
  if (target != nullptr && target != result && count != 0) std::memcpy(target, result, bytes);
  for (int8_t edge : p.send) {
    if (edge < 0) continue;
    Connection& c = *k.links[edge];
    float* to = slot(edge);
    if (to != result && count != 0) std::memcpy(to, result, bytes);
    const uint64_t step = k.base[edge] + uint64_t{k.passed[edge]} * steps;
    c.sizes[step % kSlots].store(static_cast<uint32_t>(bytes), std::memory_order_relaxed);
    ++k.passed[edge];
    c.gpu.store(step + steps, std::memory_order_release);  // publishes the slot and its size
  }
  for (int8_t edge : p.recv) {
    if (edge < 0) continue;
    ++k.passed[edge];
    // release: the slot has been read before the proxy may fill it again
    k.links[edge]->gpu.store(k.base[edge] + uint64_t{k.passed[edge]} * steps,
                             std::memory_order_release);
  }
}

bool Engine::run_kernel(Operation& op, Kernel& k, int64_t now, int64_t& next) {
  const double rate = conditions.copy_bytes_per_s.load(std::memory_order_relaxed);
  const double slow = conditions.slow_compute.load(std::memory_order_relaxed);
  bool moved = false;
  while (!k.done()) {
    if (k.busy_until_ns > now) {
      next = std::min(next, k.busy_until_ns);
      break;
    }
    const Primitive& p = k.program.primitives[k.primitive];
    const uint32_t steps = k.program.slice_steps;
    bool free = true;
    for (int8_t edge : p.recv) {
      if (edge >= 0 && k.links[edge]->proxy.load(std::memory_order_acquire) <
                           k.base[edge] + uint64_t{k.passed[edge] + 1} * steps) {
        free = false;
      }
    }
    for (int8_t edge : p.send) {
      // acquire: the proxy has read the slot before it gave it back
      if (edge >= 0 && k.base[edge] + uint64_t{k.passed[edge] + 1} * steps >
                           k.links[edge]->proxy.load(std::memory_order_acquire) + kSlots) {
        free = false;
      }
    }
    if (!free) break;
    const uint32_t bytes = part_elements(p.elements, k.program.slices_per_chunk, k.slice) * 4;
    run_slice(op, k, p);
    if (rate > 0) {
      const double copies = slow * static_cast<double>(bytes) * 1e9 / rate;
      k.busy_until_ns = std::max(now, k.busy_until_ns) + static_cast<int64_t>(copies);
    }
    if (++k.slice == k.program.slices_per_chunk) {
      k.slice = 0;
      ++k.primitive;
    }
    moved = true;
  }
  return moved;
}

bool Engine::run_compute(Operation& op, int64_t now, int64_t& next) {
  const double slow = conditions.slow_compute.load(std::memory_order_relaxed);
  if (op.end_ns == 0) {
    op.work = static_cast<uint64_t>(static_cast<double>(op.work) * slow);
    op.end_ns = now + static_cast<int64_t>(static_cast<double>(op.hold_ns) * slow);
  }
  if (op.work != 0) {
    const uint64_t part = std::min(op.work, kUnitsPerTurn);
    work_sink = work_units(part, static_cast<float>(op.id));
    op.work -= part;
    return true;
  }
  if (now < op.end_ns) {
    next = std::min(next, op.end_ns);
    return false;
  }
  op.hold_ns = 0;
  return true;
}

bool Engine::device_turn(int64_t now, int64_t& next) {
  bool moved = false;
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    auto& queue = stream->second;
    while (!queue.empty()) {
      Operation& op = *queue.front();
      if (!op.started) {
        op.started = true;
        op.started_utc.store(utc_ns(), std::memory_order_release);
        moved = true;
        wake_proxy();
      }
      bool ended = true;
      if (op.comm == nullptr) {
        moved |= run_compute(op, now, next);
        ended = op.work == 0 && op.end_ns != 0 && now >= op.end_ns;
      }
      for (Kernel& k : op.kernels) {
        if (run_kernel(op, k, now, next)) {
          moved = true;
          wake_proxy();
        }
        if (k.done() && k.busy_until_ns > now) next = std::min(next, k.busy_until_ns);
        ended = ended && k.done() && k.busy_until_ns <= now;
      }
      if (!ended) break;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        op.ended_utc.store(utc_ns(), std::memory_order_release);
      }
      finished_.notify_all();
      wake_proxy();
      queue.pop_front();
      moved = true;
    }
    stream = queue.empty() ? streams_.erase(stream) : std::next(stream);
  }
  return moved;
}

void Engine::device_main() {
  prctl(PR_SET_NAME, "gpu", 0, 0, 0);
  std::vector<std::shared_ptr<Operation>> fresh;
  while (!stop_.load(std::memory_order_relaxed)) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      fresh.swap(to_device_);
    }
    for (auto& op : fresh) {
      const uint64_t stream = op->stream;
      streams_[stream].push_back(std::move(op));
    }
    fresh.clear();
    const int64_t now = now_ns();
    int64_t next = now + 200000000;
    if (!conditions.device_stopped.load(std::memory_order_relaxed) && device_turn(now, next))
      continue;
    device_sleeps_.store(true, std::memory_order_seq_cst);
    // Looks once more: whoever changed something before it saw us sleep does not wake us.
    if (!conditions.device_stopped.load(std::memory_order_relaxed) && device_turn(now_ns(), next)) {
      device_sleeps_.store(false, std::memory_order_relaxed);
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t wait = next - now_ns();
    if (wait > 0 && to_device_.empty() && device_sleeps_.load(std::memory_order_relaxed) &&
        !stop_) {
      device_wake_.wait_for(lock, std::chrono::nanoseconds(wait),
                            [this] { return !device_sleeps_ || !to_device_.empty() || stop_; });
    }
    device_sleeps_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace mycroft::testbed
