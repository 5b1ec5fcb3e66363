// Records as columns, in the units and with the names of the tracer's decoder; `trace` says whose.
#pragma once

#include <cstdint>
#include <vector>

#include "model.h"

namespace mycroft::simulator {

inline constexpr int64_t kStartUtcNs = 1767225600000000000;  // 2026-01-01

// Codes of record.h.
enum class Op : uint8_t {
  all_reduce = 0,
  all_gather = 1,
  reduce_scatter = 2,
  send = 3,
  recv = 4,
  all_to_all = 9
};

struct StateRows {
  std::vector<uint32_t> trace, peer, chunks_total, posted, ready, moved, done, idle_ms, flow_id;
  std::vector<int64_t> ts;
  std::vector<uint16_t> comm;
  std::vector<uint64_t> op_seq, bytes;
  std::vector<uint8_t> op_kind, channel, send;
};
struct FlowRows {
  std::vector<uint32_t> trace, peer, slices;
  std::vector<int64_t> end_ts;
  std::vector<uint16_t> comm;
  std::vector<uint64_t> op_seq, bytes, net_busy_ns, net_max_ns, peer_wait_ns, peer_wait_max_ns;
  std::vector<uint8_t> op_kind, channel, send;
};
struct OpRows {
  std::vector<uint32_t> trace, flows;
  std::vector<int64_t> enq_ts, kstart_ts, dur_ns;  // -1: unknown
  std::vector<uint16_t> comm;
  std::vector<uint64_t> op_seq, bytes;
  std::vector<uint8_t> op_kind, channels;
  std::vector<int32_t> peer;  // -1: none
};
struct HeartbeatRows {
  std::vector<uint32_t> trace, open_ops;
  std::vector<int64_t> ts, oldest_open_ts, progress_ts;  // -1: none
};

struct Rows {
  StateRows state;
  FlowRows flow;
  OpRows op;
  HeartbeatRows heartbeat;
  size_t count() const {
    return state.trace.size() + flow.trace.size() + op.trace.size() + heartbeat.trace.size();
  }
};

// Times of one flow half, slice by slice, `stride` apart.
struct HalfTimes {
  const Time* posted = nullptr;  // receiver; sender: nullptr, a slot is posted as it gets free
  const Time* ready = nullptr;   // sender: filled; receiver: flushed
  const Time* moved = nullptr;   // sender: handed over; receiver: received
  const Time* done = nullptr;    // sender: acknowledged; receiver: consumed
  uint32_t slices = 0;
  uint32_t stride = 1;
  Time start = 0;
  uint32_t slots = 4;
};

struct FlowName {
  uint32_t rank = 0;
  uint16_t comm = 0;
  uint64_t op_seq = 0;
  Op kind = Op::all_reduce;
  uint8_t channel = 0;
  bool send = false;
  uint32_t peer = 0;
  uint64_t slice_bytes = 0;
};

class Recorder {
 public:
  Recorder(const Config& config, const Broken& broken);
  Rows rows;
  // A rank of job and trace until `horizon`; state rows at each tick of its host, sums at its end.
  void flow(const FlowName& name, const HalfTimes& times, Time horizon);
  // `channels` 0: no flows are seen (inside a host).
  void op(uint32_t rank, uint16_t comm, uint64_t seq, Op kind, Time enq, Time kstart, Time end,
          uint64_t bytes, uint8_t channels, uint32_t flows, int32_t peer, Time horizon);
  // An operation on a stream of its own (a send): does not say what the rank is inside of.
  void side_op(uint32_t rank, uint16_t comm, uint64_t seq, Op kind, Time enq, Time kstart, Time end,
               uint64_t bytes, int32_t peer, Time horizon);
  // Heartbeats of a rank up to `horizon`, after its last operation.
  void finish(uint32_t rank, Time horizon);
  void set_broken(const Broken& broken) { broken_ = broken; }

 private:
  int64_t stamp(uint32_t rank, Time t) const {
    return kStartUtcNs + static_cast<int64_t>(t + offset_[rank / config_.ranks_per_host]);
  }
  void add_op(uint32_t rank, uint16_t comm, uint64_t seq, Op kind, Time enq, Time kstart, Time end,
              uint64_t bytes, uint8_t channels, uint32_t flows, int32_t peer, Time trace_end);
  void beat(uint32_t rank, Time until, bool open, Time enq);
  Config config_;
  Broken broken_;
  std::vector<double> offset_;  // of each host's clock
  std::vector<double> phase_;   // of each host's 100 ms grid
  std::vector<Time> next_beat_, progress_;
};

}  // namespace mycroft::simulator
