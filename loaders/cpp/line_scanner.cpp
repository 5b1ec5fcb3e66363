#include "line_scanner.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace mycroft {

namespace {

constexpr char kEscape = '\x1b';
// Docker's json-file driver splits at 16 KiB of text; collectors may trim a little. A shorter
// record without a final newline is a collector's habit, not a part of a line.
constexpr std::size_t kSplitRecord = 16'000;
constexpr int kMaxNesting = 4;
constexpr std::size_t kMaxSplits = 8;

bool has(std::string_view text, char c) {
  return !text.empty() && std::memchr(text.data(), c, text.size()) != nullptr;
}

std::size_t find(std::string_view text, char c, std::size_t from) {
  if (from >= text.size()) return std::string_view::npos;
  const void* at = std::memchr(text.data() + from, c, text.size() - from);
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

void put_utf8(std::uint32_t code, std::string& out) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// Length of the valid UTF-8 sequence at `at`, 0 if there is none (overlong forms and surrogates are
// none).
std::size_t sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return 1;
  std::size_t size = 0;
  unsigned low = 0x80;
  unsigned high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    size = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    size = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    size = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  }
  if (size == 0 || at + size > text.size()) return 0;
  if (byte(at + 1) < low || byte(at + 1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  return size;
}

// Arrow strings must be UTF-8: anything else becomes U+FFFD.
void append_utf8(std::string_view text, std::string& out) {
  std::size_t good = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    if (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080ULL) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const std::size_t size = sequence(text, at);
    if (size != 0) {
      at += size;
      continue;
    }
    out.append(text.substr(good, at - good));
    put_utf8(0xfffd, out);
    good = ++at;
  }
  out.append(text.substr(good));
}

// Removes ECMA-48 control sequences, operating-system commands, lone escapes and NUL bytes.
void clean(std::string_view text, std::string& out, std::uint64_t& nul_bytes) {
  out.clear();
  std::size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\0') {
      ++nul_bytes;
      ++at;
    } else if (c != kEscape) {
      std::size_t end = at + 1;
      while (end < text.size() && text[end] != '\0' && text[end] != kEscape) ++end;
      out.append(text.substr(at, end - at));
      at = end;
    } else if (at + 1 < text.size() && text[at + 1] == '[') {
      at += 2;
      while (at < text.size() && text[at] >= 0x20 && text[at] <= 0x3f) ++at;
      if (at < text.size() && text[at] >= 0x40 && text[at] <= 0x7e) ++at;
    } else if (at + 1 < text.size() && text[at + 1] == ']') {
      at += 2;
      while (at < text.size() && text[at] != '\a' && text[at] != kEscape) ++at;
      if (at < text.size() && text[at] == '\a') ++at;
    } else if (at + 1 < text.size() && text[at + 1] >= 0x30 && text[at + 1] <= 0x7e) {
      at += 2;  // two-byte sequences, also the end of an operating-system command
    } else {
      ++at;
    }
  }
}

// A reader of just enough JSON to find one string member of an object.
class Record {
 public:
  explicit Record(std::string_view raw) : raw_(raw) {}

  // Finds the member that holds the text. False: this is not such a record.
  bool find_text(std::string& text, std::string& meta) {
    at_ = 0;
    if (!expect('{')) return false;
    std::size_t start = 0, end = 0;
    bool found = false, has_time = false, closed = true;
    int rank = 9;
    while (true) {
      skip_blanks();
      std::string_view key;
      std::size_t key_start = 0, key_end = 0;
      if (!string(key_start, key_end)) break;
      key = raw_.substr(key_start, key_end - key_start);
      if (!expect(':')) break;
      skip_blanks();
      if (at_ < raw_.size() && raw_[at_] == '"') {
        std::size_t value_start = 0, value_end = 0;
        const bool whole = string(value_start, value_end);
        const int here = text_key(key);
        if (here < rank && (whole || here == 0)) {
          rank = here;
          start = value_start;
          end = value_end;
          found = true;
          closed = whole;
        }
        if (!whole) break;
      } else if (!skip_value()) {
        break;
      }
      has_time = has_time || time_key(key);
      if (!expect(',')) break;
    }
    // `log` is what container runtimes write; the other names are common words and need a time
    // beside them.
    if (!found || (rank > 0 && !has_time)) return false;
    text.clear();
    unescape(raw_.substr(start, end - start), text);
    meta.append(raw_.substr(0, start));
    meta.append(closed ? raw_.substr(end) : std::string_view("\"}"));
    return true;
  }

 private:
  static int text_key(std::string_view key) {
    static constexpr std::array<std::string_view, 6> kKeys{"log",         "message", "MESSAGE",
                                                           "textPayload", "msg",     "line"};
    for (std::size_t i = 0; i < kKeys.size(); ++i) {
      if (key == kKeys[i]) return static_cast<int>(i);
    }
    return 99;
  }
  static bool time_key(std::string_view key) {
    static constexpr std::array<std::string_view, 7> kKeys{"time",
                                                           "timestamp",
                                                           "ts",
                                                           "@timestamp",
                                                           "__REALTIME_TIMESTAMP",
                                                           "_SOURCE_REALTIME_TIMESTAMP",
                                                           "date"};
    return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
  }

  void skip_blanks() {
    while (at_ < raw_.size() && (raw_[at_] == ' ' || raw_[at_] == '\t')) ++at_;
  }
  bool expect(char c) {
    skip_blanks();
    if (at_ >= raw_.size() || raw_[at_] != c) return false;
    ++at_;
    return true;
  }
  // Bounds of the string at the cursor; false when it does not start here or does not end.
  bool string(std::size_t& start, std::size_t& end) {
    skip_blanks();
    if (at_ >= raw_.size() || raw_[at_] != '"') return false;
    start = ++at_;
    while (true) {
      const std::size_t quote = find(raw_, '"', at_);
      if (quote == std::string_view::npos) {
        end = at_ = raw_.size();
        return false;
      }
      std::size_t slashes = 0;
      while (quote - slashes > start && raw_[quote - slashes - 1] == '\\') ++slashes;
      at_ = quote + 1;
      if (slashes % 2 == 0) {
        end = quote;
        return true;
      }
    }
  }
  bool skip_value() {
    std::size_t depth = 0;
    while (at_ < raw_.size()) {
      const char c = raw_[at_];
      if (c == '"') {
        std::size_t start = 0, end = 0;
        if (!string(start, end)) return false;
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']' || c == ',') {
        if (depth == 0) return true;
        if (c != ',') --depth;
      }
      ++at_;
    }
    return false;
  }

  static void unescape(std::string_view body, std::string& out) {
    std::size_t at = 0;
    while (at < body.size()) {
      const std::size_t slash = find(body, '\\', at);
      if (slash == std::string_view::npos || slash + 1 >= body.size()) {
        out.append(body.substr(at));
        return;
      }
      out.append(body.substr(at, slash - at));
      at = slash + 2;
      switch (body[slash + 1]) {
        case 'n':
          out.push_back('\n');
          break;
        case 't':
          out.push_back('\t');
          break;
        case 'r':
          out.push_back('\r');
          break;
        case 'b':
          out.push_back('\b');
          break;
        case 'f':
          out.push_back('\f');
          break;
        case 'u': {
          std::uint32_t code = 0;
          if (!hex4(body, at, code)) {
            put_utf8(0xfffd, out);
            break;
          }
          at += 4;
          std::uint32_t low = 0;
          if (code >= 0xd800 && code < 0xdc00 && body.substr(at, 2) == "\\u" &&
              hex4(body, at + 2, low) && low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
          }
          put_utf8(code >= 0xd800 && code < 0xe000 ? 0xfffd : code, out);
          break;
        }
        default:
          out.push_back(body[slash + 1]);
      }
    }
  }
  static bool hex4(std::string_view body, std::size_t at, std::uint32_t& code) {
    if (at + 4 > body.size()) return false;
    code = 0;
    for (std::size_t i = at; i < at + 4; ++i) {
      const char c = body[i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      code = code << 4 | static_cast<std::uint32_t>(digit);
    }
    return true;
  }

  std::string_view raw_;
  std::size_t at_ = 0;
};

// `<time> stdout|stderr F|P[:…] <text>`: where the text starts, 0 if this is no such line.
std::size_t cri_text(std::string_view raw, bool& partial, std::string_view& stream) {
  if (raw.size() < 20 || raw[0] < '0' || raw[0] > '9') return 0;
  const std::size_t space = raw.substr(0, 48).find(' ');
  if (space == std::string_view::npos || space < 10) return 0;
  stream = raw.substr(space + 1, 6);
  if (stream != "stdout" && stream != "stderr") return 0;
  const std::size_t tag = space + 8;
  if (tag >= raw.size() || raw[tag - 1] != ' ' || (raw[tag] != 'F' && raw[tag] != 'P')) return 0;
  partial = raw[tag] == 'P';
  const std::size_t end = raw.find(' ', tag);
  if (end == std::string_view::npos) return raw.size();
  return end > tag + 16 ? 0 : end + 1;
}

std::vector<std::pair<std::string, std::uint16_t>> all_literals(
    const std::vector<LineMatcher>& matchers) {
  if (matchers.size() > 60'000) throw std::invalid_argument("too many matchers");
  std::vector<std::pair<std::string, std::uint16_t>> out;
  for (std::size_t i = 0; i < matchers.size(); ++i) {
    for (const std::string& literal : matchers[i].literals) {
      out.emplace_back(literal, static_cast<std::uint16_t>(i));
    }
  }
  return out;
}

}  // namespace

LinePlan::LinePlan(std::vector<LineMatcher> matchers)
    : matchers_(std::move(matchers)), literals_(all_literals(matchers_)) {}

LineScanner::LineScanner(const LinePlan& plan, ScanOptions options)
    : plan_(plan), options_(options) {
  if (options_.max_line == 0 || options_.block_bytes == 0)
    throw std::invalid_argument("limits must not be 0");
  seen_.assign(plan.matchers().size(), 0);
  block_.first_line = 1;
}

LineScanner::Batch LineScanner::feed(std::string_view bytes) {
  Batch batch;
  counts_.bytes += bytes.size();
  odd_bytes_ = has(bytes, '\r') || has(bytes, kEscape) || has(bytes, '\0') || odd_bytes_;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t end = find(bytes, '\n', at);
    if (end == std::string_view::npos) {
      carry_.append(bytes.substr(at));
      if (carry_.size() > options_.max_line) drain_carry(batch);
      break;
    }
    const std::string_view rest = bytes.substr(at, end - at);
    if (carry_.empty() && !carry_started_) {
      physical(rest, batch);
      offset_ += rest.size() + 1;
    } else {
      carry_.append(rest);
      const std::string whole = std::exchange(carry_, {});
      physical(whole, batch);
      offset_ = counts_.bytes - bytes.size() + end + 1;
    }
    at = end + 1;
  }
  // Bytes of this feed may still lie in carry_.
  odd_bytes_ = !carry_.empty() && (has(carry_, '\r') || has(carry_, kEscape) || has(carry_, '\0'));
  return batch;
}

LineScanner::Batch LineScanner::finish() {
  Batch batch;
  odd_bytes_ = true;
  if (!carry_.empty() || carry_started_) {
    const std::string whole = std::exchange(carry_, {});
    physical(whole, batch);
  }
  for (auto& [key, part] : std::exchange(split_, {}))
    pieces(part.text, part.meta, part.line, part.offset, batch);
  close_block(batch);
  return batch;
}

// A line that does not end within max_line: hand out the pieces that are whole, or its start.
void LineScanner::drain_carry(Batch& batch) {
  odd_bytes_ = true;
  const std::size_t last = carry_.rfind('\r');
  if (!carry_started_) block_line(carry_, batch);
  carry_started_ = true;
  if (last != std::string::npos) {
    const std::string whole = carry_.substr(last + 1);
    carry_.resize(last);
    if (!discarding_) {
      pieces(carry_, {}, line_ + 1, offset_, batch);
    } else {
      const std::size_t first = carry_.find('\r');
      if (first != std::string::npos) {
        pieces(std::string_view(carry_).substr(first + 1), {}, line_ + 1, offset_, batch);
      }
    }
    discarding_ = false;
    carry_ = whole;
  }
  if (carry_.size() > options_.max_line) {
    if (!discarding_) pieces(carry_, {}, line_ + 1, offset_, batch);
    discarding_ = true;
    carry_.clear();
  }
}

void LineScanner::physical(std::string_view raw, Batch& batch) {
  ++line_;
  ++counts_.lines;
  if (!raw.empty() && raw.back() == '\r') raw.remove_suffix(1);
  ++lengths_[std::min(raw.size(), lengths_.size() - 1)];
  if (carry_started_) {
    if (discarding_) {
      const std::size_t piece_end = raw.find('\r');
      raw = piece_end == std::string_view::npos ? std::string_view() : raw.substr(piece_end + 1);
    }
    carry_started_ = discarding_ = false;
    if (!raw.empty()) pieces(raw, {}, line_, offset_, batch);
    return;
  }
  block_line(raw, batch);
  if (!raw.empty() && raw[0] == kEscape) {
    // A colour in front of a record would hide it.
    clean(raw, coloured_, counts_.nul_bytes);
    raw = coloured_;
  }
  const char first = raw.empty() ? '\0' : raw[0];
  if (first == '{' || (first >= '0' && first <= '9')) {
    unwrapped(raw, batch);
  } else {
    pieces(raw, {}, line_, offset_, batch);
  }
}

void LineScanner::unwrapped(std::string_view raw, Batch& batch) {
  std::string_view text = raw;
  std::string level[2];
  meta_.clear();
  for (int depth = 0; depth < kMaxNesting; ++depth) {
    bool partial = false;
    bool record = false;
    std::string_view stream;
    if (!text.empty() && text[0] == '{') {
      std::string inner;
      std::string outer;
      if (!Record(text).find_text(inner, outer)) break;
      record = true;
      if (!meta_.empty()) meta_.push_back('\n');
      meta_.append(outer);
      stream = meta_.find("\"stderr\"") != std::string::npos ? "stderr" : "stdout";
      partial = (inner.empty() || inner.back() != '\n') && inner.size() >= kSplitRecord;
      if (!inner.empty() && inner.back() == '\n') inner.pop_back();
      level[depth % 2] = std::move(inner);
      text = level[depth % 2];
    } else {
      const std::size_t start = cri_text(text, partial, stream);
      if (start == 0) break;
      if (!meta_.empty()) meta_.push_back('\n');
      meta_.append(text.substr(0, std::min<std::size_t>(start, 48)));
      text.remove_prefix(start);
    }
    if (depth == 0) ++counts_.containers;
    odd_bytes_ = odd_bytes_ || record;
    const std::string key = std::to_string(depth) + std::string(stream);
    auto waiting = split_.find(key);
    if (waiting == split_.end() && !partial) continue;
    if (waiting == split_.end()) {
      if (split_.size() >= kMaxSplits) break;
      waiting = split_.emplace(key, Split{{}, meta_, line_, offset_}).first;
    } else {
      ++counts_.joined;
    }
    Split& part = waiting->second;
    if (part.text.size() < options_.max_line) part.text.append(text);
    if (partial) return;
    const Split whole = std::move(part);
    split_.erase(waiting);
    // What was joined may be a container again only in theory; it is looked at as text.
    pieces(whole.text, whole.meta, whole.line, whole.offset, batch);
    return;
  }
  pieces(text, meta_, line_, offset_, batch);
}

void LineScanner::pieces(std::string_view text, std::string_view meta, std::uint64_t line,
                         std::uint64_t offset, Batch& batch) {
  const bool redrawn = odd_bytes_ && has(text, '\r');
  if (!redrawn && (meta.empty() || !has(text, '\n'))) {
    piece(text, meta, line, offset, 0, batch);
    return;
  }
  std::size_t at = 0;
  while (at <= text.size()) {
    std::size_t end = text.find_first_of("\r\n", at);
    if (end == std::string_view::npos) end = text.size();
    if (end > at) {
      piece(text.substr(at, end - at), meta, line, offset, redrawn ? kRedrawn : std::uint8_t{0},
            batch);
    }
    at = end + 1;
  }
}

void LineScanner::piece(std::string_view text, std::string_view meta, std::uint64_t line,
                        std::uint64_t offset, std::uint8_t flags, Batch& batch) {
  ++counts_.pieces;
  if (text.size() > options_.max_line) {
    ++counts_.cut;
    flags |= kCut;
    text = text.substr(0, options_.max_line);
  }
  if (odd_bytes_ && (has(text, kEscape) || has(text, '\0'))) {
    clean(text, clean_, counts_.nul_bytes);
    text = clean_;
  }
  if (text.find_first_not_of(" \t") == std::string_view::npos) {
    ++counts_.blank;
    if (!options_.keep_all && follow_ == 0) return;
  }
  found_.clear();
  std::uint32_t follow = 0;
  plan_.literals().scan(text, [&](std::uint16_t id) {
    if (seen_[id] == counts_.pieces) return;
    seen_[id] = counts_.pieces;
    found_.push_back(id);
  });
  std::sort(found_.begin(), found_.end());
  const std::size_t ids_start = batch.ids.size();
  for (const std::uint16_t id : found_) {
    const LineMatcher& matcher = plan_.matchers()[id];
    follow = std::max(follow, matcher.follow);
    if (!matcher.bulk) {
      batch.ids.push_back(id);
      continue;
    }
    LineScanner::Bulk& bulk = batch.bulk[id];
    bulk.lines.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(line, 0xffffffff)));
    append_utf8(text, bulk.text);
    bulk.text_ends.push_back(static_cast<std::int64_t>(bulk.text.size()));
    append_utf8(meta, bulk.meta);
    bulk.meta_ends.push_back(static_cast<std::int64_t>(bulk.meta.size()));
  }
  const bool hit = batch.ids.size() > ids_start;
  const bool wanted = hit || options_.keep_all || (follow_ > 0 && found_.empty());
  if (hit) flags |= kHit;
  if (!found_.empty()) ++counts_.candidates;
  follow_ = follow > 0    ? std::max(follow, follow_ > 0 ? follow_ - 1 : 0)
            : follow_ > 0 ? follow_ - 1
                          : 0;
  if (!wanted) return;
  batch.candidates.push_back({line, offset, flags, batch.text.size(), text.size(),
                              batch.meta.size(), meta.size(), ids_start,
                              batch.ids.size() - ids_start});
  batch.text.append(text);
  batch.meta.append(meta);
}

void LineScanner::block_line(std::string_view raw, Batch& batch) {
  if (!options_.keep_blocks) return;
  if (block_.lines > 0 && block_.content.size() + raw.size() + 1 > options_.block_bytes)
    close_block(batch);
  if (block_.lines > 0) block_.content.push_back('\n');
  ++block_.lines;
  if (raw.size() <= options_.block_bytes) {
    block_.content.append(raw);
    return;
  }
  block_.content.append(raw.substr(0, options_.block_bytes));
  block_.content.append(" [cut here: this line is longer]");
}

void LineScanner::close_block(Batch& batch) {
  if (block_.lines == 0) return;
  const std::uint64_t next = block_.first_line + block_.lines;
  batch.blocks.push_back(std::move(block_));
  block_ = Block{next, 0, {}};
}

}  // namespace mycroft
