// Plays one rank of a simulated job through the ABI, on the threads that NCCL would use, and keeps
// the truth.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi_host.h"
#include "lane.h"
#include "simulation.h"
#include "truth.h"

namespace mycroft::replay {

struct PlayedComm {
  CommSpec spec;
  std::vector<int> members;  // global ranks, by rank in the communicator
  void* context = nullptr;
  size_t truth = 0;
  uint64_t next_seq = 0;
  std::map<std::string, uint64_t> by_func;
  std::map<std::pair<bool, int>, uint64_t> by_pair;
  uint64_t p2p = 0;
};

class Player;

// One operation in progress.
class PlayedOp : public Listener {
 public:
  PlayedOp(Player& player, PlayedComm& comm, const OpPlan& plan);
  void event(int rank, int flow, Step step, uint32_t count) override;

  Simulation simulation;
  PlayedComm& comm;
  Event coll = nullptr;
  std::vector<Event> p2p;         // one per pair side of ours
  std::vector<size_t> truth_ops;  // as many
  bool queued = false;            // behind an earlier operation on the same connections
  uint32_t extra_polls = 0;       // each poll of a stall is repeated this often
  bool keep_open = false;         // never send the ProxyOp stops
  bool force_steps = false;       // ProxySteps come though nobody asked for them (NCCL up to 2.26)

  // Handles of its ProxyOps.
  std::vector<Event> events() const;

 private:
  friend class Player;
  struct Half {
    int flow;
    bool send;
    Event op = nullptr;
    size_t truth;
    size_t reported = 0;  // cumulative bytes as NCCL up to 2.26 has them
    bool stopped = false;
    std::map<uint32_t, Event> steps;
  };
  void unwanted_step(Half& half, uint32_t count);
  void by_op(Half& half, TruthFlow& f, Step step, uint32_t count);
  void by_step(Half& half, TruthFlow& f, Step step, uint32_t count);

  Player& player_;
  std::vector<Half> halves_;
  uint32_t unit_ = 1;
};

class Player {
 public:
  Player(Host& plugin_host, Truth& told, int own_rank)
      : host(plugin_host), truth(told), rank(own_rank) {}

  PlayedComm& open_comm(const std::string& name, uint64_t hash, const std::vector<int>& members);
  void close_comm(PlayedComm& comm);

  // Enqueues an operation on the application thread and announces its flows on the progress thread.
  // Returns it though this rank may have no part in it.
  struct How {
    bool late_stop = false;  // the flows are announced before the host's stop
    bool queued = false;     // they wait behind an earlier operation until release()
    bool replayed = false;   // from a CUDA graph: on a callback thread, with a parent long gone
  };
  PlayedOp* begin(PlayedComm& comm, const OpPlan& plan, const CollSpec& coll) {
    return begin(comm, plan, coll, How());
  }
  PlayedOp* begin(PlayedComm& comm, const OpPlan& plan, const CollSpec& coll, const How& how);
  PlayedOp* begin_pairs(PlayedComm& comm, const OpPlan& plan, size_t count);
  // Its flows reach the head of their connections.
  void release(PlayedOp& op);
  // One poll of everything; returns whether anything moved, on any rank.
  bool poll(const std::vector<PlayedOp*>& ops);
  // Polls until nothing moves; ends operations that are finished.
  void settle(const std::vector<PlayedOp*>& ops);
  // The ProxyOps of a finished operation stop, sends and receives each together.
  void end_if_finished(PlayedOp& op);
  // Waits until the sampler has looked twice, lets `seconds` pass, and notes what it must have
  // seen.
  void hold(int seconds);
  // Waits until the sampler has passed twice.
  void wait_for_sampler();
  // Whatever a plugin without a trace file has no part in.
  bool has_trace() const { return !trace_path_.empty(); }
  // Lets the operation close: the grace of the recorder passes.
  void let_close();
  void find_trace(const std::string& directory);
  const std::string& trace_path() const { return trace_path_; }

  // A step of time, before every callback.
  uint64_t pass();
  TruthFlow& new_flow(const PlayedOp& op, const Flow& flow, bool send);
  uint32_t unit_of(const CollSpec& coll) const;

  Host& host;
  Truth& truth;
  int rank;
  Lane app, callback, progress;
  std::vector<std::unique_ptr<PlayedComm>> comms;
  std::vector<std::unique_ptr<PlayedOp>> ops;

 private:
  void start_halves(PlayedOp& op);
  void end_truth(PlayedOp& op);

  std::string trace_path_;
  const volatile uint64_t* ticks_ = nullptr;
  std::atomic<uint32_t> passed_{0};
};

const char* kind_name(const std::string& func);
size_t type_size(const std::string& datatype);

}  // namespace mycroft::replay
