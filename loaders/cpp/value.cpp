#include "value.h"

#include <algorithm>

namespace mycroft {

namespace {
constexpr std::size_t kKeepPool = std::size_t{4}
                                  << 20;  // elements that a pool may keep between files

template <typename T>
void reset(std::vector<T>& pool) {
  if (pool.capacity() > kKeepPool) {
    std::vector<T>().swap(pool);
  } else {
    pool.clear();
  }
}
}  // namespace

void Document::clear(const ReadLimits& limits) {
  limits_ = limits;
  charged_ = 0;
  output_ = 0;
  reset(values_);
  reset(segments_);
  reset(containers_);
  texts_.clear();
}

void Document::charge(std::size_t bytes, std::size_t offset) {
  charged_ += bytes;
  if (charged_ > limits_.memory) {
    throw ReadError(ReadError::Code::kRefused, offset,
                    "needs more than " + std::to_string(limits_.memory >> 20) +
                        " MiB of memory, far more than a dump of this size should");
  }
}

void Document::charge_output(std::size_t bytes) {
  output_ += bytes;
  if (output_ > limits_.output) {
    throw ReadError(ReadError::Code::kRefused, 0,
                    "its operations hold more than " + std::to_string(limits_.output >> 20) +
                        " MiB of text, far more than a dump of this size should");
  }
}

Value Document::open(Kind kind) {
  containers_.emplace_back();
  return Value::container(kind, static_cast<std::uint32_t>(containers_.size() - 1));
}

void Document::extend(const Value& container, const Value* values, std::size_t count,
                      std::size_t offset) {
  Container& c = containers_[container.length];
  if (c.fetched) {
    throw ReadError(ReadError::Code::kRefused, offset,
                    "fills a container that is already referred to (recursion)");
  }
  if (count == 0) return;
  // Twice: a pool that grows holds its old and its new memory for a moment.
  charge(2 * (sizeof(Segment) + count * sizeof(Value)), offset);
  std::uint16_t depth = c.depth;
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i].is_container()) {
      depth = std::max<std::uint16_t>(
          depth, static_cast<std::uint16_t>(containers_[values[i].length].depth + 1));
    }
  }
  if (depth > limits_.depth) {
    throw ReadError(ReadError::Code::kRefused, offset,
                    "nested deeper than " + std::to_string(limits_.depth) + " levels");
  }
  c.depth = depth;
  auto at = static_cast<std::uint32_t>(values_.size());
  values_.insert(values_.end(), values, values + count);
  c.size += static_cast<std::uint32_t>(count);
  segments_.push_back({at, static_cast<std::uint32_t>(count), kNoSegment});
  auto segment = static_cast<std::uint32_t>(segments_.size() - 1);
  if (c.last_segment == kNoSegment) {
    c.first_segment = segment;
  } else {
    segments_[c.last_segment].next = segment;
  }
  c.last_segment = segment;
}

std::string_view Document::keep(std::string text, std::size_t offset) {
  charge(text.size() + sizeof(std::string), offset);
  texts_.push_back(std::move(text));
  return texts_.back();
}

}  // namespace mycroft
