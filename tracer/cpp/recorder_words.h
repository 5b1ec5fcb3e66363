// Small helpers on the packed words of the recorder's slots.
#pragma once

#include <atomic>
#include <cstdint>

namespace mycroft {

// Raises a word to a value that several threads may offer.
inline void raise_atomic(std::atomic<uint64_t>& word, uint64_t value) noexcept {
  uint64_t old = word.load(std::memory_order_relaxed);
  while (old < value && !word.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
}

inline uint8_t byte_of(uint64_t word, unsigned index) noexcept {
  return static_cast<uint8_t>(word >> (8 * index));
}

}  // namespace mycroft
