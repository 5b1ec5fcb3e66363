#include "engine.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace mycroft::testbed {
namespace {

uint64_t link_key(uint8_t channel, uint32_t peer, bool send) {
  return uint64_t{peer} << 16 | uint64_t{channel} << 1 | (send ? 1 : 0);
}

}  // namespace

const char* function_name(Kind kind) {
  static constexpr const char* kNames[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                           "AlltoAll",  "Send",      "Recv"};
  return kNames[static_cast<uint8_t>(kind)];
}

CommName Communicator::id() const {
  int32_t nodes = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    bool seen = false;
    for (size_t j = 0; j < i && !seen; ++j) seen = members[j].host == members[i].host;
    nodes += seen ? 0 : 1;
  }
  return {name.c_str(), hash, static_cast<int32_t>(rank), static_cast<int32_t>(ranks()), nodes};
}

Engine::Engine(EngineOptions options) : options_(std::move(options)) {
  if (options_.slot_bytes < 64 || options_.slot_bytes % 16 != 0 || options_.slot_bytes > 1 << 22) {
    throw std::runtime_error("slot_bytes: a multiple of 16 between 64 and 4 MiB is expected");
  }
  random_ += options_.rank * 7919;
  if (!options_.plugin.empty()) {
    const std::string why = profiler_.load(options_.plugin, options_.abi);
    if (!why.empty()) throw std::runtime_error("profiler plugin: " + why);
  }
  listen_on(options_.address);
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_fd_;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event);
  device_ = std::thread([this] { device_main(); });
  proxy_ = std::thread([this] { proxy_main(); });
  acceptor_ = std::thread([this] { accept_main(); });
}

Engine::~Engine() {
  shut_down();
  for (auto& comm : comms_) {
    for (auto& [key, link] : comm->links) {
      for (Socket& s : link->sockets) {
        if (s.fd >= 0) ::close(s.fd);
      }
    }
  }
  for (const Arrived& a : arrived_) ::close(a.fd);
  for (int fd : {listen_fd_, epoll_fd_, wake_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

void Engine::shut_down() {
  if (stop_.exchange(true)) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    device_sleeps_ = false;
  }
  device_wake_.notify_all();
  finished_.notify_all();
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
  for (std::thread* t : {&device_, &proxy_, &acceptor_}) {
    if (t->joinable()) t->join();
  }
  for (auto& comm : comms_) profiler_.comm_close(comm->context);
}

void Engine::fail(const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_.empty()) error_ = what;
  finished_.notify_all();
}

std::string Engine::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

Totals Engine::totals() const {
  return {slices_sent_, slices_received_, bytes_sent_, bytes_received_};
}

void Engine::wake_proxy() {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the change before the look at who sleeps
  if (!proxy_sleeps_.load(std::memory_order_relaxed)) return;
  proxy_sleeps_.store(false, std::memory_order_relaxed);
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
}

void Engine::wake_device() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!device_sleeps_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    device_sleeps_.store(false, std::memory_order_relaxed);
  }
  device_wake_.notify_all();
}

Communicator* Engine::open(const std::string& name, uint64_t hash, uint32_t rank,
                           std::vector<Endpoint> members, uint32_t channels, uint32_t connections) {
  if (rank >= members.size()) throw std::runtime_error(name + ": rank is not among the members");
  if (channels == 0 || channels > 64 || connections == 0 || connections > 16) {
    throw std::runtime_error(name + ": 1 to 64 channels of 1 to 16 connections are possible");
  }
  auto comm = std::make_unique<Communicator>();
  comm->name = name;
  comm->hash = hash;
  comm->rank = rank;
  comm->members = std::move(members);
  comm->channels = channels;
  comm->connections = connections;
  comm->context = profiler_.comm_open(comm->id());
  const std::lock_guard<std::mutex> lock(mutex_);
  comms_.push_back(std::move(comm));
  return comms_.back().get();
}

void Engine::close(Communicator* comm) {
  profiler_.comm_close(comm->context);
  comm->context = nullptr;
}

Connection* Engine::link(Communicator* comm, uint8_t channel, uint32_t peer, bool send) {
  auto& place = comm->links[link_key(channel, peer, send)];
  if (place != nullptr) return place.get();
  place = std::make_unique<Connection>();
  Connection& c = *place;
  c.comm = comm;
  c.channel = channel;
  c.peer = peer;
  c.send = send;
  c.visible =
      !options_.direct_in_host || comm->members[peer].host != comm->members[comm->rank].host;
  c.slot_bytes = options_.slot_bytes;
  c.slots.resize(size_t{kSlots} * c.slot_bytes);
  c.sockets.resize(comm->connections);
  if (send) connect_link(c);
  const std::lock_guard<std::mutex> lock(mutex_);
  new_links_.push_back(&c);
  return &c;
}

uint64_t Engine::enqueue(Communicator* comm, Kind kind, Algo algo, uint32_t peer, uint64_t elements,
                         const float* input, float* output, uint64_t stream,
                         std::vector<std::shared_ptr<void>> kept) {
  Request request;
  request.kind = kind;
  request.algo = algo;
  request.rank = comm->rank;
  request.ranks = comm->ranks();
  request.channels = comm->channels;
  request.peer = peer;
  request.elements = elements;
  request.slot_bytes = options_.slot_bytes;
  const bool p2p = kind == Kind::send || kind == Kind::recv;
  if (peer >= request.ranks || (p2p && peer == comm->rank)) {
    throw std::runtime_error(comm->name + ": there is no such peer");
  }
  auto op = std::make_shared<Operation>();
  op->comm = comm;
  op->stream = stream;
  op->input = input;
  op->output = output;
  op->kept = std::move(kept);

  // What NCCL reports as elements: bytes for gather and broadcast.
  const bool as_bytes = kind == Kind::all_gather || kind == Kind::broadcast;
  CollCall call{function_name(kind),
                comm->sequence[function_name(kind)]++,
                as_bytes ? elements * 4 : elements,
                as_bytes ? "ncclInt8" : "ncclFloat32",
                kind == Kind::broadcast ? static_cast<int32_t>(peer) : 0,
                static_cast<uint8_t>(request.channels),
                algo == Algo::tree ? "TREE" : "RING"};
  void* group = profiler_.group_start(comm->context);
  void* api = profiler_.api_start(comm->context, p2p, nullptr, call);
  op->event = p2p ? profiler_.p2p_start(comm->context, comm->id(), api, group, call,
                                        static_cast<int32_t>(peer))
                  : profiler_.coll_start(comm->context, comm->id(), api, group, call);

  for (Program& program : make_programs(request)) {
    Kernel k;
    for (const Edge& edge : program.edges) {
      Connection* c = link(comm, edge.channel, edge.peer, edge.send);
      const uint64_t steps = program.slice_steps;
      const uint64_t base = (c->enqueued + steps - 1) / steps * steps;
      k.links.push_back(c);
      k.base.push_back(base);
      k.first.push_back(c->enqueued_slices);
      if (edge.slices != 0) unsettled_.fetch_add(1, std::memory_order_relaxed);
      c->enqueued = base + edge.slices * steps;
      c->enqueued_slices += edge.slices;
    }
    k.passed.resize(program.edges.size());
    k.program = std::move(program);
    op->kernels.push_back(std::move(k));
  }
  op->channels = call.channels;
  op->tells_kernels = op->event != nullptr && profiler_.wants(abi::kKernelCh);
  if (op->tells_kernels) unsettled_.fetch_add(1, std::memory_order_relaxed);
  if (kind == Kind::all_to_all) {
    std::memcpy(output + comm->rank * elements, input + comm->rank * elements, elements * 4);
  } else if (request.ranks == 1 && output != input && !p2p) {
    std::memcpy(output, input, elements * 4);
  }
  uint64_t id = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    id = op->id = next_id_++;
    operations_[id] = op;
    to_proxy_.push_back(op);
    to_device_.push_back(op);
    device_sleeps_.store(false, std::memory_order_relaxed);
  }
  device_wake_.notify_all();
  wake_proxy();
  profiler_.stop(op->event);
  profiler_.stop(api);
  profiler_.stop(group);
  return id;
}

uint64_t Engine::compute(uint64_t work, int64_t hold_ns, uint64_t stream) {
  auto op = std::make_shared<Operation>();
  op->stream = stream;
  op->work = work;
  op->hold_ns = hold_ns;
  const std::lock_guard<std::mutex> lock(mutex_);
  op->id = next_id_++;
  operations_[op->id] = op;
  to_device_.push_back(op);
  device_sleeps_.store(false, std::memory_order_relaxed);
  device_wake_.notify_all();
  return op->id;
}

bool Engine::wait(uint64_t operation, int64_t timeout_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = operations_.find(operation);
  if (found == operations_.end()) return true;
  const std::shared_ptr<Operation> op = found->second;
  const auto ended = [&] { return op->ended_utc.load(std::memory_order_acquire) != 0; };
  finished_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                     [&] { return ended() || !error_.empty() || stop_; });
  if (!error_.empty()) throw std::runtime_error(error_);
  if (!ended()) return false;
  operations_.erase(operation);
  return true;
}

bool Engine::drain(int64_t timeout_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  return finished_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                            [&] { return unsettled_.load(std::memory_order_acquire) == 0; });
}

}  // namespace mycroft::testbed
