// NCCL's names and numbers of operations, types, algorithms and protocols, as codes of record.h.
#pragma once

#include <cstdint>

#include "record.h"
#include "text.h"

namespace mycroft {

template <typename Code>
struct NamedCode {
  const char* name;
  Code code;
};

inline constexpr NamedCode<OpKind> kOpNames[] = {
    {"AllReduce", OpKind::all_reduce},
    {"AllGather", OpKind::all_gather},
    {"ReduceScatter", OpKind::reduce_scatter},
    {"Send", OpKind::send},
    {"Recv", OpKind::recv},
    {"Broadcast", OpKind::broadcast},
    {"Reduce", OpKind::reduce},
    {"Gather", OpKind::gather},
    {"Scatter", OpKind::scatter},
    {"AlltoAll", OpKind::all_to_all},
};
inline constexpr NamedCode<DataType> kTypeNames[] = {
    {"ncclInt8", DataType::int8},
    {"ncclUint8", DataType::uint8},
    {"ncclInt32", DataType::int32},
    {"ncclUint32", DataType::uint32},
    {"ncclInt64", DataType::int64},
    {"ncclUint64", DataType::uint64},
    {"ncclFloat16", DataType::float16},
    {"ncclFloat32", DataType::float32},
    {"ncclFloat64", DataType::float64},
    {"ncclBfloat16", DataType::bfloat16},
    {"ncclFloat8e4m3", DataType::float8e4m3},
    {"ncclFloat8e5m2", DataType::float8e5m2},
};
inline constexpr NamedCode<Algo> kAlgoNames[] = {
    {"TREE", Algo::tree},
    {"RING", Algo::ring},
    {"COLLNET_DIRECT", Algo::collnet_direct},
    {"COLLNET_CHAIN", Algo::collnet_chain},
    {"NVLS", Algo::nvls},
    {"NVLS_TREE", Algo::nvls_tree},
    {"PAT", Algo::pat},
};
inline constexpr NamedCode<Proto> kProtoNames[] = {
    {"LL", Proto::ll}, {"LL128", Proto::ll128}, {"SIMPLE", Proto::simple}};

template <typename Code, size_t N>
Code find_name(const NamedCode<Code> (&names)[N], const char* text, Code other) noexcept {
  if (text == nullptr) return other;
  for (const auto& entry : names) {
    if (text[0] == entry.name[0] && std::strcmp(text, entry.name) == 0) return entry.code;
  }
  return other;
}

inline OpKind kind_of_name(const char* text) noexcept {
  return find_name(kOpNames, text, OpKind::other);
}
inline DataType dtype_of_name(const char* text) noexcept {
  return find_name(kTypeNames, text, DataType::unknown);
}
inline Algo algo_of_name(const char* text) noexcept {
  if (text == nullptr || *text == '\0') return Algo::unknown;
  return find_name(kAlgoNames, text, Algo::other);
}
inline Proto proto_of_name(const char* text) noexcept {
  return find_name(kProtoNames, text, Proto::unknown);
}

// ABI v1 has NCCL's own numbers instead of names.
inline OpKind kind_of_code(uint8_t func) noexcept {
  constexpr OpKind kKinds[] = {OpKind::broadcast,      OpKind::reduce,     OpKind::all_gather,
                               OpKind::reduce_scatter, OpKind::all_reduce, OpKind::other,
                               OpKind::send,           OpKind::recv};
  return func < sizeof kKinds / sizeof kKinds[0] ? kKinds[func] : OpKind::other;
}
inline DataType dtype_of_code(uint8_t type) noexcept {
  return type <= static_cast<uint8_t>(DataType::float8e5m2) ? static_cast<DataType>(type)
                                                            : DataType::unknown;
}

inline uint32_t dtype_bytes(DataType type) noexcept {
  switch (type) {
    case DataType::int8:
    case DataType::uint8:
    case DataType::float8e4m3:
    case DataType::float8e5m2:
      return 1;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    case DataType::int32:
    case DataType::uint32:
    case DataType::float32:
      return 4;
    case DataType::int64:
    case DataType::uint64:
    case DataType::float64:
      return 8;
    case DataType::unknown:
      break;
  }
  return 0;
}

// All ones (unknown) where the type is.
inline uint64_t saturating_bytes(uint64_t count, DataType type) noexcept {
  const uint32_t size = dtype_bytes(type);
  if (size == 0) return kUnknown48;
  return count > (kUnknown48 - 1) / size ? kUnknown48 - 1 : count * size;
}

inline bool is_rooted(OpKind kind) noexcept {
  return kind == OpKind::broadcast || kind == OpKind::reduce || kind == OpKind::gather ||
         kind == OpKind::scatter;
}

}  // namespace mycroft
