#include "pickle.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace mycroft {
namespace {

enum Opcode : unsigned char {
  kMarkOp = '(',
  kStop = '.',
  kAppend = 'a',
  kAppends = 'e',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// Names of opcodes that exist in pickle and not here, for the message of the refusal.
const char* foreign_name(unsigned char op) {
  switch (op) {
    case '0':
      return "POP";
    case '1':
      return "POP_MARK";
    case '2':
      return "DUP";
    case 'B':
      return "BINBYTES";
    case 'C':
      return "SHORT_BINBYTES";
    case 'F':
      return "FLOAT";
    case 'I':
      return "INT";
    case 'L':
      return "LONG";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 'R':
      return "REDUCE";
    case 'S':
      return "STRING";
    case 'T':
      return "BINSTRING";
    case 'U':
      return "SHORT_BINSTRING";
    case 'V':
      return "UNICODE";
    case 'b':
      return "BUILD";
    case 'c':
      return "GLOBAL";
    case 'd':
      return "DICT";
    case 'g':
      return "GET";
    case 'i':
      return "INST";
    case 'l':
      return "LIST";
    case 'o':
      return "OBJ";
    case 'p':
      return "PUT";
    case 0x81:
      return "NEWOBJ";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x8b:
      return "LONG4";
    case 0x8e:
      return "BINBYTES8";
    case 0x8f:
      return "EMPTY_SET";
    case 0x90:
      return "ADDITEMS";
    case 0x91:
      return "FROZENSET";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x93:
      return "STACK_GLOBAL";
    case 0x96:
      return "BYTEARRAY8";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return nullptr;
  }
}

[[noreturn]] void refuse_foreign(unsigned char op, std::size_t at) {
  static constexpr char kHex[] = "0123456789abcdef";
  const char* name = foreign_name(op);
  std::string what = name ? std::string("opcode ") + name
                          : std::string("unknown opcode 0x") + kHex[op >> 4] + kHex[op & 15];
  throw ReadError(ReadError::Code::kRefused, at,
                  what + " does not occur in a dump; nothing was executed");
}

class Machine {
 public:
  Machine(std::string_view input, Document& doc) : in_(input), doc_(doc) {}

  Parsed run() {
    Parsed result;
    try {
      result.root = loop();
      result.trailing = in_.size() - pos_;
    } catch (const ReadError& error) {
      if (error.code() != ReadError::Code::kTruncated) throw;
      result.damage = error.what();
      result.root = salvage();
    }
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) {
    throw ReadError(ReadError::Code::kRefused, at_, what);
  }

  std::string_view bytes(std::size_t count, const char* op) {
    std::size_t left = in_.size() - pos_;
    if (count > left) {
      throw ReadError(ReadError::Code::kTruncated, at_,
                      std::string(op) + " wants " + std::to_string(count) + " bytes and " +
                          std::to_string(left) + " are left");
    }
    std::string_view out = in_.substr(pos_, count);
    pos_ += count;
    return out;
  }

  std::uint64_t little_endian(std::size_t count, const char* op) {
    std::string_view raw = bytes(count, op);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    return value;
  }

  void push(Value value) {
    if (stack_.size() == stack_.capacity()) {
      doc_.charge((stack_.capacity() + 1) * 2 * sizeof(Value), at_);
    }
    stack_.push_back(value);
  }

  Value pop(const char* op) {
    if (stack_.empty() || stack_.back().kind == Kind::kMark) {
      refuse(std::string(op) + " finds nothing to take");
    }
    Value value = stack_.back();
    stack_.pop_back();
    return value;
  }

  // Index just above the topmost mark, which is taken off.
  std::size_t pop_mark(const char* op) {
    if (marks_.empty()) refuse(std::string(op) + " without MARK");
    std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark + 1;
  }

  Value& target(std::size_t above, Kind kind, const char* op) {
    if (above == 0 || stack_[above - 1].kind != kind) {
      refuse(std::string(op) + " without a " + (kind == Kind::kDict ? "dict" : "list") +
             " to fill");
    }
    return stack_[above - 1];
  }

  void check_keys(const Value* pairs, std::size_t count) {
    if (count % 2 != 0) refuse("SETITEMS with a key that has no value");
    for (std::size_t i = 0; i < count; i += 2) {
      Kind kind = pairs[i].kind;
      if (kind != Kind::kText && kind != Kind::kInt) {
        refuse("a dict key that is neither str nor int");
      }
    }
  }

  void make_tuple(std::size_t first) {
    Value tuple = doc_.open(Kind::kTuple);
    doc_.charge(64, at_);
    doc_.extend(tuple, stack_.data() + first, stack_.size() - first, at_);
    stack_.resize(first);
    push(tuple);
  }

  void small_tuple(std::size_t count, const char* op) {
    std::size_t floor = marks_.empty() ? 0 : marks_.back() + 1;
    if (stack_.size() < floor + count) refuse(std::string(op) + " finds too few values");
    make_tuple(stack_.size() - count);
  }

  void open(Kind kind) {
    doc_.charge(64, at_);
    push(doc_.open(kind));
  }

  void put(std::uint64_t slot, const char* op) {
    if (stack_.empty() || stack_.back().kind == Kind::kMark) {
      refuse(std::string(op) + " finds nothing to remember");
    }
    // Picklers number their slots without gaps. Room is made only for what has been put so far, so
    // that a slot of 200,000,000 in a file of nine bytes costs nothing.
    if (slot > 2 * puts_ + 1024) {
      refuse(std::string(op) + " names memo slot " + std::to_string(slot) + " after " +
             std::to_string(puts_) + " values were remembered");
    }
    ++puts_;
    if (slot >= memo_.size()) {
      doc_.charge((slot + 1 - memo_.size()) * 2 * sizeof(Value), at_);
      memo_.resize(slot + 1, Value::mark());
    }
    memo_[slot] = stack_.back();
  }

  void get(std::uint64_t slot, const char* op) {
    if (slot >= memo_.size() || memo_[slot].kind == Kind::kMark) {
      refuse(std::string(op) + " reads memo slot " + std::to_string(slot) +
             ", which was never written");
    }
    doc_.fetch(memo_[slot]);
    push(memo_[slot]);
  }

  void text(std::uint64_t length, const char* op) {
    if (length > UINT32_MAX) {
      throw ReadError(ReadError::Code::kTruncated, at_,
                      std::string(op) + " wants " + std::to_string(length) + " bytes and " +
                          std::to_string(in_.size() - pos_) + " are left");
    }
    push(Value::string(bytes(static_cast<std::size_t>(length), op)));
  }

  Value loop() {
    for (;;) {
      at_ = pos_;
      if (pos_ == in_.size()) {
        throw ReadError(ReadError::Code::kTruncated, at_, "the file ends before STOP");
      }
      auto op = static_cast<unsigned char>(in_[pos_++]);
      if (at_ == 0 && op != kProto) {
        if (foreign_name(op)) refuse_foreign(op, at_);
        refuse("a pickle of protocol 2 or later starts with PROTO");
      }
      switch (op) {
        case kProto: {
          if (at_ != 0) refuse("PROTO in the middle");
          std::uint64_t version = little_endian(1, "PROTO");
          if (version < 2 || version > 5) {
            refuse("PROTO says protocol " + std::to_string(version) + ", this reads 2 to 5");
          }
          break;
        }
        case kFrame:
          little_endian(8, "FRAME");  // only a hint for buffered readers
          break;
        case kMarkOp:
          if (marks_.size() >= doc_.limits().depth) {
            refuse("more than " + std::to_string(doc_.limits().depth) + " open MARKs");
          }
          marks_.push_back(stack_.size());
          push(Value::mark());
          break;
        case kEmptyDict:
          open(Kind::kDict);
          break;
        case kEmptyList:
          open(Kind::kList);
          break;
        case kEmptyTuple:
          open(Kind::kTuple);
          break;
        case kSetItems:
        case kAppends: {
          bool dict = op == kSetItems;
          const char* name = dict ? "SETITEMS" : "APPENDS";
          std::size_t first = pop_mark(name);
          Value& filled = target(first - 1, dict ? Kind::kDict : Kind::kList, name);
          if (dict) check_keys(stack_.data() + first, stack_.size() - first);
          doc_.extend(filled, stack_.data() + first, stack_.size() - first, at_);
          stack_.resize(first - 1);
          break;
        }
        case kAppend: {
          Value item = pop("APPEND");
          doc_.extend(target(stack_.size(), Kind::kList, "APPEND"), &item, 1, at_);
          break;
        }
        case kSetItem: {
          Value value = pop("SETITEM");
          std::array<Value, 2> pair{pop("SETITEM"), value};
          check_keys(pair.data(), 2);
          doc_.extend(target(stack_.size(), Kind::kDict, "SETITEM"), pair.data(), 2, at_);
          break;
        }
        case kTuple: {
          std::size_t first = pop_mark("TUPLE");
          // The mark itself goes too: shift the values down by one.
          stack_.erase(stack_.begin() + static_cast<std::ptrdiff_t>(first) - 1);
          make_tuple(first - 1);
          break;
        }
        case kTuple1:
          small_tuple(1, "TUPLE1");
          break;
        case kTuple2:
          small_tuple(2, "TUPLE2");
          break;
        case kTuple3:
          small_tuple(3, "TUPLE3");
          break;
        case kBinUnicode:
          text(little_endian(4, "BINUNICODE"), "BINUNICODE");
          break;
        case kShortBinUnicode:
          text(little_endian(1, "SHORT_BINUNICODE"), "SHORT_BINUNICODE");
          break;
        case kBinUnicode8:
          text(little_endian(8, "BINUNICODE8"), "BINUNICODE8");
          break;
        case kBinInt:
          push(Value::integer(static_cast<std::int32_t>(little_endian(4, "BININT"))));
          break;
        case kBinInt1:
          push(Value::integer(static_cast<std::int64_t>(little_endian(1, "BININT1"))));
          break;
        case kBinInt2:
          push(Value::integer(static_cast<std::int64_t>(little_endian(2, "BININT2"))));
          break;
        case kLong1: {
          auto count = static_cast<std::size_t>(little_endian(1, "LONG1"));
          if (count > 8) {
            bytes(count, "LONG1");
            push(Value::big_integer());
            break;
          }
          std::uint64_t raw = little_endian(count, "LONG1");
          if (count > 0 && count < 8 && (raw >> (8 * count - 1)) != 0) {
            raw |= ~std::uint64_t{0} << (8 * count);  // two's complement, shortest form
          }
          push(Value::integer(static_cast<std::int64_t>(raw)));
          break;
        }
        case kBinFloat: {
          std::string_view raw = bytes(8, "BINFLOAT");
          std::uint64_t bits = 0;
          for (char c : raw) bits = bits << 8 | static_cast<unsigned char>(c);
          push(Value::real(std::bit_cast<double>(bits)));
          break;
        }
        case kNone:
          push(Value::none());
          break;
        case kNewTrue:
          push(Value::boolean(true));
          break;
        case kNewFalse:
          push(Value::boolean(false));
          break;
        case kBinPut:
          put(little_endian(1, "BINPUT"), "BINPUT");
          break;
        case kLongBinPut:
          put(little_endian(4, "LONG_BINPUT"), "LONG_BINPUT");
          break;
        case kMemoize:
          put(puts_, "MEMOIZE");
          break;
        case kBinGet:
          get(little_endian(1, "BINGET"), "BINGET");
          break;
        case kLongBinGet:
          get(little_endian(4, "LONG_BINGET"), "LONG_BINGET");
          break;
        case kStop: {
          Value root = pop("STOP");
          if (!stack_.empty()) refuse("STOP with values left over");
          return root;
        }
        default:
          refuse_foreign(op, at_);
      }
    }
  }

  // What a file that was cut short still says: the values above each mark go where they would have
  // gone. A key without its value is dropped.
  Value salvage() {
    while (!marks_.empty()) {
      std::size_t first = pop_mark("end of file");
      std::size_t count = stack_.size() - first;
      Value* values = stack_.data() + first;
      Value filled = first >= 2 ? stack_[first - 2] : Value::none();
      // A container on top that is empty is so because its content is missing.
      if (count > 0 && values[count - 1].is_container() && doc_.size(values[count - 1]) == 0) {
        doc_.mark_partial(values[count - 1]);
      }
      if (filled.kind == Kind::kDict) {
        count -= count % 2;
        for (std::size_t i = 0; i < count; i += 2) {
          if (values[i].kind != Kind::kText && values[i].kind != Kind::kInt) count = i;
        }
      }
      if (filled.kind == Kind::kDict || filled.kind == Kind::kList) {
        doc_.mark_partial(filled);
        doc_.extend(filled, values, count, at_);
      }
      stack_.resize(first - 1);
    }
    return stack_.empty() ? Value::none() : stack_.front();
  }

  std::string_view in_;
  Document& doc_;
  std::size_t pos_ = 0;
  std::size_t at_ = 0;  // offset of the current opcode
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;  // positions of the marks on the stack
  std::vector<Value> memo_;
  std::uint64_t puts_ = 0;
};

}  // namespace

Parsed read_pickle(std::string_view input, Document& doc) { return Machine(input, doc).run(); }

}  // namespace mycroft
