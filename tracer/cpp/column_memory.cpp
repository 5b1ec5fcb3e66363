#include "column_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace mycroft {
namespace {

constexpr size_t kMostKept = size_t{128} << 20;
constexpr size_t kMostMappings = 128;

#ifndef MADV_FREE
#define MADV_FREE 8
#endif

std::mutex mutex;

struct Kept {
  ColumnMemory memory;
  size_t touched;  // bytes that have pages
};

// Never destroyed: columns can outlive the module's own objects at exit.
std::vector<Kept>& kept() {
  static auto* list = new std::vector<Kept>;
  return *list;
}
size_t kept_bytes = 0;

}  // namespace

unsigned char* ColumnMemory::start() const {
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  return reinterpret_cast<unsigned char*>((address + kLargePage - 1) & ~(kLargePage - 1));
}

ColumnMemory take_column_memory(size_t bytes) {
  const size_t whole = (bytes + 2 * kLargePage) & ~(kLargePage - 1);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    auto& list = kept();
    size_t best = list.size();
    for (size_t i = 0; i < list.size(); ++i) {
      const size_t size = list[i].memory.bytes;
      if (size < whole || size > 4 * whole) continue;
      if (best == list.size() || size < list[best].memory.bytes) best = i;
    }
    if (best != list.size()) {
      const Kept found = list[best];
      list[best] = list.back();
      list.pop_back();
      kept_bytes -= found.touched;
      return found.memory;
    }
  }
  void* mapping = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return {};
  madvise(mapping, whole, MADV_HUGEPAGE);  // a hint: few first touches instead of many
  return {mapping, whole};
}

void give_column_memory(ColumnMemory memory, size_t used) {
  // Large pages are touched whole; what an earlier user of the memory touched beyond is not
  // counted.
  const size_t touched = (used + kLargePage - 1) & ~(kLargePage - 1);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (kept_bytes + touched <= kMostKept && kept().size() < kMostMappings &&
        madvise(memory.start(), touched, MADV_FREE) == 0) {
      kept().push_back({memory, touched});
      kept_bytes += touched;
      return;
    }
  }
  munmap(memory.mapping, memory.bytes);
}

}  // namespace mycroft
