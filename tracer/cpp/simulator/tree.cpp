// All-reduce over a tree: sums go up, results come down in a second pass, as the kernel does it.
#include <algorithm>

#include "ring.h"
#include "testbed/algorithms.h"

namespace mycroft::simulator {

std::vector<TreeEdge> tree_edges(uint32_t n, bool second) {
  std::vector<uint32_t> depth(n, 0);
  std::vector<TreeEdge> edges;
  const auto parent_of = [&](uint32_t i) { return testbed::tree_node(i, n, second).parent; };
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t at = parent_of(i); at != testbed::kNowhere; at = parent_of(at)) ++depth[i];
    if (parent_of(i) != testbed::kNowhere) edges.push_back({i, parent_of(i)});
  }
  std::stable_sort(edges.begin(), edges.end(), [&](const TreeEdge& a, const TreeEdge& b) {
    return depth[a.child] > depth[b.child];
  });
  return edges;
}

namespace {

// One slice over one edge; `ready` is when the source's kernel has filled it.
void cross(const RingSpec& s, const Broken& b, size_t at, uint32_t edges, uint32_t j, uint32_t src,
           uint32_t dst, Time enq_dst, RingTimes& t, Random& random) {
  const size_t row = size_t{edges};
  Time posted = enq_dst;
  if (j >= kPairSlots) posted = later(posted, t.consumed[at - kPairSlots * row]);
  Time last_moved = 0, last_done = 0;
  if (j != 0) {
    posted = later(posted, t.posted[at - row]);
    last_moved = t.moved[at - row];
    last_done = t.done[at - row];
  }
  const uint32_t a = s.ranks[src], z = s.ranks[dst];
  t.posted[at] = b.post(z, posted);
  Time moved = later(later(t.ready[at], t.posted[at] + s.latency), last_moved);
  moved = b.process(a, moved < kNever ? b.proxy_sleep(a, moved, random) : moved);
  t.moved[at] = moved;
  const Time begin = later(moved, last_done);
  const Time wire =
      begin < kNever ? b.wire(begin, s.w * s.congestion[src], a, z, s.channel, random) : kNever;
  t.done[at] = b.process(a, wire);
  t.received[at] = b.process(z, wire + s.latency);
  t.flushed[at] = t.received[at] + s.f * b.flush(z, t.received[at]);
}

}  // namespace

void run_tree(const RingSpec& s, const std::vector<TreeEdge>& edges, uint32_t slices,
              const Broken& b, const Time* enq, const Time* start, Time* end, TreeTimes& t,
              Random& random) {
  const auto m = static_cast<uint32_t>(edges.size());
  t.up.resize(size_t{slices} * m);
  t.down.resize(size_t{slices} * m);
  std::vector<Time> gpu_free(start, start + s.n);
  std::vector<Time> input(s.n);
  const auto kernel = [&](uint32_t member, Time from) {
    const Time a = later(gpu_free[member], from);
    return gpu_free[member] = b.gpu(s.ranks[member], a + s.g * b.copy(s.ranks[member], a));
  };
  for (uint32_t j = 0; j < slices; ++j) {
    std::fill(input.begin(), input.end(), 0.0);
    // Deepest first: when an edge is visited, everything below its child has come up.
    for (uint32_t e = 0; e < m; ++e) {
      const size_t at = size_t{j} * m + e;
      const uint32_t child = edges[e].child, parent = edges[e].parent;
      Time from = input[child];
      if (j >= kPairSlots) from = later(from, t.up.done[at - size_t{kPairSlots} * m]);
      t.up.ready[at] = kernel(child, from);
      cross(s, b, at, m, j, child, parent, enq[parent], t.up, random);
      input[parent] = later(input[parent], t.up.flushed[at]);
    }
    const uint32_t root = edges.empty() ? 0 : edges.back().parent;
    kernel(root, input[root]);
    // What a rank has taken from its children it has consumed when it went on.
    for (uint32_t e = 0; e < m; ++e) t.up.consumed[size_t{j} * m + e] = gpu_free[edges[e].parent];
  }
  for (uint32_t j = 0; j < slices; ++j) {
    for (uint32_t e = m; e-- > 0;) {
      const size_t at = size_t{j} * m + e;
      const uint32_t child = edges[e].child, parent = edges[e].parent;
      Time from = 0;
      if (j >= kPairSlots) from = t.down.done[at - size_t{kPairSlots} * m];
      t.down.ready[at] = kernel(parent, from);
      cross(s, b, at, m, j, parent, child, enq[child], t.down, random);
      t.down.consumed[at] = kernel(child, t.down.flushed[at]);
    }
  }
  std::copy(gpu_free.begin(), gpu_free.end(), end);
}

}  // namespace mycroft::simulator
