#include "neighbours.h"

#include <algorithm>
#include <array>
#include <map>

#include "op_facts.h"

namespace mycroft {
namespace {

void mark_coalesced(const DumpInfo& info, Columns& ops, const Numbers& numbers) {
  // The operations since the last change of number in one group.
  struct Run {
    bool p2p = false;
    std::int64_t seq = kNull64;
    std::vector<std::size_t> rows;
  };
  std::vector<Run> runs(info.groups.size());
  for (std::size_t i = 0; i < ops.rows(); ++i) {
    Run& run = runs[ops.group[i]];
    bool closing = ops.op_kind[i] == kCoalesced;
    if (closing) {
      bool of_p2p = run.rows.empty() ? numbers.p2p[i] > 0 : run.p2p;
      std::int64_t seq = of_p2p ? numbers.p2p[i] : numbers.collective[i];
      if (run.seq == seq) {
        for (std::size_t member : run.rows) ops.coalesced[member] = 1;
      }
      // The closing entry of a batch of send/recv counts as the batch does.
      ops.is_p2p[i] = of_p2p ? 1 : 0;
      ops.op_seq[i] = seq;
      run = Run{of_p2p, seq, {}};
      continue;
    }
    bool p2p = ops.is_p2p[i] != 0;
    std::int64_t seq = ops.op_seq[i];
    if (run.p2p == p2p && run.seq == seq && seq != kNull64 && !run.rows.empty()) {
      // A number is used twice only inside a coalesced group, also where its closing entry was
      // never made.
      run.rows.push_back(i);
      for (std::size_t member : run.rows) ops.coalesced[member] = 1;
      run.rows.erase(run.rows.begin(), run.rows.end() - 1);
    } else {
      run.p2p = p2p;
      run.seq = seq;
      run.rows.assign(1, i);
    }
  }
}

void number_pairs(Columns& ops) {
  std::map<std::array<std::uint32_t, 4>, std::int64_t> pairs;
  for (std::size_t i = 0; i < ops.rows(); ++i) {
    if (ops.op_kind[i] != kSend && ops.op_kind[i] != kRecv) continue;
    if (ops.peer_rank[i] == kNull32) continue;
    ops.pair_seq[i] = pairs[{ops.group[i], ops.op_kind[i], ops.own_rank[i], ops.peer_rank[i]}]++;
  }
}

void note_signs(DumpInfo& info, const Columns& ops) {
  std::int64_t previous = kNull64;
  for (std::size_t i = 0; i < ops.rows(); ++i) {
    bool completed = ops.state[i] == kCompleted || ops.seen_end_ts[i] != kNull64;
    bool started =
        ops.state[i] == kStarted || ops.seen_start_ts[i] != kNull64 || ops.dur_ns[i] != kNull64;
    info.completed += completed ? 1 : 0;
    info.started_signs += started ? 1 : 0;
    if (ops.retired[i] == 1 && !completed && !started && !ops.coalesced[i]) {
      ++info.retired_only;
    }
    std::int64_t record = ops.record_id[i];
    if (record != kNull64) {
      if (previous != kNull64 && record != previous + 1) info.record_gaps = true;
      previous = record;
      if (info.first_record == kNull64 || record < info.first_record) info.first_record = record;
      info.last_record = std::max(info.last_record, record);
    }
    std::int64_t ts = ops.enq_ts[i];
    if (ts != kNull64) {
      if (info.first_ts == kNull64 || ts < info.first_ts) info.first_ts = ts;
      info.last_ts = std::max(info.last_ts, ts);
    }
  }
}

}  // namespace

void derive(DumpInfo& info, Columns& ops, const Numbers& numbers) {
  mark_coalesced(info, ops, numbers);
  number_pairs(ops);
  note_signs(info, ops);
}

}  // namespace mycroft
