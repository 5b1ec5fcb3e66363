// Splits a JSON text of any size into the elements of one of its arrays, without building a
// document.
//
// A profiler trace is one object of a few small members and an array of millions of events, of
// which we want a few per cent. `JsonElements` is fed the bytes in pieces of any size, follows
// strings and brackets only, and hands back the bytes of (a) every element of the arrays named at
// construction (or of a top-level array) that contains one of the needles, and (b) every other
// member of the top-level object. Several documents may follow each other. Nothing is decoded or
// validated here: what comes out is given to a JSON decoder, which judges it.
//
// Memory: one element or member that straddles two pieces, at most `max_element` bytes; longer ones
// are counted in `oversized` and dropped. No recursion: nesting is a counter.
//
// Thread safety: none; one object belongs to one thread. Ownership: views given to the sink live
// until it returns.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mycroft {

class JsonElements {
 public:
  enum class Kind : std::uint8_t { element, member };

  // Key of the array or member, bytes of the value, offset of its first byte in the whole input.
  using Sink =
      std::function<void(Kind, std::string_view key, std::string_view value, std::uint64_t offset)>;

  struct Counts {
    std::uint64_t elements = 0;   // elements of the named arrays, wanted or not
    std::uint64_t wanted = 0;     // of those, handed to the sink
    std::uint64_t oversized = 0;  // elements or members longer than max_element
    std::uint64_t documents = 0;  // top-level values that were closed
    std::uint64_t bytes = 0;      // bytes fed
    bool open = false;            // the input ended inside a value: it was cut short
  };

  JsonElements(std::vector<std::string> arrays, std::vector<std::string> needles,
               std::size_t max_element);

  void feed(std::string_view bytes, const Sink& sink);
  // Call once after the last feed. A value that is still open is not handed out: it has no end.
  Counts finish();
  const Counts& counts() const { return counts_; }

 private:
  enum class State : std::uint8_t {
    outside,     // before a top-level value
    member_key,  // inside the top-level object, before or in a key
    member_colon,
    member_value,  // before the value of a member
    capture,       // inside an element or a member's value
    scalar,        // inside a bare number or literal
    between,       // inside a named array, between elements
  };

  void begin(const char* at, Kind kind, State back);
  void end(const char* chunk, const char* past, const Sink& sink);
  bool wanted(std::string_view value) const;

  std::vector<std::string> arrays_;
  std::vector<std::string> needles_;
  std::size_t max_element_;

  State state_ = State::outside;
  State back_ = State::outside;  // state after the captured value
  Kind kind_ = Kind::element;
  std::uint32_t depth_ = 0;  // open brackets inside the captured value
  bool string_ = false;      // inside a string
  bool escape_ = false;      // the last byte was a backslash inside a string
  bool top_array_ = false;   // the document itself is an array
  bool in_key_ = false;
  bool capturing_ = false;
  bool skipping_ = false;        // the captured value grew over max_element
  const char* start_ = nullptr;  // of the captured value, if it began in this piece
  std::uint64_t start_offset_ = 0;
  std::string carry_;  // its bytes from earlier pieces
  std::string key_;
  std::string array_key_;
  std::uint64_t offset_ = 0;  // of the current piece
  Counts counts_;
};

}  // namespace mycroft
