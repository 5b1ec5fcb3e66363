#include "algorithms.h"

#include <algorithm>

namespace mycroft::testbed {
namespace {

constexpr uint64_t kNone = ~uint64_t{0};

struct Range {
  uint64_t begin = 0, end = 0;
};

// Channel c's part of `elements`.
Range channel_part(uint64_t elements, uint32_t channels, uint32_t c) {
  const uint64_t each = (elements + channels - 1) / channels;
  const uint64_t begin = std::min(elements, each * c);
  return {begin, std::min(elements, begin + each)};
}

void count_slices(Program& p) {
  for (const Primitive& primitive : p.primitives) {
    for (int i = 0; i < kMostPeers; ++i) {
      if (primitive.recv[i] >= 0) p.edges[primitive.recv[i]].slices += p.slices_per_chunk;
      if (primitive.send[i] >= 0) p.edges[primitive.send[i]].slices += p.slices_per_chunk;
    }
  }
}

// Ring: edge 0 receives from the one before, edge 1 sends to the one after.
Program ring_program(const Request& q, uint32_t channel) {
  const uint32_t n = q.ranks;
  Program p;
  p.channel = static_cast<uint8_t>(channel);
  const bool rooted = q.kind == Kind::broadcast;
  // NCCL: four steps a chunk and two a slice, but one and one for broadcast.
  p.slice_steps = rooted ? 1 : 2;
  p.slices_per_chunk = rooted ? 1 : 2;
  p.edges = {{p.channel, (q.rank + n - 1) % n, false, 0}, {p.channel, (q.rank + 1) % n, true, 0}};
  const auto at = [n, &q](uint32_t back) { return (q.rank + n - back % n) % n; };
  const uint64_t chunk =
      std::max<uint64_t>(1, uint64_t{q.slot_bytes} * p.slice_steps * p.slices_per_chunk / 4);
  const Range mine = channel_part(q.elements, q.channels, channel);
  const auto add = [&p](bool recv, bool send, uint64_t source, uint64_t target, uint64_t count,
                        bool from_output = false) {
    Primitive primitive;
    if (recv) primitive.recv[0] = 0;
    if (send) primitive.send[0] = 1;
    primitive.source = source;
    primitive.target = target;
    primitive.elements = static_cast<uint32_t>(count);
    primitive.from_output = from_output;
    p.primitives.push_back(primitive);
  };
  if (q.kind == Kind::all_reduce) {
    for (uint64_t begin = mine.begin; begin < mine.end; begin += chunk * n) {
      const uint64_t rest = mine.end - begin;
      const uint64_t each = std::min<uint64_t>(chunk, (rest + n - 1) / n);
      const auto part = [&](uint32_t owner) {
        const uint64_t from = begin + std::min(rest, each * owner);
        return Range{from, begin + std::min(rest, each * (owner + 1))};
      };
      const auto step = [&](uint32_t owner, bool recv, bool send, bool source, bool target) {
        const Range r = part(owner);
        add(recv, send, source ? r.begin : kNone, target ? r.begin : kNone, r.end - r.begin);
      };
      step(at(1), false, true, true, false);
      for (uint32_t j = 2; j < n; ++j) step(at(j), true, true, true, false);
      step(at(n), true, true, true, true);
      for (uint32_t j = 1; j + 1 < n; ++j) step(at(j), true, true, false, true);
      step(at(n - 1), true, false, false, true);
    }
  } else {
    for (uint64_t begin = mine.begin; begin < mine.end; begin += chunk) {
      const uint64_t count = std::min(chunk, mine.end - begin);
      if (q.kind == Kind::reduce_scatter) {
        add(false, true, at(1) * q.elements + begin, kNone, count);
        for (uint32_t j = 2; j < n; ++j) add(true, true, at(j) * q.elements + begin, kNone, count);
        add(true, false, q.rank * q.elements + begin, begin, count);
      } else if (q.kind == Kind::all_gather) {
        add(false, true, begin, q.rank * q.elements + begin, count);
        for (uint32_t j = 1; j + 1 < n; ++j)
          add(true, true, kNone, at(j) * q.elements + begin, count);
        add(true, false, kNone, at(n - 1) * q.elements + begin, count);
      } else {
        const bool first = q.rank == q.peer, last = (q.rank + 1) % n == q.peer;
        add(!first, !last, first ? begin : kNone, begin, count);
      }
    }
  }
  count_slices(p);
  return p;
}

Program tree_program(const Request& q, uint32_t channel) {
  Program p;
  p.channel = static_cast<uint8_t>(channel);
  const TreeNode node = tree_node(q.rank, q.ranks, channel % 2 == 1);
  int8_t up_in[2] = {-1, -1}, down_out[2] = {-1, -1}, up_out = -1, down_in = -1;
  const auto edge = [&p](uint32_t peer, bool send) {
    p.edges.push_back({p.channel, peer, send, 0});
    return static_cast<int8_t>(p.edges.size() - 1);
  };
  for (int i = 0; i < 2; ++i) {
    if (node.children[i] == kNowhere) continue;
    up_in[i] = edge(node.children[i], false);
    down_out[i] = edge(node.children[i], true);
  }
  if (node.parent != kNowhere) {
    up_out = edge(node.parent, true);
    down_in = edge(node.parent, false);
  }
  const Range mine = channel_part(q.elements, q.channels, channel);
  const uint64_t chunk = std::max<uint64_t>(1, q.slot_bytes / 4);
  // The root stores what has come up and sends it down in a second pass, as NCCL does: with one
  // pass the slots below it would fill while its children are still sending up.
  for (int pass = 0; pass < 2; ++pass) {
    for (uint64_t begin = mine.begin; begin < mine.end; begin += chunk) {
      Primitive primitive;
      primitive.elements = static_cast<uint32_t>(std::min(chunk, mine.end - begin));
      if (pass == 0) {
        std::copy(up_in, up_in + 2, primitive.recv);
        primitive.send[0] = up_out;
        primitive.source = begin;
        if (up_out < 0) primitive.target = begin;
      } else {
        primitive.recv[0] = down_in;
        std::copy(down_out, down_out + 2, primitive.send);
        if (down_in < 0) {
          primitive.source = begin;
          primitive.from_output = true;
        } else {
          primitive.target = begin;
        }
      }
      p.primitives.push_back(primitive);
    }
  }
  count_slices(p);
  return p;
}

// A stream of chunks to or from one peer; nothing on it waits for anything else.
Program pair_program(const Request& q, uint32_t channel, uint32_t peer, bool send, uint64_t offset,
                     Range part) {
  Program p;
  p.channel = static_cast<uint8_t>(channel);
  p.edges = {{p.channel, peer, send, 0}};
  const uint64_t chunk = std::max<uint64_t>(1, q.slot_bytes / 4);
  for (uint64_t begin = part.begin; begin < part.end; begin += chunk) {
    Primitive primitive;
    (send ? primitive.send : primitive.recv)[0] = 0;
    (send ? primitive.source : primitive.target) = offset + begin;
    primitive.elements = static_cast<uint32_t>(std::min(chunk, part.end - begin));
    p.primitives.push_back(primitive);
  }
  count_slices(p);
  return p;
}

}  // namespace

uint32_t part_offset(uint32_t elements, uint32_t parts, uint32_t k) {
  const uint32_t each = (elements + parts - 1) / parts;
  return std::min(elements, each * k);
}

uint32_t part_elements(uint32_t elements, uint32_t parts, uint32_t k) {
  return part_offset(elements, parts, k + 1) - part_offset(elements, parts, k);
}

TreeNode tree_node(uint32_t rank, uint32_t ranks, bool second) {
  // The second tree is the first with the ranks turned round (even) or shifted by one (odd), so
  // that a rank that is inside one is a leaf of the other.
  const bool even = ranks % 2 == 0;
  const auto there = [=](uint32_t r) {
    return !second ? r : even ? ranks - 1 - r : (r + ranks - 1) % ranks;
  };
  const auto back = [=](uint32_t r) {
    return !second ? r : even ? ranks - 1 - r : (r + 1) % ranks;
  };
  const uint32_t r = there(rank);
  TreeNode node;
  uint32_t bit = 1;
  while (bit < ranks && (r & bit) == 0) bit <<= 1;
  if (r == 0) {
    if (ranks > 1) node.children[0] = back(bit >> 1);
    return node;
  }
  const uint32_t up = (r ^ bit) | (bit << 1);
  node.parent = back(up < ranks ? up : r ^ bit);
  if (uint32_t low = bit >> 1; low != 0) {
    node.children[0] = back(r - low);
    while (low != 0 && r + low >= ranks) low >>= 1;
    if (low != 0) node.children[1] = back(r + low);
  }
  return node;
}

std::vector<Program> make_programs(const Request& q) {
  std::vector<Program> programs;
  if (q.kind == Kind::send || q.kind == Kind::recv) {
    for (uint32_t c = 0; c < q.channels; ++c) {
      programs.push_back(pair_program(q, c, q.peer, q.kind == Kind::send, 0,
                                      channel_part(q.elements, q.channels, c)));
    }
  } else if (q.kind == Kind::all_to_all) {
    for (uint32_t distance = 1; distance < q.ranks; ++distance) {
      const uint32_t to = (q.rank + distance) % q.ranks;
      const uint32_t from = (q.rank + q.ranks - distance) % q.ranks;
      const uint32_t channel = distance % q.channels;
      const Range all{0, q.elements};
      programs.push_back(pair_program(q, channel, to, true, to * q.elements, all));
      programs.push_back(pair_program(q, channel, from, false, from * q.elements, all));
    }
  } else if (q.ranks > 1) {
    for (uint32_t c = 0; c < q.channels; ++c) {
      programs.push_back(q.algo == Algo::tree && q.kind == Kind::all_reduce ? tree_program(q, c)
                                                                            : ring_program(q, c));
    }
  }
  std::erase_if(programs, [](const Program& p) { return p.primitives.empty(); });
  return programs;
}

}  // namespace mycroft::testbed
