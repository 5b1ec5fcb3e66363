// Reads the pickles that c10d writes, as data. Only the opcodes that build None, bool, int, float,
// str, list, tuple and dict exist here; there is no way to name a class, call anything or load
// anything. Protocols 2 to 5.
#pragma once

#include <string>
#include <string_view>

#include "value.h"

namespace mycroft {

struct Parsed {
  Value root;
  std::string
      damage;  // empty, or where and why reading stopped; the root then holds what came before
  std::size_t trailing = 0;  // bytes after the end
};

// Throws ReadError for anything that is not plain data. A file cut short is no error: see
// `Parsed::damage`. `doc` and `input` must outlive the result.
Parsed read_pickle(std::string_view input, Document& doc);

}  // namespace mycroft
