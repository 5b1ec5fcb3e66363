#include "simulation.h"

#include <cstddef>

namespace mycroft::replay {
namespace {

constexpr uint32_t kSlices = 2;  // per chunk of a ring

int parent_of(int rank) { return (rank - 1) / 2; }

}  // namespace

Simulation::Simulation(const OpPlan& plan) : plan_(plan) {
  const int n = plan.ranks;
  const auto loops = static_cast<uint32_t>(plan.loops);
  const bool ring = plan.pattern == Pattern::ring_all_reduce || plan.pattern == Pattern::ring_half;
  for (int c = 0; c < plan.channels; ++c) {
    if (ring) {
      const auto turns =
          static_cast<uint32_t>(plan.pattern == Pattern::ring_half ? n - 1 : 2 * (n - 1));
      for (int r = 0; r < n; ++r) flows_.push_back({c, r, (r + 1) % n, loops * turns * kSlices});
    } else if (plan.pattern == Pattern::tree_all_reduce) {
      for (int r = 1; r < n; ++r) {
        flows_.push_back({c, r, parent_of(r), loops});
        flows_.push_back({c, parent_of(r), r, loops});
      }
    } else {
      for (const Pair& pair : plan.pairs) flows_.push_back({c, pair.src, pair.dst, loops});
    }
  }
}

bool Simulation::finished() const {
  for (const Flow& f : flows_) {
    if (takes_part(f.src) && f.done < f.total) return false;
    if (takes_part(f.dst) && f.consumed < f.total) return false;
  }
  return true;
}

// Whether the kernel of `send.src` has what it needs to fill chunk `chunk`.
bool Simulation::input_there(const Flow& send, uint32_t chunk) const {
  if (plan_.pattern == Pattern::pairs) return true;
  for (const Flow& in : flows_) {
    if (in.channel != send.channel || in.dst != send.src) continue;
    if (plan_.pattern == Pattern::tree_all_reduce) {
      const bool up = send.dst == parent_of(send.src) && send.src != 0;
      const bool from_child = in.src != 0 && parent_of(in.src) == send.src;
      // To the parent: from every child. To a child: from the parent, at the root from every child.
      const bool needed = up || send.src == 0 ? from_child : !from_child;
      if (needed && in.flushed < chunk + 1) return false;
      continue;
    }
    const uint32_t per_loop = send.total / static_cast<uint32_t>(plan_.loops);
    const uint32_t in_loop = chunk % per_loop;
    if (in_loop < kSlices) continue;  // the first turn sends what the rank has itself
    if (in.flushed < chunk - kSlices + 1) return false;
  }
  return true;
}

// Whether the kernel of `recv.dst` can let go of chunk `chunk`: what it feeds has been filled.
bool Simulation::can_use(const Flow& recv, uint32_t chunk) const {
  if (plan_.pattern == Pattern::pairs) return true;
  for (const Flow& out : flows_) {
    if (out.channel != recv.channel || out.src != recv.dst) continue;
    if (plan_.pattern == Pattern::tree_all_reduce) {
      const bool up = out.src != 0 && out.dst == parent_of(out.src);
      const bool from_child = recv.src != 0 && parent_of(recv.src) == recv.dst;
      const bool feeds = from_child ? up || out.src == 0 : !up;
      if (feeds && out.filled < chunk + 1) return false;
      continue;
    }
    const uint32_t per_loop = recv.total / static_cast<uint32_t>(plan_.loops);
    if (chunk % per_loop + kSlices >= per_loop) continue;  // the last turn stays here
    if (out.filled < chunk + kSlices + 1) return false;
  }
  return true;
}

bool Simulation::kernel(int rank, int channel) {
  if (!takes_part(rank) || faulty(FaultKind::gpu_idle, rank, 0)) return false;
  bool moved = false;
  for (Flow& f : flows_) {
    if (f.channel != channel) continue;
    if (f.src == rank && f.filled < f.posted && f.filled < f.total &&
        !faulty(FaultKind::gpu_stops, rank, f.filled) && input_there(f, f.filled)) {
      ++f.filled;
      moved = true;
    }
    if (f.dst == rank && f.used < f.flushed && !faulty(FaultKind::gpu_stops, rank, f.used) &&
        can_use(f, f.used)) {
      ++f.used;
      moved = true;
    }
  }
  return moved;
}

bool Simulation::network(Flow& f) {
  bool moved = false;
  if (f.acked < f.arrived) {
    f.acked = f.arrived;
    moved = true;
  }
  if (f.arrived < f.moved && !faulty(FaultKind::network, f.src, f.arrived)) {
    ++f.arrived;
    moved = true;
  }
  return moved;
}

bool Simulation::poll_send(Flow& f, int index, Listener& listener) {
  bool moved = false;
  if (f.posted < f.total && f.posted < f.done + plan_.slots) {
    listener.event(f.src, index, Step::send_posted, ++f.posted);
    moved = true;
  }
  const bool asleep = faulty(FaultKind::send_proxy, f.src, f.moved) && f.ready > f.moved;
  if (f.moved < f.posted && f.filled > f.moved && !asleep) {
    // The flag is looked at for the next chunk only, on every poll until it is accepted.
    if (f.ready < f.moved + 1) moved = true;
    f.ready = f.moved + 1;
    listener.event(f.src, index, Step::send_ready, f.ready);
    if (f.r_posted > f.moved && !faulty(FaultKind::send_proxy, f.src, f.moved)) {
      listener.event(f.src, index, Step::send_moved, ++f.moved);
      moved = true;
    }
  }
  if (f.done < f.acked) {
    listener.event(f.src, index, Step::send_done, ++f.done);
    moved = true;
  }
  return moved;
}

bool Simulation::poll_recv(Flow& f, int index, Listener& listener) {
  bool moved = false;
  if (f.r_posted < f.total && f.r_posted < f.consumed + plan_.slots &&
      !faulty(FaultKind::recv_proxy, f.dst, f.r_posted)) {
    listener.event(f.dst, index, Step::recv_start, f.r_posted + 1);
    listener.event(f.dst, index, Step::recv_posted, ++f.r_posted);
    moved = true;
  }
  if (f.flushed < f.received && !faulty(FaultKind::flush, f.dst, f.flushed)) {
    listener.event(f.dst, index, Step::recv_ready, ++f.flushed);
    moved = true;
  }
  if (f.received < f.r_posted && f.arrived > f.received) {
    listener.event(f.dst, index, Step::recv_moved, ++f.received);
    moved = true;
  }
  if (f.consumed < f.used) {
    listener.event(f.dst, index, Step::recv_done, ++f.consumed);
    moved = true;
  }
  return moved;
}

bool Simulation::round(Listener& listener) {
  bool moved = false;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (!takes_part(rank)) continue;
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      Flow& f = flows_[i];
      if (f.src == rank) moved |= poll_send(f, static_cast<int>(i), listener);
      if (f.dst == rank) moved |= poll_recv(f, static_cast<int>(i), listener);
    }
    for (int c = 0; c < plan_.channels; ++c) moved |= kernel(rank, c);
  }
  for (Flow& f : flows_) moved |= network(f);
  return moved;
}

}  // namespace mycroft::replay
