#include "scenarios.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "virtual_clock.h"

namespace mycroft::replay {
namespace {

constexpr uint64_t kWorldHash = 0x5EEDC0DE00000001u;
constexpr const char* kWithKernels = "coll,p2p,proxy,kernel";

std::vector<int> first_ranks(int n) {
  std::vector<int> result;
  for (int i = 0; i < n; ++i) result.push_back(i);
  return result;
}

}  // namespace

CollSpec coll_of(const OpPlan& plan) {
  CollSpec coll;
  coll.count = 1 << 20;
  coll.channels = static_cast<uint8_t>(plan.channels);
  if (plan.pattern == Pattern::tree_all_reduce) {
    coll.algo = "TREE";
    coll.proto = "LL128";
  }
  return coll;
}

OpPlan plan_of(Pattern pattern, int ranks) {
  OpPlan plan;
  plan.pattern = pattern;
  plan.ranks = ranks;
  plan.channels = 2;
  const bool ring = pattern == Pattern::ring_all_reduce || pattern == Pattern::ring_half;
  plan.loops = ring ? 3 : 20;
  plan.slots = ring ? 4 : 8;
  return plan;
}

PlayedComm& world(Stage& stage) {
  return stage.player.open_comm("default_pg", kWorldHash, first_ranks(stage.ranks));
}

void begin_trace(Stage& stage) { stage.player.find_trace(stage.directory); }

OpPlan exchange(int ranks) {
  OpPlan plan = plan_of(Pattern::pairs, ranks);
  for (int r = 0; r < ranks; ++r) plan.pairs.push_back({r, (r + 1) % ranks});
  return plan;
}

namespace {

// Three operations one after another, the middle one looked at half-way.
void healthy(Stage& stage, const OpPlan& plan, const CollSpec& coll) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  for (int i = 0; i < 3; ++i) {
    PlayedOp* op = p.begin(comm, plan, coll, {.late_stop = i == 1});
    for (int k = 0; k < 9 + i; ++k) p.poll({op});
    if (i == 1) p.hold(2);
    p.settle({op});
    p.let_close();
  }
  p.close_comm(comm);
}

void ring_all_reduce(Stage& stage) {
  const OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  healthy(stage, plan, coll_of(plan));
}

void tree_all_reduce(Stage& stage) {
  const OpPlan plan = plan_of(Pattern::tree_all_reduce, stage.ranks);
  healthy(stage, plan, coll_of(plan));
}

void reduce_scatter(Stage& stage) {
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  CollSpec coll = coll_of(plan);
  coll.func = "ReduceScatter";
  coll.datatype = "ncclBfloat16";
  healthy(stage, plan, coll);
}

void all_gather(Stage& stage) {
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  CollSpec coll = coll_of(plan);
  coll.func = "AllGather";
  coll.datatype = "ncclInt8";  // as NCCL reports it: bytes
  healthy(stage, plan, coll);
}

void broadcast(Stage& stage) {
  OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  plan.slots = 8;
  CollSpec coll = coll_of(plan);
  coll.func = "Broadcast";
  coll.datatype = "ncclInt8";
  coll.proto = "LL";
  coll.root = 1;
  healthy(stage, plan, coll);
}

void send_recv(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  for (int i = 0; i < 4; ++i) {
    PlayedOp* op = p.begin_pairs(comm, exchange(stage.ranks), 1000);
    for (int k = 0; k < 6; ++k) p.poll({op});
    if (i == 2) p.hold(1);
    p.settle({op});
    p.let_close();
  }
  p.close_comm(comm);
}

void several_comms(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& all = world(stage);
  PlayedComm& even = p.open_comm("even", 0xE0E0, {0, 2});
  PlayedComm& odd = p.open_comm("odd", 0x0D0D, {3, 1});
  begin_trace(stage);
  const OpPlan wide = plan_of(Pattern::ring_all_reduce, stage.ranks);
  const OpPlan narrow = plan_of(Pattern::ring_half, 2);
  CollSpec gather = coll_of(narrow);
  gather.func = "AllGather";
  for (int i = 0; i < 2; ++i) {
    std::vector<PlayedOp*> running = {p.begin(all, wide, coll_of(wide)),
                                      p.begin(even, narrow, gather, {.late_stop = true}),
                                      p.begin(odd, narrow, gather)};
    for (int k = 0; k < 7; ++k) p.poll(running);
    p.hold(1);
    p.settle(running);
    p.let_close();
  }
  p.close_comm(even);
  p.close_comm(odd);
  PlayedOp* last = p.begin(all, wide, coll_of(wide));
  p.settle({last});
  p.let_close();
  p.close_comm(all);
}

void graph_replay(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  for (int i = 0; i < 3; ++i) {
    PlayedOp* op = p.begin(comm, plan, coll_of(plan), {.replayed = true});
    p.settle({op});
    p.let_close();
  }
  p.close_comm(comm);
}

// --- disorder ---

// Polls of a stall repeat; they must change nothing and cost nothing.
void repeats(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  plan.fault = {FaultKind::recv_proxy, 1, 6};
  PlayedOp* op = p.begin(comm, plan, coll_of(plan));
  op->extra_polls = 3000;
  p.settle({op});
  p.hold(3);
  p.close_comm(comm);
}

// Operations that another process posted: its pid, its context, its parent; nothing of it can be
// followed.
void foreign(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  struct Case {
    int32_t pid;
    uint64_t context;
    bool recorded;
  };
  const auto own = reinterpret_cast<uint64_t>(comm.context);
  const Case cases[] = {{1, 0x7F0012345678u, true},
                        {getpid() + 1, own, true},
                        {getpid(), own ^ 0xFFFF0000u, true},  // same pid in another namespace
                        {getpid(), 0, false},
                        {1, 0, true}};
  int channel = 0;
  for (const Case& c : cases) {
    const bool send = channel % 2 == 0;
    TruthFlow f;
    f.channel = channel++;
    f.peer = 5;
    f.send = send;
    f.foreign = true;
    f.kind = "other";
    f.total = 6;
    f.recorded = c.recorded;
    const uint64_t parent = 0xBADC0FFEE0DDF00Du;
    Event op = nullptr;
    const bool by_op = p.host.counts_by_op();
    p.progress.run([&] {
      const ProxyOpSpec spec = {c.pid, static_cast<uint8_t>(f.channel), f.peer, 6, 1 << 17, send};
      f.begin_ns = p.pass();
      CommSpec origin = comm.spec;
      origin.rank = 4;
      op = p.host.proxy_op_start(reinterpret_cast<void*>(c.context), origin, spec,
                                 reinterpret_cast<Event>(parent));
      f.running = true;
      if (!by_op) {
        f.begin_ns = p.pass();
        if (op != nullptr) p.host.step_state(op, abi::kProxyOpInProgress, 0);
      }
      for (uint32_t count = 1; count <= 3; ++count) {
        const auto steps = static_cast<int32_t>(count);
        const uint64_t now = p.pass();
        f.posted = count;
        f.t_posted.push_back(now);
        f.last_move_ns = now;
        if (by_op) {
          p.host.op_state(op, send ? abi::kProxyOpSendPosted : abi::kProxyOpRecvPosted, steps, 0);
          continue;
        }
        Event step =
            p.host.proxy_step_start(reinterpret_cast<void*>(c.context), origin, steps - 1, op);
        if (!send && step != nullptr) p.host.step_state(step, abi::kProxyStepRecvWait, 0);
      }
    });
    if (c.recorded) {
      p.truth.foreign.push_back({c.pid, c.context, parent, 4, f.channel, 5, send, 6});
    }
    p.truth.flows.push_back(f);
    p.hold(1);
    p.progress.run([&] {
      p.pass();
      p.host.stop(op);
      p.truth.flows.back().stopped = true;
    });
  }
  p.close_comm(comm);
}

// Everything is done but no ProxyOp stops.
void missing_stops(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  for (int i = 0; i < 3; ++i) {
    PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    op->keep_open = true;
    p.settle({op});
    p.wait_for_sampler();
  }
  p.close_comm(comm);
}

void double_stops(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  for (int i = 0; i < 3; ++i) {
    PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    p.settle({op});
    p.progress.run([&] {
      for (Event event : op->events()) {
        p.host.stop(event);
        p.host.stop(event);
        if (p.host.counts_by_op()) {
          p.host.op_state(event, abi::kProxyOpSendDone, 99, 99);
          p.host.op_state(event, abi::kProxyOpRecvDone, 99, 99);
        } else {
          p.host.step_state(event, abi::kProxyOpInProgress, 0);
          Event late = p.host.proxy_step_start(comm.context, comm.spec, 1, event);
          p.host.step_state(late, abi::kProxyStepSendWait, 100);
          p.host.stop(late);
        }
      }
    });
    p.app.run([&] { p.host.stop(op->coll); });
    p.let_close();
    p.app.run([&] { p.host.stop(op->coll); });
  }
  p.close_comm(comm);
}

void null_args(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  PlayedOp* op = p.begin(comm, plan, coll_of(plan));
  for (int k = 0; k < 4; ++k) p.poll({op});
  p.progress.run([&] {
    std::vector<Event> targets = op->events();
    targets.push_back(nullptr);
    targets.push_back(op->coll);
    targets.push_back(reinterpret_cast<Event>(~uint64_t{0}));
    for (Event event : targets) {
      for (int32_t state = 0; state < 32; ++state) p.host.state_without_args(event, state);
    }
    p.host.stop(nullptr);
    // Steps of an operation that is not tracked.
    Event orphan = p.host.proxy_step_start(comm.context, comm.spec, 3, nullptr);
    p.host.state_without_args(orphan, abi::kProxyStepSendWait);
    p.host.stop(orphan);
    // Kinds of events that nobody asked for.
    for (uint64_t type = abi::kProxyCtrl; type <= abi::kKernelPhase; type *= 2) {
      if (p.host.abi() <= 4 && type > abi::kNetPlugin) break;
      if (type == abi::kKernelCh) continue;
      p.host.stop(p.host.other_start(comm.context, type, nullptr));
    }
    // A communicator that could not be set up.
    p.host.stop(p.host.coll_start(nullptr, comm.spec, coll_of(plan), nullptr, nullptr));
  });
  p.settle({op});
  p.let_close();
  p.host.finalize(nullptr);
  p.close_comm(comm);
}

// Transports without a proxy announce flows that never start (NCCL from 2.27 on).
void start_without_stop(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  plan.channels = p.host.counts_by_op() ? 0 : 1;
  for (int i = 0; i < 80; ++i) {
    p.begin(comm, plan, coll_of(plan), {.queued = true});
    p.truth.ops.back().state = "enqueued";
  }
  p.let_close();
  advance_clock(5000000000u);
  p.let_close();
  p.close_comm(comm);
}

// More operations than slots.
void reuse(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  plan.channels = 1;
  plan.loops = 1;
  for (int i = 0; i < 1100; ++i) {
    PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    p.settle({op});
  }
  p.let_close();
  p.close_comm(comm);
}

// NCCL unloads the library with the last communicator and opens it again for a later one.
void reload(Stage& stage) {
  Player& p = stage.player;
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  for (int i = 0; i < 3; ++i) {
    PlayedComm& comm =
        p.open_comm("default_pg", kWorldHash + static_cast<uint64_t>(i), first_ranks(stage.ranks));
    if (i == 0) begin_trace(stage);
    PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    p.settle({op});
    p.let_close();
    p.close_comm(comm);
    p.host.unload();
    const std::string wrong = p.host.load(stage.plugin, p.host.abi());
    if (!wrong.empty()) p.truth.violations.push_back(wrong);
  }
}

// One communicator is destroyed while callbacks of another run, again and again.
void finalize_race(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  for (int i = 0; i < 8; ++i) {
    const std::string name = "short-lived-" + std::to_string(i);
    PlayedComm& other =
        p.open_comm(name, 0x1000 + static_cast<uint64_t>(i), first_ranks(stage.ranks));
    PlayedOp* short_lived = p.begin(other, plan, coll_of(plan));
    p.settle({short_lived});
    PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    p.progress.post([&] {
      for (int k = 0; k < 20; ++k) op->simulation.round(*op);
    });
    {
      Lane teardown;
      teardown.run([&] { p.host.finalize(other.context); });
    }
    p.progress.wait();
    p.truth.comms[other.truth].closed = true;
    p.settle({op});
    p.let_close();
  }
  p.close_comm(comm);
}

// Two communicators with a progress thread each, at the same time.
void parallel(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& a = p.open_comm("a", 0xA, first_ranks(stage.ranks));
  PlayedComm& b = p.open_comm("b", 0xB, first_ranks(stage.ranks));
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  for (int i = 0; i < 20; ++i) {
    PlayedOp* first = p.begin(a, plan, coll_of(plan));
    PlayedOp* second = p.begin(b, plan, coll_of(plan));
    Lane other;
    other.post([&] {
      while (second->simulation.round(*second)) {
      }
    });
    p.progress.run([&] {
      while (first->simulation.round(*first)) {
      }
    });
    other.wait();
    p.end_if_finished(*first);
    p.end_if_finished(*second);
  }
  p.let_close();
  p.close_comm(a);
  p.close_comm(b);
}

// Grouped receives: states that move backwards, chunks past the end, on handles of older chunks.
void backwards(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  PlayedOp* op = p.begin(comm, plan, coll_of(plan));
  for (int k = 0; k < 12; ++k) {
    p.poll({op});
    p.progress.run([&] {
      for (Event event : op->events()) {
        if (p.host.counts_by_op()) {
          // Counts that every stage has passed by the last of these polls.
          for (int32_t state = 0; state < 8 && k == 11; ++state)
            p.host.op_state(event, state, 1, 1);
          // From 2.24 on a total is final.
          if (!p.host.raw_steps()) p.host.op_state(event, abi::kProxyOpRecvPosted, 1000, 1);
          p.host.op_state(event, abi::kProxyOpSendDone, -3, 1);
          continue;
        }
        // The first chunk once more, of a side that has passed it; and one past the end.
        for (const int32_t step : {0, 1000}) {
          if (step == 0 && k < 11) continue;
          Event again = p.host.proxy_step_start(comm.context, comm.spec, step, event);
          for (const int32_t state : {8, 20, 9, 10, 11, 12}) p.host.step_state(again, state, 77);
          p.host.stop(again);
        }
      }
    });
  }
  p.settle({op});
  p.let_close();
  p.close_comm(comm);
}

// The job gives up: communicators are destroyed with everything open.
void abort_open(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  OpPlan plan = plan_of(Pattern::ring_all_reduce, stage.ranks);
  PlayedOp* good = p.begin(comm, plan, coll_of(plan));
  p.settle({good});
  p.let_close();
  plan.fault = {FaultKind::network, 0, 4};
  PlayedOp* bad = p.begin(comm, plan, coll_of(plan));
  plan.fault = {};
  p.begin(comm, plan, coll_of(plan), {.queued = true});
  p.settle({bad});
  p.hold(2);
  p.close_comm(comm);
}

// ProxySteps that nobody asked for, with null arguments and lost stops (NCCL 2.24.3 - 2.26.6).
void forced_steps(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  PlayedOp* op = p.begin(comm, plan, coll_of(plan));
  op->force_steps = true;
  p.settle({op});
  p.let_close();
  p.close_comm(comm);
}

// Switched off and on by the control file while the job runs.
void control(Stage& stage) {
  Player& p = stage.player;
  PlayedComm& comm = world(stage);
  begin_trace(stage);
  const OpPlan plan = plan_of(Pattern::ring_half, stage.ranks);
  const auto set = [&](const char* text) {
    const std::string path = stage.directory + "/control-" + std::to_string(p.rank);
    std::ofstream(path + ".new") << text;
    (void)rename((path + ".new").c_str(), path.c_str());
    advance_clock(2000000000u);
    p.let_close();
  };
  for (const char* text : {"", "trace = off\n", "trace = on  # again\ninterval_ms = 2\n"}) {
    if (*text != '\0') set(text);
    PlayedOp* op = p.begin(comm, plan, coll_of(plan));
    p.settle({op});
    p.let_close();
  }
  p.close_comm(comm);
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> kAll = {
      {"ring_all_reduce", 3, ring_all_reduce},
      {"tree_all_reduce", 4, tree_all_reduce},
      {"reduce_scatter", 3, reduce_scatter},
      {"all_gather", 3, all_gather},
      {"broadcast", 3, broadcast},
      {"send_recv", 3, send_recv},
      {"several_comms", 4, several_comms},
      {"graph_replay", 2, graph_replay},
      {"intra_node", 1, intra_node},
      {"kernel_events", 1, kernel_events, kWithKernels},
      {"kernel_events_lost", 1, kernel_events_lost, kWithKernels},
      {"kernel_events_asked_only", 1, kernel_events_asked_only, kWithKernels},
      {"stall_kernel", 1, stall_kernel, kWithKernels},
      {"stall_in_kernel", 1, stall_in_kernel, kWithKernels},
      {"abort_kernel", 1, abort_kernel, kWithKernels},
      {"stall_absent", 4, stall_absent},
      {"stall_gpu_idle", 4, stall_gpu_idle},
      {"stall_gpu", 4, stall_gpu},
      {"stall_send_proxy", 4, stall_send_proxy},
      {"stall_recv_proxy", 4, stall_recv_proxy},
      {"stall_network", 4, stall_network},
      {"stall_flush", 4, stall_flush},
      {"stall_tree_network", 5, stall_tree_network},
      {"stall_tree_gpu", 5, stall_tree_gpu},
      {"stall_tree_absent", 5, stall_tree_absent},
      {"stall_pair_absent", 3, stall_pair_absent},
      {"stall_pair_network", 3, stall_pair_network},
      {"stall_across_comms", 4, stall_across_comms},
      {"crash", 4, crash, nullptr, true, true},
      {"repeats", 2, repeats},
      {"foreign", 1, foreign},
      {"missing_stops", 2, missing_stops},
      {"double_stops", 2, double_stops},
      {"null_args", 2, null_args},
      {"start_without_stop", 2, start_without_stop},
      {"reuse", 2, reuse},
      {"reload", 2, reload},
      {"finalize_race", 2, finalize_race},
      {"parallel", 2, parallel, nullptr, false},
      {"backwards", 2, backwards},
      {"abort_open", 2, abort_open},
      {"forced_steps", 2, forced_steps},
      {"control", 2, control},
  };
  return kAll;
}

}  // namespace mycroft::replay
