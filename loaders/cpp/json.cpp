#include "json.h"

#include <charconv>
#include <string>
#include <vector>

namespace mycroft {
namespace {

void append_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

class JsonReader {
 public:
  JsonReader(std::string_view input, Document& doc) : in_(input), doc_(doc) {}

  Parsed run() {
    Parsed result;
    try {
      result.root = loop();
      skip_space();
      result.trailing = in_.size() - pos_;
    } catch (const ReadError& error) {
      if (error.code() != ReadError::Code::kTruncated) throw;
      result.damage = error.what();
      result.root = salvage();
    }
    return result;
  }

 private:
  // A container that is being read; `first` is where its values start on the stack.
  struct Open {
    Value container;
    std::size_t first;
  };

  [[noreturn]] void refuse(const std::string& what) {
    throw ReadError(ReadError::Code::kRefused, pos_, what);
  }
  [[noreturn]] void cut() {
    throw ReadError(ReadError::Code::kTruncated, pos_, "the text ends in the middle");
  }

  void skip_space() {
    while (pos_ < in_.size() &&
           (in_[pos_] == ' ' || in_[pos_] == '\n' || in_[pos_] == '\r' || in_[pos_] == '\t')) {
      ++pos_;
    }
  }

  char peek() {
    skip_space();
    if (pos_ == in_.size()) cut();
    return in_[pos_];
  }

  void push(Value value) {
    if (stack_.size() == stack_.capacity()) {
      doc_.charge((stack_.capacity() + 1) * 2 * sizeof(Value), pos_);
    }
    stack_.push_back(value);
  }

  void open(Kind kind) {
    if (open_.size() >= doc_.limits().depth) {
      refuse("nested deeper than " + std::to_string(doc_.limits().depth) + " levels");
    }
    ++pos_;
    doc_.charge(64, pos_);
    open_.push_back({doc_.open(kind), stack_.size()});
  }

  void close() {
    ++pos_;
    Open top = open_.back();
    open_.pop_back();
    doc_.extend(top.container, stack_.data() + top.first, stack_.size() - top.first, pos_);
    stack_.resize(top.first);
    push(top.container);
  }

  void key() {
    if (peek() != '"') refuse("a key that is not a string");
    push(text());
    if (peek() != ':') refuse("no colon after a key");
    ++pos_;
  }

  // Reads one value, or opens a container.
  Value loop() {
    for (;;) {
      char c = peek();
      bool opened = false;
      if (c == '{' || c == '[') {
        open(c == '{' ? Kind::kDict : Kind::kList);
        opened = true;
      } else {
        push(scalar(c));
      }
      // After a value: a comma, the end of one or more containers, or the end.
      for (;;) {
        if (open_.empty()) return stack_.back();
        bool dict = open_.back().container.kind == Kind::kDict;
        c = peek();
        if (c == (dict ? '}' : ']')) {
          close();
          opened = false;
          continue;
        }
        if (!opened) {
          if (c != ',') refuse("neither comma nor end after a value");
          ++pos_;
        }
        if (dict) key();
        break;
      }
    }
  }

  Value scalar(char c) {
    if (c == '"') return text();
    if (c == 't') return word("true", Value::boolean(true));
    if (c == 'f') return word("false", Value::boolean(false));
    if (c == 'n') return word("null", Value::none());
    if (c == 'N') return word("NaN", Value::none());
    if (c == 'I') return word("Infinity", Value::none());
    return number();
  }

  Value word(std::string_view expected, Value value) {
    std::string_view found = in_.substr(pos_, expected.size());
    if (found != expected) {
      if (expected.starts_with(found)) cut();
      refuse("not a JSON value");
    }
    pos_ += expected.size();
    return value;
  }

  Value number() {
    std::size_t start = pos_;
    if (in_.substr(pos_).starts_with("-Infinity")) return word("-Infinity", Value::none());
    bool real = false;
    std::size_t end = start;
    while (end < in_.size()) {
      char c = in_[end];
      if (c == '.' || c == 'e' || c == 'E') {
        real = true;
      } else if (!(c >= '0' && c <= '9') && c != '-' && c != '+') {
        break;
      }
      ++end;
    }
    if (end == start) refuse("not a JSON value");
    if (end == in_.size() && !open_.empty()) cut();  // the next digit may be missing
    const char* first = in_.data() + start;
    const char* last = in_.data() + end;
    pos_ = end;
    if (!real) {
      std::int64_t i = 0;
      auto [stop, error] = std::from_chars(first, last, i);
      if (error == std::errc::result_out_of_range && stop == last) return Value::big_integer();
      if (error == std::errc() && stop == last) return Value::integer(i);
    } else {
      double f = 0;
      auto [stop, error] = std::from_chars(first, last, f);
      if (error == std::errc::result_out_of_range && stop == last) return Value::none();
      if (error == std::errc() && stop == last) return Value::real(f);
    }
    pos_ = start;
    refuse("not a JSON number");
  }

  std::uint32_t hex4(std::size_t at) {
    if (at + 4 > in_.size()) cut();
    std::uint32_t code = 0;
    auto [stop, error] = std::from_chars(in_.data() + at, in_.data() + at + 4, code, 16);
    if (error != std::errc() || stop != in_.data() + at + 4) refuse("a bad \\u escape");
    return code;
  }

  Value text() {
    std::size_t start = ++pos_;
    std::size_t end = start;
    while (end < in_.size() && in_[end] != '"' && in_[end] != '\\') ++end;
    if (end == in_.size()) cut();
    if (in_[end] == '"') {
      pos_ = end + 1;
      return checked(in_.substr(start, end - start));
    }
    std::string out(in_.substr(start, end - start));
    while (end < in_.size() && in_[end] != '"') {
      char c = in_[end++];
      if (c != '\\') {
        out += c;
        continue;
      }
      if (end == in_.size()) cut();
      switch (c = in_[end++]) {
        case '"':
        case '\\':
        case '/':
          out += c;
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'n':
          out += '\n';
          break;
        case 'r':
          out += '\r';
          break;
        case 't':
          out += '\t';
          break;
        case 'u': {
          std::uint32_t code = hex4(end);
          end += 4;
          if (code >= 0xd800 && code < 0xdc00 && in_.substr(end).starts_with("\\u")) {
            std::uint32_t low = hex4(end + 2);
            if (low >= 0xdc00 && low < 0xe000) {
              code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
              end += 6;
            }
          }
          append_utf8(out, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
          break;
        }
        default:
          refuse("a bad escape in a string");
      }
    }
    if (end == in_.size()) cut();
    pos_ = end + 1;
    return checked(doc_.keep(std::move(out), pos_));
  }

  Value checked(std::string_view text) {
    if (text.size() > UINT32_MAX) refuse("a string of more than 4 GiB");
    return Value::string(text);
  }

  Value salvage() {
    while (!open_.empty()) {
      Open top = open_.back();
      open_.pop_back();
      std::size_t count = stack_.size() - top.first;
      if (top.container.kind == Kind::kDict) count -= count % 2;
      doc_.mark_partial(top.container);
      doc_.extend(top.container, stack_.data() + top.first, count, pos_);
      stack_.resize(top.first);
      push(top.container);
    }
    return stack_.empty() ? Value::none() : stack_.front();
  }

  std::string_view in_;
  Document& doc_;
  std::size_t pos_ = 0;
  std::vector<Value> stack_;
  std::vector<Open> open_;
};

}  // namespace

Parsed read_json(std::string_view input, Document& doc) { return JsonReader(input, doc).run(); }

}  // namespace mycroft
