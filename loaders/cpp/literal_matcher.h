// Finds many literals in one pass over a text.
//
// Every literal is known by one of its four-byte pieces, the one that looks rarest. The scan hashes
// the four bytes at each position and asks a bitmap of 64 Ki bits, which lies in the first-level
// cache: a load, a multiplication and a bit test per byte, none of which waits for the one before
// (an automaton does, at every byte). Only where the bit is set are the literals of that piece
// compared.
//
// Worst case: text made of such pieces costs a comparison with the literals that share the piece at
// every byte. That is a constant of the set of literals, not of the text.
//
// Thread safety: immutable after construction; `scan` may run on any number of threads.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mycroft {

class LiteralMatcher {
 public:
  static constexpr std::size_t kPiece = 4;

  // Each literal reports the number beside it; several literals may share one. A literal shorter
  // than `kPiece` is an error (std::invalid_argument).
  explicit LiteralMatcher(const std::vector<std::pair<std::string, std::uint16_t>>& literals);

  // Calls hit(number) for every occurrence of a literal in `text`, repeats included, in no
  // particular order.
  template <typename Hit>
  void scan(std::string_view text, Hit&& hit) const {
    if (text.size() < kPiece) return;
    const char* const begin = text.data();
    const std::size_t last = text.size() - kPiece;
    const std::uint64_t* const bits = bitmap_.data();
    for (std::size_t at = 0; at <= last; ++at) {
      const std::uint32_t hash = hash_at(begin + at);
      if ((bits[hash >> 6] >> (hash & 63) & 1) == 0) [[likely]]
        continue;
      for (std::uint32_t i = first_[hash]; i < first_[hash + 1]; ++i) {
        const Entry& entry = entries_[i];
        if (entry.before > at || entry.literal.size() > text.size() - (at - entry.before)) continue;
        if (std::memcmp(begin + (at - entry.before), entry.literal.data(), entry.literal.size()) ==
            0) {
          hit(entry.number);
        }
      }
    }
  }

 private:
  struct Entry {
    std::string literal;
    std::size_t before;  // bytes of the literal before its piece
    std::uint16_t number;
  };

  static std::uint32_t hash_at(const char* at) {
    std::uint32_t piece;
    std::memcpy(&piece, at, sizeof piece);
    return piece * 0x9e3779b1U >> 16;
  }

  std::array<std::uint64_t, 1024> bitmap_{};
  std::vector<std::uint32_t> first_;  // by hash: where its entries start; one more at the end
  std::vector<Entry> entries_;
};

}  // namespace mycroft
