// Records to columns: one batch per record type. Pure; knows no file.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "record.h"
#include "trace_reader.h"

namespace mycroft {

class Decoder {
 public:
  // `limit`: records that can come at most.
  explicit Decoder(size_t limit);

  // Adds `count` records that lie one after another and whose first has `position`.
  // Those that are not whole are counted in `losses`.
  void add(const uint64_t* words, uint32_t count, uint64_t position, Losses& losses);

  uint64_t records() const { return records_; }
  std::vector<std::shared_ptr<Batch>> take();

 private:
  void add_slice(const uint64_t* words, uint32_t count, uint64_t position, Losses& losses);
  void add_kind(size_t kind, const uint64_t* words, uint64_t position);
  void add_states(const uint64_t* words, uint64_t position);
  void add_flows(const uint64_t* words, uint64_t position);
  void add_ops(const uint64_t* words, uint64_t position);
  void add_heartbeats(const uint64_t* words, uint64_t position);
  void add_gaps(const uint64_t* words, uint64_t position);
  void add_foreign(const uint64_t* words, uint64_t position);

  // Which records of the block are of the type at hand.
  std::vector<uint16_t> index_;
  std::vector<std::shared_ptr<Batch>> batches_;
  size_t limit_;
  uint64_t records_ = 0;
};

// Names and formats of the columns of each batch, for documents and tests.
std::vector<std::shared_ptr<Batch>> empty_batches(size_t limit = 0);

}  // namespace mycroft
