#include "clock.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mycroft {
namespace {

uint64_t read_clock(clockid_t id) noexcept {
  timespec ts{};
  clock_gettime(id, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1000000000u + static_cast<uint64_t>(ts.tv_nsec);
}

bool counter_is_invariant() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

constexpr uint64_t kCloseNs = 100;
constexpr int kTries = 8;

uint64_t multiply(uint64_t ticks, uint64_t rate) noexcept {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(ticks) * rate) >> 32);
}

}  // namespace

uint64_t Clock::monotonic_ns() noexcept { return read_clock(CLOCK_MONOTONIC); }
uint64_t Clock::realtime_ns() noexcept { return read_clock(CLOCK_REALTIME); }

void Clock::start(ClockChoice choice) noexcept {
  cycles_ = choice != ClockChoice::system && counter_is_invariant();
  first_mono_ns_ = monotonic_ns();
  first_ticks_ = ticks();
  uint64_t rate = uint64_t{1} << 32;
  if (cycles_) {
    uint64_t now = first_mono_ns_;
    // Bounded: a clock that stands still must not hang the job.
    for (int i = 0; i < 1000000 && now - first_mono_ns_ < 2000000; ++i) now = monotonic_ns();
    const uint64_t passed = ticks() - first_ticks_;
    if (passed == 0 || now == first_mono_ns_) {
      cycles_ = false;
      first_ticks_ = ticks();
    } else {
      rate = static_cast<uint64_t>((static_cast<unsigned __int128>(now - first_mono_ns_) << 32) /
                                   passed);
    }
  }
  const Moment m = moment();
  publish({m.ticks, m.utc_ns, rate});
}

Clock::Reading Clock::anchor() const noexcept {
  for (;;) {
    const uint32_t before = version_.load(std::memory_order_acquire);
    const Anchor& a = anchors_[before & 1];
    const Reading copy{a.ticks.load(std::memory_order_relaxed),
                       a.utc_ns.load(std::memory_order_relaxed),
                       a.rate.load(std::memory_order_relaxed)};
    // acquire loads: the fields above are read before the version is looked at again.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (version_.load(std::memory_order_acquire) - before < 2) return copy;
  }
}

void Clock::publish(const Reading& reading) noexcept {
  const uint32_t next = version_.load(std::memory_order_relaxed) + 1;
  Anchor& a = anchors_[next & 1];
  a.ticks.store(reading.ticks, std::memory_order_relaxed);
  a.utc_ns.store(reading.utc_ns, std::memory_order_relaxed);
  a.rate.store(reading.rate, std::memory_order_relaxed);
  version_.store(next, std::memory_order_release);  // publishes the anchor's fields
}

uint64_t Clock::to_utc(uint64_t at) const noexcept {
  const Reading a = anchor();
  if (at >= a.ticks) return a.utc_ns + multiply(at - a.ticks, a.rate);
  return a.utc_ns - multiply(a.ticks - at, a.rate);
}

uint64_t Clock::to_ns(uint64_t difference) const noexcept {
  if (!cycles_) return difference;
  return multiply(difference, anchor().rate);
}

// Three readings that belong together: of several tries the one in which least time passed, since a
// thread can lose its processor between any two.
Clock::Moment Clock::moment() const noexcept {
  Moment best{};
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < kTries && least > kCloseNs; ++i) {
    Moment m{};
    m.mono_ns = monotonic_ns();
    m.ticks = ticks();
    m.utc_ns = realtime_ns();
    const uint64_t spread = monotonic_ns() - m.mono_ns;
    if (spread >= least) continue;
    least = spread;
    best = m;
  }
  return best;
}

void Clock::calibrate() noexcept {
  const Reading old = anchor();
  uint64_t rate = old.rate;
  const Moment m = moment();
  const uint64_t mono = m.mono_ns;
  const uint64_t now = m.ticks;
  if (cycles_ && now > first_ticks_ && mono > first_mono_ns_) {
    rate = static_cast<uint64_t>((static_cast<unsigned __int128>(mono - first_mono_ns_) << 32) /
                                 (now - first_ticks_));
  }
  publish({now, m.utc_ns, rate});
}

}  // namespace mycroft
