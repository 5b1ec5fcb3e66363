#include "rows.h"

#include <algorithm>

namespace mycroft::simulator {
namespace {

uint64_t whole(double ns) { return ns > 0 ? static_cast<uint64_t>(ns) : 0; }

}  // namespace

Recorder::Recorder(const Config& config, const Broken& broken) : config_(config), broken_(broken) {
  Random random(config.seed ^ 0xC10C5);
  for (uint32_t h = 0; h < config.hosts(); ++h) {
    offset_.push_back(random.normal() * 20 * kMs * config.noise);
    phase_.push_back(random.uniform() * config.interval_ns);
  }
  for (uint32_t r = 0; r < config.ranks(); ++r) {
    next_beat_.push_back(phase_[r / config.ranks_per_host]);
  }
  progress_.resize(config.ranks(), 0);
}

void Recorder::beat(uint32_t rank, Time until, bool open, Time enq) {
  until = std::min(until, broken_.rows_end(rank));
  for (; next_beat_[rank] <= until; next_beat_[rank] += kS) {
    auto& h = rows.heartbeat;
    h.trace.push_back(rank);
    h.ts.push_back(stamp(rank, next_beat_[rank]));
    h.open_ops.push_back(open ? 1 : 0);
    h.oldest_open_ts.push_back(open ? stamp(rank, enq) : -1);
    h.progress_ts.push_back(progress_[rank] > 0 ? stamp(rank, progress_[rank]) : -1);
  }
}

void Recorder::finish(uint32_t rank, Time horizon) { beat(rank, horizon, false, 0); }

void Recorder::op(uint32_t rank, uint16_t comm, uint64_t seq, Op kind, Time enq, Time kstart,
                  Time end, uint64_t bytes, uint8_t channels, uint32_t flows, int32_t peer,
                  Time horizon) {
  const Time trace_end = std::min(horizon, broken_.rows_end(rank));
  if (enq > trace_end) return;
  beat(rank, enq, false, 0);
  progress_[rank] = later(progress_[rank], kstart <= trace_end ? kstart : enq);
  beat(rank, std::min(end, horizon), true, enq);
  if (end <= trace_end) progress_[rank] = later(progress_[rank], end);
  add_op(rank, comm, seq, kind, enq, kstart, end, bytes, channels, flows, peer, trace_end);
}

void Recorder::side_op(uint32_t rank, uint16_t comm, uint64_t seq, Op kind, Time enq, Time kstart,
                       Time end, uint64_t bytes, int32_t peer, Time horizon) {
  const Time trace_end = std::min(horizon, broken_.rows_end(rank));
  if (enq <= trace_end)
    add_op(rank, comm, seq, kind, enq, kstart, end, bytes, 1, 1, peer, trace_end);
}

void Recorder::add_op(uint32_t rank, uint16_t comm, uint64_t seq, Op kind, Time enq, Time kstart,
                      Time end, uint64_t bytes, uint8_t channels, uint32_t flows, int32_t peer,
                      Time trace_end) {
  auto& o = rows.op;
  o.trace.push_back(rank);
  o.comm.push_back(comm);
  o.op_seq.push_back(seq);
  o.op_kind.push_back(static_cast<uint8_t>(kind));
  o.enq_ts.push_back(stamp(rank, enq));
  o.kstart_ts.push_back(kstart <= trace_end ? stamp(rank, kstart) : -1);
  o.dur_ns.push_back(end <= trace_end ? static_cast<int64_t>(end - enq) : -1);
  o.bytes.push_back(bytes);
  o.channels.push_back(channels);
  o.flows.push_back(flows);
  o.peer.push_back(peer);
}

void Recorder::flow(const FlowName& name, const HalfTimes& t, Time horizon) {
  const Time trace_end = std::min(horizon, broken_.rows_end(name.rank));
  if (t.start > trace_end || t.slices == 0) return;
  const uint32_t host = name.rank / config_.ranks_per_host;
  const auto at = [&](const Time* column, uint32_t j) { return column[size_t{j} * t.stride]; };
  const Time end = at(t.done, t.slices - 1);
  const Time last = std::min(end, trace_end);
  const double interval = config_.interval_ns;
  const double ticks = std::ceil((t.start - phase_[host]) / interval);
  uint32_t posted = 0, ready = 0, moved = 0, done = 0;
  Time changed = t.start;
  const auto advance = [&](const Time* column, uint32_t& count, Time now) {
    for (; count < t.slices && at(column, count) <= now; ++count)
      changed = later(changed, at(column, count));
  };
  double standing_since = -1;
  for (Time now = phase_[host] + ticks * interval; now < last; now += interval) {
    advance(t.ready, ready, now);
    advance(t.moved, moved, now);
    advance(t.done, done, now);
    if (t.posted != nullptr) {
      advance(t.posted, posted, now);
    } else {
      posted = std::min(t.slices, done + t.slots);
    }
    const double idle = now - changed;
    // As the tracer: what stands for long is written once a second.
    if (idle > 10 * kS) {
      if (standing_since >= 0 && now - standing_since < 0.9 * kS) continue;
      standing_since = now;
    }
    auto& s = rows.state;
    s.trace.push_back(name.rank);
    s.ts.push_back(stamp(name.rank, now));
    s.comm.push_back(name.comm);
    s.op_seq.push_back(name.op_seq);
    s.op_kind.push_back(static_cast<uint8_t>(name.kind));
    s.channel.push_back(name.channel);
    s.send.push_back(name.send ? 1 : 0);
    s.peer.push_back(name.peer);
    s.chunks_total.push_back(t.slices);
    s.posted.push_back(posted);
    // The proxy looks one slot ahead only.
    s.ready.push_back(name.send ? std::min({ready, moved + 1, posted}) : ready);
    s.moved.push_back(moved);
    s.done.push_back(done);
    s.idle_ms.push_back(static_cast<uint32_t>(idle / kMs));
    s.flow_id.push_back(name.rank * 64 + name.channel * 2 + (name.send ? 1 : 0));
    s.bytes.push_back(moved * name.slice_bytes);
  }
  if (changed <= trace_end) progress_[name.rank] = later(progress_[name.rank], changed);
  if (end > trace_end) return;
  double sum_a = 0, max_a = 0, sum_b = 0, max_b = 0;
  Time previous = t.start, previous_done = t.start;
  for (uint32_t j = 0; j < t.slices; ++j) {
    if (name.send) {
      const double busy = at(t.done, j) - later(at(t.moved, j), previous_done);
      const double wait = at(t.moved, j) - later(at(t.ready, j), previous);
      sum_a += std::max(0.0, busy);
      max_a = std::max(max_a, busy);
      sum_b += std::max(0.0, wait);
      max_b = std::max(max_b, wait);
      previous = at(t.moved, j);
      previous_done = at(t.done, j);
    } else {
      Time could = later(previous, t.start);
      if (j >= t.slots) could = later(could, at(t.done, j - t.slots));
      const double delay = at(t.posted, j) - could;
      sum_a += std::max(0.0, delay);
      max_a = std::max(max_a, delay);
      sum_b += later(at(t.ready, j) - later(at(t.moved, j), t.start), 0);
      max_b += at(t.done, j) - at(t.ready, j);
      previous = at(t.posted, j);
    }
  }
  auto& f = rows.flow;
  f.trace.push_back(name.rank);
  f.end_ts.push_back(stamp(name.rank, end));
  f.comm.push_back(name.comm);
  f.op_seq.push_back(name.op_seq);
  f.op_kind.push_back(static_cast<uint8_t>(name.kind));
  f.channel.push_back(name.channel);
  f.send.push_back(name.send ? 1 : 0);
  f.peer.push_back(name.peer);
  f.slices.push_back(t.slices);
  f.bytes.push_back(t.slices * name.slice_bytes);
  f.net_busy_ns.push_back(whole(sum_a));
  f.net_max_ns.push_back(whole(max_a));
  f.peer_wait_ns.push_back(whole(sum_b));
  f.peer_wait_max_ns.push_back(whole(max_b));
}

}  // namespace mycroft::simulator
