// Memory of long columns. What a decode gives back is kept for the next one, up to a limit: the
// kernel clears every page it hands out, and that takes longer than decoding into it. Kept memory
// is marked as free for the kernel to take when it needs some (MADV_FREE). Thread safe.
#pragma once

#include <cstddef>

namespace mycroft {

inline constexpr size_t kLargePage = size_t{2} << 20;

// A mapping of `bytes`, from any address on; nullptr: none could be had.
struct ColumnMemory {
  void* mapping = nullptr;
  size_t bytes = 0;
  // The boundary.
  unsigned char* start() const;
};

// Room for `bytes` behind the next boundary of a large page.
ColumnMemory take_column_memory(size_t bytes);
// `used`: bytes from that boundary on that were written.
void give_column_memory(ColumnMemory memory, size_t used);

}  // namespace mycroft
