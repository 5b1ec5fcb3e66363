// What a script did, told by the script itself: the other side of the comparison. Sums are computed
// from the recorded times by the formulas of their definition, not the way the recorder computes
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mycroft::replay {

inline constexpr uint64_t kNever = UINT64_MAX;

struct TruthFlow {
  std::string comm;
  uint64_t seq = 0;
  std::string kind;
  int channel = 0, peer = 0;
  bool send = false;
  bool foreign = false;
  uint32_t total = 0;   // in the unit of the ABI
  uint32_t unit = 1;    // counts per chunk in that unit
  uint32_t window = 8;  // chunks that fit
  // Counts as reported so far, chunks.
  uint32_t posted = 0, ready = 0, moved = 0, done = 0;
  uint64_t bytes = 0;
  uint64_t begin_ns = 0, last_move_ns = 0;
  std::vector<uint64_t> t_posted, t_ready, t_moved, t_done;
  bool running = false, stopped = false, aborted = false;
  bool recorded = true;  // false: the recorder cannot know of it

  struct Sums {
    uint64_t net_busy = 0, net_max = 0, peer_wait = 0, peer_wait_max = 0;
    uint64_t post_delay = 0, post_delay_max = 0, flush = 0, gpu_hold = 0;
  };
  Sums sums() const;
};

struct TruthOp {
  std::string comm;
  uint64_t seq = 0;
  std::string kind;
  bool p2p = false;
  int peer = -1;  // other rank, or root; -1: none
  uint64_t bytes = 0;
  int64_t source_seq = -1;
  uint64_t enq_ns = 0;
  std::string state = "open";  // last state that the trace must hold
  int64_t dur_ns = -1;         // -1: none
  uint32_t flows = 0;
  bool kernel_end = false;
};

struct TruthComm {
  std::string name;
  uint64_t hash = 0;
  int rank = 0, size = 0;
  bool named = true;  // v1-v3: known only after the first operation
  bool closed = false;
  int64_t last_seq = -1;
};

// A moment at which the script stood still and the sampler looked at it.
struct TruthHold {
  uint64_t from_ns = 0, to_ns = 0;
  struct Row {
    std::string comm;
    uint64_t seq;
    int channel, peer;
    bool send, foreign;
    uint32_t total, posted, ready, moved, done;
    uint64_t bytes;
    uint64_t last_move_ns;
  };
  std::vector<Row> rows;
  uint32_t open_ops = 0;
};

struct TruthForeign {
  int64_t pid;
  uint64_t context, parent;
  int rank, channel, peer;
  bool send;
  uint32_t total;
};

struct Truth {
  int rank = 0, abi = 0, pid = 0;
  std::string scenario;
  std::vector<TruthComm> comms;
  std::vector<TruthOp> ops;
  std::vector<TruthFlow> flows;
  std::vector<TruthHold> holds;
  std::vector<TruthForeign> foreign;
  std::vector<std::string> violations;

  std::string to_json() const;
};

}  // namespace mycroft::replay
