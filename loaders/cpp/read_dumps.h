// Dumps from files, on several threads.
#pragma once

#include <string>
#include <vector>

#include "flight_recorder.h"

namespace mycroft {

// Reads files with `threads` threads, in any order; the result is in the order given. Files above
// `max_bytes` and unreadable ones are refused in their DumpInfo.
std::vector<Dump> read_dumps(const std::vector<std::string>& paths, unsigned threads,
                             std::size_t max_bytes, Pool& pool);

}  // namespace mycroft
