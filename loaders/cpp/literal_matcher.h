// Finds many literals in one pass over a text: Aho-Corasick as a dense table over classes of bytes.
//
// The table is a complete automaton: one load per byte and no failure links at run time, so the
// time depends on the length of the text only, whatever the text is. States that end a literal have
// the highest numbers, which makes "is this a hit" one comparison.
//
// Thread safety: immutable after construction; `scan` may run on any number of threads.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mycroft {

class LiteralMatcher {
 public:
  // Each literal reports the number beside it; several literals may share one. An empty literal is
  // an error (std::invalid_argument), and so is a set that needs more than 65,535 states.
  explicit LiteralMatcher(const std::vector<std::pair<std::string, std::uint16_t>>& literals);

  // Calls hit(number) for every literal that ends anywhere in `text`, in order of its end, repeats
  // included.
  template <typename Hit>
  void scan(std::string_view text, Hit&& hit) const {
    std::uint32_t state = root_;
    const std::uint16_t* const table = table_.data();
    for (const char c : text) {
      state = table[state + class_of_[static_cast<unsigned char>(c)]];
      // The table holds state numbers; multiplied here, so that 16 bits are enough for each.
      const std::uint32_t number = state;
      state *= classes_;
      if (number >= first_hit_) [[unlikely]] {
        const std::uint32_t slot = number - first_hit_;
        for (std::uint32_t i = hit_start_[slot]; i < hit_start_[slot + 1]; ++i) hit(hits_[i]);
      }
    }
  }

  std::size_t states() const { return classes_ == 0 ? 0 : table_.size() / classes_; }

 private:
  std::array<std::uint8_t, 256> class_of_{};
  std::uint32_t classes_ = 0;
  std::uint32_t root_ = 0;       // row of the root in table_, not its number
  std::uint32_t first_hit_ = 0;  // lowest number of a state that ends a literal
  std::vector<std::uint16_t> table_;
  std::vector<std::uint32_t> hit_start_;
  std::vector<std::uint16_t> hits_;
};

}  // namespace mycroft
