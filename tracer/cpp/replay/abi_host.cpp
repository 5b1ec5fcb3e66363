#include "abi_host.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstring>
#include <memory>

namespace mycroft::replay {
namespace {

constexpr int kGarbage = 0xA5;
// A handle that no plugin gave: shows that it was not written.
void* const kStale = reinterpret_cast<void*>(uint64_t{0xDEAD0BADDEAD0BAD});

// Calls `use` with an integral constant of the version.
template <typename Use>
auto with_version(int abi, Use&& use) {
  switch (abi) {
    case 1:
      return use(std::integral_constant<int, 1>());
    case 2:
      return use(std::integral_constant<int, 2>());
    case 3:
      return use(std::integral_constant<int, 3>());
    case 4:
      return use(std::integral_constant<int, 4>());
    case 5:
      return use(std::integral_constant<int, 5>());
    case 6:
      return use(std::integral_constant<int, 6>());
    default:
      return use(std::integral_constant<int, 7>());
  }
}

// A descriptor on the heap, exactly as long as its version says, full of garbage but for the head.
template <int V>
std::unique_ptr<abi::Descr<V>> descriptor(uint64_t type, Event parent, int32_t rank) {
  void* memory = ::operator new(sizeof(abi::Descr<V>));
  std::memset(memory, kGarbage, sizeof(abi::Descr<V>));
  auto* d = static_cast<abi::Descr<V>*>(memory);
  d->type = static_cast<decltype(d->type)>(type);
  d->parent = parent;
  d->rank = rank;
  return std::unique_ptr<abi::Descr<V>>(d);
}

uint8_t func_code(const char* func) {
  constexpr const char* kNames[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                    "AllReduce", "SendRecv", "Send",      "Recv"};
  for (uint8_t i = 0; i < 8; ++i) {
    if (std::strcmp(func, kNames[i]) == 0) return i;
  }
  return 8;
}

uint8_t type_code(const char* type) {
  constexpr const char* kNames[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                    "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                    "ncclFloat64", "ncclBfloat16"};
  for (uint8_t i = 0; i < 10; ++i) {
    if (std::strcmp(type, kNames[i]) == 0) return i;
  }
  return 200;
}

uint8_t algo_code(const char* algo) {
  constexpr const char* kNames[] = {"TREE", "RING"};
  for (uint8_t i = 0; i < 2; ++i) {
    if (std::strcmp(algo, kNames[i]) == 0) return i;
  }
  return 6;
}

uint8_t proto_code(const char* proto) {
  return std::strcmp(proto, "LL") == 0 ? 0 : std::strcmp(proto, "LL128") == 0 ? 1 : 2;
}

void quiet_logger(int, unsigned long, const char*, int, const char*, ...) {}

}  // namespace

std::string Host::load(const std::string& path, int abi_version) {
  abi_ = abi_version;
  library_ = path == "STATIC_PLUGIN" ? dlopen(nullptr, RTLD_NOW)
                                     : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return dlerror();
  const std::string symbol = "ncclProfiler_v" + std::to_string(abi_version);
  table_ = dlsym(library_, symbol.c_str());
  if (table_ == nullptr) return path + " does not export " + symbol;
  const auto* table = static_cast<const abi::Table<abi::Init1>*>(table_);
  start_fn = table->start_event;
  stop_fn = table->stop_event;
  state_fn = table->record_event_state;
  finalize_fn_ = table->finalize;
  if (table->name == nullptr || table->name[0] == '\0') violated("the table has no name");
  return "";
}

void Host::unload() {
  if (library_ != nullptr) dlclose(library_);
  library_ = nullptr;
}

bool Host::wants(uint64_t type) const {
  using namespace abi;
  // An event type turns on all its ancestors.
  const uint64_t m = mask();
  const uint64_t below_op = kProxyOp | kProxyStep | kNetPlugin;
  switch (type) {
    case kGroup:
    case kGroupApi:
      return m != 0;
    case kColl:
    case kCollApi:
      return (m & (kColl | below_op | kKernelCh)) != 0;
    case kP2p:
    case kP2pApi:
      return (m & (kP2p | below_op | kKernelCh)) != 0;
    case kProxyOp:
      return (m & below_op) != 0;
    case kProxyStep:
      return (m & (kProxyStep | kNetPlugin)) != 0;
    default:
      return (m & type) != 0;
  }
}

void Host::violated(const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (violations_.size() < 100) violations_.push_back(what);
}

std::vector<std::string> Host::violations() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return violations_;
}

void Host::check(int32_t result, const char* what) {
  if (result != 0) violated(std::string(what) + " returned " + std::to_string(result));
}

void* Host::init(const CommSpec& comm) {
  void* context = kStale;
  if (abi_ <= 3) {
    check(static_cast<const abi::Table<abi::Init1>*>(table_)->init(&context, &mask_), "init");
  } else if (abi_ == 4) {
    check(static_cast<const abi::Table<abi::Init4>*>(table_)->init(
              &context, &mask_, comm.name.c_str(), comm.hash, comm.ranks, comm.ranks, comm.rank,
              quiet_logger),
          "init");
  } else {
    check(static_cast<const abi::Table<abi::Init5>*>(table_)->init(
              &context, comm.hash, &mask_, comm.name.c_str(), comm.ranks, comm.ranks, comm.rank,
              quiet_logger),
          "init");
  }
  if (context == kStale) violated("init did not write the context");
  return context;
}

void Host::finalize(void* context) { check(finalize_fn_(context), "finalize"); }

Event Host::call_start(void* context, void* descr, const char* what) {
  Event event = kStale;
  check(start_fn(context, &event, descr), what);
  if (event == kStale) violated(std::string(what) + " did not write the handle");
  return event == kStale ? nullptr : event;
}

Event Host::other_start(void* context, uint64_t type, Event parent) {
  return with_version(abi_, [&](auto version) {
    auto d = descriptor<version()>(type, parent, 0);
    return call_start(context, d.get(), "startEvent");
  });
}

Event Host::group_start(void* context) { return other_start(context, abi::kGroup, nullptr); }

Event Host::api_start(void* context, uint64_t type, Event parent) {
  return abi_ >= 5 ? other_start(context, type, parent) : nullptr;
}

Event Host::coll_start(void* context, const CommSpec& comm, const CollSpec& coll, Event api,
                       Event group) {
  return with_version(abi_, [&](auto version) {
    constexpr int V = version();
    auto d = descriptor<V>(abi::kColl, V >= 5 ? api : group, comm.rank);
    auto& c = d->coll;
    if constexpr (V == 1) {
      c.func = func_code(coll.func);
      c.datatype = type_code(coll.datatype);
      c.algo = algo_code(coll.algo);
      c.proto = proto_code(coll.proto);
    } else {
      c.func = coll.func;
      c.datatype = coll.datatype;
      c.algo = coll.algo;
      c.proto = coll.proto;
    }
    if constexpr (V <= 3) {
      c.name = comm.name.c_str();
      c.comm_hash = comm.hash;
      c.n_max_channels = coll.channels;
    } else {
      c.n_channels = coll.channels;
    }
    if constexpr (V >= 5) c.parent_group = group;
    c.seq_number = coll.seq;
    c.count = coll.count;
    c.root = coll.root;
    return call_start(context, d.get(), "startEvent(Coll)");
  });
}

Event Host::p2p_start(void* context, const CommSpec& comm, const P2pSpec& p2p, Event api,
                      Event group) {
  return with_version(abi_, [&](auto version) {
    constexpr int V = version();
    auto d = descriptor<V>(abi::kP2p, V >= 5 ? api : group, comm.rank);
    auto& p = d->p2p;
    const char* func = p2p.send ? "Send" : "Recv";
    if constexpr (V == 1) {
      p.func = func_code(func);
      p.datatype = type_code(p2p.datatype);
    } else {
      p.func = func;
      p.datatype = p2p.datatype;
    }
    if constexpr (V <= 3) {
      p.name = comm.name.c_str();
      p.comm_hash = comm.hash;
    } else {
      p.n_channels = p2p.channels;
    }
    if constexpr (V >= 5) p.parent_group = group;
    p.count = p2p.count;
    p.peer = p2p.peer;
    return call_start(context, d.get(), "startEvent(P2p)");
  });
}

Event Host::proxy_op_start(void* context, const CommSpec& comm, const ProxyOpSpec& op,
                           Event parent) {
  return with_version(abi_, [&](auto version) {
    auto d = descriptor<version()>(abi::kProxyOp, parent, comm.rank);
    d->proxy_op = {op.pid, op.channel, op.peer, op.steps, op.chunk_size, op.send ? 1 : 0};
    return call_start(context, d.get(), "startEvent(ProxyOp)");
  });
}

Event Host::proxy_step_start(void* context, const CommSpec& comm, int32_t step, Event parent) {
  return with_version(abi_, [&](auto version) {
    auto d = descriptor<version()>(abi::kProxyStep, parent, comm.rank);
    d->proxy_step = {step};
    return call_start(context, d.get(), "startEvent(ProxyStep)");
  });
}

Event Host::kernel_start(void* context, uint8_t channel, uint64_t timer, Event parent) {
  return with_version(abi_, [&](auto version) {
    auto d = descriptor<version()>(abi::kKernelCh, parent, 0);
    d->kernel_ch.channel_id = channel;
    if constexpr (version() >= 4) d->kernel_ch.p_timer = timer;
    (void)timer;
    return call_start(context, d.get(), "startEvent(KernelCh)");
  });
}

void Host::stop(Event event) { check(stop_fn(event), "stopEvent"); }

void Host::op_state(Event event, int32_t state, int32_t steps, size_t trans_size) {
  abi::Args1 args;
  std::memset(&args, kGarbage, sizeof args);
  args.proxy_op.steps = steps;
  args.proxy_op.trans_size = trans_size;
  check(state_fn(event, state, &args), "recordEventState(ProxyOp)");
}

void Host::step_state(Event event, int32_t state, size_t trans_size) {
  abi::Args4 args;
  std::memset(&args, kGarbage, sizeof args);
  args.proxy_step.trans_size = trans_size;
  check(state_fn(event, state, &args), "recordEventState(ProxyStep)");
}

void Host::kernel_state(Event event, uint64_t timer) {
  abi::Args4 args;
  std::memset(&args, kGarbage, sizeof args);
  args.kernel_ch.p_timer = timer;
  check(state_fn(event, abi::kKernelChStop, &args), "recordEventState(KernelCh)");
}

void Host::state_without_args(Event event, int32_t state) {
  check(state_fn(event, state, nullptr), "recordEventState");
}

}  // namespace mycroft::replay
