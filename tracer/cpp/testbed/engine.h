// One rank of the testbed: communicators, a GPU thread and a proxy thread, as a NCCL process has
// them.
//
//   caller's thread  enqueues operations and waits for them
//   device thread    "the GPU": runs kernels of each stream in order; fills and drains chunk slots
//   proxy thread     posts, sends and receives; the only one that touches sockets
//
// Calls of one engine come from one thread, but for faults and counters, which any thread may use.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "algorithms.h"
#include "connection.h"
#include "profiler.h"

namespace mycroft::testbed {

struct Endpoint {
  std::string address;
  uint16_t port = 0;
  std::string host;
};

// What is broken, or slow by nature. Written by any thread, read at every turn.
struct Conditions {
  std::atomic<double> nic_bytes_per_s{0};      // 0: no limit
  std::atomic<double> channel_bytes_per_s{0};  // limit of one channel of this sender
  std::atomic<int32_t> limited_channel{-1};
  std::atomic<bool> nic_down{false};
  std::atomic<double> proxy_sleep_p{0};  // a sleep before a slice, with this probability
  std::atomic<int64_t> proxy_sleep_ns{0};
  std::atomic<bool> no_post{false};         // the proxy posts no receives
  std::atomic<bool> no_send{false};         // the proxy hands nothing to the network
  std::atomic<int64_t> flush_ns{0};         // time a received slice needs to reach the GPU
  std::atomic<double> copy_bytes_per_s{0};  // copies between the GPU and the slots
  std::atomic<double> slow_compute{1};      // factor on kernels
  std::atomic<bool> device_stopped{false};
};

struct Communicator {
  std::string name;
  uint64_t hash = 0;
  uint32_t rank = 0, channels = 1, connections = 1;
  std::vector<Endpoint> members;
  void* context = nullptr;
  std::map<std::string, uint64_t> sequence;  // per function, as NCCL counts
  std::map<uint64_t, std::unique_ptr<Connection>> links;
  uint32_t ranks() const { return static_cast<uint32_t>(members.size()); }
  CommName id() const;
};

struct Kernel {  // progress of one program on the device
  Program program;
  std::vector<Connection*> links;  // of its edges
  std::vector<uint64_t> base;      // first step of each edge's flow
  std::vector<uint64_t> first;     // and its first slice, both counted on the connection
  std::vector<uint32_t> passed;    // slices of each edge
  size_t primitive = 0;
  uint32_t slice = 0;
  int64_t busy_until_ns = 0;
  bool done() const { return primitive >= program.primitives.size(); }
};

struct Operation {
  uint64_t id = 0;
  Communicator* comm = nullptr;  // null: computation
  uint64_t stream = 0;
  std::vector<Kernel> kernels;
  const float* input = nullptr;
  float* output = nullptr;
  std::vector<std::shared_ptr<void>> kept;  // what owns both
  void* event = nullptr;                    // of the profiler: Coll or P2p
  uint8_t channels = 0;
  // Computation: real arithmetic, and the least time it takes.
  uint64_t work = 0;
  int64_t hold_ns = 0;
  int64_t end_ns = 0;
  // Device thread.
  bool started = false;
  std::atomic<uint64_t> started_utc{0};
  std::atomic<uint64_t> ended_utc{0};
  // Proxy thread: kernel events.
  std::vector<void*> kernel_events;
  bool told_start = false;
  bool tells_kernels = false;  // set when enqueued: its events are asked for
};

struct Totals {
  uint64_t slices_sent = 0, slices_received = 0, bytes_sent = 0, bytes_received = 0;
};

struct EngineOptions {
  uint32_t rank = 0;
  std::string address = "127.0.0.1";
  std::string plugin;  // path; empty: no profiler
  int abi = 7;
  uint32_t slot_bytes = 1 << 14;
  bool direct_in_host = true;  // connections inside a host make no proxy events
};

class Engine {
 public:
  explicit Engine(EngineOptions options);  // throws std::runtime_error
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  uint16_t port() const { return port_; }
  Conditions conditions;

  // `members` in the order of ranks inside. Connections are made when they are first needed.
  Communicator* open(const std::string& name, uint64_t hash, uint32_t rank,
                     std::vector<Endpoint> members, uint32_t channels, uint32_t connections);
  void close(Communicator* comm);

  uint64_t enqueue(Communicator* comm, Kind kind, Algo algo, uint32_t peer, uint64_t elements,
                   const float* input, float* output, uint64_t stream,
                   std::vector<std::shared_ptr<void>> kept);
  uint64_t compute(uint64_t work, int64_t hold_ns, uint64_t stream);
  // True once the kernel has ended; false after the time is over.
  bool wait(uint64_t operation, int64_t timeout_ns);
  // The first thing that went wrong in a thread of ours, "" if nothing.
  std::string error() const;
  Totals totals() const;
  // True once everything is acknowledged and reported to the profiler; false after the time is
  // over.
  bool drain(int64_t timeout_ns);
  // Ends the threads; what is in flight is lost.
  void shut_down();

 private:
  friend class Listener;
  Connection* link(Communicator* comm, uint8_t channel, uint32_t peer, bool send);
  void connect_link(Connection& link);
  void fail(const std::string& what);
  void wake_proxy();
  void wake_device();

  // device.cpp
  void device_main();
  bool device_turn(int64_t now, int64_t& next);
  bool run_kernel(Operation& op, Kernel& k, int64_t now, int64_t& next);
  bool run_compute(Operation& op, int64_t now, int64_t& next);
  void run_slice(Operation& op, Kernel& k, const Primitive& p);

  // proxy.cpp
  void proxy_main();
  bool proxy_turn(int64_t now, int64_t& next);
  void take_operation(const std::shared_ptr<Operation>& op);
  bool advance_send(Connection& c, Flow& f, int64_t now, int64_t& next);
  bool advance_recv(Connection& c, Flow& f, int64_t now, int64_t& next);
  bool write_socket(Connection& c, Socket& s, int64_t now, int64_t& next);
  bool read_slice(Connection& c, Flow& f, int64_t now, int64_t& next);
  bool exchange_frames(Connection& c);
  bool tell_kernels();
  void sleep_sometimes(const Connection& c);
  bool blocked(const Connection& c) const {
    return c.visible && conditions.nic_down.load(std::memory_order_relaxed);
  }
  void start_flow(Connection& c, Flow& f);
  void count_flow(Connection& c, Flow& f, int32_t old_state, uint32_t count);

  // listener.cpp
  void listen_on(const std::string& address);
  void accept_main();
  void attach_waiting();

  EngineOptions options_;
  Profiler profiler_;
  int listen_fd_ = -1, epoll_fd_ = -1, wake_fd_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread device_, proxy_, acceptor_;

  mutable std::mutex mutex_;  // everything below up to the blank line
  std::condition_variable device_wake_, finished_;
  std::string error_;
  std::vector<std::unique_ptr<Communicator>> comms_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::shared_ptr<Operation>> operations_;
  std::vector<std::shared_ptr<Operation>> to_device_, to_proxy_;
  std::vector<Connection*> new_links_;
  struct Arrived {
    int fd;
    uint64_t hash;
    uint32_t channel, connection, source, target;
  };
  std::vector<Arrived> arrived_;

  std::atomic<bool> device_sleeps_{false}, proxy_sleeps_{false};
  std::map<uint64_t, std::deque<std::shared_ptr<Operation>>> streams_;  // device thread
  std::vector<Connection*> links_;                                      // proxy thread
  std::vector<std::shared_ptr<Operation>> with_kernels_;                // proxy thread
  void settle();                       // proxy thread: one thing less for `drain` to wait for
  std::atomic<int64_t> unsettled_{0};  // flows, and operations whose kernel events are to be told
  Pace nic_out_, nic_in_;
  uint64_t random_ = 88172645463325252u;
  std::atomic<uint64_t> slices_sent_{0}, slices_received_{0}, bytes_sent_{0}, bytes_received_{0};
};

const char* function_name(Kind kind);

}  // namespace mycroft::testbed
