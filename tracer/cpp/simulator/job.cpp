#include "job.h"

#include <algorithm>
#include <stdexcept>

namespace mycroft::simulator {
namespace {

constexpr uint32_t kPairSlices = 8;
constexpr uint64_t kSliceBytes = 1 << 20;
constexpr uint32_t kNoiseTable = 1 << 14;

}  // namespace

Job::Job(const Config& config)
    : config_(config),
      random_(config.seed),
      events_(config.seed ^ 0xE7E47),
      recorder_(config, Broken()) {
  const auto& c = config_;
  if (c.tp == 0 || c.pp == 0 || c.dp == 0 || c.microbatches == 0 || c.channels == 0 ||
      c.ranks_per_host == 0) {
    throw std::invalid_argument(
        "tp, pp, dp, microbatches, channels and ranks_per_host are at least 1");
  }
  if (uint64_t{c.tp} * c.pp * c.dp > 1u << 20)
    throw std::invalid_argument("more than 1,048,576 ranks");
  if (c.channels > 32) throw std::invalid_argument("more than 32 channels");
  if (c.ep == 0 || c.dp % c.ep != 0) throw std::invalid_argument("ep divides dp");
  const uint32_t n = c.ranks();
  t_.assign(n, 0);
  proxy_free_.assign(n, 0);
  congestion_.assign(n, 1);
  drift_.assign(c.hosts(), 0);
  length_.assign(size_t{c.microbatches} * c.dp, 1);
  for (uint32_t r = 0; r < n; ++r) {
    const uint32_t stage = r / block(), replica = r % block() / c.tp;
    Random mine(c.seed * 31 + r), of_replica(c.seed * 37 + replica);
    double speed = 1 + 0.008 * c.noise * mine.normal() + 0.004 * c.noise * of_replica.normal();
    if (r == 0) speed *= 1.02;
    if (stage + 1 == c.pp && c.pp > 1) speed *= 1.06;
    speed_.push_back(speed);
  }
  for (uint32_t i = 0; i < kNoiseTable; ++i) noise_table_.push_back(noise(0.01));
  for (uint32_t i = 0; i < kJitterRows * c.dp; ++i) jitter_.push_back(std::max(0.5, noise(0.03)));
  for (auto* ready : {&forward_ready_, &backward_ready_}) {
    ready->assign(size_t{c.pp} * c.microbatches * block(), kNever);
  }
  enq_.resize(n);
  kstart_.resize(n);
  tp_seq_.assign(c.pp, 0);
  ep_seq_.assign(c.pp, 0);
  next_checkpoint_ = c.checkpoint_every_s * kS * events_.uniform(0.6, 1.4);
  next_evaluation_ = 60 + events_.next() % 50;
  make_schedule();
}

// Any order that respects the dependencies of 1F1B.
void Job::make_schedule() {
  const uint32_t stages = config_.pp, count = config_.microbatches;
  std::vector<std::vector<Step>> lists(stages);
  for (uint32_t s = 0; s < stages; ++s) {
    const uint32_t warm = std::min(stages - s - 1, count);
    uint32_t f = 0, b = 0;
    for (; f < warm; ++f) lists[s].push_back({s, f, true});
    while (f < count) {
      lists[s].push_back({s, f++, true});
      lists[s].push_back({s, b++, false});
    }
    while (b < count) lists[s].push_back({s, b++, false});
  }
  std::vector<size_t> next(stages, 0);
  std::vector<uint32_t> forwards(stages, 0), backwards(stages, 0);
  while (schedule_.size() < size_t{2} * stages * count) {
    for (uint32_t s = 0; s < stages; ++s) {
      while (next[s] < lists[s].size()) {
        const Step& step = lists[s][next[s]];
        const bool free = step.forward ? s == 0 || forwards[s - 1] > step.microbatch
                                       : s + 1 == stages || backwards[s + 1] > step.microbatch;
        if (!free) break;
        ++(step.forward ? forwards : backwards)[s];
        schedule_.push_back(step);
        ++next[s];
      }
    }
  }
}

std::unique_ptr<Job> Job::without_rows() const {
  Config quiet = config_;
  quiet.rows = false;
  auto job = std::make_unique<Job>(quiet);
  job->random_ = random_;
  job->events_ = events_;
  job->broken_ = broken_;
  job->t_ = t_;
  job->proxy_free_ = proxy_free_;
  job->drift_ = drift_;
  job->number_ = number_;
  job->next_checkpoint_ = next_checkpoint_;
  job->next_evaluation_ = next_evaluation_;
  return job;
}

void Job::inject(const Fault& fault) {
  if (fault.rank >= config_.ranks())
    throw std::invalid_argument("the job has no rank " + std::to_string(fault.rank));
  broken_.add(fault, config_);
  recorder_.set_broken(broken_);
}

Time Job::least() const { return *std::min_element(t_.begin(), t_.end()); }
Time Job::most() const { return *std::max_element(t_.begin(), t_.end()); }

void Job::run(uint32_t count) {
  horizon_ = kNever;
  for (uint32_t i = 0; i < count; ++i) iteration();
}

void Job::run_until(Time horizon) {
  horizon_ = horizon;
  while (least() < horizon) iteration();
  if (config_.rows) {
    for (uint32_t r = 0; r < config_.ranks(); ++r) recorder_.finish(r, horizon);
  }
}

// What a healthy job does beside training.
void Job::pause() {
  const uint32_t n = config_.ranks();
  std::fill(congestion_.begin(), congestion_.end(), 1.0);
  const Fault* stall = broken_.of(FaultKind::ckpt_stall);
  if (stall != nullptr && t_[0] >= stall->at && t_[0] < stall->at + 45 * kS) {
    t_[0] = stall->at + 45 * kS * stall->severity;
  }
  for (uint32_t r = 0; r < n; ++r) t_[r] = broken_.absent(r, t_[r]);
  if (!config_.benign) return;
  for (double& d : drift_) d = 0.9 * d + 0.00175 * config_.noise * events_.normal();
  if (events_.uniform() < 0.03 * config_.noise) {
    const uint32_t host = static_cast<uint32_t>(events_.next() % config_.hosts());
    const double factor = events_.uniform(1.3, 2.5);
    const uint32_t end = std::min(n, (host + 1) * config_.ranks_per_host);
    for (uint32_t r = host * config_.ranks_per_host; r < end; ++r) congestion_[r] = factor;
  }
  // Garbage collection: about one rank in two hundred, each iteration.
  const double collections = 0.005 * n;
  for (double left = collections; events_.uniform() < left; left -= 1) {
    t_[events_.next() % n] += events_.uniform(50, 250) * kMs;
  }
  Time now = kNever;
  for (Time t : t_) now = std::min(now, t);
  double stop = 0;
  if (now < kNever && now >= next_checkpoint_) {
    stop = events_.uniform(2, 6) * kS;
    t_[0] += events_.uniform(0, 3) * kS;
    next_checkpoint_ = now + stop + config_.checkpoint_every_s * kS * events_.uniform(0.6, 1.4);
  }
  if (number_ == next_evaluation_) {
    stop += 2 * kS;
    next_evaluation_ += 60 + events_.next() % 50;
  }
  if (stop > 0) {
    for (Time& t : t_) t += stop;
  }
}

void Job::iteration() {
  const Time before = most();
  pause();
  for (double& l : length_)
    l = config_.benign ? std::exp(0.15 * config_.noise * random_.normal()) : 1;
  const double warm = config_.benign && number_ < 2 ? 3 : 1;
  for (double& l : length_) l *= warm;
  for (const Step& step : schedule_) compute(step);
  for (uint32_t s = 0; s < config_.pp && config_.dp > 1; ++s) {
    if (config_.tree) {
      data_parallel(s, Op::all_reduce, 0);
    } else {
      data_parallel(s, Op::reduce_scatter, 0);
    }
  }
  dp_seq_ += config_.dp > 1 ? 1 : 0;
  for (uint32_t s = 0; s < config_.pp && config_.dp > 1 && !config_.tree; ++s) {
    data_parallel(s, Op::all_gather, config_.optimiser_ns);
  }
  dp_seq_ += config_.dp > 1 && !config_.tree ? 1 : 0;
  iteration_ns_.push_back(most() - before);
  ++number_;
  ++counts_.iterations;
}

void Job::compute(const Step& step) {
  const auto& c = config_;
  const uint32_t base = step.stage * block(), size = block();
  const size_t place = (size_t{step.stage} * c.microbatches + step.microbatch) * size;
  if (step.forward && step.stage > 0) receive(step.stage, step.stage - 1, step.microbatch, true);
  if (!step.forward && step.stage + 1 < c.pp)
    receive(step.stage, step.stage + 1, step.microbatch, false);
  const double nominal = step.forward ? c.forward_ns : c.backward_ns;
  const uint64_t offset = random_.next();
  Time* enq = enq_.data();
  Time* kstart = kstart_.data();
  for (uint32_t i = 0; i < size; ++i) {
    const uint32_t r = base + i;
    enq[i] = t_[r] + c.host_ns;
    const double kernel = nominal * speed_[r] * noise_table_[(offset + i) % kNoiseTable] *
                          (1 + drift_[r / c.ranks_per_host]) *
                          length_[step.microbatch * c.dp + i / c.tp];
    kstart[i] = t_[r] + kernel;
  }
  if (broken_.any()) {
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t r = base + i;
      if (!broken_.hits(r) || !(t_[r] < kNever)) continue;
      kstart[i] = broken_.gpu(r, t_[r] + (kstart[i] - t_[r]) * broken_.compute(r, t_[r]));
      enq[i] = broken_.process(r, enq[i]);
    }
  }
  if (c.ep > 1 && step.forward) experts(step.stage, kstart);
  if (c.tp > 1) {
    for (uint32_t g = 0; g < size; g += c.tp) {
      Time last = 0;
      for (uint32_t i = g; i < g + c.tp; ++i) last = later(last, kstart[i]);
      const Time end = last + c.tp_ns;
      for (uint32_t i = g; i < g + c.tp; ++i) t_[base + i] = end;
    }
    if (c.rows) {
      for (uint32_t i = 0; i < size; ++i) {
        recorder_.op(base + i, kTpComm, tp_seq_[step.stage], Op::all_reduce, enq[i], kstart[i],
                     t_[base + i], kSliceBytes * 16, static_cast<uint8_t>(c.channels), 0, -1,
                     horizon_);
      }
    }
    counts_.rank_operations += size;
  } else {
    for (uint32_t i = 0; i < size; ++i) t_[base + i] = kstart[i];
  }
  if (broken_.any()) {
    for (uint32_t i = 0; i < size; ++i) t_[base + i] = broken_.process(base + i, t_[base + i]);
  }
  auto& ready = step.forward ? forward_ready_ : backward_ready_;
  std::copy_n(t_.begin() + base, size, ready.begin() + static_cast<std::ptrdiff_t>(place));
  ++tp_seq_[step.stage];
}

// The next or previous stage's tensor: eight slices on one channel, all of them filled when it was
// sent.
void Job::receive(uint32_t stage, uint32_t from, uint32_t microbatch, bool forward) {
  const auto& c = config_;
  const uint32_t base = stage * block(), size = block();
  const size_t place = (size_t{from} * c.microbatches + microbatch) * size;
  const Time* ready = (forward ? forward_ready_ : backward_ready_).data() + place;
  const double w = c.pair_ns / kPairSlices;
  const double tail = c.latency_ns + c.flush_ns + c.copy_ns;
  const bool touched = broken_.any() && broken_.network();
  const uint64_t seq = number_ * c.microbatches + microbatch;
  for (uint32_t i = 0; i < size; ++i) {
    const uint32_t r = base + i, sender = from * size + i;
    const Time enq = t_[r] + c.host_ns;
    Time end = 0;
    if (touched && (broken_.hits(r) || broken_.hits(sender))) {
      end = kNever;  // made below, slice by slice
    } else {
      // tx of the first slice; the wire is the bottleneck from there on
      end = later(ready[i] + c.copy_ns, enq + c.latency_ns) +
            c.pair_ns * later(congestion_[sender], congestion_[r]) + tail;
    }
    if (c.rows || (touched && (broken_.hits(r) || broken_.hits(sender)))) {
      std::vector<Time>& s = scratch_;
      s.assign(size_t{7} * kPairSlices, 0);
      Time* posted = s.data();
      Time* filled = posted + kPairSlices;
      Time* moved = filled + kPairSlices;
      Time* done = moved + kPairSlices;
      Time* received = done + kPairSlices;
      Time* flushed = received + kPairSlices;
      Time* consumed = flushed + kPairSlices;
      const double slow = later(congestion_[sender], congestion_[r]);
      for (uint32_t j = 0; j < kPairSlices; ++j) {
        filled[j] = broken_.gpu(sender, ready[i] + (j + 1) * c.copy_ns / kPairSlices);
        posted[j] = broken_.post(r, later(enq, proxy_free_[r]));
        if (posted[j] < kNever && touched) {
          const Time woken = broken_.proxy_sleep(r, posted[j], random_);
          if (woken > posted[j]) proxy_free_[r] = posted[j] = woken;
        }
        Time x = later(filled[j], posted[j] + c.latency_ns);
        x = later(later(x, j != 0 ? moved[j - 1] : 0), proxy_free_[sender]);
        if (x < kNever && touched) {
          const Time woken = broken_.proxy_sleep(sender, x, random_);
          if (woken > x) proxy_free_[sender] = x = woken;
        }
        moved[j] = broken_.process(sender, x);
        const Time begin = later(moved[j], j != 0 ? done[j - 1] : 0);
        done[j] = begin < kNever ? broken_.wire(begin, w * slow, sender, r, 0, random_) : kNever;
        received[j] = broken_.process(r, done[j] + c.latency_ns);
        flushed[j] = received[j] + c.flush_ns * broken_.flush(r, received[j]);
        consumed[j] = broken_.gpu(
            r, later(flushed[j], j != 0 ? consumed[j - 1] : 0) + c.copy_ns / kPairSlices);
      }
      end = consumed[kPairSlices - 1];
      if (c.rows) record_pair(sender, r, ready[i], enq, end, seq);
    }
    t_[r] = end;
  }
  counts_.rank_operations += 2 * size;
  counts_.slices += size_t{kPairSlices} * size;
}

void Job::record_pair(uint32_t sender, uint32_t receiver, Time ready, Time enq, Time end,
                      uint64_t seq) {
  const uint32_t from = sender / block(), to = receiver / block();
  const Time* posted = scratch_.data();
  const Time* filled = posted + kPairSlices;
  const Time* moved = filled + kPairSlices;
  const Time* done = moved + kPairSlices;
  const Time* received = done + kPairSlices;
  const Time* flushed = received + kPairSlices;
  const Time* consumed = flushed + kPairSlices;
  const uint64_t bytes = kPairSlices * kSliceBytes;
  recorder_.flow({sender, kPpComm, seq, Op::send, 0, true, to, kSliceBytes},
                 {nullptr, filled, moved, done, kPairSlices, 1, ready, kPairSlots}, horizon_);
  recorder_.flow({receiver, kPpComm, seq, Op::recv, 0, false, from, kSliceBytes},
                 {posted, flushed, received, consumed, kPairSlices, 1, enq, kPairSlots}, horizon_);
  recorder_.side_op(sender, kPpComm, seq, Op::send, ready, ready, done[kPairSlices - 1], bytes,
                    static_cast<int32_t>(to), horizon_);
  recorder_.op(receiver, kPpComm, seq, Op::recv, enq, broken_.gpu(receiver, enq), end, bytes, 1, 1,
               static_cast<int32_t>(from), horizon_);
}

// All-to-all inside groups of `ep` replicas: in turn with each other rank, both interfaces busy.
void Job::experts(uint32_t stage, Time* kstart) {
  const auto& c = config_;
  const uint32_t base = stage * block();
  const double w = c.expert_ns / (c.ep - 1);
  std::vector<Time> out(c.ep), in(c.ep), begin(c.ep), enq(c.ep);
  std::vector<Time> tx(size_t{c.ep} * c.ep), done(size_t{c.ep} * c.ep), got(size_t{c.ep} * c.ep);
  for (uint32_t first = 0; first < c.dp; first += c.ep) {
    for (uint32_t tp = 0; tp < c.tp; ++tp) {
      const auto local = [&](uint32_t m) { return (first + m) * c.tp + tp; };
      for (uint32_t m = 0; m < c.ep; ++m) {
        out[m] = in[m] = 0;
        begin[m] = kstart[local(m)];
        enq[m] = enq_[local(m)];
      }
      for (uint32_t d = 1; d < c.ep; ++d) {
        for (uint32_t a = 0; a < c.ep; ++a) {
          const uint32_t z = (a + d) % c.ep;
          const uint32_t src = base + local(a), dst = base + local(z);
          const size_t at = size_t{a} * c.ep + z;
          // Full duplex: what a sends waits for what a has sent, and for what z has received.
          Time x = later(begin[a] + c.copy_ns, broken_.post(dst, enq[z]) + c.latency_ns);
          tx[at] = broken_.process(src, x);
          x = later(later(tx[at], out[a]), in[z]);
          const double slow = later(congestion_[src], congestion_[dst]);
          done[at] =
              x < kNever ? broken_.wire(x, w * slow, src, dst, d % c.channels, random_) : kNever;
          // What never goes holds no interface: the others go past it.
          if (done[at] < kNever) out[a] = in[z] = done[at];
          got[at] = broken_.gpu(
              dst,
              later(done[at] + c.latency_ns + c.flush_ns * broken_.flush(dst, done[at]), begin[z]) +
                  c.copy_ns);
        }
      }
      for (uint32_t m = 0; m < c.ep; ++m) {
        Time end = begin[m];
        for (uint32_t o = 0; o < c.ep; ++o) {
          if (o != m) end = later(end, later(got[size_t{o} * c.ep + m], tx[size_t{m} * c.ep + o]));
        }
        const uint32_t r = base + local(m);
        if (c.rows) {
          for (uint32_t o = 0; o < c.ep; ++o) {
            if (o == m) continue;
            const size_t to = size_t{m} * c.ep + o, from = size_t{o} * c.ep + m;
            const Time filled = begin[m] + c.copy_ns, post = broken_.post(r, enq[m]);
            const Time arrived = done[from] + c.latency_ns;
            const Time flushed = arrived + c.flush_ns * broken_.flush(r, done[from]);
            const auto out_channel = static_cast<uint8_t>((o + c.ep - m) % c.ep % c.channels);
            const auto in_channel = static_cast<uint8_t>((m + c.ep - o) % c.ep % c.channels);
            recorder_.flow(
                {r, kEpComm, ep_seq_[stage], Op::all_to_all, out_channel, true, o, kSliceBytes},
                {nullptr, &filled, &tx[to], &done[to], 1, 1, enq[m], kPairSlots}, horizon_);
            recorder_.flow(
                {r, kEpComm, ep_seq_[stage], Op::all_to_all, in_channel, false, o, kSliceBytes},
                {&post, &flushed, &arrived, &got[from], 1, 1, enq[m], kPairSlots}, horizon_);
          }
          recorder_.op(r, kEpComm, ep_seq_[stage], Op::all_to_all, enq[m], begin[m], end,
                       kSliceBytes, static_cast<uint8_t>(c.channels), 2 * (c.ep - 1), -1, horizon_);
        }
        enq_[local(m)] = end + c.host_ns;
        kstart[local(m)] = end + c.host_ns;
      }
    }
  }
  ++ep_seq_[stage];
  counts_.rank_operations += block();
  counts_.slices += size_t{block()} * (c.ep - 1);
}

void Job::data_parallel(uint32_t stage, Op kind, double compute_ns) {
  const auto& c = config_;
  const uint32_t n = c.dp;
  std::vector<uint32_t> ranks(n);
  std::vector<Time> enq(n), start(n), end(n), total(n), asleep(n);
  std::vector<double> slow(n);
  const std::vector<double>& jitter = jitter_;
  const uint32_t loops = std::max(1u, 16 / (n - 1));
  RingSpec spec;
  spec.ranks = ranks.data();
  spec.n = n;
  spec.loops = loops;
  spec.keep = c.rows;
  spec.latency = c.latency_ns;
  spec.f = c.flush_ns;
  spec.g = c.copy_ns;
  spec.jitter = jitter.data();
  spec.congestion = slow.data();
  const bool network = broken_.any() && broken_.network();
  for (uint32_t tp = 0; tp < c.tp; ++tp) {
    bool touched = false;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t r = ranks[i] = stage * block() + i * c.tp + tp;
      enq[i] = broken_.process(r, t_[r] + c.host_ns);
      start[i] = t_[r] + c.host_ns + compute_ns * speed_[r];
      touched = touched || (network && broken_.hits(r));
      slow[i] = congestion_[r];
      asleep[i] = proxy_free_[r];
      total[i] = 0;
    }
    if (touched) {
      for (uint32_t i = 0; i < n; ++i) {
        if (start[i] < kNever) start[i] = broken_.gpu(ranks[i], start[i]);
      }
    }
    for (uint32_t i = 0; i < n; ++i) {
      // A neighbour that is congested slows what comes to it as well.
      slow[i] = later(congestion_[ranks[i]], congestion_[ranks[(i + 1) % n]]);
    }
    for (uint32_t channel = 0; channel < c.channels; ++channel) {
      spec.channel = channel;
      if (c.tree) {
        const auto edges = tree_edges(n, channel % 2 == 1);
        const uint32_t slices = 32, m = n - 1;
        spec.w = c.dp_ns / (2 * slices);
        run_tree(spec, edges, slices, broken_, enq.data(), start.data(), end.data(), tree_,
                 random_);
        counts_.slices += size_t{2} * slices * m;
        for (uint32_t e = 0; e < m && c.rows; ++e) {
          for (const bool up : {true, false}) {
            const RingTimes& t = up ? tree_.up : tree_.down;
            const uint32_t from = up ? edges[e].child : edges[e].parent,
                           to = up ? edges[e].parent : edges[e].child;
            recorder_.flow({ranks[from], kDpComm, dp_seq_, kind, static_cast<uint8_t>(channel),
                            true, to, kSliceBytes},
                           {nullptr, t.ready.data() + e, t.moved.data() + e, t.done.data() + e,
                            slices, m, enq[from], kPairSlots},
                           horizon_);
            recorder_.flow({ranks[to], kDpComm, dp_seq_, kind, static_cast<uint8_t>(channel), false,
                            from, kSliceBytes},
                           {t.posted.data() + e, t.flushed.data() + e, t.received.data() + e,
                            t.consumed.data() + e, slices, m, enq[to], kPairSlots},
                           horizon_);
          }
        }
      } else {
        spec.w = c.dp_ns / spec.slices();
        run_ring(spec, broken_, touched, enq.data(), start.data(), end.data(), asleep.data(), ring_,
                 random_);
        const uint32_t slices = spec.slices();
        counts_.slices += size_t{slices} * n;
        for (uint32_t i = 0; i < n && c.rows; ++i) {
          recorder_.flow({ranks[i], kDpComm, dp_seq_, kind, static_cast<uint8_t>(channel), true,
                          (i + 1) % n, kSliceBytes},
                         {nullptr, ring_.ready.data() + i, ring_.moved.data() + i,
                          ring_.done.data() + i, slices, n, enq[i], kRingSlots},
                         horizon_);
          recorder_.flow(
              {ranks[i], kDpComm, dp_seq_, kind, static_cast<uint8_t>(channel), false,
               (i + n - 1) % n, kSliceBytes},
              {ring_.posted.data() + i, ring_.flushed.data() + i, ring_.received.data() + i,
               ring_.consumed.data() + i, slices, n, enq[i], kRingSlots},
              horizon_);
        }
      }
      for (uint32_t i = 0; i < n; ++i) total[i] = later(total[i], end[i]);
    }
    for (uint32_t i = 0; i < n; ++i) {
      if (c.rows) {
        recorder_.op(ranks[i], kDpComm, dp_seq_, kind, enq[i], start[i], total[i],
                     kSliceBytes * spec.slices(), static_cast<uint8_t>(c.channels), 2 * c.channels,
                     -1, horizon_);
      }
      t_[ranks[i]] = broken_.process(ranks[i], total[i]);
      if (touched) proxy_free_[ranks[i]] = asleep[i];
    }
  }
  counts_.rank_operations += block();
}

}  // namespace mycroft::simulator
