// One operation over a ring or over two trees, slice by slice.
#pragma once

#include <cstdint>
#include <vector>

#include "model.h"

namespace mycroft::simulator {

inline constexpr uint32_t kSlices = 2;     // of a chunk
inline constexpr uint32_t kRingSlots = 4;  // slices in flight: eight steps, two a slice
inline constexpr uint32_t kPairSlots = 8;
inline constexpr uint32_t kWindow = 8;       // slices that the recurrences look back to, and more
inline constexpr uint32_t kJitterRows = 64;  // different rows of jitter

// Columns of times, [slice * ranks + member]; without rows only the last slices are kept, in turn.
struct RingTimes {
  uint32_t kept = kWindow;
  std::vector<Time> posted, ready, moved, done;   // posted: as receiver; the rest: as sender
  std::vector<Time> received, flushed, consumed;  // as receiver
  size_t row(uint32_t j, uint32_t n) const { return size_t{j % kept} * n; }
  void keep(uint32_t slices, uint32_t n) {
    kept = slices < kWindow ? kWindow : slices;
    resize(size_t{kept} * n);
  }
  void resize(size_t n) {
    for (auto* v : {&posted, &ready, &moved, &done, &received, &flushed, &consumed}) v->resize(n);
  }
};

struct RingSpec {
  const uint32_t* ranks = nullptr;  // global rank of each member
  uint32_t n = 0;
  uint32_t loops = 1;  // of n - 1 sends, each of kSlices slices
  uint32_t channel = 0;
  double w = 0, g = 0, f = 0, latency = 0;
  bool keep = false;                   // all slices, for rows
  const double* jitter = nullptr;      // kJitterRows * n values
  const double* congestion = nullptr;  // factor on what each member sends
  uint32_t slices() const { return loops * (n - 1) * kSlices; }
};

// `enq`, `start`: when each member's proxy and kernel begin. `end` gets when its kernel ends.
// `proxy_free` is what a sleeping proxy leaves behind.
void run_ring(const RingSpec& spec, const Broken& broken, bool touched, const Time* enq,
              const Time* start, Time* end, Time* proxy_free, RingTimes& times, Random& random);

struct TreeEdge {
  uint32_t child = 0, parent = 0;  // members
};
// Edges of one of the two trees, deepest children first.
std::vector<TreeEdge> tree_edges(uint32_t n, bool second);

// Columns per edge: [slice * edges + edge]. `up` is child to parent, `down` parent to child.
struct TreeTimes {
  RingTimes up, down;
};
void run_tree(const RingSpec& spec, const std::vector<TreeEdge>& edges, uint32_t slices,
              const Broken& broken, const Time* enq, const Time* start, Time* end, TreeTimes& times,
              Random& random);

}  // namespace mycroft::simulator
