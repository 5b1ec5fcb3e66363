#include "virtual_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace mycroft::replay {
namespace {
std::atomic<uint64_t> virtual_ns{0};
}  // namespace

void use_virtual_clock(uint64_t start_ns) { virtual_ns.store(start_ns); }
bool clock_is_virtual() { return virtual_ns.load(std::memory_order_relaxed) != 0; }
void advance_clock(uint64_t ns) {
  if (clock_is_virtual()) virtual_ns.fetch_add(ns);
}
uint64_t clock_now() {
  timespec ts{};
  clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1000000000u + static_cast<uint64_t>(ts.tv_nsec);
}

}  // namespace mycroft::replay

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t id,
                                                                    timespec* ts) noexcept {
  const uint64_t ns = mycroft::replay::virtual_ns.load(std::memory_order_relaxed);
  if (ns == 0 || (id != CLOCK_REALTIME && id != CLOCK_MONOTONIC)) {
    return static_cast<int>(syscall(SYS_clock_gettime, id, ts));
  }
  ts->tv_sec = static_cast<time_t>(ns / 1000000000u);
  ts->tv_nsec = static_cast<long>(ns % 1000000000u);
  return 0;
}
