// Texts of one dump while it is read. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "value.h"

namespace mycroft {

// Texts and stacks of one file, with codes of their own until the end: the shared pool is locked
// once per file.
class LocalTexts {
 public:
  explicit LocalTexts(Document& doc) : doc_(doc) {}

  std::uint32_t code(std::string_view text) {
    // Picklers remember strings: the same text is mostly the same place in the input.
    Recent& recent = recent_[(reinterpret_cast<std::uintptr_t>(text.data()) >> 1) % recent_.size()];
    if (recent.text.data() == text.data() && recent.text.size() == text.size() && !text.empty()) {
      return recent.code;
    }
    auto [place, added] = codes_.try_emplace(text, static_cast<std::uint32_t>(texts_.size()));
    if (added) {
      doc_.charge(kTextBytes, 0);
      texts_.push_back(text);
    }
    recent = {text, place->second};
    return place->second;
  }

  // Same for a text that is made here and would vanish.
  std::uint32_t made(const std::string& text) {
    auto known = codes_.find(text);
    if (known != codes_.end()) return known->second;
    doc_.charge(kTextBytes + text.size(), 0);
    kept_.push_back(text);
    texts_.push_back(kept_.back());
    auto added = static_cast<std::uint32_t>(texts_.size() - 1);
    codes_.emplace(kept_.back(), added);
    return added;
  }

  std::string_view text(std::uint32_t code) const { return texts_[code]; }
  const std::vector<std::string_view>& all() const { return texts_; }

 private:
  static constexpr std::size_t kTextBytes = 160;  // of a text here, in the pool and in Python

  struct Recent {
    std::string_view text;
    std::uint32_t code = 0;
  };
  Document& doc_;
  std::unordered_map<std::string_view, std::uint32_t> codes_;
  std::vector<std::string_view> texts_;
  std::deque<std::string> kept_;
  std::array<Recent, 256> recent_;
};

}  // namespace mycroft
