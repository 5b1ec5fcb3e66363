#include "decode.h"

#include <array>
#include <cstring>

namespace mycroft {
namespace {

constexpr uint32_t kWords = kRecordBytes / 8;
constexpr size_t kTypes = 6;
// Records that are taken apart together, column by column: 16 KB, which stays in the first-level
// cache.
constexpr uint32_t kSlice = 256;

constexpr const char* kU8 = "C";
constexpr const char* kU16 = "S";
constexpr const char* kU32 = "I";
constexpr const char* kU64 = "L";
constexpr const char* kI64 = "l";
constexpr const char* kTime = "tsn:";
constexpr uint64_t kNoTime = uint64_t{1} << 63;  // the least 64-bit integer: no time of ours

ColumnType u8(const char* name) { return {name, kU8, 1}; }
ColumnType u8_or_null(const char* name) { return {name, kU8, 1, true, kUnknown8}; }
ColumnType u16(const char* name) { return {name, kU16, 2}; }
ColumnType u32(const char* name) { return {name, kU32, 4}; }
ColumnType u32_or_null(const char* name) { return {name, kU32, 4, true, kUnknown32}; }
ColumnType u64(const char* name) { return {name, kU64, 8}; }
ColumnType u64_or_null(const char* name) { return {name, kU64, 8, true, kUnknown48}; }
ColumnType i64_or_null(const char* name) { return {name, kI64, 8, true, kNoTime}; }
ColumnType time(const char* name) { return {name, kTime, 8}; }
ColumnType time_or_null(const char* name) { return {name, kTime, 8, true, kNoTime}; }

template <typename... Types>
std::shared_ptr<Batch> make(const char* name, size_t limit, const Types&... types) {
  auto batch = std::make_shared<Batch>(name);
  batch->columns.reserve(sizeof...(types));
  (batch->columns.emplace_back(types, limit), ...);
  return batch;
}

}  // namespace

std::vector<std::shared_ptr<Batch>> empty_batches(size_t limit) {
  return {
      make("state", limit, u64("position"), time("ts"), u16("comm"), u64_or_null("op_seq"),
           u8("op_kind"), u8("channel"), u8("send"), u32_or_null("peer"), u32("chunks_total"),
           u32("posted"), u32("ready"), u32("moved"), u32("done"), u32("idle_ms"), u64("bytes"),
           u32("flow_id"), u8("running"), u8("foreign")),
      make("flow", limit, u64("position"), time("end_ts"), u16("comm"), u64_or_null("op_seq"),
           u8("op_kind"), u8("channel"), u8("send"), u32_or_null("peer"), u32("slices"),
           u64("bytes"), u64_or_null("net_busy_ns"), u64_or_null("net_max_ns"),
           u64_or_null("peer_wait_ns"), u64_or_null("peer_wait_max_ns"),
           u64_or_null("post_delay_ns"), u64_or_null("post_delay_max_ns"), u64_or_null("flush_ns"),
           u64_or_null("gpu_hold_ns"), u8("partial"), u8("aborted"), u8("foreign")),
      make("op", limit, u64("position"), time("enq_ts"), u16("comm"), u64_or_null("op_seq"),
           u32_or_null("source_seq"), u8("op_kind"), u8("p2p"), u8("op_state"), u8_or_null("dtype"),
           u8_or_null("algo"), u8_or_null("proto"), u8_or_null("channels"), u64_or_null("bytes"),
           u32_or_null("peer"), time_or_null("kstart_ts"), i64_or_null("dur_ns"), u8("kernel_end"),
           u8("reopened"), u32("flows"), u32("op_id")),
      make("heartbeat", limit, u64("position"), time("ts"), u16("comm"), u64_or_null("op_seq"),
           time_or_null("oldest_open_ts"), time_or_null("progress_ts"), u32("open_ops"),
           u32("open_flows"), u32("lost"), u32("late_ms"), u64("ticks")),
      make("gap", limit, u64("position"), time("ts"), time_or_null("since_ts"), u8("reason"),
           u64("count")),
      make("foreign", limit, u64("position"), time("ts"), u8("channel"), u8("send"), u64("context"),
           u64("parent"), u32("pid"), u32_or_null("rank"), u32_or_null("peer"), u32("chunks_total"),
           u32("flow_id")),
  };
}

Decoder::Decoder(size_t limit) : batches_(empty_batches(limit)), limit_(limit) {
  index_.reserve(kSlice);
}

std::vector<std::shared_ptr<Batch>> Decoder::take() {
  auto result = std::move(batches_);
  batches_ = empty_batches(limit_);
  records_ = 0;
  return result;
}

void Decoder::add(const uint64_t* words, uint32_t count, uint64_t position, Losses& losses) {
  for (uint32_t at = 0; at < count; at += kSlice) {
    const uint32_t left = count - at;
    add_slice(words + size_t{at} * kWords, left < kSlice ? left : kSlice, position + at, losses);
  }
}

void Decoder::add_slice(const uint64_t* words, uint32_t count, uint64_t position, Losses& losses) {
  std::array<std::array<uint16_t, kSlice>, kTypes> index;
  std::array<uint32_t, kTypes> used{};
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t word0 = words[size_t{i} * kWords];
    const uint64_t expected = (position + i + 1) & kSequenceMask;
    const RecordType type = word0_type(word0);
    if ((word0 & kSequenceMask) != expected) [[unlikely]] {
      // An earlier number: reserved, not begun. A later one: a lap came by. Busy: begun.
      const uint64_t behind = (expected - (word0 & kSequenceMask)) & kSequenceMask;
      if (type == RecordType::busy) {
        ++losses.torn;
      } else if ((word0 & kSequenceMask) == 0 || behind < (kSequenceMask >> 1)) {
        ++losses.unwritten;
      } else {
        ++losses.overwritten;
      }
      continue;
    }
    const unsigned kind = static_cast<unsigned>(type) - 1;
    if (kind >= kTypes) [[unlikely]] {
      ++(type == RecordType::busy ? losses.torn : losses.unknown);
      continue;
    }
    index[kind][used[kind]++] = static_cast<uint16_t>(i);
  }
  for (size_t kind = 0; kind < kTypes; ++kind) {
    if (used[kind] == 0) continue;
    records_ += used[kind];
    index_.assign(index[kind].begin(), index[kind].begin() + used[kind]);
    add_kind(kind, words, position);
  }
}

void Decoder::add_kind(size_t kind, const uint64_t* words, uint64_t position) {
  switch (static_cast<RecordType>(kind + 1)) {
    case RecordType::state:
      return add_states(words, position);
    case RecordType::flow:
      return add_flows(words, position);
    case RecordType::op:
      return add_ops(words, position);
    case RecordType::heartbeat:
      return add_heartbeats(words, position);
    case RecordType::gap:
      return add_gaps(words, position);
    case RecordType::foreign:
      return add_foreign(words, position);
    default:
      return;
  }
}

namespace {

// Fills one column at a time from the records of the index: a short loop without branches.
class Filler {
 public:
  Filler(Batch& batch, const std::vector<uint16_t>& index, const uint64_t* words)
      : batch_(batch), index_(index), words_(words) {}

  template <typename T, typename Get>
  void next(Get&& get) {
    T* out = batch_.columns[column_++].extend<T>(index_.size());
    const uint16_t* index = index_.data();
    const size_t n = index_.size();
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<T>(get(words_ + size_t{index[i]} * kWords));
  }
  void positions(uint64_t first) {
    uint64_t* out = batch_.columns[column_++].extend<uint64_t>(index_.size());
    for (size_t i = 0; i < index_.size(); ++i) out[i] = first + index_[i];
  }
  template <typename T>
  void word(unsigned at, unsigned shift = 0) {
    next<T>([at, shift](const uint64_t* w) { return w[at] >> shift; });
  }
  void low48_of(unsigned at) {
    next<uint64_t>([at](const uint64_t* w) { return low48(w[at]); });
  }
  void flag(uint8_t bit) {
    next<uint8_t>([bit](const uint64_t* w) { return (word0_flags(w[0]) & bit) != 0 ? 1 : 0; });
  }
  void kind() {
    next<uint8_t>([](const uint64_t* w) {
      const auto code = static_cast<uint8_t>(flags_kind(word0_flags(w[0])));
      return code <= static_cast<uint8_t>(OpKind::other) ? code
                                                         : static_cast<uint8_t>(OpKind::other);
    });
  }
  void channel() { word<uint8_t>(0, 48); }
  // 0 stands for "none" in times that may be absent.
  void time_or_none(unsigned at) {
    next<uint64_t>([at](const uint64_t* w) { return w[at] != 0 ? w[at] : kNoTime; });
  }

 private:
  Batch& batch_;
  const std::vector<uint16_t>& index_;
  const uint64_t* words_;
  size_t column_ = 0;
};

uint64_t duration(const uint64_t* w, unsigned which) {
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const uint8_t*>(w + 5) + 6 * which, 6);
  return value;
}

}  // namespace

void Decoder::add_states(const uint64_t* words, uint64_t position) {
  Filler f(*batches_[0], index_, words);
  f.positions(position);
  f.word<uint64_t>(1);      // ts
  f.word<uint16_t>(2, 48);  // comm
  f.low48_of(2);            // op_seq
  f.kind();
  f.channel();
  f.flag(kFlagSend);
  f.word<uint32_t>(3);      // peer
  f.word<uint32_t>(3, 32);  // total
  f.word<uint32_t>(4);      // posted
  f.word<uint32_t>(4, 32);  // ready
  f.word<uint32_t>(5);      // moved
  f.word<uint32_t>(5, 32);  // done
  f.word<uint32_t>(6);      // idle_ms
  f.low48_of(7);            // bytes
  f.word<uint32_t>(6, 32);  // flow_id
  f.flag(kFlagRunning);
  f.flag(kFlagForeign);
}

void Decoder::add_flows(const uint64_t* words, uint64_t position) {
  Filler f(*batches_[1], index_, words);
  f.positions(position);
  f.word<uint64_t>(1);
  f.word<uint16_t>(2, 48);
  f.low48_of(2);
  f.kind();
  f.channel();
  f.flag(kFlagSend);
  f.word<uint32_t>(3);      // peer
  f.word<uint32_t>(3, 32);  // slices
  f.low48_of(4);            // bytes
  for (unsigned i = 0; i < 8; ++i) {
    // The four numbers mean different things on the two sides; the other side's columns are NULL.
    const bool of_sender = i < 4;
    f.next<uint64_t>([i, of_sender](const uint64_t* w) {
      const bool send = (word0_flags(w[0]) & kFlagSend) != 0;
      return send == of_sender ? duration(w, i % 4) : kUnknown48;
    });
  }
  f.flag(kFlagPartial);
  f.flag(kFlagAborted);
  f.flag(kFlagForeign);
}

void Decoder::add_ops(const uint64_t* words, uint64_t position) {
  Filler f(*batches_[2], index_, words);
  f.positions(position);
  f.word<uint64_t>(1);  // enq
  f.word<uint16_t>(2, 48);
  f.low48_of(2);
  f.word<uint32_t>(6, 32);  // source_seq
  f.kind();
  f.flag(kFlagSend);       // p2p
  f.word<uint8_t>(4, 56);  // state
  f.word<uint8_t>(3, 48);  // dtype
  f.word<uint8_t>(3, 56);  // algo
  f.word<uint8_t>(4, 48);  // proto
  f.channel();
  f.low48_of(5);        // bytes
  f.word<uint32_t>(6);  // peer
  f.next<uint64_t>(
      [](const uint64_t* w) { return low48(w[3]) != kUnknown48 ? w[1] + low48(w[3]) : kNoTime; });
  f.next<uint64_t>(
      [](const uint64_t* w) { return low48(w[4]) != kUnknown48 ? low48(w[4]) : kNoTime; });
  f.flag(kFlagKernel);
  f.flag(kFlagReopened);
  f.word<uint32_t>(7, 32);  // flows
  f.word<uint32_t>(7);      // op_id
}

void Decoder::add_heartbeats(const uint64_t* words, uint64_t position) {
  Filler f(*batches_[3], index_, words);
  f.positions(position);
  f.word<uint64_t>(1);
  f.word<uint16_t>(2, 48);
  // Before the first progress there is no communicator: the number is not one.
  f.next<uint64_t>([](const uint64_t* w) { return high16(w[2]) != 0 ? low48(w[2]) : kUnknown48; });
  f.time_or_none(3);
  f.time_or_none(4);
  f.word<uint32_t>(5);
  f.word<uint32_t>(5, 32);
  f.word<uint32_t>(6);
  f.word<uint32_t>(6, 32);
  f.word<uint64_t>(7);
}

void Decoder::add_gaps(const uint64_t* words, uint64_t position) {
  Filler f(*batches_[4], index_, words);
  f.positions(position);
  f.word<uint64_t>(1);
  f.time_or_none(2);
  f.channel();  // reason
  f.word<uint64_t>(3);
}

void Decoder::add_foreign(const uint64_t* words, uint64_t position) {
  Filler f(*batches_[5], index_, words);
  f.positions(position);
  f.word<uint64_t>(1);
  f.channel();
  f.flag(kFlagSend);
  f.word<uint64_t>(2);
  f.word<uint64_t>(3);
  f.word<uint32_t>(4);      // pid
  f.word<uint32_t>(4, 32);  // rank
  f.word<uint32_t>(5);      // peer
  f.word<uint32_t>(5, 32);  // total
  f.word<uint32_t>(6);      // flow_id
}

}  // namespace mycroft
