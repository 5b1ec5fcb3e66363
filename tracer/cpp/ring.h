// Writing side of the ring. Any thread may write; nobody waits, locks, allocates or enters the
// kernel.
//
// A writer reserves a position with one fetch_add, claims the slot by exchanging its word 0 for
// `busy`, stores the body, and publishes word 0 with the position's number. A slot that is still
// busy when the ring has come round (its writer was descheduled for a whole lap) is left alone and
// the new record is dropped and counted: so no slot ever has two writers, and a record with the
// right number is whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "record.h"

namespace mycroft {

class RingWriter {
 public:
  RingWriter() = default;
  // Both in memory that outlives the writer. `records` > 0.
  RingWriter(FileHeader* header, uint64_t* slots, uint64_t records) noexcept
      : header_(header), slots_(slots), records_(records) {}

  // `record` is any of the 64-byte records; its word 0 is filled in here.
  template <typename Record>
  bool write(const Record& record, RecordType type, uint8_t channel, uint8_t flags) noexcept {
    static_assert(sizeof(Record) == kRecordBytes);
    uint64_t words[kRecordBytes / 8];
    std::memcpy(words, &record, kRecordBytes);
    return write_words(words, type, channel, flags);
  }

  uint64_t head() const noexcept {
    return std::atomic_ref<uint64_t>(header_->head).load(std::memory_order_relaxed);
  }
  uint64_t lost() const noexcept {
    return std::atomic_ref<uint64_t>(header_->lost).load(std::memory_order_relaxed);
  }

 private:
  // A writer that slept between reservation and claim must not replace a record of a later lap.
  static bool is_newer(uint64_t old, uint64_t mine) noexcept {
    const uint64_t ahead = ((old & kSequenceMask) - (mine & kSequenceMask)) & kSequenceMask;
    return (old & kSequenceMask) != 0 && ahead != 0 && ahead < (kSequenceMask >> 1);
  }

  bool write_words(const uint64_t* words, RecordType type, uint8_t channel,
                   uint8_t flags) noexcept {
    // acq_rel: the reservation is seen before the slot changes, so that a reader which sees our
    // bytes also sees a head past the position it thought it was copying.
    const uint64_t position =
        std::atomic_ref<uint64_t>(header_->head).fetch_add(1, std::memory_order_acq_rel);
    uint64_t* slot = slots_ + (position % records_) * (kRecordBytes / 8);
    std::atomic_ref<uint64_t> word0(slot[0]);
    uint64_t old = word0.load(std::memory_order_relaxed);
    const uint64_t busy = record_word0(position, RecordType::busy, 0, 0);
    // acquire: our body stores come after the claim.
    if (word0_type(old) == RecordType::busy || is_newer(old, busy) ||
        !word0.compare_exchange_strong(old, busy, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      std::atomic_ref<uint64_t>(header_->lost).fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    std::atomic_thread_fence(std::memory_order_release);  // `busy` is seen before the new body
    for (uint32_t i = 1; i < kRecordBytes / 8; ++i) {
      std::atomic_ref<uint64_t>(slot[i]).store(words[i], std::memory_order_relaxed);
    }
    // release: publishes the body before the number that makes it valid.
    word0.store(record_word0(position, type, channel, flags), std::memory_order_release);
    return true;
  }

  FileHeader* header_ = nullptr;
  uint64_t* slots_ = nullptr;
  uint64_t records_ = 1;
};

}  // namespace mycroft
