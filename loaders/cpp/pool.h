// Texts and stacks of many dumps, each once. Shared by all reading threads: every call locks.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mycroft {

constexpr std::uint32_t kNoCode = UINT32_MAX;

// Valid UTF-8 without NUL, whatever came in: each byte that fits nowhere becomes U+FFFD.
std::string clean_utf8(std::string_view raw);

class Pool {
 public:
  // Returns the code of each text; equal texts have equal codes. Texts are cleaned first.
  std::vector<std::uint32_t> texts(const std::vector<std::string_view>& raw);

  // A stack is a list of text codes, one per frame. Returns its code.
  std::vector<std::uint32_t> stacks(const std::vector<std::vector<std::uint32_t>>& frames);

  // What was added from code `first` on.
  std::vector<std::string> texts_from(std::size_t first) const;
  std::vector<std::vector<std::uint32_t>> stacks_from(std::size_t first) const;

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::uint32_t> text_codes_;  // views of texts_
  std::deque<std::vector<std::uint32_t>> stacks_;
  std::unordered_map<std::string, std::uint32_t> stack_codes_;
};

}  // namespace mycroft
