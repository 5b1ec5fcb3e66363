// Time in the record path: ticks. The cycle counter where it is invariant (10 ns a read), else the
// system's monotonic clock (25 ns). Ticks become UTC ns only when a record is written.
//
// Thread safety: `ticks` and `to_utc` from any thread; `calibrate` from one thread (the sampler).
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace mycroft {

enum class ClockChoice : uint8_t { automatic, cycles, system };

class Clock {
 public:
  // Chooses the source and calibrates it; takes about 2 ms for the cycle counter.
  void start(ClockChoice choice) noexcept;

  // A reading; differences are meaningful, and only inside this process.
  uint64_t ticks() const noexcept {
#if defined(__x86_64__)
    if (cycles_) [[likely]]
      return __rdtsc();
#elif defined(__aarch64__)
    if (cycles_) [[likely]] {
      uint64_t value;
      asm volatile("mrs %0, cntvct_el0" : "=r"(value));
      return value;
    }
#endif
    return monotonic_ns();
  }

  bool cycles() const noexcept { return cycles_; }

  // UTC ns of a reading that is not older than this clock.
  uint64_t to_utc(uint64_t at) const noexcept;
  // Length in ns of a difference of readings.
  uint64_t to_ns(uint64_t difference) const noexcept;

  // Moves the anchor to now and refines the rate. Sampler only.
  void calibrate() noexcept;

  static uint64_t monotonic_ns() noexcept;
  static uint64_t realtime_ns() noexcept;

 private:
  // Two copies and a version: a reader copies the current one and takes it again if the writer has
  // published twice meanwhile. Neither side waits.
  struct Anchor {
    std::atomic<uint64_t> ticks{0};
    std::atomic<uint64_t> utc_ns{0};
    std::atomic<uint64_t> rate{uint64_t{1} << 32};  // ns per tick, 32 fractional bits
  };
  struct Reading {
    uint64_t ticks, utc_ns, rate;
  };
  struct Moment {
    uint64_t ticks, mono_ns, utc_ns;
  };
  Moment moment() const noexcept;
  Reading anchor() const noexcept;
  void publish(const Reading& reading) noexcept;

  bool cycles_ = false;
  Anchor anchors_[2];
  std::atomic<uint32_t> version_{0};
  // The first pair, long baseline of the rate. Sampler only after start().
  uint64_t first_ticks_ = 0;
  uint64_t first_mono_ns_ = 0;
};

}  // namespace mycroft
