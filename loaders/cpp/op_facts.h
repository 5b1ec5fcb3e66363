// What the name of an operation and of a dtype say.
#pragma once

#include <cstdint>
#include <string_view>

namespace mycroft {

// Order of schema.OP_KINDS; a test compares.
enum OpKind : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kSend,
  kRecv,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kCoalesced,
  kOther,
};

// Order of schema.OP_STATES.
enum OpState : std::uint8_t { kScheduled, kStarted, kCompleted };

// Kind of an operation by its name without the backend. Case and underscores differ between
// releases and backends.
std::uint8_t kind_of(std::string_view name);

// Ranks inside the group of "send 0->1" and "recv 1<-0", the own one first; both stay as they are
// for any other name.
void parse_p2p(std::string_view name, std::uint32_t& own, std::uint32_t& peer);

// Bytes of one element by c10 name, 0 where unknown.
unsigned dtype_bytes(std::string_view name);

}  // namespace mycroft
