// The testbed's side of NCCL's profiler ABI: loads a plugin as NCCL does and calls it from the same
// threads at the same moments as NCCL 2.23 to 2.32 do. A second host for the plugin; it knows
// nothing of its insides.
//
// ABI 4 to 7 report steps, 1 to 3 states of the ProxyOp. Thread safe where NCCL's calls are.
#pragma once

#include <cstdint>
#include <string>

#include "../profiler_abi.h"

namespace mycroft::testbed {

struct CollCall {
  const char* func;
  uint64_t seq;
  uint64_t count;
  const char* datatype;
  int32_t root;
  uint8_t channels;
  const char* algo;
};

struct CommName {
  const char* name;
  uint64_t hash;
  int32_t rank, ranks, nodes;
};

class Profiler {
 public:
  ~Profiler();
  // Returns what is wrong, or "". Without a call every function below does nothing.
  std::string load(const std::string& path, int abi);
  bool loaded() const { return table_ != nullptr; }
  bool by_steps() const { return abi_ >= 4; }
  bool raw_steps() const { return abi_ == 1; }

  void* comm_open(const CommName& comm);
  void comm_close(void* context);

  // Application thread. `group` and `api` are what the calls before returned.
  void* group_start(void* context);
  void* api_start(void* context, bool p2p, void* parent, const CollCall& call);
  void* coll_start(void* context, const CommName& comm, void* api, void* group,
                   const CollCall& call);
  void* p2p_start(void* context, const CommName& comm, void* api, void* group, const CollCall& call,
                  int32_t peer);
  // Proxy thread.
  void* op_start(void* context, int32_t rank, void* parent, uint8_t channel, int32_t peer,
                 int32_t steps, int32_t chunk_bytes, bool send);
  void* step_start(void* context, int32_t rank, void* op, int32_t step);
  void* kernel_start(void* context, void* parent, uint8_t channel, uint64_t timer_ns);
  void kernel_stop(void* event, uint64_t timer_ns);
  void op_state(void* event, int32_t state, uint32_t steps, uint64_t bytes);
  void step_state(void* event, int32_t state, uint64_t bytes) {
    if (event == nullptr) return;
    abi::Args4 args{};
    args.proxy_step.trans_size = bytes;
    state_(event, state, &args);
  }
  void stop(void* event) {
    if (event != nullptr) stop_(event);
  }
  bool wants(uint64_t type) const;

 private:
  template <typename Fill>
  void* start(void* context, uint64_t type, void* parent, int32_t rank, Fill&& fill);

  void* library_ = nullptr;
  void* table_ = nullptr;
  int abi_ = 0;
  int32_t mask_ = 0;
  int32_t (*start_)(void*, void**, void*) = nullptr;
  int32_t (*stop_)(void*) = nullptr;
  int32_t (*state_)(void*, int32_t, void*) = nullptr;
  int32_t (*finalize_)(void*) = nullptr;
};

}  // namespace mycroft::testbed
