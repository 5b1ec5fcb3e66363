// What is simulated: the job, what varies in a healthy one, and what can be broken.
//
// Times are double nanoseconds of true time since the start; infinity means "never" and spreads by
// itself through maxima and sums: that is what a hang is. Ranks are
// (pp * DP + dp) * TP + tp; hosts hold `ranks_per_host` consecutive ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace mycroft::simulator {

using Time = double;
inline constexpr Time kNever = std::numeric_limits<double>::infinity();
inline constexpr double kMs = 1e6;
inline constexpr double kS = 1e9;

inline Time later(Time a, Time b) { return a > b ? a : b; }

struct Config {
  uint32_t tp = 8, pp = 2, dp = 2, ep = 1;
  uint32_t ranks_per_host = 8;
  uint32_t microbatches = 8;
  uint32_t channels = 2;
  bool tree =
      false;  // data-parallel all_reduce over trees instead of reduce_scatter and all_gather
  double forward_ns = 25 * kMs, backward_ns = 50 * kMs, tp_ns = 1 * kMs, optimiser_ns = 20 * kMs;
  double dp_ns = 130 * kMs;    // of one data-parallel operation in a quiet network
  double pair_ns = 4 * kMs;    // of one activation between stages
  double expert_ns = 6 * kMs;  // of one all_to_all
  double host_ns = 0.2 * kMs;  // from the end of one call to the next
  double latency_ns = 20e3, flush_ns = 5e3, copy_ns = 20e3;
  double noise = 1;    // factor on everything that varies
  bool benign = true;  // pauses, checkpoints, congestion
  double checkpoint_every_s = 100;
  uint64_t seed = 1;
  bool rows = true;
  double interval_ns = 100 * kMs;
  uint32_t ranks() const { return tp * pp * dp; }
  uint32_t hosts() const { return (ranks() + ranks_per_host - 1) / ranks_per_host; }
};

enum class FaultKind : uint8_t {
  none,
  nic_down,
  nic_bw,
  pcie,
  gpu_power,
  slow_gpu20,
  bg_compute,
  bg_traffic,
  proxy_delay,
  crash,
  sigstop,
  absent,
  ckpt_stall,
  qp_slow30,
  link_flap,
  recv_nopost,
  gpu_hang,
};
FaultKind fault_of(const std::string& name);  // throws std::invalid_argument
const std::vector<std::string>& fault_names();

struct Fault {
  FaultKind kind = FaultKind::none;
  uint32_t rank = 0;
  Time at = kNever;
  double severity = 1;  // scales the distance from healthy
};

class Random {  // splitmix64: small, copied with the job
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Irwin-Hall of four: near enough to a normal, and bounded.
  double normal() { return (uniform() + uniform() + uniform() + uniform() - 2) * 1.7320508; }

 private:
  uint64_t state_;
};

// One fault as the recurrences see it.
class OneFault {
 public:
  OneFault(const Fault& fault, const Config& config);
  const Fault& fault() const { return fault_; }
  // Whether a rank is one of those that are hit.
  bool hits(uint32_t rank) const { return rank >= first_ && rank < end_; }
  bool network() const;  // its flows differ
  double compute(uint32_t rank, Time start) const;
  double copy(uint32_t rank, Time start) const;
  double flush(uint32_t rank, Time start) const;
  // End of a transfer of `w` from src to dst that starts at `start`.
  Time wire(Time start, double w, uint32_t src, uint32_t dst, uint32_t channel,
            Random& random) const;
  // Something of this rank that would happen at `t`: never, if the rank or its GPU has stopped by
  // then.
  Time process(uint32_t rank, Time t) const;
  Time gpu(uint32_t rank, Time t) const;
  Time post(uint32_t rank, Time t) const;
  // What a proxy does next after it has something to do at `t`.
  Time proxy_sleep(uint32_t rank, Time t, Random& random) const;
  Time absent(uint32_t rank, Time t) const;
  // The rank's trace ends here.
  Time rows_end(uint32_t rank) const;

 private:
  bool on(uint32_t rank, Time t) const { return rank >= first_ && rank < end_ && t >= fault_.at; }
  double scaled(double factor) const { return 1 + (factor - 1) * fault_.severity; }
  Fault fault_;
  uint32_t first_ = 0, end_ = 0;
};

// Everything that is broken: factors multiply, what comes later delays what came before.
class Broken {
 public:
  void add(const Fault& fault, const Config& config) {
    if (fault.kind != FaultKind::none) faults_.emplace_back(fault, config);
  }
  bool any() const { return !faults_.empty(); }
  // The fault of a kind, if there is one.
  const Fault* of(FaultKind kind) const {
    for (const auto& f : faults_)
      if (f.fault().kind == kind) return &f.fault();
    return nullptr;
  }
  bool hits(uint32_t rank) const {
    for (const auto& f : faults_)
      if (f.hits(rank)) return true;
    return false;
  }
  bool network() const {
    for (const auto& f : faults_)
      if (f.network()) return true;
    return false;
  }
  double compute(uint32_t rank, Time start) const {
    double factor = 1;
    for (const auto& f : faults_) factor *= f.compute(rank, start);
    return factor;
  }
  double copy(uint32_t rank, Time start) const {
    double factor = 1;
    for (const auto& f : faults_) factor *= f.copy(rank, start);
    return factor;
  }
  double flush(uint32_t rank, Time start) const {
    double factor = 1;
    for (const auto& f : faults_) factor *= f.flush(rank, start);
    return factor;
  }
  Time wire(Time start, double w, uint32_t src, uint32_t dst, uint32_t channel,
            Random& random) const {
    Time end = start + w;
    for (const auto& f : faults_) {
      if (!(end < kNever)) break;
      end = f.wire(start, w, src, dst, channel, random);
      w = end - start;
    }
    return end;
  }
  Time process(uint32_t rank, Time t) const {
    for (const auto& f : faults_) t = f.process(rank, t);
    return t;
  }
  Time gpu(uint32_t rank, Time t) const {
    for (const auto& f : faults_) t = f.gpu(rank, t);
    return t;
  }
  Time post(uint32_t rank, Time t) const {
    for (const auto& f : faults_) t = f.post(rank, t);
    return t;
  }
  Time proxy_sleep(uint32_t rank, Time t, Random& random) const {
    for (const auto& f : faults_) t = f.proxy_sleep(rank, t, random);
    return t;
  }
  Time absent(uint32_t rank, Time t) const {
    for (const auto& f : faults_) t = f.absent(rank, t);
    return t;
  }
  Time rows_end(uint32_t rank) const {
    Time end = kNever;
    for (const auto& f : faults_) end = std::min(end, f.rows_end(rank));
    return end;
  }

 private:
  std::vector<OneFault> faults_;
};

}  // namespace mycroft::simulator
