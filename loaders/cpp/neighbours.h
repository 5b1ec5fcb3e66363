// What the operations of one dump say of each other, once all are read.
#pragma once

#include <cstdint>
#include <vector>

#include "columns.h"
#include "flight_recorder.h"

namespace mycroft {

// Both numbers of every operation, row by row: a closing entry counts as what it closes does.
struct Numbers {
  std::vector<std::int64_t> collective, p2p;
};

// Marks coalesced groups, numbers the sends and receives of each pair, and says in `info` what the
// recorder can see.
void derive(DumpInfo& info, Columns& ops, const Numbers& numbers);

}  // namespace mycroft
