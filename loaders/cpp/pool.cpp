#include "pool.h"

namespace mycroft {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the UTF-8 character that starts at `s`, 0 where none does (overlong forms and
// surrogates are none).
std::size_t character_length(std::string_view s) {
  auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(s[i]); };
  unsigned lead = byte(0);
  if (lead < 0x80) return lead == 0 ? 0 : 1;
  std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || s.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  unsigned second = byte(1);
  if (lead == 0xe0 && second < 0xa0) return 0;
  if (lead == 0xed && second > 0x9f) return 0;
  if (lead == 0xf0 && second < 0x90) return 0;
  if (lead == 0xf4 && second > 0x8f) return 0;
  return length;
}

}  // namespace

std::string clean_utf8(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  while (!raw.empty()) {
    std::size_t length = character_length(raw);
    if (length == 0) {
      out += kReplacement;
      raw.remove_prefix(1);
    } else {
      out += raw.substr(0, length);
      raw.remove_prefix(length);
    }
  }
  return out;
}

std::vector<std::uint32_t> Pool::texts(const std::vector<std::string_view>& raw) {
  std::vector<std::uint32_t> codes;
  codes.reserve(raw.size());
  std::lock_guard lock(mutex_);
  for (std::string_view text : raw) {
    // Most texts are known already and were clean; only new ones are looked at byte by byte.
    auto known = text_codes_.find(text);
    if (known == text_codes_.end()) {
      std::string clean = clean_utf8(text);
      known = text_codes_.find(clean);
      if (known == text_codes_.end()) {
        texts_.push_back(std::move(clean));
        known =
            text_codes_.emplace(texts_.back(), static_cast<std::uint32_t>(texts_.size() - 1)).first;
      }
    }
    codes.push_back(known->second);
  }
  return codes;
}

std::vector<std::uint32_t> Pool::stacks(const std::vector<std::vector<std::uint32_t>>& frames) {
  std::vector<std::uint32_t> codes;
  codes.reserve(frames.size());
  std::lock_guard lock(mutex_);
  for (const auto& stack : frames) {
    std::string key(reinterpret_cast<const char*>(stack.data()), stack.size() * sizeof(stack[0]));
    auto [place, added] =
        stack_codes_.try_emplace(std::move(key), static_cast<std::uint32_t>(stacks_.size()));
    if (added) stacks_.push_back(stack);
    codes.push_back(place->second);
  }
  return codes;
}

std::vector<std::string> Pool::texts_from(std::size_t first) const {
  std::lock_guard lock(mutex_);
  if (first >= texts_.size()) return {};
  return {texts_.begin() + static_cast<std::ptrdiff_t>(first), texts_.end()};
}

std::vector<std::vector<std::uint32_t>> Pool::stacks_from(std::size_t first) const {
  std::lock_guard lock(mutex_);
  if (first >= stacks_.size()) return {};
  return {stacks_.begin() + static_cast<std::ptrdiff_t>(first), stacks_.end()};
}

}  // namespace mycroft
