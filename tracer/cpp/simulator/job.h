// A simulated job: TP x PP x DP with 1F1B, iteration after iteration. Copying one forks it: the
// copy goes on from the same state with the same draws, so that a fault can be put into one and not
// the other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model.h"
#include "ring.h"
#include "rows.h"

namespace mycroft::simulator {

struct Counts {
  uint64_t rank_operations = 0;
  uint64_t slices = 0;
  uint64_t iterations = 0;
};

// Numbers of the communicators of every rank, and their order in its directory.
inline constexpr uint16_t kTpComm = 1, kPpComm = 2, kDpComm = 3, kEpComm = 4;

class Job {
 public:
  explicit Job(const Config& config);  // throws std::invalid_argument

  // A copy that keeps no rows, to look ahead with.
  std::unique_ptr<Job> without_rows() const;
  // Breaks it; the fault's time may not lie in what has been simulated.
  void inject(const Fault& fault);
  // Simulates `count` iterations, whatever time that takes.
  void run(uint32_t count);
  // Simulates until every rank is past `horizon` or stands; rows end there.
  void run_until(Time horizon);

  const Config& config() const { return config_; }
  const Counts& counts() const { return counts_; }
  Rows& rows() { return recorder_.rows; }
  // When the slowest and the fastest rank is done with what was simulated.
  Time least() const;
  Time most() const;
  const std::vector<double>& iteration_ns() const { return iteration_ns_; }

 private:
  struct Step {
    uint32_t stage;
    uint32_t microbatch;
    bool forward;
  };
  void make_schedule();
  void iteration();
  void pause();
  void compute(const Step& step);
  void receive(uint32_t stage, uint32_t from, uint32_t microbatch, bool forward);
  void experts(uint32_t stage, Time* kstart);
  void data_parallel(uint32_t stage, Op kind, double compute_ns);
  void record_pair(uint32_t sender, uint32_t receiver, Time ready, Time enq, Time end,
                   uint64_t seq);
  double noise(double spread) { return 1 + spread * config_.noise * random_.normal(); }
  uint32_t block() const { return config_.dp * config_.tp; }

  Config config_;
  Broken broken_;
  Random random_;
  Random events_;  // pauses and congestion: own draws, so that noise does not move them
  Recorder recorder_;
  Counts counts_;
  Time horizon_ = kNever;
  std::vector<Step> schedule_;
  std::vector<Time> t_, proxy_free_;
  std::vector<double> speed_, congestion_, drift_, length_, jitter_, noise_table_;
  std::vector<Time> forward_ready_, backward_ready_;  // [boundary][microbatch][rank of the block]
  std::vector<double> iteration_ns_;
  std::vector<Time> enq_, kstart_, scratch_;
  RingTimes ring_;
  TreeTimes tree_;
  std::vector<uint64_t> tp_seq_, ep_seq_;  // of each stage
  uint64_t dp_seq_ = 0, number_ = 0;
  Time next_checkpoint_ = 0;
  uint64_t next_evaluation_ = 80;
};

}  // namespace mycroft::simulator
