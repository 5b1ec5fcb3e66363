#include "player.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../record.h"
#include "virtual_clock.h"

namespace mycroft::replay {
namespace {

constexpr uint64_t kStepNs = 1000;
constexpr uint64_t kSecond = 1000000000u;

size_t slice_bytes(uint32_t count) { return 4096 + size_t{count % 3} * 512; }

}  // namespace

const char* kind_name(const std::string& func) {
  static const std::map<std::string, const char*> kNames = {{"AllReduce", "all_reduce"},
                                                            {"AllGather", "all_gather"},
                                                            {"ReduceScatter", "reduce_scatter"},
                                                            {"Broadcast", "broadcast"},
                                                            {"Reduce", "reduce"},
                                                            {"Send", "send"},
                                                            {"Recv", "recv"}};
  const auto found = kNames.find(func);
  return found != kNames.end() ? found->second : "other";
}

size_t type_size(const std::string& datatype) {
  if (datatype == "ncclInt8" || datatype == "ncclUint8") return 1;
  if (datatype == "ncclFloat16" || datatype == "ncclBfloat16") return 2;
  if (datatype == "ncclInt64" || datatype == "ncclFloat64") return 8;
  return 4;
}

// --- time and the sampler ---

uint64_t Player::pass() {
  advance_clock(kStepNs * (1 + passed_++ % 5));
  return clock_now();
}

void Player::find_trace(const std::string& directory) {
  DIR* listing = opendir(directory.c_str());
  if (listing == nullptr) return;
  std::string mine = std::to_string(getpid());
  mine.insert(mine.begin(), '-');
  mine.push_back('-');
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.find(mine) == std::string::npos || name.find(".ring") == std::string::npos) continue;
    trace_path_ = directory + "/" + name;
  }
  closedir(listing);
  if (trace_path_.empty()) return;
  const int fd = open(trace_path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void* base = mmap(nullptr, kHeaderBytes, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (base == MAP_FAILED) return;
  ticks_ = reinterpret_cast<const volatile uint64_t*>(static_cast<const char*>(base) +
                                                      offsetof(FileHeader, ticks));
}

void Player::wait_for_sampler() {
  if (ticks_ == nullptr) return;
  const auto now = [this] {
    return std::atomic_ref<const uint64_t>(*const_cast<const uint64_t*>(ticks_))
        .load(std::memory_order_acquire);
  };
  // A tick that begins after this moment, and its end. Odd: one is under way.
  const uint64_t goal = (now() | 1) + 5;
  while (now() < goal) sched_yield();
}

void Player::hold(int seconds) {
  wait_for_sampler();
  TruthHold hold;
  hold.from_ns = clock_now();
  for (int i = 0; i < seconds; ++i) {
    advance_clock(kSecond);
    wait_for_sampler();
  }
  hold.to_ns = clock_now();
  for (TruthFlow& f : truth.flows) {
    if (!f.recorded || !f.running || f.stopped || f.aborted) continue;
    // Complete for more than ten seconds and not stopped: given back.
    if (f.done * f.unit == f.total && hold.to_ns - f.last_move_ns > 11 * kSecond) {
      f.stopped = true;
      continue;
    }
    hold.rows.push_back({f.comm, f.seq, f.channel, f.peer, f.send, f.foreign, f.total,
                         f.posted * f.unit, f.ready * f.unit, f.moved * f.unit, f.done * f.unit,
                         f.bytes, f.last_move_ns});
  }
  for (const TruthOp& o : truth.ops) hold.open_ops += o.state == "open" ? 1 : 0;
  truth.holds.push_back(hold);
}

void Player::let_close() {
  wait_for_sampler();
  advance_clock(kSecond / 10);
  wait_for_sampler();
}

// --- communicators ---

PlayedComm& Player::open_comm(const std::string& name, uint64_t hash,
                              const std::vector<int>& members) {
  auto comm = std::make_unique<PlayedComm>();
  comm->members = members;
  comm->spec = {name, hash, -1, static_cast<int32_t>(members.size())};
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank) comm->spec.rank = static_cast<int32_t>(i);
  }
  if (comm->spec.rank >= 0) {
    Lane helper;  // NCCL initialises communicators on a thread of its own
    helper.run([&] {
      pass();
      comm->context = host.init(comm->spec);
    });
    comm->truth = truth.comms.size();
    truth.comms.push_back({name, hash, comm->spec.rank, comm->spec.ranks, !host.counts_by_op()});
  }
  comms.push_back(std::move(comm));
  return *comms.back();
}

void Player::close_comm(PlayedComm& comm) {
  if (comm.spec.rank < 0) return;
  Lane helper;
  helper.run([&] {
    pass();
    host.finalize(comm.context);
  });
  truth.comms[comm.truth].closed = true;
  const std::string& name = comm.spec.name;
  // What is complete and lacks only its stop has ended in order; the rest is torn.
  bool at_work = false;
  for (TruthFlow& f : truth.flows) {
    if (f.comm != name || f.foreign || !f.running || f.stopped) continue;
    if (f.done * f.unit == f.total) {
      f.stopped = true;
    } else {
      f.aborted = at_work = true;
    }
  }
  for (const auto& op : ops) {
    if (&op->comm == &comm && op->keep_open) end_truth(*op);
  }
  for (TruthOp& o : truth.ops) {
    if (o.comm == name && o.state == "open") o.state = at_work ? "aborted" : "enqueued";
  }
}

// --- operations ---

uint32_t Player::unit_of(const CollSpec& coll) const {
  const bool doubled = std::string(coll.algo) == "RING" && std::string(coll.proto) == "SIMPLE";
  return host.raw_steps() && doubled ? 2 : 1;
}

TruthFlow& Player::new_flow(const PlayedOp& op, const Flow& flow, bool send) {
  TruthFlow f;
  f.comm = op.comm.spec.name;
  f.channel = flow.channel;
  f.peer = send ? flow.dst : flow.src;
  f.send = send;
  truth.flows.push_back(f);
  return truth.flows.back();
}

PlayedOp::PlayedOp(Player& player, PlayedComm& played_comm, const OpPlan& plan)
    : simulation(plan), comm(played_comm), player_(player) {}

void Player::start_halves(PlayedOp& op) {
  const uint32_t unit = op.unit_;
  const uint32_t window = op.simulation.plan().slots;
  const int me = op.comm.spec.rank;
  for (size_t i = 0; i < op.simulation.flows().size(); ++i) {
    const Flow& flow = op.simulation.flows()[i];
    for (const bool send : {true, false}) {
      if ((send ? flow.src : flow.dst) != me) continue;
      // In pairs each side belongs to its own send or receive, numbered within the pair.
      size_t parent = 0;
      if (op.p2p.size() > 1 || op.simulation.plan().pattern == Pattern::pairs) {
        for (size_t k = 0; k < op.truth_ops.size(); ++k) {
          const TruthOp& o = truth.ops[op.truth_ops[k]];
          if ((o.kind == "send") == send && o.peer == (send ? flow.dst : flow.src)) parent = k;
        }
      }
      TruthFlow& f = new_flow(op, flow, send);
      TruthOp& o = truth.ops[op.truth_ops[parent]];
      f.seq = o.seq;
      f.kind = o.kind;
      f.unit = unit;
      f.window = window;
      f.total = flow.total * unit;
      ++o.flows;
      PlayedOp::Half half;
      half.flow = static_cast<int>(i);
      half.send = send;
      half.truth = truth.flows.size() - 1;
      ProxyOpSpec spec;
      spec.pid = getpid();
      spec.channel = static_cast<uint8_t>(flow.channel);
      spec.peer = f.peer;
      spec.steps = static_cast<int32_t>(f.total);
      spec.chunk_size = 1 << 17;
      spec.send = send;
      const Event above = op.p2p.empty() ? op.coll : op.p2p[parent];
      if (host.wants(abi::kProxyOp)) {
        const uint64_t now = pass();
        half.op = host.proxy_op_start(op.comm.context, op.comm.spec, spec, above);
        if (host.counts_by_op()) {
          f.begin_ns = now;
          f.running = true;
        }
      }
      op.halves_.push_back(half);
    }
  }
}

std::vector<Event> PlayedOp::events() const {
  std::vector<Event> found;
  for (const Half& half : halves_) found.push_back(half.op);
  return found;
}

void Player::release(PlayedOp& op) {
  op.queued = false;
  if (op.coll == nullptr && op.p2p.empty()) return;
  progress.run([&] {
    if (op.halves_.empty()) start_halves(op);
    if (host.counts_by_op()) return;
    for (PlayedOp::Half& half : op.halves_) {
      TruthFlow& f = truth.flows[half.truth];
      f.begin_ns = pass();
      f.running = half.op != nullptr;
      if (half.op != nullptr) host.step_state(half.op, abi::kProxyOpInProgress, 0);
    }
  });
}

PlayedOp* Player::begin(PlayedComm& comm, const OpPlan& plan, const CollSpec& spec,
                        const How& how) {
  ops.push_back(std::make_unique<PlayedOp>(*this, comm, plan));
  PlayedOp& op = *ops.back();
  const uint64_t seq = comm.next_seq++;
  CollSpec coll = spec;
  // Sequence numbers do not advance for captured plans.
  coll.seq = how.replayed ? comm.by_func[spec.func] : comm.by_func[spec.func]++;
  op.unit_ = unit_of(coll);
  op.queued = how.queued;
  if (comm.spec.rank < 0 || !op.simulation.takes_part(comm.spec.rank)) return &op;
  Lane& caller = how.replayed ? callback : app;
  Event group = nullptr;
  caller.run([&] {
    pass();
    Event api = nullptr;
    if (how.replayed) {
      api = reinterpret_cast<Event>(uint64_t{0x2468ACE013579BDF});
    } else if (host.wants(abi::kCollApi)) {
      Event outer = host.api_start(comm.context, abi::kGroupApi, nullptr);
      api = host.api_start(comm.context, abi::kCollApi, outer);
    }
    group = host.wants(abi::kGroup) ? host.group_start(comm.context) : nullptr;
    const uint64_t now = pass();
    if (!host.wants(abi::kColl)) return;
    op.coll = host.coll_start(comm.context, comm.spec, coll, api, group);
    truth.comms[comm.truth].named = true;
    truth.comms[comm.truth].last_seq = static_cast<int64_t>(seq);
    if (op.coll == nullptr) return;
    TruthOp o;
    o.comm = comm.spec.name;
    o.seq = seq;
    o.kind = kind_name(coll.func);
    const bool rooted = o.kind == "broadcast" || o.kind == "reduce";
    o.peer = rooted ? coll.root : -1;
    o.bytes = coll.count * type_size(coll.datatype);
    o.source_seq = static_cast<int64_t>(coll.seq);
    o.enq_ns = now;
    op.truth_ops.push_back(truth.ops.size());
    truth.ops.push_back(o);
  });
  const auto stop_parent = [&] {
    caller.run([&] {
      pass();
      // NCCL up to 2.25 stops whatever it has, null included.
      if (op.coll != nullptr || host.abi() <= 2) host.stop(op.coll);
      if (group != nullptr) host.stop(group);
    });
  };
  if (!how.late_stop) stop_parent();
  // Up to 2.26 a ProxyOp starts at the head of its connection, later when it is appended.
  if (op.coll != nullptr && !(how.queued && host.counts_by_op())) {
    progress.run([&] { start_halves(op); });
  }
  if (how.late_stop) stop_parent();
  if (!how.queued) release(op);
  return &op;
}

PlayedOp* Player::begin_pairs(PlayedComm& comm, const OpPlan& plan, size_t count) {
  ops.push_back(std::make_unique<PlayedOp>(*this, comm, plan));
  PlayedOp& op = *ops.back();
  const int me = comm.spec.rank;
  if (me < 0 || !op.simulation.takes_part(me)) return &op;
  app.run([&] {
    pass();
    Event outer = host.wants(abi::kGroupApi) ? host.api_start(comm.context, abi::kGroupApi, nullptr)
                                             : nullptr;
    for (const Pair& pair : plan.pairs) {
      for (const bool send : {true, false}) {
        if ((send ? pair.src : pair.dst) != me) continue;
        Event api =
            host.wants(abi::kP2pApi) ? host.api_start(comm.context, abi::kP2pApi, outer) : nullptr;
        P2pSpec p2p;
        p2p.send = send;
        p2p.peer = send ? pair.dst : pair.src;
        p2p.count = count;
        p2p.channels = static_cast<uint8_t>(plan.channels);
        if (!host.wants(abi::kP2p)) continue;
        const uint64_t now = pass();
        op.p2p.push_back(host.p2p_start(comm.context, comm.spec, p2p, api, nullptr));
        TruthOp o;
        o.comm = comm.spec.name;
        o.p2p = true;
        o.kind = send ? "send" : "recv";
        o.peer = p2p.peer;
        o.seq = comm.by_pair[{send, p2p.peer}]++;
        o.source_seq = static_cast<int64_t>(comm.p2p++);
        o.bytes = count * type_size(p2p.datatype);
        o.enq_ns = now;
        op.truth_ops.push_back(truth.ops.size());
        truth.ops.push_back(o);
        truth.comms[comm.truth].named = true;
      }
    }
    for (Event event : op.p2p) {
      pass();
      host.stop(event);
    }
  });
  if (!op.p2p.empty()) release(op);
  return &op;
}

// --- polling ---

bool Player::poll(const std::vector<PlayedOp*>& running) {
  bool moved = false;
  progress.run([&] {
    for (PlayedOp* op : running) {
      if (!op->queued) moved |= op->simulation.round(*op);
    }
  });
  return moved;
}

void Player::settle(const std::vector<PlayedOp*>& running) {
  while (poll(running)) {
    for (PlayedOp* op : running) end_if_finished(*op);
  }
  for (PlayedOp* op : running) end_if_finished(*op);
}

void Player::end_if_finished(PlayedOp& op) {
  if (op.queued || op.halves_.empty()) return;
  for (const bool send : {true, false}) {
    bool all = true;
    for (const PlayedOp::Half& half : op.halves_) {
      if (half.send != send) continue;
      const TruthFlow& f = truth.flows[half.truth];
      all = all && !half.stopped && f.done * f.unit == f.total;
    }
    if (!all || op.keep_open) continue;
    progress.run([&] {
      for (PlayedOp::Half& half : op.halves_) {
        if (half.send != send || half.stopped) continue;
        pass();
        if (half.op != nullptr) host.stop(half.op);
        half.stopped = true;
        truth.flows[half.truth].stopped = true;
      }
    });
  }
  if (!op.keep_open) end_truth(op);
}

// An operation has ended when its last flow has; the end is that of the last chunk.
void Player::end_truth(PlayedOp& op) {
  for (const size_t index : op.truth_ops) {
    TruthOp& o = truth.ops[index];
    uint64_t last = 0;
    bool open = false;
    for (const PlayedOp::Half& half : op.halves_) {
      const TruthFlow& f = truth.flows[half.truth];
      if (f.comm != o.comm || f.seq != o.seq || f.kind != o.kind) continue;
      if (o.p2p && f.peer != o.peer) continue;
      open = open || !f.stopped;
      if (!f.t_done.empty() && f.t_done.back() > last) last = f.t_done.back();
    }
    if (!open && o.state == "open" && last != 0) {
      o.state = "completed";
      o.dur_ns = static_cast<int64_t>(last - o.enq_ns);
    }
  }
}

void PlayedOp::event(int event_rank, int flow, Step step, uint32_t count) {
  if (event_rank != comm.spec.rank) return;
  const bool send = step <= Step::send_done;
  for (Half& half : halves_) {
    if (half.flow != flow || half.send != send) continue;
    TruthFlow& f = player_.truth.flows[half.truth];
    if (half.op == nullptr) return;
    if (player_.host.counts_by_op()) {
      by_op(half, f, step, count);
    } else {
      by_step(half, f, step, count);
    }
    return;
  }
}

namespace {

// Notes that `count` chunks have reached a stage at `now`, if that is news.
void reach(TruthFlow& f, uint32_t& counter, std::vector<uint64_t>& times, uint32_t count,
           uint64_t now) {
  if (count <= counter) return;
  counter = count;
  times.resize(count, now);
  f.last_move_ns = now;
}

}  // namespace

// NCCL up to 2.26: states of the ProxyOp, counts in its unit, bytes cumulative.
void PlayedOp::by_op(Half& half, TruthFlow& f, Step step, uint32_t count) {
  Host& host = player_.host;
  const uint64_t now = player_.pass();
  const auto steps = static_cast<int32_t>(count * f.unit);
  switch (step) {
    case Step::send_posted:
      reach(f, f.posted, f.t_posted, count, now);
      if (force_steps) unwanted_step(half, count);
      host.op_state(half.op, abi::kProxyOpSendPosted, steps, half.reported);
      break;
    case Step::send_ready:
      reach(f, f.ready, f.t_ready, count, now);
      for (uint32_t i = 0; i <= extra_polls; ++i) {
        host.op_state(half.op, abi::kProxyOpSendRemFifoWait, steps, half.reported);
      }
      break;
    case Step::send_moved:
      reach(f, f.moved, f.t_moved, count, now);
      f.bytes = half.reported;
      host.op_state(half.op, abi::kProxyOpSendTransmitted, steps, half.reported);
      half.reported += slice_bytes(count);
      break;
    case Step::send_done:
      reach(f, f.done, f.t_done, count, now);
      f.bytes = half.reported;
      host.op_state(half.op, abi::kProxyOpSendDone, steps, half.reported);
      break;
    case Step::recv_start:
      break;
    case Step::recv_posted:
      reach(f, f.posted, f.t_posted, count, now);
      if (force_steps) unwanted_step(half, count);
      host.op_state(half.op, abi::kProxyOpRecvPosted, steps, half.reported);
      break;
    case Step::recv_moved:
      reach(f, f.moved, f.t_moved, count, now);
      half.reported += slice_bytes(count);
      f.bytes = half.reported;
      host.op_state(half.op, abi::kProxyOpRecvReceived, steps, half.reported);
      break;
    case Step::recv_ready:
      reach(f, f.ready, f.t_ready, count, now);
      host.op_state(half.op, abi::kProxyOpRecvTransmitted, steps, half.reported);
      break;
    case Step::recv_done:
      reach(f, f.done, f.t_done, count, now);
      host.op_state(half.op, abi::kProxyOpRecvDone, steps, half.reported);
      break;
  }
}

// NCCL up to 2.26 passes null arguments with every state of a step, and loses some of the stops.
void PlayedOp::unwanted_step(Half& half, uint32_t count) {
  Host& host = player_.host;
  Event event =
      host.proxy_step_start(comm.context, comm.spec, static_cast<int32_t>(count - 1), half.op);
  host.state_without_args(event, half.send ? abi::kProxyStepSendGpuWait : abi::kProxyStepRecvWait);
  host.state_without_args(event, half.send ? abi::kProxyStepSendWait : abi::kProxyStepRecvGpuWait);
  if (count % 3 != 0) host.stop(event);
}

// NCCL from 2.27 on: states of ProxySteps. The size is right only in SendWait and RecvFlushWait.
void PlayedOp::by_step(Half& half, TruthFlow& f, Step step, uint32_t count) {
  Host& host = player_.host;
  constexpr size_t kStaleSize = 123456789;
  const uint64_t now = player_.pass();
  const auto index = static_cast<int32_t>(count - 1);
  Event& event = half.steps[count];
  switch (step) {
    case Step::send_posted:
      reach(f, f.posted, f.t_posted, count, now);
      event = host.proxy_step_start(comm.context, comm.spec, index, half.op);
      host.step_state(event, abi::kProxyStepSendGpuWait, kStaleSize);
      break;
    case Step::send_ready:
      reach(f, f.ready, f.t_ready, count, now);
      for (uint32_t i = 0; i <= extra_polls; ++i) {
        host.step_state(event, abi::kProxyStepSendPeerWait, kStaleSize);
      }
      break;
    case Step::send_moved:
      reach(f, f.moved, f.t_moved, count, now);
      f.bytes += slice_bytes(count);
      host.step_state(event, abi::kProxyStepSendWait, slice_bytes(count));
      break;
    case Step::send_done:
      reach(f, f.done, f.t_done, count, now);
      host.stop(event);
      half.steps.erase(count);
      break;
    case Step::recv_start:
      for (uint32_t i = 0; i <= extra_polls; ++i) {
        event = host.proxy_step_start(comm.context, comm.spec, index, half.op);
      }
      break;
    case Step::recv_posted:
      reach(f, f.posted, f.t_posted, count, now);
      host.step_state(event, abi::kProxyStepRecvWait, kStaleSize);
      break;
    case Step::recv_moved:
      reach(f, f.moved, f.t_moved, count, now);
      f.bytes += slice_bytes(count);
      host.step_state(event, abi::kProxyStepRecvFlushWait, slice_bytes(count));
      break;
    case Step::recv_ready:
      reach(f, f.ready, f.t_ready, count, now);
      host.step_state(event, abi::kProxyStepRecvGpuWait, kStaleSize);
      break;
    case Step::recv_done:
      reach(f, f.done, f.t_done, count, now);
      host.stop(event);
      half.steps.erase(count);
      break;
  }
}

}  // namespace mycroft::replay
