#include "profiler.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <type_traits>

namespace mycroft::testbed {
namespace {

void quiet_logger(int, unsigned long, const char*, int, const char*, ...) {}

template <typename Visit>
void with_version(int abi, Visit&& visit) {
  switch (abi) {
    case 1:
      return visit(std::integral_constant<int, 1>{});
    case 2:
      return visit(std::integral_constant<int, 2>{});
    case 3:
      return visit(std::integral_constant<int, 3>{});
    case 4:
      return visit(std::integral_constant<int, 4>{});
    case 5:
      return visit(std::integral_constant<int, 5>{});
    case 6:
      return visit(std::integral_constant<int, 6>{});
    default:
      return visit(std::integral_constant<int, 7>{});
  }
}

// NCCL's numbers of functions and types, which ABI 1 passes instead of names.
uint8_t func_code(const char* name) {
  static constexpr const char* kNames[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                           "AllReduce", "SendRecv", "Send",      "Recv"};
  for (uint8_t i = 0; i < 8; ++i) {
    if (std::strcmp(kNames[i], name) == 0) return i;
  }
  return 8;
}

constexpr uint8_t kFloat32Code = 7, kInt8Code = 0;
uint8_t type_code(const char* name) {
  return std::strcmp(name, "ncclInt8") == 0 ? kInt8Code : kFloat32Code;
}

}  // namespace

Profiler::~Profiler() {
  if (library_ != nullptr) dlclose(library_);
}

std::string Profiler::load(const std::string& path, int abi) {
  if (abi < 1 || abi > 7) return "profiler ABI " + std::to_string(abi) + ": 1 to 7 are known";
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return dlerror();
  const std::string symbol = "ncclProfiler_v" + std::to_string(abi);
  table_ = dlsym(library_, symbol.c_str());
  if (table_ == nullptr) return path + " does not export " + symbol;
  const auto* table = static_cast<const abi::Table<abi::Init1>*>(table_);
  abi_ = abi;
  start_ = table->start_event;
  stop_ = table->stop_event;
  state_ = table->record_event_state;
  finalize_ = table->finalize;
  return "";
}

bool Profiler::wants(uint64_t type) const {
  if (table_ == nullptr) return false;
  const auto mask = static_cast<uint64_t>(__atomic_load_n(&mask_, __ATOMIC_RELAXED));
  // Asking for a type turns on its ancestors.
  constexpr uint64_t kBelowOp = abi::kProxyOp | abi::kProxyStep | abi::kNetPlugin;
  switch (type) {
    case abi::kGroup:
    case abi::kGroupApi:
      return mask != 0;
    case abi::kColl:
    case abi::kCollApi:
      return (mask & (abi::kColl | kBelowOp | abi::kKernelCh)) != 0;
    case abi::kP2p:
    case abi::kP2pApi:
      return (mask & (abi::kP2p | kBelowOp | abi::kKernelCh)) != 0;
    case abi::kProxyOp:
      return (mask & kBelowOp) != 0;
    default:
      return (mask & type) != 0;
  }
}

void* Profiler::comm_open(const CommName& c) {
  void* context = nullptr;
  if (table_ == nullptr) return nullptr;
  if (abi_ <= 3) {
    static_cast<const abi::Table<abi::Init1>*>(table_)->init(&context, &mask_);
  } else if (abi_ == 4) {
    static_cast<const abi::Table<abi::Init4>*>(table_)->init(
        &context, &mask_, c.name, c.hash, c.nodes, c.ranks, c.rank, quiet_logger);
  } else {
    static_cast<const abi::Table<abi::Init5>*>(table_)->init(
        &context, c.hash, &mask_, c.name, c.nodes, c.ranks, c.rank, quiet_logger);
  }
  return context;
}

void Profiler::comm_close(void* context) {
  if (table_ != nullptr && context != nullptr) finalize_(context);
}

template <typename Fill>
void* Profiler::start(void* context, uint64_t type, void* parent, int32_t rank, Fill&& fill) {
  if (!wants(type)) return nullptr;
  void* event = nullptr;
  with_version(abi_, [&](auto version) {
    constexpr int V = version();
    abi::Descr<V> d;
    std::memset(&d, 0, sizeof d);
    d.type = static_cast<decltype(d.type)>(type);
    d.parent = parent;
    d.rank = rank;
    fill(d, version);
    start_(context, &event, &d);
  });
  return event;
}

void* Profiler::group_start(void* context) {
  return start(context, abi::kGroup, nullptr, 0, [](auto&, auto) {});
}

void* Profiler::api_start(void* context, bool p2p, void* parent, const CollCall&) {
  if (abi_ < 5) return nullptr;
  return start(context, p2p ? abi::kP2pApi : abi::kCollApi, parent, 0, [](auto&, auto) {});
}

void* Profiler::coll_start(void* context, const CommName& comm, void* api, void* group,
                           const CollCall& call) {
  return start(context, abi::kColl, abi_ >= 5 ? api : group, comm.rank, [&](auto& d, auto version) {
    constexpr int V = version();
    auto& c = d.coll;
    if constexpr (V == 1) {
      c.func = func_code(call.func);
      c.datatype = type_code(call.datatype);
      c.algo = std::strcmp(call.algo, "TREE") == 0 ? 0 : 1;
      c.proto = 2;
    } else {
      c.func = call.func;
      c.datatype = call.datatype;
      c.algo = call.algo;
      c.proto = "SIMPLE";
    }
    if constexpr (V <= 3) {
      c.name = comm.name;
      c.comm_hash = comm.hash;
      c.n_max_channels = call.channels;
    } else {
      c.n_channels = call.channels;
    }
    if constexpr (V >= 5) c.parent_group = group;
    c.seq_number = call.seq;
    c.count = call.count;
    c.root = call.root;
  });
}

void* Profiler::p2p_start(void* context, const CommName& comm, void* api, void* group,
                          const CollCall& call, int32_t peer) {
  return start(context, abi::kP2p, abi_ >= 5 ? api : group, comm.rank, [&](auto& d, auto version) {
    constexpr int V = version();
    auto& p = d.p2p;
    if constexpr (V == 1) {
      p.func = func_code(call.func);
      p.datatype = type_code(call.datatype);
    } else {
      p.func = call.func;
      p.datatype = call.datatype;
    }
    if constexpr (V <= 3) {
      p.name = comm.name;
      p.comm_hash = comm.hash;
    } else {
      p.n_channels = call.channels;
    }
    if constexpr (V >= 5) p.parent_group = group;
    p.count = call.count;
    p.peer = peer;
  });
}

void* Profiler::op_start(void* context, int32_t rank, void* parent, uint8_t channel, int32_t peer,
                         int32_t steps, int32_t chunk_bytes, bool send) {
  return start(context, abi::kProxyOp, parent, rank, [&](auto& d, auto) {
    d.proxy_op = {getpid(), channel, peer, steps, chunk_bytes, send ? 1 : 0};
  });
}

void* Profiler::step_start(void* context, int32_t rank, void* op, int32_t step) {
  return start(context, abi::kProxyStep, op, rank, [&](auto& d, auto) { d.proxy_step = {step}; });
}

void* Profiler::kernel_start(void* context, void* parent, uint8_t channel, uint64_t timer_ns) {
  if (abi_ < 3) return nullptr;
  return start(context, abi::kKernelCh, parent, 0, [&](auto& d, auto version) {
    d.kernel_ch.channel_id = channel;
    if constexpr (version() >= 4) d.kernel_ch.p_timer = timer_ns;
    (void)timer_ns;
  });
}

void Profiler::kernel_stop(void* event, uint64_t timer_ns) {
  if (event == nullptr) return;
  abi::Args4 args{};
  args.kernel_ch.p_timer = timer_ns;
  if (abi_ >= 4) state_(event, abi::kKernelChStop, &args);
  stop_(event);
}

void Profiler::op_state(void* event, int32_t state, uint32_t steps, uint64_t bytes) {
  if (event == nullptr) return;
  if (abi_ >= 4) {
    state_(event, state, nullptr);
    return;
  }
  abi::Args1 args{};
  args.proxy_op.steps = static_cast<int32_t>(steps);
  args.proxy_op.trans_size = bytes;
  state_(event, state, &args);
}

}  // namespace mycroft::testbed
