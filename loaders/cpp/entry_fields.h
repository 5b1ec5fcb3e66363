// The fields of an entry of a Flight Recorder dump, by their names in all layouts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace mycroft {

enum class Field : std::uint8_t {
  kUnknown,
  kFrames,
  kRecordId,
  kPgId,
  kProcessGroup,
  kSeqId,
  kCollectiveSeqId,
  kP2pSeqId,
  kOpId,
  kProfilingName,
  kTimeCreatedNs,
  kTimeCreatedUs,
  kDurationMs,
  kInputSizes,
  kInputDtypes,
  kOutputSizes,
  kOutputDtypes,
  kState,
  kSeenStart,
  kSeenEnd,
  kRetired,
  kTimeoutMs,
  kIsP2p,
};

// Looks names up. Not thread-safe; the texts given must outlive it, as those of a document do.
class EntryFields {
 public:
  Field of(std::string_view name);

 private:
  // Picklers remember strings: the same name is mostly the same place in the input.
  struct Known {
    const char* text = nullptr;
    std::size_t length = 0;
    Field field = Field::kUnknown;
  };
  std::array<Known, 256> known_ = {};
};

}  // namespace mycroft
