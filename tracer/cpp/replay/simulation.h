// What happens in one operation on all its ranks, poll by poll: proxies, network and kernels, with
// one fault if wanted. Deterministic, so that every process of a replayed job can compute the whole
// and play its own part. Knows no ABI and no plugin.
#pragma once

#include <cstdint>
#include <vector>

namespace mycroft::replay {

enum class Pattern { ring_all_reduce, ring_half, tree_all_reduce, pairs };

enum class FaultKind {
  none,
  absent,      // `rank` never enqueues the operation
  gpu_idle,    // its kernel does not start
  gpu_stops,   // its kernel stops after `after` chunks
  send_proxy,  // its proxy hands nothing over from chunk `after` on, though there is credit
  recv_proxy,  // its proxy posts nothing from chunk `after` on
  network,     // what `rank` sends is not delivered from chunk `after` on
  flush,       // its flushes do not complete from chunk `after` on
};

struct Fault {
  FaultKind kind = FaultKind::none;
  int rank = -1;
  uint32_t after = 0;
};

struct Pair {
  int src, dst;
};

struct OpPlan {
  Pattern pattern = Pattern::ring_all_reduce;
  int ranks = 2;
  int channels = 1;
  int loops = 2;            // ring: passes; else chunks per flow
  uint32_t slots = 4;       // chunks in flight per connection
  std::vector<Pair> pairs;  // for Pattern::pairs
  Fault fault;
};

struct Flow {
  int channel, src, dst;
  uint32_t total;
  // Sender's proxy; `filled` is the GPU's own count, `ready` what the proxy has seen.
  uint32_t posted = 0, filled = 0, ready = 0, moved = 0, done = 0;
  uint32_t arrived = 0, acked = 0;  // network
  // Receiver's proxy; `used` is the GPU's own count.
  uint32_t r_posted = 0, received = 0, flushed = 0, used = 0, consumed = 0;
};

enum class Step {
  send_posted,
  send_ready,
  send_moved,
  send_done,
  recv_start,
  recv_posted,
  recv_moved,
  recv_ready,
  recv_done
};

// Told of every event of a proxy, in its order. `count` chunks have now reached that stage.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void event(int rank, int flow, Step step, uint32_t count) = 0;
};

class Simulation {
 public:
  explicit Simulation(const OpPlan& plan);

  const OpPlan& plan() const { return plan_; }
  const std::vector<Flow>& flows() const { return flows_; }
  bool takes_part(int rank) const {
    return !(plan_.fault.kind == FaultKind::absent && plan_.fault.rank == rank);
  }
  // One poll of every proxy and one turn of every kernel. Returns false if nothing moved.
  bool round(Listener& listener);
  bool finished() const;

 private:
  bool faulty(FaultKind kind, int rank, uint32_t count) const {
    return plan_.fault.kind == kind && plan_.fault.rank == rank && count >= plan_.fault.after;
  }
  bool poll_send(Flow& f, int index, Listener& listener);
  bool poll_recv(Flow& f, int index, Listener& listener);
  bool network(Flow& f);
  bool kernel(int rank, int channel);
  bool input_there(const Flow& send, uint32_t chunk) const;
  bool can_use(const Flow& recv, uint32_t chunk) const;

  OpPlan plan_;
  std::vector<Flow> flows_;
};

}  // namespace mycroft::replay
