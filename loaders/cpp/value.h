// A parsed dump as plain data: what a pickle or a JSON text says, nothing executed, nothing copied.
//
// Values are 16 bytes and live in pools of the Document; text points into the input, so the input
// must outlive the Document. Not thread-safe: one Document per thread, reused from file to file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mycroft {

// Input that cannot be read: byte offset, what was found. `code` tells a file that ends too early
// (what came before it is still good) from one that is refused as a whole.
class ReadError : public std::runtime_error {
 public:
  enum class Code { kTruncated, kRefused };
  ReadError(Code code, std::size_t offset, const std::string& what)
      : std::runtime_error("byte " + std::to_string(offset) + ": " + what), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

enum class Kind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kBigInt,
  kMark
};

struct Value {
  Kind kind = Kind::kNone;
  std::uint32_t length = 0;  // of a text, bytes; of a container: its index
  union {
    std::int64_t i;
    double f;
    const char* text;
  } as = {0};

  static Value none() { return {}; }
  static Value boolean(bool b) { return make_int(Kind::kBool, b ? 1 : 0); }
  static Value integer(std::int64_t i) { return make_int(Kind::kInt, i); }
  static Value big_integer() { return make_int(Kind::kBigInt, 0); }
  static Value mark() { return make_int(Kind::kMark, 0); }
  static Value real(double f) {
    Value v;
    v.kind = Kind::kFloat;
    v.as.f = f;
    return v;
  }
  static Value string(std::string_view s) {
    Value v;
    v.kind = Kind::kText;
    v.length = static_cast<std::uint32_t>(s.size());
    v.as.text = s.data();
    return v;
  }
  static Value container(Kind kind, std::uint32_t index) {
    Value v;
    v.kind = kind;
    v.length = index;
    return v;
  }

  bool is_container() const {
    return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kDict;
  }
  bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  bool is_text() const { return kind == Kind::kText; }
  bool is_int() const { return kind == Kind::kInt; }
  std::string_view str() const { return {as.text, length}; }

 private:
  static Value make_int(Kind kind, std::int64_t i) {
    Value v;
    v.kind = kind;
    v.as.i = i;
    return v;
  }
};
static_assert(sizeof(Value) == 16);

// How much one file may cost, bytes: `memory` bounds everything that is held while it is read,
// `output` the text of all its rows together.
struct ReadLimits {
  std::size_t memory = std::size_t{2} << 30;
  std::size_t output = std::size_t{1} << 30;
  std::uint32_t depth = 64;
};

class Document {
 public:
  // Forgets everything; keeps the pools' memory for the next file unless the last one was unusually
  // large.
  void clear(const ReadLimits& limits);

  // Adds an empty container and returns a value that names it.
  Value open(Kind kind);

  // Adds `count` values to the end of a container; a dict takes key, value, key, value.
  // Throws ReadError when the container has been handed out by `fetch` before: a pickler that goes
  // on filling what it has already referred to makes a cycle.
  void extend(const Value& container, const Value* values, std::size_t count, std::size_t offset);

  // Says that the value is referred to a second time.
  void fetch(const Value& value) {
    if (value.is_container()) containers_[value.length].fetched = true;
  }

  // Marks a container whose end was never seen.
  void mark_partial(const Value& value) {
    if (value.is_container()) containers_[value.length].partial = true;
  }
  bool is_partial(const Value& value) const { return containers_[value.length].partial; }

  // Takes a container once: false when it was taken before.
  bool take(const Value& value) {
    bool first = !containers_[value.length].taken;
    containers_[value.length].taken = true;
    return first;
  }

  // Calls `visit(Value)` for each value of a container in order.
  template <typename Visit>
  void each(const Value& container, Visit visit) const {
    const Container& c = containers_[container.length];
    for (std::uint32_t s = c.first_segment; s != kNoSegment; s = segments_[s].next) {
      const Segment& segment = segments_[s];
      for (std::uint32_t i = 0; i < segment.count; ++i) visit(values_[segment.offset + i]);
    }
  }

  // Calls `visit(key, value)` for each pair of a dict, in the order written.
  template <typename Visit>
  void each_pair(const Value& dict, Visit visit) const {
    const Container& c = containers_[dict.length];
    for (std::uint32_t s = c.first_segment; s != kNoSegment; s = segments_[s].next) {
      const Segment& segment = segments_[s];
      for (std::uint32_t i = 0; i + 1 < segment.count; i += 2)
        visit(values_[segment.offset + i], values_[segment.offset + i + 1]);
    }
  }

  std::size_t size(const Value& container) const { return containers_[container.length].size; }
  std::size_t container_count() const { return containers_.size(); }

  // Keeps a text that the input does not hold as it is (JSON escapes).
  std::string_view keep(std::string text, std::size_t offset);

  // Counts memory that the parser itself needs against the limit.
  void charge(std::size_t bytes, std::size_t offset);

  // Counts text of rows against its limit.
  void charge_output(std::size_t bytes);

  const ReadLimits& limits() const { return limits_; }

 private:
  static constexpr std::uint32_t kNoSegment = UINT32_MAX;
  struct Segment {
    std::uint32_t offset, count, next;
  };
  struct Container {
    std::uint32_t first_segment = kNoSegment;
    std::uint32_t last_segment = kNoSegment;
    std::uint32_t size = 0;
    std::uint16_t depth = 1;
    bool fetched = false;
    bool partial = false;
    bool taken = false;
  };

  ReadLimits limits_;
  std::size_t charged_ = 0;
  std::size_t output_ = 0;
  std::vector<Value> values_;
  std::vector<Segment> segments_;
  std::vector<Container> containers_;
  std::deque<std::string> texts_;  // a deque never moves what it holds
};

}  // namespace mycroft
