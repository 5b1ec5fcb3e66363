// Scenarios that end standing: every way in which one rank, or the network, holds up the others.
#include <signal.h>
#include <unistd.h>

#include "scenarios.h"
#include "virtual_clock.h"

namespace mycroft::replay {
namespace {

// Long enough for every age limit of the analysis.
constexpr int kStallSeconds = 30;

// One good operation, one with the fault, one enqueued behind it; then everybody stands.
void stall(Stage& stage, OpPlan plan, FaultKind kind, int rank, uint32_t after) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const CollSpec coll = coll_of(plan);
  PlayedOp* good = p.begin(comm, plan, coll);
  p.settle({good});
  p.let_close();
  const OpPlan next = plan;
  plan.fault = {kind, rank, after};
  PlayedOp* bad = p.begin(comm, plan, coll, {.late_stop = true});
  PlayedOp* behind = nullptr;
  if (!(kind == FaultKind::absent && comm.spec.rank == rank)) {
    behind = p.begin(comm, next, coll, {.queued = true});
  }
  p.settle({bad});
  p.hold(kStallSeconds);
  (void)behind;
}

void stall_pair(Stage& stage, FaultKind kind, int rank, uint32_t after) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  OpPlan plan = exchange(stage.ranks);
  PlayedOp* good = p.begin_pairs(comm, plan, 1000);
  p.settle({good});
  p.let_close();
  plan.pairs = {{0, 1}};
  plan.fault = {kind, rank, after};
  PlayedOp* bad = p.begin_pairs(comm, plan, 1000);
  p.settle({bad});
  p.hold(kStallSeconds);
}

OpPlan ring_of(const Stage& stage) { return plan_of(Pattern::ring_all_reduce, stage.ranks); }
OpPlan tree_of(const Stage& stage) { return plan_of(Pattern::tree_all_reduce, stage.ranks); }

}  // namespace

void stall_absent(Stage& s) { stall(s, ring_of(s), FaultKind::absent, 2, 0); }
void stall_gpu_idle(Stage& s) { stall(s, ring_of(s), FaultKind::gpu_idle, 1, 0); }
void stall_gpu(Stage& s) { stall(s, ring_of(s), FaultKind::gpu_stops, 2, 7); }
void stall_send_proxy(Stage& s) { stall(s, ring_of(s), FaultKind::send_proxy, 1, 5); }
void stall_recv_proxy(Stage& s) { stall(s, ring_of(s), FaultKind::recv_proxy, 3, 6); }
void stall_network(Stage& s) { stall(s, ring_of(s), FaultKind::network, 0, 4); }
void stall_flush(Stage& s) { stall(s, ring_of(s), FaultKind::flush, 2, 5); }
void stall_tree_network(Stage& s) { stall(s, tree_of(s), FaultKind::network, 3, 6); }
void stall_tree_gpu(Stage& s) { stall(s, tree_of(s), FaultKind::gpu_stops, 1, 9); }
void stall_tree_absent(Stage& s) { stall(s, tree_of(s), FaultKind::absent, 3, 0); }

void stall_pair_absent(Stage& s) { stall_pair(s, FaultKind::absent, 1, 0); }
void stall_pair_network(Stage& s) { stall_pair(s, FaultKind::network, 0, 5); }

// The victim communicator waits for a rank that stands in another one.
void stall_across_comms(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& all = world(stage);
  PlayedComm& pair = p.open_comm("pair", 0xAB, {2, 3});
  begin_trace(stage);
  OpPlan narrow = plan_of(Pattern::ring_half, 2);
  CollSpec gather = coll_of(narrow);
  gather.func = "AllGather";
  const OpPlan wide = plan_of(Pattern::ring_all_reduce, stage.ranks);
  PlayedOp* good = p.begin(pair, narrow, gather);
  PlayedOp* wide_good = p.begin(all, wide, coll_of(wide));
  p.settle({good, wide_good});
  p.let_close();
  narrow.fault = {FaultKind::network, 1, 3};  // rank 1 of the pair: global 3
  PlayedOp* bad = p.begin(pair, narrow, gather);
  // Ranks 2 and 3 are inside the pair's operation and do not come to the next of all.
  OpPlan late = wide;
  late.fault = {FaultKind::absent, 2, 0};
  if (p.rank < 2) {
    PlayedOp* waits = p.begin(all, late, coll_of(late));
    p.settle({bad, waits});
  } else {
    p.settle({bad});
  }
  p.hold(kStallSeconds);
}

// A rank dies in the middle; the others stand.
void crash(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  PlayedOp* op = p.begin(comm, plan, coll_of(plan));
  p.settle({op});
  p.let_close();
  OpPlan broken = plan;
  broken.fault = {FaultKind::gpu_stops, 2, 7};  // nothing of rank 2 moves any more
  PlayedOp* bad = p.begin(comm, broken, coll_of(broken));
  p.settle({bad});
  p.hold(p.rank == 2 ? 1 : kStallSeconds);
}

}  // namespace mycroft::replay
