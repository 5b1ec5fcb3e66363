// Our own declarations of NCCL's profiler-plugin ABI, versions 1 to 7 (NCCL 2.23 to 2.32), LP64.
// Layouts are facts of the interface; sizes and offsets are asserted below and played back by the
// replay driver. Nothing here needs a header of NCCL or CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mycroft::abi {

enum EventType : uint64_t {
  kGroup = 1,
  kColl = 2,
  kP2p = 4,
  kProxyOp = 8,
  kProxyStep = 16,
  kProxyCtrl = 32,
  kKernelCh = 64,        // v3
  kNetPlugin = 128,      // v3
  kGroupApi = 256,       // v5
  kCollApi = 512,        // v5
  kP2pApi = 1024,        // v5
  kKernelLaunch = 2048,  // v5
  kCeColl = 4096,        // v6
  kCeSync = 8192,        // v6
  kCeBatch = 16384,      // v6
  kKernelPhase = 32768,  // v7
};

// One enumeration for all versions. 0-7 come from NCCL up to 2.26, 19 and 20 from 2.27 on.
enum EventState : int32_t {
  kProxyOpSendPosted = 0,
  kProxyOpSendRemFifoWait = 1,
  kProxyOpSendTransmitted = 2,
  kProxyOpSendDone = 3,
  kProxyOpRecvPosted = 4,
  kProxyOpRecvReceived = 5,
  kProxyOpRecvTransmitted = 6,
  kProxyOpRecvDone = 7,
  kProxyStepSendGpuWait = 8,
  kProxyStepSendWait = 9,
  kProxyStepRecvWait = 10,
  kProxyStepRecvFlushWait = 11,
  kProxyStepRecvGpuWait = 12,
  kProxyOpInProgress = 19,
  kProxyStepSendPeerWait = 20,
  kKernelChStop = 22,
};

struct Coll1 {
  const char* name;
  uint64_t comm_hash;
  uint64_t seq_number;
  uint8_t func;
  const void* send_buff;
  void* recv_buff;
  size_t count;
  int32_t root;
  uint8_t datatype;
  uint32_t op;
  size_t traffic_bytes;
  uint8_t n_max_channels;
  uint8_t n_warps;
  uint8_t algo;
  uint8_t proto;
  int32_t is_collnet;
  int32_t is_nvls;
};

struct Coll2 {
  const char* name;
  uint64_t comm_hash;
  uint64_t seq_number;
  const char* func;
  const void* send_buff;
  void* recv_buff;
  size_t count;
  int32_t root;
  const char* datatype;
  size_t traffic_bytes;
  uint8_t n_max_channels;
  uint8_t n_warps;
  const char* algo;
  const char* proto;
};

struct Coll3 {
  const char* name;
  uint64_t comm_hash;
  uint64_t seq_number;
  const char* func;
  const void* send_buff;
  void* recv_buff;
  size_t count;
  int32_t root;
  const char* datatype;
  uint8_t n_max_channels;
  uint8_t n_warps;
  const char* algo;
  const char* proto;
};

struct Coll4 {
  uint64_t seq_number;
  const char* func;
  const void* send_buff;
  void* recv_buff;
  size_t count;
  int32_t root;
  const char* datatype;
  uint8_t n_channels;
  uint8_t n_warps;
  const char* algo;
  const char* proto;
};

struct Coll5 {
  uint64_t seq_number;
  const char* func;
  const void* send_buff;
  void* recv_buff;
  size_t count;
  int32_t root;
  const char* datatype;
  uint8_t n_channels;
  uint8_t n_warps;
  const char* algo;
  const char* proto;
  void* parent_group;
};

struct Coll7 {
  uint64_t seq_number;
  const char* func;
  const void* send_buff;
  void* recv_buff;
  size_t count;
  int32_t root;
  const char* datatype;
  uint8_t n_channels;
  uint8_t n_warps;
  const char* algo;
  const char* proto;
  void* parent_group;
  const char* kernel_variant;
  bool is_sym_coll;
  uint64_t user_tag;
};

struct P2p1 {
  const char* name;
  uint64_t comm_hash;
  uint8_t func;
  void* buff;
  uint8_t datatype;
  size_t count;
  int32_t peer;
};

struct P2p2 {
  const char* name;
  uint64_t comm_hash;
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int32_t peer;
};

struct P2p4 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int32_t peer;
  uint8_t n_channels;
};

struct P2p5 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int32_t peer;
  uint8_t n_channels;
  void* parent_group;
};

struct P2p7 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int32_t peer;
  uint8_t n_channels;
  void* parent_group;
  uint64_t user_tag;
};

struct ProxyOp {
  int32_t pid;
  uint8_t channel_id;
  int32_t peer;
  int32_t n_steps;
  int32_t chunk_size;
  int32_t is_send;
};

struct ProxyStep {
  int32_t step;
};

struct KernelCh3 {
  uint8_t channel_id;
};

struct KernelCh4 {
  uint8_t channel_id;
  uint64_t p_timer;
};

// A descriptor: the head, the union at 24, padded to the size of the version.
template <int V>
struct Descr;

#define MYCROFT_DESCR(V, Type, Coll, P2p, Kernel, Size) \
  template <>                                           \
  struct Descr<V> {                                     \
    Type type;                                          \
    void* parent;                                       \
    int32_t rank;                                       \
    union {                                             \
      Coll coll;                                        \
      P2p p2p;                                          \
      ProxyOp proxy_op;                                 \
      ProxyStep proxy_step;                             \
      Kernel kernel_ch;                                 \
      uint8_t bytes[(Size) - 24];                       \
    };                                                  \
  };                                                    \
  static_assert(sizeof(Descr<V>) == (Size));            \
  static_assert(offsetof(Descr<V>, parent) == 8);       \
  static_assert(offsetof(Descr<V>, rank) == 16);        \
  static_assert(offsetof(Descr<V>, proxy_op) == 24)

// Up to v4 the type is one byte; NCCL's converters do not clear the other seven.
MYCROFT_DESCR(1, uint8_t, Coll1, P2p1, KernelCh3, 120);
MYCROFT_DESCR(2, uint8_t, Coll2, P2p2, KernelCh3, 128);
MYCROFT_DESCR(3, uint8_t, Coll3, P2p2, KernelCh3, 120);
MYCROFT_DESCR(4, uint8_t, Coll4, P2p4, KernelCh4, 104);
MYCROFT_DESCR(5, uint64_t, Coll5, P2p5, KernelCh4, 112);
MYCROFT_DESCR(6, uint64_t, Coll5, P2p5, KernelCh4, 112);
MYCROFT_DESCR(7, uint64_t, Coll7, P2p7, KernelCh4, 136);
#undef MYCROFT_DESCR

static_assert(offsetof(Coll1, func) + 24 == 48 && offsetof(Coll1, root) + 24 == 80 &&
              offsetof(Coll1, datatype) + 24 == 84 && offsetof(Coll1, op) + 24 == 88 &&
              offsetof(Coll1, n_max_channels) + 24 == 104 && offsetof(Coll1, proto) + 24 == 107 &&
              offsetof(Coll1, is_nvls) + 24 == 112);
static_assert(offsetof(Coll2, datatype) + 24 == 88 && offsetof(Coll2, n_max_channels) + 24 == 104 &&
              offsetof(Coll2, algo) + 24 == 112 && offsetof(Coll2, proto) + 24 == 120);
static_assert(offsetof(Coll3, n_max_channels) + 24 == 96 && offsetof(Coll3, algo) + 24 == 104 &&
              offsetof(Coll3, proto) + 24 == 112);
static_assert(offsetof(Coll4, func) + 24 == 32 && offsetof(Coll4, count) + 24 == 56 &&
              offsetof(Coll4, root) + 24 == 64 && offsetof(Coll4, datatype) + 24 == 72 &&
              offsetof(Coll4, n_channels) + 24 == 80 && offsetof(Coll4, algo) + 24 == 88 &&
              offsetof(Coll4, proto) + 24 == 96);
static_assert(offsetof(Coll5, proto) + 24 == 96 && offsetof(Coll5, parent_group) + 24 == 104);
static_assert(offsetof(Coll7, parent_group) + 24 == 104 &&
              offsetof(Coll7, kernel_variant) + 24 == 112 &&
              offsetof(Coll7, is_sym_coll) + 24 == 120 && offsetof(Coll7, user_tag) + 24 == 128);
static_assert(offsetof(P2p1, datatype) + 24 == 56 && offsetof(P2p1, count) + 24 == 64 &&
              offsetof(P2p1, peer) + 24 == 72);
static_assert(offsetof(P2p2, datatype) + 24 == 56 && offsetof(P2p2, peer) + 24 == 72);
static_assert(offsetof(P2p4, count) + 24 == 48 && offsetof(P2p4, peer) + 24 == 56 &&
              offsetof(P2p4, n_channels) + 24 == 60);
static_assert(offsetof(P2p5, n_channels) + 24 == 60 && offsetof(P2p5, parent_group) + 24 == 64);
static_assert(offsetof(P2p7, parent_group) + 24 == 64 && offsetof(P2p7, user_tag) + 24 == 72);
static_assert(offsetof(ProxyOp, channel_id) + 24 == 28 && offsetof(ProxyOp, peer) + 24 == 32 &&
              offsetof(ProxyOp, n_steps) + 24 == 36 && offsetof(ProxyOp, chunk_size) + 24 == 40 &&
              offsetof(ProxyOp, is_send) + 24 == 44);
static_assert(offsetof(KernelCh4, p_timer) + 24 == 32);

// State arguments. The pointer can be null.
union Args1 {  // v1-v3
  struct {
    size_t trans_size;
    int32_t steps;
  } proxy_op;
  int32_t appended_proxy_ops;
};
union Args4 {  // v4-v7
  struct {
    size_t trans_size;
  } proxy_step;
  int32_t appended_proxy_ops;
  void* net_plugin_data;
  struct {
    uint64_t p_timer;
  } kernel_ch;
};
static_assert(sizeof(Args1) == 16 && sizeof(Args4) == 8);

using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr unsigned long kLogProfile = 0x4000;

// Results are NCCL's enumeration, int sized; we only ever return success.
using Init1 = int32_t (*)(void** context, int32_t* mask);
using Init4 = int32_t (*)(void** context, int32_t* mask, const char* comm_name, uint64_t comm_hash,
                          int32_t n_nodes, int32_t n_ranks, int32_t rank, Logger logger);
using Init5 = int32_t (*)(void** context, uint64_t comm_id, int32_t* mask, const char* comm_name,
                          int32_t n_nodes, int32_t n_ranks, int32_t rank, Logger logger);

template <typename Init>
struct Table {
  const char* name;
  Init init;
  int32_t (*start_event)(void* context, void** handle, void* descr);
  int32_t (*stop_event)(void* handle);
  int32_t (*record_event_state)(void* handle, int32_t state, void* args);
  int32_t (*finalize)(void* context);
};
static_assert(sizeof(Table<Init1>) == 48 && sizeof(Table<Init5>) == 48);

}  // namespace mycroft::abi
