#include "ring.h"

#include <algorithm>
#include <stdexcept>

namespace mycroft::simulator {

FaultKind fault_of(const std::string& name) {
  const auto& names = fault_names();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<FaultKind>(i);
  }
  throw std::invalid_argument("there is no simulated fault " + name);
}

const std::vector<std::string>& fault_names() {
  static const std::vector<std::string> kNames = {
      "none",       "nic_down",   "nic_bw",      "pcie",        "gpu_power", "slow_gpu20",
      "bg_compute", "bg_traffic", "proxy_delay", "crash",       "sigstop",   "absent",
      "ckpt_stall", "qp_slow30",  "link_flap",   "recv_nopost", "gpu_hang"};
  return kNames;
}

OneFault::OneFault(const Fault& fault, const Config& config)
    : fault_(fault), first_(fault.rank), end_(fault.rank + 1) {
  if (fault.kind == FaultKind::bg_compute || fault.kind == FaultKind::bg_traffic) {
    first_ = fault.rank / config.ranks_per_host * config.ranks_per_host;
    end_ = std::min(first_ + config.ranks_per_host, config.ranks());
  }
}

bool OneFault::network() const {
  switch (fault_.kind) {
    case FaultKind::none:
    case FaultKind::slow_gpu20:
    case FaultKind::bg_compute:
    case FaultKind::absent:
    case FaultKind::ckpt_stall:
      return false;
    default:
      return true;
  }
}

double OneFault::compute(uint32_t rank, Time start) const {
  if (!on(rank, start)) return 1;
  switch (fault_.kind) {
    case FaultKind::gpu_power:
      return scaled(1.7);
    case FaultKind::slow_gpu20:
      return scaled(1.2);
    case FaultKind::bg_compute:
      return scaled(1.6);
    case FaultKind::pcie:
      return scaled(1.05);
    default:
      return 1;
  }
}

double OneFault::copy(uint32_t rank, Time start) const {
  return on(rank, start) && fault_.kind == FaultKind::gpu_power ? scaled(1.7) : 1;
}

double OneFault::flush(uint32_t rank, Time start) const {
  return on(rank, start) && fault_.kind == FaultKind::pcie ? scaled(400) : 1;
}

Time OneFault::wire(Time start, double w, uint32_t src, uint32_t dst, uint32_t channel,
                    Random& random) const {
  if (!(hits(src) || hits(dst))) return start + w;
  switch (fault_.kind) {
    case FaultKind::nic_down:
      return start + w > fault_.at ? kNever : start + w;
    case FaultKind::nic_bw:
      return start + (start >= fault_.at ? w * scaled(4) : w);
    case FaultKind::pcie:
      return start + (start >= fault_.at ? w * scaled(3) : w);
    case FaultKind::bg_traffic:
      return start + (start >= fault_.at ? w * scaled(random.uniform(1, 5)) : w);
    case FaultKind::qp_slow30:
      return start + (start >= fault_.at && hits(src) && channel == 0 ? w * scaled(1 / 0.7) : w);
    case FaultKind::link_flap: {
      // Outages of 1.5 to 6 s, one every 8 to 16 s, the same for every flow of the rank.
      Random outages(fault_.rank * 977 + 13);
      Time begin = fault_.at;
      while (begin < start + w) {
        const Time over = begin + outages.uniform(1.5, 6) * kS * fault_.severity;
        if (start < over && start + w > begin) start = over;
        begin = over + outages.uniform(8, 16) * kS;
        if (start == kNever) break;
      }
      return start + w;
    }
    case FaultKind::crash:
    case FaultKind::sigstop:
      return start + w > fault_.at ? kNever : start + w;
    default:
      return start + w;
  }
}

Time OneFault::process(uint32_t rank, Time t) const {
  const bool gone = fault_.kind == FaultKind::crash || fault_.kind == FaultKind::sigstop;
  return gone && hits(rank) && t > fault_.at ? kNever : t;
}

Time OneFault::gpu(uint32_t rank, Time t) const {
  if (fault_.kind == FaultKind::gpu_hang && hits(rank) && t > fault_.at) return kNever;
  return process(rank, t);
}

Time OneFault::post(uint32_t rank, Time t) const {
  if (fault_.kind == FaultKind::recv_nopost && hits(rank) && t > fault_.at) return kNever;
  return process(rank, t);
}

Time OneFault::proxy_sleep(uint32_t rank, Time t, Random& random) const {
  if (fault_.kind != FaultKind::proxy_delay || !on(rank, t)) return t;
  return random.uniform() < 6e-4 * fault_.severity ? t + kS : t;
}

Time OneFault::absent(uint32_t rank, Time t) const {
  if (fault_.kind == FaultKind::absent && on(rank, t)) return kNever;
  return t;
}

Time OneFault::rows_end(uint32_t rank) const {
  const bool gone = fault_.kind == FaultKind::crash || fault_.kind == FaultKind::sigstop;
  return gone && hits(rank) ? fault_.at : kNever;
}

namespace {

// Slice j of a ring without faults: plain loops over the members, which compilers turn into
// vectors.
void healthy_slice(const RingSpec& s, uint32_t j, bool first_of_loop, const Time* enq,
                   Time* gpu_free, RingTimes& t, Time* scratch) {
  const uint32_t n = s.n;
  const size_t at = t.row(j, n);
  const size_t before = j != 0 ? t.row(j - 1, n) : 0;
  const bool full = j >= kRingSlots;
  const size_t old = full ? t.row(j - kRingSlots, n) : 0;
  Time* __restrict posted = t.posted.data() + at;
  Time* __restrict ready = t.ready.data() + at;
  Time* __restrict moved = t.moved.data() + at;
  Time* __restrict done = t.done.data() + at;
  const Time* done_old = t.done.data() + old;
  const Time* consumed_old = t.consumed.data() + old;
  // The kernel: a slot free, and, but for the first send of a loop, the slice from the one before.
  const size_t input = first_of_loop ? 0 : t.row(j - kSlices, n);
  const Time* flushed_in = t.flushed.data() + input;
  Time* consumed_in = t.consumed.data() + input;
  for (uint32_t i = 0; i < n; ++i) {
    Time a = gpu_free[i];
    if (full) a = later(a, done_old[i]);
    if (!first_of_loop) a = later(a, flushed_in[i]);
    a += s.g;
    gpu_free[i] = a;
    ready[i] = a;
  }
  if (!first_of_loop) {
    for (uint32_t i = 0; i < n; ++i) consumed_in[i] = ready[i];
  }
  for (uint32_t i = 0; i < n; ++i) {
    Time p = enq[i];
    if (full) p = later(p, consumed_old[i]);
    if (j != 0) p = later(p, t.posted[before + i]);
    posted[i] = p;
  }
  for (uint32_t i = 0; i + 1 < n; ++i) scratch[i] = posted[i + 1];
  scratch[n - 1] = posted[0];
  const double* jitter = s.jitter + size_t{j % kJitterRows} * n;
  for (uint32_t i = 0; i < n; ++i) {
    Time x = later(ready[i], scratch[i] + s.latency);
    Time last = 0;
    if (j != 0) {
      x = later(x, t.moved[before + i]);
      last = t.done[before + i];
    }
    moved[i] = x;
    done[i] = later(x, last) + s.w * s.congestion[i] * jitter[i];
  }
  Time* __restrict received = t.received.data() + at;
  Time* __restrict flushed = t.flushed.data() + at;
  for (uint32_t i = 0; i + 1 < n; ++i) received[i + 1] = done[i] + s.latency;
  received[0] = done[n - 1] + s.latency;
  for (uint32_t i = 0; i < n; ++i) flushed[i] = received[i] + s.f;
}

void broken_slice(const RingSpec& s, uint32_t j, bool first_of_loop, const Broken& b,
                  const Time* enq, Time* gpu_free, Time* proxy_free, RingTimes& t, Random& random) {
  const uint32_t n = s.n;
  const size_t at = t.row(j, n);
  const size_t before = j != 0 ? t.row(j - 1, n) : 0;
  const bool full = j >= kRingSlots;
  const size_t old = full ? t.row(j - kRingSlots, n) : 0;
  const size_t input = first_of_loop ? 0 : t.row(j - kSlices, n);
  for (uint32_t i = 0; i < n; ++i) {
    Time a = gpu_free[i];
    if (full) a = later(a, t.done[old + i]);
    if (!first_of_loop) a = later(a, t.flushed[input + i]);
    a = b.gpu(s.ranks[i], a + s.g * b.copy(s.ranks[i], a));
    gpu_free[i] = t.ready[at + i] = a;
    if (!first_of_loop) t.consumed[input + i] = a;
    Time p = enq[i];
    if (full) p = later(p, t.consumed[old + i]);
    if (j != 0) p = later(p, t.posted[before + i]);
    t.posted[at + i] = b.post(s.ranks[i], later(p, proxy_free[i]));
  }
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t to = i + 1 < n ? i + 1 : 0;
    Time x = later(t.ready[at + i], t.posted[at + to] + s.latency);
    Time last = 0;
    if (j != 0) {
      x = later(x, t.moved[before + i]);
      last = t.done[before + i];
    }
    x = later(x, proxy_free[i]);
    if (x < kNever) {
      const Time woken = b.proxy_sleep(s.ranks[i], x, random);
      if (woken > x) proxy_free[i] = x = woken;
    }
    x = b.process(s.ranks[i], x);
    t.moved[at + i] = x;
    const Time begin = later(x, last);
    const Time wire =
        begin < kNever
            ? b.wire(begin, s.w * s.congestion[i] * s.jitter[size_t{j % kJitterRows} * n + i],
                     s.ranks[i], s.ranks[to], s.channel, random)
            : kNever;
    t.done[at + i] = b.process(s.ranks[i], wire);
    const Time received = b.process(s.ranks[to], wire + s.latency);
    t.received[at + to] = later(received, proxy_free[to]);
    t.flushed[at + to] = t.received[at + to] + s.f * b.flush(s.ranks[to], t.received[at + to]);
  }
}

}  // namespace

void run_ring(const RingSpec& s, const Broken& broken, bool touched, const Time* enq,
              const Time* start, Time* end, Time* proxy_free, RingTimes& t, Random& random) {
  const uint32_t n = s.n, total = s.slices();
  t.keep(s.keep ? total : kWindow, n);
  std::vector<Time> gpu_free(start, start + n), scratch(n);
  uint32_t j = 0;
  for (uint32_t loop = 0; loop < s.loops; ++loop) {
    for (uint32_t step = 0; step + 1 < n; ++step) {
      for (uint32_t k = 0; k < kSlices; ++k, ++j) {
        if (touched) {
          broken_slice(s, j, step == 0, broken, enq, gpu_free.data(), proxy_free, t, random);
        } else {
          healthy_slice(s, j, step == 0, enq, gpu_free.data(), t, scratch.data());
        }
      }
    }
    // The last chunk of the loop is only received.
    for (uint32_t k = 0; k < kSlices; ++k) {
      const size_t at = t.row(j - kSlices + k, n);
      for (uint32_t i = 0; i < n; ++i) {
        const Time a = later(gpu_free[i], t.flushed[at + i]) + s.g;
        gpu_free[i] = t.consumed[at + i] = touched ? broken.gpu(s.ranks[i], a) : a;
      }
    }
  }
  std::copy(gpu_free.begin(), gpu_free.end(), end);
}

}  // namespace mycroft::simulator
