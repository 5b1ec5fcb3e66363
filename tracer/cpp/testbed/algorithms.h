// What each collective does, step by step: which rank sends which part of which buffer to whom.
// Pure arithmetic, no threads; the same lists are checked by simulation in the tests.
//
// A program is what one channel's kernel runs: primitives in order, each split into `slices` parts.
// A primitive may wait for data of several peers, reduces it with the own part, stores the result
// and passes it on to several peers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mycroft::testbed {

enum class Kind : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  recv
};
enum class Algo : uint8_t { ring, tree };

inline constexpr uint32_t kSlots = 8;  // NCCL_STEPS
inline constexpr uint32_t kNowhere = ~0u;
inline constexpr int kMostPeers = 3;  // of one primitive: a tree's parent and two children

struct Edge {
  uint8_t channel = 0;
  uint32_t peer = 0;
  bool send = false;
  uint32_t slices = 0;  // over the whole operation
};

struct Primitive {
  int8_t recv[kMostPeers] = {-1, -1, -1};  // index into Program::edges
  int8_t send[kMostPeers] = {-1, -1, -1};
  uint64_t source = ~uint64_t{0};  // element of the input to read; all ones: none
  uint64_t target = ~uint64_t{0};  // element of the output to write
  uint32_t elements = 0;
  bool from_output = false;  // `source` counts in the output buffer
};

struct Program {
  uint8_t channel = 0;
  uint32_t slice_steps = 1;       // slots that one slice takes
  uint32_t slices_per_chunk = 1;  // parts of one primitive
  std::vector<Edge> edges;
  std::vector<Primitive> primitives;
};

struct Request {
  Kind kind = Kind::all_reduce;
  Algo algo = Algo::ring;
  uint32_t rank = 0;
  uint32_t ranks = 1;
  uint32_t channels = 1;
  uint32_t peer = 0;      // send, recv: the other; broadcast: the root
  uint64_t elements = 0;  // as NCCL counts: per rank for gather, scatter and all-to-all
  uint32_t slot_bytes = 1 << 14;
};

// One program per channel (send, recv, all-to-all: per channel and peer). Elements are 4 bytes.
std::vector<Program> make_programs(const Request& request);

struct TreeNode {
  uint32_t parent = kNowhere;
  uint32_t children[2] = {kNowhere, kNowhere};
};
// Node of `rank` in the first or second of the two complementary trees over `ranks`.
TreeNode tree_node(uint32_t rank, uint32_t ranks, bool second);

// Elements of part `k` of `parts`: all but the last are of equal size, some may be empty.
uint32_t part_elements(uint32_t elements, uint32_t parts, uint32_t k);
uint32_t part_offset(uint32_t elements, uint32_t parts, uint32_t k);

}  // namespace mycroft::testbed
