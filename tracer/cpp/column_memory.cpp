#include "column_memory.h"

#include <sys/mman.h>

#include <mutex>
#include <vector>

namespace mycroft {
namespace {

constexpr size_t kMostKept = size_t{256} << 20;

#ifndef MADV_FREE
#define MADV_FREE 8
#endif

std::mutex mutex;

// Never destroyed: columns can outlive the module's own objects at exit.
std::vector<ColumnMemory>& kept() {
  static auto* list = new std::vector<ColumnMemory>;
  return *list;
}
size_t kept_bytes = 0;

}  // namespace

ColumnMemory take_column_memory(size_t bytes) {
  const size_t whole = (bytes + 2 * kLargePage) & ~(kLargePage - 1);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    auto& list = kept();
    size_t best = list.size();
    for (size_t i = 0; i < list.size(); ++i) {
      const bool fits = list[i].bytes >= whole && list[i].bytes <= 4 * whole;
      if (fits && (best == list.size() || list[i].bytes < list[best].bytes)) best = i;
    }
    if (best != list.size()) {
      const ColumnMemory found = list[best];
      list[best] = list.back();
      list.pop_back();
      kept_bytes -= found.bytes;
      return found;
    }
  }
  void* mapping = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return {};
  madvise(mapping, whole, MADV_HUGEPAGE);  // a hint: few first touches instead of many
  return {mapping, whole};
}

void give_column_memory(ColumnMemory memory) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (kept_bytes + memory.bytes <= kMostKept &&
        madvise(memory.mapping, memory.bytes, MADV_FREE) == 0) {
      kept().push_back(memory);
      kept_bytes += memory.bytes;
      return;
    }
  }
  munmap(memory.mapping, memory.bytes);
}

}  // namespace mycroft
