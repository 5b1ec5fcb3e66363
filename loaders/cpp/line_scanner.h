// Splits text of any size into lines and hands out those that may matter.
//
//   bytes -> physical lines (ended by \n or \r\n; numbered from 1, as an editor does)
//         -> containers undone (Docker json-file and other JSON records, CRI; in any nesting; split
//         lines joined)
//         -> pieces (a lone \r redraws a progress bar: every piece keeps the number of its line)
//         -> escape sequences and NUL bytes removed
//         -> literals looked for; a piece with a hit is a candidate, and so are the next `follow`
//         pieces
//
// What no literal touches costs a few table look-ups per byte and nothing else. The text itself
// leaves as blocks of whole lines, for those who want to keep it.
//
// Memory: one line of at most `max_line` bytes, one block, what a batch holds, and the unfinished
// parts of split lines (at most `max_line` each, eight of them). Longer lines are cut and counted.
//
// Thread safety: none; one object belongs to one thread. Nothing is owned beyond the object's own
// buffers.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "literal_matcher.h"

namespace mycroft {

// What to look for. A matcher is a number in the order given; `bulk` ones get their lines as
// columns.
struct LineMatcher {
  std::vector<std::string> literals;
  std::uint32_t follow = 0;
  bool bulk = false;
};

class LinePlan {
 public:
  explicit LinePlan(std::vector<LineMatcher> matchers);

  const LiteralMatcher& literals() const { return literals_; }
  const std::vector<LineMatcher>& matchers() const { return matchers_; }

 private:
  std::vector<LineMatcher> matchers_;
  LiteralMatcher literals_;
};

struct ScanOptions {
  bool keep_all = false;           // every piece is a candidate
  bool keep_blocks = true;         // hand out the text as blocks
  std::size_t max_line = 1 << 20;  // bytes of a piece that are looked at
  std::size_t block_bytes =
      64 << 10;  // a block is closed when it holds this much; also the most of one line in it
};

struct ScanCounts {
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;       // physical
  std::uint64_t pieces = 0;      // after containers and \r
  std::uint64_t blank = 0;       // pieces without a visible character
  std::uint64_t candidates = 0;  // handed out because of a literal of theirs
  std::uint64_t cut = 0;         // pieces longer than max_line
  std::uint64_t nul_bytes = 0;
  std::uint64_t containers = 0;  // lines that were a JSON record or CRI
  std::uint64_t joined = 0;      // lines that continued an earlier one
};

class LineScanner {
 public:
  // Flags of a candidate.
  static constexpr std::uint8_t kHit = 1;  // a literal of its own; else it follows one, or keep_all
  static constexpr std::uint8_t kCut = 2;  // longer than max_line
  static constexpr std::uint8_t kRedrawn = 4;  // piece of a line with a lone \r

  struct Candidate {
    std::uint64_t line;
    std::uint64_t offset;  // of the physical line, in bytes as fed
    std::uint8_t flags;
    std::size_t text_start, text_size;  // in Batch::text
    std::size_t meta_start,
        meta_size;  // what the containers said, one per line; see line_scanner.cpp
    std::size_t ids_start, ids_size;  // in Batch::ids: matchers, ascending, each once
  };
  struct Bulk {
    std::vector<std::uint32_t> lines;
    std::vector<std::int64_t> text_ends{0};
    std::string text;
    std::vector<std::int64_t> meta_ends{0};
    std::string meta;
  };
  struct Block {
    std::uint64_t first_line;
    std::uint64_t lines;
    std::string content;  // lines joined by \n, none at the end
  };
  struct Batch {
    std::vector<Candidate> candidates;
    std::string text;
    std::string meta;
    std::vector<std::uint16_t> ids;
    std::map<std::uint16_t, Bulk> bulk;
    std::vector<Block> blocks;
  };

  LineScanner(const LinePlan& plan, ScanOptions options);

  Batch feed(std::string_view bytes);
  // Call once after the last feed: hands out a last line without an end, and unfinished split
  // lines.
  Batch finish();

  const ScanCounts& counts() const { return counts_; }
  // Physical lines by their length in bytes, up to 1023; the last entry counts all longer ones.
  const std::array<std::uint64_t, 1024>& lengths() const { return lengths_; }

 private:
  struct Split {
    std::string text;
    std::string meta;
    std::uint64_t line = 0;
    std::uint64_t offset = 0;
  };

  void physical(std::string_view raw, Batch& batch);
  void drain_carry(Batch& batch);
  void pieces(std::string_view text, std::string_view meta, std::uint64_t line,
              std::uint64_t offset, Batch& batch);
  void piece(std::string_view text, std::string_view meta, std::uint64_t line, std::uint64_t offset,
             std::uint8_t flags, Batch& batch);
  void unwrapped(std::string_view raw, Batch& batch);
  void block_line(std::string_view raw, Batch& batch);
  void close_block(Batch& batch);

  const LinePlan& plan_;
  ScanOptions options_;
  ScanCounts counts_;
  std::array<std::uint64_t, 1024> lengths_{};

  std::string carry_;           // start of a line that the next feed goes on with
  bool carry_started_ = false;  // parts of that line have been handed out
  bool discarding_ = false;     // the rest of that piece is not wanted
  std::uint64_t line_ = 0;      // number of the line being read, from 1
  std::uint64_t offset_ = 0;    // where it starts
  bool odd_bytes_ = true;       // this feed holds \r, escape or NUL: pieces must look for them

  std::uint32_t follow_ = 0;
  std::vector<std::uint64_t> seen_;  // per matcher: piece that saw it last
  std::vector<std::uint16_t> found_;
  std::string clean_, coloured_, meta_;
  std::map<std::string, Split> split_;
  Block block_{};
};

}  // namespace mycroft
