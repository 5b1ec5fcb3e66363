// Scenarios of work inside a host: no flows, and events of kernels as the only sign of an end.
#include "scenarios.h"
#include "virtual_clock.h"

namespace mycroft::replay {
namespace {

constexpr uint64_t kGpuBehind = 7000000000u;  // the GPU's clock has another epoch
constexpr uint64_t kDelivery = 4000;
constexpr int kStallSeconds = 30;

OpPlan inside_host(const Stage& stage) {
  OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  plan.channels = 0;  // nothing goes through a proxy
  return plan;
}

// The kernel of the newest operation starts and ends on three channels; before NCCL 2.26 there are
// no such events, and the operation reads as handed over.
void run_kernel(Stage& stage, PlayedComm& comm, const PlayedOp& op, bool first) {
  Player& p = stage.player;
  TruthOp& o = p.truth.ops.back();
  if (p.host.abi() < 3) {
    o.state = "enqueued";
    return;
  }
  p.progress.run([&] {
    std::vector<Event> kernels;
    uint64_t end = 0;
    for (uint8_t c = 0; c < 3; ++c) {
      const uint64_t now = p.pass();
      // Delivered by polling, the first of all soonest.
      const uint64_t late = kDelivery + (first && c == 0 ? 0 : 2000u + c);
      kernels.push_back(p.host.kernel_start(comm.context, c, now - late - kGpuBehind, op.coll));
    }
    for (uint8_t c = 0; c < 3; ++c) {
      const uint64_t now = p.pass();
      if (p.host.abi() >= 4) p.host.kernel_state(kernels[c], now - kGpuBehind);
      p.host.stop(kernels[c]);
      end = p.host.abi() >= 4 ? now + kDelivery : now;
    }
    o.dur_ns = static_cast<int64_t>(end - o.enq_ns);
    o.state = "completed";
    o.kernel_end = true;
  });
}

// Two operations whose kernels run, then two whose kernels do not start, and everybody stands.
void stand_before_kernel(Stage& stage, PlayedComm& comm) {
  Player& p = stage.player;
  const OpPlan plan = inside_host(stage);
  for (int i = 0; i < 2; ++i) {
    const PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    run_kernel(stage, comm, *op, i == 0);
    p.let_close();
  }
  for (int i = 0; i < 2; ++i) {
    p.begin(comm, plan, coll_of(plan));
    // Without events of kernels nothing of its end can be seen.
    p.truth.ops.back().state = p.host.abi() < 3 ? "enqueued" : "open";
  }
  p.hold(kStallSeconds);
}

// The kernel of the newest operation starts, and stays in the operation.
void enter_kernel(Stage& stage, PlayedComm& comm, const PlayedOp& op) {
  Player& p = stage.player;
  if (p.host.abi() < 3) return;
  p.progress.run(
      [&] { p.host.kernel_start(comm.context, 0, p.pass() - kDelivery - kGpuBehind, op.coll); });
}

}  // namespace

void intra_node(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = inside_host(stage);
  for (int i = 0; i < 3; ++i) {
    p.begin(comm, plan, coll_of(plan));
    p.truth.ops.back().state = "enqueued";
    p.let_close();
  }
  p.close_comm(comm);
}

void kernel_events(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = inside_host(stage);
  for (int i = 0; i < 3; ++i) {
    const PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    run_kernel(stage, comm, *op, i == 0);
    p.let_close();
  }
  p.close_comm(comm);
}

// The events of one kernel are lost: later kernels of the communicator say that it is not waiting,
// and from then on a missing event says nothing there.
void kernel_events_lost(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = inside_host(stage);
  for (int i = 0; i < 4; ++i) {
    const PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    if (i == 1 || i == 3) {
      p.truth.ops.back().state = "enqueued";
    } else {
      run_kernel(stage, comm, *op, i == 0);
    }
    p.let_close();
    if (i == 2) {
      advance_clock(5000000000u);
      p.let_close();
    }
  }
  p.close_comm(comm);
}

// Asked for, and none ever comes: nobody can wait for them.
void kernel_events_asked_only(Stage& stage) { intra_node(stage); }

void stall_kernel(Stage& stage) {
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  stand_before_kernel(stage, comm);
}

// A kernel that starts after its operation was written as not started, and waits for somebody who
// does not come.
void stall_in_kernel(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = inside_host(stage);
  const PlayedOp* first = p.begin(comm, plan, coll_of(plan));
  run_kernel(stage, comm, *first, true);
  p.let_close();
  const PlayedOp* op = p.begin(comm, plan, coll_of(plan));
  p.truth.ops.back().state = p.host.abi() < 3 ? "enqueued" : "open";
  p.hold(1);
  enter_kernel(stage, comm, *op);
  p.hold(1);
}

// The same, and the job is then aborted in order.
void abort_kernel(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  stand_before_kernel(stage, comm);
  for (TruthOp& o : p.truth.ops) {
    if (o.state == "open") o.state = "aborted";
  }
  p.close_comm(comm);
}

}  // namespace mycroft::replay
