// Text in fixed buffers, for code that must not allocate and must not need new glibc symbols
// (strtol and sscanf get new versions with new compilers).
#pragma once

#include <cstdint>
#include <cstring>

namespace mycroft {

// Appends to a buffer, always terminated; what does not fit is cut.
class TextBuffer {
 public:
  TextBuffer(char* data, uint32_t size) noexcept : data_(data), size_(size) {
    if (size_ != 0) data_[0] = '\0';
  }
  TextBuffer& add(const char* text) noexcept {
    while (text != nullptr && *text != '\0' && used_ + 1 < size_) data_[used_++] = *text++;
    if (size_ != 0) data_[used_] = '\0';
    return *this;
  }
  TextBuffer& add(uint64_t value, unsigned base = 10) noexcept {
    char digits[24];
    unsigned n = sizeof digits;
    digits[--n] = '\0';
    do {
      digits[--n] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0 && n > 0);
    return add(digits + n);
  }
  bool cut() const noexcept { return used_ + 1 >= size_; }
  uint32_t used() const noexcept { return used_; }

 private:
  char* data_;
  uint32_t size_;
  uint32_t used_ = 0;
};

// Reads decimal digits from `text` on; returns false if there are none or the number is too large.
// `*end` is the first character that is no digit.
inline bool parse_number(const char* text, uint64_t* value, const char** end = nullptr) noexcept {
  uint64_t result = 0;
  const char* at = text;
  for (; at != nullptr && *at >= '0' && *at <= '9'; ++at) {
    const uint64_t digit = static_cast<uint64_t>(*at - '0');
    if (result > (UINT64_MAX - digit) / 10) return false;
    result = result * 10 + digit;
  }
  if (at == text || at == nullptr) return false;
  *value = result;
  if (end != nullptr) *end = at;
  return true;
}

// The whole of `text` as a number.
inline bool parse_whole(const char* text, uint64_t* value) noexcept {
  const char* end = nullptr;
  return text != nullptr && parse_number(text, value, &end) && *end == '\0';
}

inline bool text_equals(const char* a, const char* b) noexcept {
  return a != nullptr && b != nullptr && std::strcmp(a, b) == 0;
}

inline bool text_starts(const char* text, const char* prefix) noexcept {
  return text != nullptr && std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

inline bool text_ends(const char* text, const char* suffix) noexcept {
  const size_t n = std::strlen(text), m = std::strlen(suffix);
  return n >= m && std::strcmp(text + n - m, suffix) == 0;
}

}  // namespace mycroft
