#include "literal_matcher.h"

#include <algorithm>
#include <stdexcept>

namespace mycroft {

namespace {

// How common a byte is in logs, roughly: small letters and blanks most, capitals and signs least.
int commonness(char c) {
  static constexpr std::string_view kCommon = " etaoinsr";
  if (kCommon.find(c) != std::string_view::npos) return 4;
  if (c >= 'a' && c <= 'z') return 3;
  if (c == '0' || c == '.' || c == ':' || c == '/' || c == '_') return 3;
  if (c >= '0' && c <= '9') return 2;
  return 1;
}

std::size_t rarest_piece(std::string_view literal) {
  std::size_t best = 0;
  int least = 1 << 20;
  for (std::size_t at = 0; at + LiteralMatcher::kPiece <= literal.size(); ++at) {
    int sum = 0;
    for (std::size_t i = 0; i < LiteralMatcher::kPiece; ++i) sum += commonness(literal[at + i]);
    if (sum < least) {
      least = sum;
      best = at;
    }
  }
  return best;
}

}  // namespace

LiteralMatcher::LiteralMatcher(const std::vector<std::pair<std::string, std::uint16_t>>& literals) {
  struct Placed {
    std::uint32_t hash;
    Entry entry;
  };
  std::vector<Placed> placed;
  placed.reserve(literals.size());
  for (const auto& [literal, number] : literals) {
    if (literal.size() < kPiece) {
      throw std::invalid_argument("a literal must have four bytes or more: '" + literal + "'");
    }
    const std::size_t before = rarest_piece(literal);
    placed.push_back({hash_at(literal.data() + before), Entry{literal, before, number}});
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.hash < b.hash; });
  first_.assign((1U << 16) + 1, 0);
  for (const Placed& one : placed) {
    bitmap_[one.hash >> 6] |= std::uint64_t{1} << (one.hash & 63);
    ++first_[one.hash + 1];
    entries_.push_back(one.entry);
  }
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

}  // namespace mycroft
