#include "json_elements.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mycroft {

namespace {

constexpr std::size_t kMaxKey = 256;

constexpr bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// What can change the state outside a string: quotes and brackets. Everything else is skipped at
// full speed.
constexpr std::array<bool, 256> kStructural = [] {
  std::array<bool, 256> table{};
  for (const char c : {'"', '{', '}', '[', ']'}) table[static_cast<unsigned char>(c)] = true;
  return table;
}();

constexpr std::array<bool, 256> kStringEnd = [] {
  std::array<bool, 256> table{};
  for (const char c : {'"', '\\'}) table[static_cast<unsigned char>(c)] = true;
  return table;
}();

}  // namespace

JsonElements::JsonElements(std::vector<std::string> arrays, std::vector<std::string> needles,
                           std::size_t max_element)
    : arrays_(std::move(arrays)), needles_(std::move(needles)), max_element_(max_element) {}

bool JsonElements::wanted(std::string_view value) const {
  if (needles_.empty()) return true;
  return std::any_of(needles_.begin(), needles_.end(), [&](const std::string& needle) {
    return memmem(value.data(), value.size(), needle.data(), needle.size()) != nullptr;
  });
}

void JsonElements::begin(const char* at, Kind kind, State back) {
  kind_ = kind;
  back_ = back;
  depth_ = 0;
  string_ = false;
  escape_ = false;
  capturing_ = true;
  skipping_ = false;
  start_ = at;
  carry_.clear();
}

void JsonElements::end(const char* chunk, const char* past, const Sink& sink) {
  const char* from = start_ != nullptr ? start_ : chunk;
  const auto tail = static_cast<std::size_t>(past - from);
  if (kind_ == Kind::element) ++counts_.elements;
  if (skipping_ || carry_.size() + tail > max_element_) {
    ++counts_.oversized;
  } else {
    std::string_view value(from, tail);
    if (!carry_.empty()) {
      carry_.append(from, tail);
      value = carry_;
    }
    if (kind_ == Kind::member) {
      sink(kind_, key_, value, start_offset_);
    } else if (wanted(value)) {
      ++counts_.wanted;
      sink(kind_, array_key_, value, start_offset_);
    }
  }
  carry_.clear();
  if (carry_.capacity() > (1U << 20U)) carry_.shrink_to_fit();
  start_ = nullptr;
  capturing_ = false;
  state_ = back_;
}

void JsonElements::feed(std::string_view bytes, const Sink& sink) {
  const char* const chunk = bytes.data();
  const char* const stop = chunk + bytes.size();
  const char* p = chunk;
  counts_.bytes += bytes.size();

  while (p != stop) {
    switch (state_) {
      case State::outside:
        // Text before or between documents (a shell prompt, a banner) is passed over.
        while (p != stop && *p != '{' && *p != '[') ++p;
        if (p == stop) break;
        top_array_ = *p == '[';
        array_key_.clear();
        state_ = top_array_ ? State::between : State::member_key;
        in_key_ = false;
        ++p;
        break;

      case State::member_key: {
        if (!in_key_) {
          while (p != stop && *p != '"' && *p != '}') ++p;
          if (p == stop) break;
          if (*p++ == '}') {
            state_ = State::outside;
            ++counts_.documents;
            break;
          }
          in_key_ = true;
          escape_ = false;
          key_.clear();
        }
        while (p != stop) {
          const char c = *p++;
          if (escape_) {
            escape_ = false;
          } else if (c == '\\') {
            escape_ = true;
          } else if (c == '"') {
            in_key_ = false;
            state_ = State::member_colon;
            break;
          }
          if (key_.size() < kMaxKey) key_.push_back(c);
        }
        break;
      }

      case State::member_colon:
        while (p != stop && *p != ':' && *p != '}' && *p != ',') ++p;
        if (p == stop) break;
        // A key without a value: the document is broken; go on with the next member.
        state_ = *p == ':' ? State::member_value : State::member_key;
        if (*p != '}') ++p;
        break;

      case State::member_value:
        while (p != stop && is_space(*p)) ++p;
        if (p == stop) break;
        if (*p == '[' && std::find(arrays_.begin(), arrays_.end(), key_) != arrays_.end()) {
          array_key_ = key_;
          state_ = State::between;
          ++p;
          break;
        }
        begin(p, Kind::member, State::member_key);
        start_offset_ = offset_ + static_cast<std::uint64_t>(p - chunk);
        state_ = *p == '{' || *p == '[' || *p == '"' ? State::capture : State::scalar;
        break;

      case State::between:
        while (p != stop && (is_space(*p) || *p == ',')) ++p;
        if (p == stop) break;
        if (*p == ']') {
          ++p;
          state_ = top_array_ ? State::outside : State::member_key;
          if (top_array_) ++counts_.documents;
          break;
        }
        if (*p == '}') {  // a closing bracket that belongs to nothing here
          ++p;
          break;
        }
        begin(p, Kind::element, State::between);
        start_offset_ = offset_ + static_cast<std::uint64_t>(p - chunk);
        state_ = *p == '{' || *p == '[' || *p == '"' ? State::capture : State::scalar;
        break;

      case State::scalar:
        while (p != stop && *p != ',' && *p != '}' && *p != ']' && !is_space(*p)) ++p;
        if (p != stop) end(chunk, p, sink);
        break;

      case State::capture: {
        bool closed = false;
        while (p != stop && !closed) {
          if (string_) {
            if (escape_) {
              escape_ = false;
              ++p;
              continue;
            }
            while (p != stop && !kStringEnd[static_cast<unsigned char>(*p)]) ++p;
            if (p == stop) break;
            if (*p == '\\') {
              escape_ = true;
            } else {
              string_ = false;
              closed = depth_ == 0;
            }
            ++p;
            continue;
          }
          while (p != stop && !kStructural[static_cast<unsigned char>(*p)]) ++p;
          if (p == stop) break;
          const char c = *p++;
          if (c == '"') {
            string_ = true;
          } else if (c == '{' || c == '[') {
            ++depth_;
          } else {
            closed = --depth_ == 0;
          }
        }
        if (closed) end(chunk, p, sink);
        break;
      }
    }
  }

  if (capturing_) {
    const char* from = start_ != nullptr ? start_ : chunk;
    const auto tail = static_cast<std::size_t>(stop - from);
    if (!skipping_ && carry_.size() + tail > max_element_) {
      skipping_ = true;
      carry_.clear();
      carry_.shrink_to_fit();
    }
    if (!skipping_) carry_.append(from, tail);
    start_ = nullptr;
  }
  offset_ += bytes.size();
}

JsonElements::Counts JsonElements::finish() {
  counts_.open = state_ != State::outside;
  return counts_;
}

}  // namespace mycroft
