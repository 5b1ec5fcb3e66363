// The host's side of NCCL's profiler ABI: builds descriptors of each version as NCCL does and calls
// a plugin through its table. What NCCL leaves undefined is filled with garbage on purpose, and
// every promise the plugin must keep (0 returned, handle written) is checked.
//
// One per process; calls may come from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "../profiler_abi.h"

namespace mycroft::replay {

using Event = void*;

struct CommSpec {
  std::string name;
  uint64_t hash = 0;
  int32_t rank = 0;
  int32_t ranks = 1;
};

struct CollSpec {
  const char* func = "AllReduce";
  uint64_t seq = 0;
  size_t count = 0;
  const char* datatype = "ncclFloat32";
  int32_t root = 0;
  uint8_t channels = 1;
  const char* algo = "RING";
  const char* proto = "SIMPLE";
};

struct P2pSpec {
  bool send = true;
  size_t count = 0;
  const char* datatype = "ncclFloat32";
  int32_t peer = 0;
  uint8_t channels = 1;
};

struct ProxyOpSpec {
  int32_t pid = 0;
  uint8_t channel = 0;
  int32_t peer = 0;
  int32_t steps = 0;
  int32_t chunk_size = 0;
  bool send = true;
};

class Host {
 public:
  // Opens the library as NCCL does and takes the table of one version. Returns what is wrong, or
  // "".
  std::string load(const std::string& path, int abi);
  // As NCCL does with the last communicator.
  void unload();
  int abi() const { return abi_; }
  // The one word that holds the activation mask, as NCCL samples it; ancestors of a type are on
  // too.
  uint64_t mask() const { return static_cast<uint64_t>(__atomic_load_n(&mask_, __ATOMIC_RELAXED)); }
  bool wants(uint64_t type) const;
  // States of the ProxyOp carry the counters (NCCL up to 2.26).
  bool counts_by_op() const { return abi_ <= 3; }
  // Raw steps instead of transfers (NCCL 2.23).
  bool raw_steps() const { return abi_ == 1; }

  void* init(const CommSpec& comm);
  void finalize(void* context);

  Event group_start(void* context);
  Event api_start(void* context, uint64_t type, Event parent);
  Event coll_start(void* context, const CommSpec& comm, const CollSpec& coll, Event api,
                   Event group);
  Event p2p_start(void* context, const CommSpec& comm, const P2pSpec& p2p, Event api, Event group);
  Event proxy_op_start(void* context, const CommSpec& comm, const ProxyOpSpec& op, Event parent);
  Event proxy_step_start(void* context, const CommSpec& comm, int32_t step, Event parent);
  Event kernel_start(void* context, uint8_t channel, uint64_t timer, Event parent);
  Event other_start(void* context, uint64_t type, Event parent);
  void stop(Event event);
  void op_state(Event event, int32_t state, int32_t steps, size_t trans_size);
  void step_state(Event event, int32_t state, size_t trans_size);
  void kernel_state(Event event, uint64_t timer);
  void state_without_args(Event event, int32_t state);

  // Promises broken so far.
  std::vector<std::string> violations() const;
  // The raw table, for benchmarks.
  int32_t (*start_fn)(void*, void**, void*) = nullptr;
  int32_t (*stop_fn)(void*) = nullptr;
  int32_t (*state_fn)(void*, int32_t, void*) = nullptr;

 private:
  Event call_start(void* context, void* descr, const char* what);
  void check(int32_t result, const char* what);
  void violated(const std::string& what);

  int abi_ = 0;
  void* library_ = nullptr;
  void* table_ = nullptr;
  int32_t (*finalize_fn_)(void*) = nullptr;
  int32_t mask_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> violations_;
};

}  // namespace mycroft::replay
