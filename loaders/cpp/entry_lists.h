// The lists that entries refer to, sizes, dtypes and stacks, as texts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "columns.h"
#include "local_texts.h"
#include "value.h"

namespace mycroft {

// Turns each list of one document into text once, however often it is referred to. Not thread-safe.
// What cannot be used is counted in `dropped` under its field's name.
class EntryLists {
 public:
  EntryLists(Document& doc, LocalTexts& texts, std::map<std::string, std::size_t>& dropped)
      : doc_(doc), texts_(texts), dropped_(dropped) {}

  // To be called once the document is parsed.
  void begin();

  // Ranks are a text such as "[0, 1]", or in layout 1.4 a list, which becomes the same text.
  std::uint32_t ranks(const Value& value);

  // [[2, 1], [3]] as JSON, and the number of elements of all tensors together.
  std::uint32_t sizes(const Value& value, std::int64_t& numel, const char* field_name);

  // Comma separated names; `itemsize` becomes the size of an element where all have the same known
  // one, else 0.
  std::uint32_t dtypes(const Value& value, unsigned& itemsize, const char* field_name);

  // A stack is known by the places of its texts in the input; equal stacks at other places meet in
  // the pool.
  std::uint32_t stack(const Value& value);

  std::vector<std::vector<std::uint32_t>>& stacks() { return stacks_; }

 private:
  void odd(const char* field);
  std::vector<std::uint32_t> frames(const std::string& key);

  Document& doc_;
  LocalTexts& texts_;
  std::map<std::string, std::size_t>& dropped_;
  std::vector<std::vector<std::uint32_t>> stacks_;
  std::unordered_map<std::string, std::uint32_t> stack_codes_;
  std::vector<std::uint32_t> container_code_;  // by container: what it became
  std::unordered_map<std::uint32_t, std::int64_t>
      container_numbers_;  // and its number of elements or their size
  std::string scratch_, frame_key_;
};

}  // namespace mycroft
