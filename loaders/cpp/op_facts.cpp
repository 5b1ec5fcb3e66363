#include "op_facts.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string>
#include <unordered_map>

#include "columns.h"

namespace mycroft {
namespace {

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

std::uint32_t small_rank(std::string_view digits, std::size_t& used) {
  std::uint32_t rank = kNull32;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc()) return kNull32;
  used = static_cast<std::size_t>(end - digits.data());
  return rank;
}

}  // namespace

unsigned dtype_bytes(std::string_view name) {
  static const std::unordered_map<std::string_view, unsigned> kSizes = {
      {"Float", 4},
      {"Double", 8},
      {"Half", 2},
      {"BFloat16", 2},
      {"Long", 8},
      {"Int", 4},
      {"Short", 2},
      {"Char", 1},
      {"Byte", 1},
      {"Bool", 1},
      {"ComplexHalf", 4},
      {"ComplexFloat", 8},
      {"ComplexDouble", 16},
      {"UInt16", 2},
      {"UInt32", 4},
      {"UInt64", 8},
      {"QInt8", 1},
      {"QUInt8", 1},
      {"QInt32", 4},
      {"Float8_e5m2", 1},
      {"Float8_e4m3fn", 1},
      {"Float8_e5m2fnuz", 1},
      {"Float8_e4m3fnuz", 1},
      {"Float8_e8m0fnu", 1},
      {"Float4_e2m1fn_x2", 1},
  };
  auto found = kSizes.find(name);
  return found == kSizes.end() ? 0 : found->second;
}

std::uint8_t kind_of(std::string_view name) {
  if (name == "coalesced") return kCoalesced;
  if (name.ends_with("_coalesced") && std::all_of(name.begin(), name.end() - 10, [](char c) {
        return c == '_' || (c >= 'A' && c <= 'Z');
      })) {
    return kCoalesced;  // the closing entry of a group of collectives, such as ALLGATHER_coalesced
  }
  std::string plain;
  for (char c : name) {
    if (c == ' ') break;
    if (c != '_') plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  std::string_view p = plain;
  if (starts_with_any(p, {"allreducebarrier", "barrier", "monitoredbarrier"})) return kBarrier;
  if (p.starts_with("allreduce")) return kAllReduce;
  if (p.starts_with("allgather")) return kAllGather;
  if (p.starts_with("reducescatter")) return kReduceScatter;
  if (p.starts_with("alltoall")) return kAllToAll;
  if (p.starts_with("broadcast")) return kBroadcast;
  if (p.starts_with("reduce")) return kReduce;
  if (p.starts_with("gather")) return kGather;
  if (p.starts_with("scatter")) return kScatter;
  if (p.starts_with("send")) return kSend;
  if (p.starts_with("recv")) return kRecv;
  return kOther;
}

void parse_p2p(std::string_view name, std::uint32_t& own, std::uint32_t& peer) {
  std::size_t space = name.find(' ');
  if (space == std::string_view::npos) return;
  std::string_view rest = name.substr(space + 1);
  std::size_t used = 0;
  std::uint32_t first = small_rank(rest, used);
  if (first == kNull32) return;
  rest.remove_prefix(used);
  if (!rest.starts_with("->") && !rest.starts_with("<-")) return;
  rest.remove_prefix(2);
  std::uint32_t second = small_rank(rest, used);
  if (second == kNull32) return;
  own = first;
  peer = second;
}

}  // namespace mycroft
