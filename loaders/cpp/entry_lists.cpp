#include "entry_lists.h"

#include <charconv>
#include <cstring>

#include "op_facts.h"
#include "pool.h"

namespace mycroft {
namespace {

// Frames of a stack and bytes of a name that are kept.
constexpr std::size_t kMaxFrames = 1024;
constexpr std::size_t kMaxFrameText = 1000;

void append(std::string& out, std::int64_t number) {
  char digits[24];
  auto [end, error] = std::to_chars(digits, digits + sizeof(digits), number);
  out.append(digits, end);
}

}  // namespace

void EntryLists::begin() {
  container_code_.assign(doc_.container_count(), kNoCode);
  container_numbers_.clear();
}

void EntryLists::odd(const char* field) { ++dropped_[std::string("unusable ") + field]; }

std::uint32_t EntryLists::ranks(const Value& value) {
  if (value.is_text()) return texts_.code(value.str());
  if (!value.is_sequence()) {
    odd("pg_config ranks");
    return kNoCode;
  }
  if (container_code_[value.length] != kNoCode) return container_code_[value.length];
  std::string made = "[";
  bool good = true;
  doc_.each(value, [&](const Value& rank) {
    good = good && rank.is_int();
    if (!good) return;
    if (made.size() > 1) made += ", ";
    append(made, rank.as.i);
  });
  if (!good) {
    odd("pg_config ranks");
    return kNoCode;
  }
  return container_code_[value.length] = texts_.made(made + "]");
}

std::uint32_t EntryLists::sizes(const Value& value, std::int64_t& numel, const char* field_name) {
  numel = kNull64;
  if (value.kind == Kind::kNone) return kNoCode;
  if (!value.is_sequence()) {
    odd(field_name);
    return kNoCode;
  }
  if (container_code_[value.length] != kNoCode) {
    numel = container_numbers_[value.length];
    return container_code_[value.length];
  }
  scratch_.assign(1, '[');
  std::int64_t total = 0;
  bool good = true;
  doc_.each(value, [&](const Value& tensor) {
    good = good && tensor.is_sequence();
    if (!good) return;
    std::size_t before = scratch_.size();
    if (scratch_.size() > 1) scratch_ += ",";
    scratch_ += "[";
    std::int64_t elements = 1;
    bool first = true;
    doc_.each(tensor, [&](const Value& size) {
      good = good && size.is_int() && size.as.i >= 0;
      if (!good) return;
      if (!first) scratch_ += ",";
      first = false;
      append(scratch_, size.as.i);
      if (__builtin_mul_overflow(elements, size.as.i, &elements)) good = false;
    });
    scratch_ += "]";
    // One long list may be referred to from many places, and is written out at each of them.
    doc_.charge(scratch_.size() - before, 0);
    if (good && __builtin_add_overflow(total, elements, &total)) good = false;
  });
  if (!good) {
    odd(field_name);
    return kNoCode;
  }
  scratch_ += "]";
  numel = total;
  container_numbers_[value.length] = total;
  return container_code_[value.length] = texts_.made(scratch_);
}

std::uint32_t EntryLists::dtypes(const Value& value, unsigned& itemsize, const char* field_name) {
  itemsize = 0;
  if (value.kind == Kind::kNone) return kNoCode;
  if (!value.is_sequence()) {
    odd(field_name);
    return kNoCode;
  }
  bool first = true;
  bool good = true;
  bool same = true;
  scratch_.clear();
  std::uint32_t single = kNoCode;
  std::size_t count = doc_.size(value);
  if (container_code_[value.length] != kNoCode) {
    itemsize = static_cast<unsigned>(container_numbers_[value.length]);
    return container_code_[value.length];
  }
  doc_.each(value, [&](const Value& name) {
    good = good && name.is_text();
    if (!good) return;
    unsigned bytes = dtype_bytes(name.str());
    if (first) {
      itemsize = bytes;
      single = texts_.code(name.str());
    } else {
      same = same && bytes == itemsize;
      scratch_ += ",";
    }
    if (count > 1) {
      doc_.charge(name.length, 0);
      scratch_ += name.str();
    }
    first = false;
  });
  if (!good) {
    odd(field_name);
    itemsize = 0;
    return kNoCode;
  }
  if (!same) itemsize = 0;
  if (count == 0) return kNoCode;
  std::uint32_t code = count == 1 ? single : texts_.made(scratch_);
  container_numbers_[value.length] = itemsize;
  return container_code_[value.length] = code;
}

std::uint32_t EntryLists::stack(const Value& value) {
  if (value.kind == Kind::kNone) return kNoCode;
  if (!value.is_sequence()) {
    odd("frames");
    return kNoCode;
  }
  if (container_code_[value.length] != kNoCode) return container_code_[value.length];
  frame_key_.clear();
  std::size_t depth = 0;
  doc_.each(value, [&](const Value& frame) {
    if (++depth > kMaxFrames) return;
    Value name, file, line;
    if (frame.kind == Kind::kDict) {
      doc_.each_pair(frame, [&](const Value& k, const Value& v) {
        if (!k.is_text()) return;
        if (k.str() == "name") name = v;
        if (k.str() == "filename") file = v;
        if (k.str() == "line") line = v;
      });
    }
    if (!name.is_text() && !file.is_text()) return odd("frame");
    auto code = [&](const Value& v) { return v.is_text() ? texts_.code(v.str()) : kNoCode; };
    std::int64_t at = line.is_int() ? line.as.i : -1;
    std::uint32_t parts[4] = {code(name), code(file), static_cast<std::uint32_t>(at),
                              static_cast<std::uint32_t>(at >> 32)};
    frame_key_.append(reinterpret_cast<const char*>(parts), sizeof(parts));
  });
  if (depth > kMaxFrames) ++dropped_["frames beyond the 1,024th of a stack"];
  if (frame_key_.empty()) return kNoCode;
  auto [place, added] =
      stack_codes_.try_emplace(frame_key_, static_cast<std::uint32_t>(stacks_.size()));
  if (added) stacks_.push_back(frames(frame_key_));
  return container_code_[value.length] = place->second;
}

std::vector<std::uint32_t> EntryLists::frames(const std::string& key) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < key.size(); i += 16) {
    std::uint32_t parts[4];
    std::memcpy(parts, key.data() + i, sizeof(parts));
    auto text = [&](std::uint32_t code) {
      return code == kNoCode ? std::string_view("?") : texts_.text(code).substr(0, kMaxFrameText);
    };
    std::string made(text(parts[0]));
    made += " (";
    made += text(parts[1]);
    made += ":";
    append(made, static_cast<std::int64_t>(std::uint64_t{parts[3]} << 32 | parts[2]));
    made += ")";
    doc_.charge_output(made.size());
    out.push_back(texts_.made(made));
  }
  return out;
}

}  // namespace mycroft
