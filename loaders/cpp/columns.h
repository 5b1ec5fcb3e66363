// The operations of one or many dumps as columns, and their way out through the Arrow C data
// interface.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../../tracer/cpp/arrow_abi.h"

namespace mycroft {

constexpr std::int64_t kNull64 = INT64_MIN;
constexpr std::uint32_t kNull32 = UINT32_MAX;
constexpr std::uint8_t kNull8 = UINT8_MAX;

// One row per operation. Unknown is the kNull of the width; it leaves as an Arrow null.
struct Columns {
  std::vector<std::uint32_t> file;     // position in the list of files
  std::vector<std::uint32_t> group;    // position in DumpInfo::groups of that file
  std::vector<std::uint32_t> line;     // position in the dump
  std::vector<std::uint32_t> op_name;  // code in the pool, as are sizes and dtypes
  std::vector<std::uint32_t> in_sizes;
  std::vector<std::uint32_t> out_sizes;
  std::vector<std::uint32_t> dtype;
  std::vector<std::uint32_t> out_dtype;
  std::vector<std::uint32_t> stack;     // code of the stack in the pool
  std::vector<std::uint32_t> own_rank;  // inside the group, of a send/recv
  std::vector<std::uint32_t> peer_rank;
  std::vector<std::int64_t> record_id;
  std::vector<std::int64_t> op_seq;
  std::vector<std::int64_t> op_id;
  std::vector<std::int64_t> pair_seq;
  std::vector<std::int64_t> enq_ts;  // ns since 1970, UTC of the host's clock
  std::vector<std::int64_t> seen_start_ts;
  std::vector<std::int64_t> seen_end_ts;
  std::vector<std::int64_t> dur_ns;
  std::vector<std::int64_t> bytes;
  std::vector<std::int64_t> in_numel;
  std::vector<std::int64_t> out_numel;
  std::vector<std::int64_t> timeout_ms;
  std::vector<std::uint8_t> op_kind;  // position in schema.OP_KINDS
  std::vector<std::uint8_t> state;    // position in schema.OP_STATES
  std::vector<std::uint8_t> retired;  // 0 or 1
  std::vector<std::uint8_t> is_p2p;
  std::vector<std::uint8_t> coalesced;

  std::size_t rows() const { return file.size(); }

  // Calls `visit(name, vector)` for each column, in a fixed order.
  template <typename Self, typename Visit>
  static void each(Self& self, Visit visit) {
    visit("file", self.file);
    visit("group", self.group);
    visit("line", self.line);
    visit("op_name", self.op_name);
    visit("in_sizes", self.in_sizes);
    visit("out_sizes", self.out_sizes);
    visit("dtype", self.dtype);
    visit("out_dtype", self.out_dtype);
    visit("stack", self.stack);
    visit("own_rank", self.own_rank);
    visit("peer_rank", self.peer_rank);
    visit("record_id", self.record_id);
    visit("op_seq", self.op_seq);
    visit("op_id", self.op_id);
    visit("pair_seq", self.pair_seq);
    visit("enq_ts", self.enq_ts);
    visit("seen_start_ts", self.seen_start_ts);
    visit("seen_end_ts", self.seen_end_ts);
    visit("dur_ns", self.dur_ns);
    visit("bytes", self.bytes);
    visit("in_numel", self.in_numel);
    visit("out_numel", self.out_numel);
    visit("timeout_ms", self.timeout_ms);
    visit("op_kind", self.op_kind);
    visit("state", self.state);
    visit("retired", self.retired);
    visit("is_p2p", self.is_p2p);
    visit("coalesced", self.coalesced);
  }
};

// Joins the columns of many files in order and empties them, column by column, so that the peak
// stays near one copy.
Columns concatenate(std::vector<Columns>& parts);

// Hands the columns over as one Arrow struct array. Both structs are released by who receives them;
// the array keeps `columns` alive.
void export_schema(ArrowSchema* out);
void export_array(std::shared_ptr<const Columns> columns, ArrowArray* out);

}  // namespace mycroft
