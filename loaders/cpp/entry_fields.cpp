#include "entry_fields.h"

namespace mycroft {
namespace {

struct FieldName {
  std::string_view name;
  Field field;
};

constexpr std::array kFields = {
    FieldName{"frames", Field::kFrames},
    FieldName{"record_id", Field::kRecordId},
    FieldName{"pg_id", Field::kPgId},
    FieldName{"process_group", Field::kProcessGroup},
    FieldName{"seq_id", Field::kSeqId},
    FieldName{"collective_seq_id", Field::kCollectiveSeqId},
    FieldName{"p2p_seq_id", Field::kP2pSeqId},
    FieldName{"op_id", Field::kOpId},
    FieldName{"profiling_name", Field::kProfilingName},
    FieldName{"time_created_ns", Field::kTimeCreatedNs},
    FieldName{"time_created_us", Field::kTimeCreatedUs},
    FieldName{"duration_ms", Field::kDurationMs},
    FieldName{"input_sizes", Field::kInputSizes},
    FieldName{"input_dtypes", Field::kInputDtypes},
    FieldName{"output_sizes", Field::kOutputSizes},
    FieldName{"output_dtypes", Field::kOutputDtypes},
    FieldName{"state", Field::kState},
    FieldName{"time_discovered_started_ns", Field::kSeenStart},
    FieldName{"time_discovered_completed_ns", Field::kSeenEnd},
    FieldName{"retired", Field::kRetired},
    FieldName{"timeout_ms", Field::kTimeoutMs},
    FieldName{"is_p2p", Field::kIsP2p},
};

}  // namespace

Field EntryFields::of(std::string_view name) {
  Known& known = known_[(reinterpret_cast<std::uintptr_t>(name.data()) >> 1) % known_.size()];
  if (known.text == name.data() && known.length == name.size()) return known.field;
  Field found = Field::kUnknown;
  for (const FieldName& candidate : kFields) {
    if (candidate.name == name) {
      found = candidate.field;
      break;
    }
  }
  known = {name.data(), name.size(), found};
  return found;
}

}  // namespace mycroft
