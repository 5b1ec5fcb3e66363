// The proxy thread: posts, sends, receives, and reports each stage to the profiler, in the order
// and at the moments at which NCCL's progress functions do.
//
// On the wire a slice is 8 bytes (size, number) and its data. Back comes what the receiver has
// posted and received so far, 16 bytes: the first is the sender's credit, the second its
// acknowledgement.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine.h"

namespace mycroft::testbed {
namespace {

constexpr size_t kHeader = 8;
constexpr size_t kQuantum = 8192;  // bytes in one go where a limit holds

void watch(int epoll_fd, int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  epoll_event event{};
  // Edges: every turn tries everything, so only news must wake us.
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.fd = fd;
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

bool again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

void Engine::attach_waiting() {
  std::vector<Connection*> fresh;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    fresh.swap(new_links_);
  }
  for (Connection* c : fresh) {
    links_.push_back(c);
    if (!c->send) continue;
    for (Socket& s : c->sockets) watch(epoll_fd_, s.fd);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(arrived_, [&](const Arrived& a) {
    for (Connection* c : links_) {
      if (c->send || c->comm->hash != a.hash || c->channel != a.channel || c->peer != a.source ||
          c->comm->rank != a.target || a.connection >= c->sockets.size() ||
          c->sockets[a.connection].fd >= 0) {
        continue;
      }
      c->sockets[a.connection].fd = a.fd;
      watch(epoll_fd_, a.fd);
      return true;
    }
    return false;
  });
}

void Engine::take_operation(const std::shared_ptr<Operation>& op) {
  for (Kernel& k : op->kernels) {
    for (size_t i = 0; i < k.links.size(); ++i) {
      Connection& c = *k.links[i];
      const Edge& edge = k.program.edges[i];
      if (edge.slices == 0) continue;
      Flow f;
      f.operation = op;
      f.edge_slices = edge.slices;
      f.slice_steps = k.program.slice_steps;
      f.base = k.base[i];
      f.first_slice = k.first[i];
      c.flows.push_back(std::move(f));
      Flow& placed = c.flows.back();
      // From 2.27 on the start announces; before, it is the head of the connection.
      if (c.visible && profiler_.by_steps()) start_flow(c, placed);
    }
  }
  if (op->tells_kernels) with_kernels_.push_back(op);
}

void Engine::start_flow(Connection& c, Flow& f) {
  const uint32_t unit = profiler_.raw_steps() ? f.slice_steps : 1;
  f.event = profiler_.op_start(
      c.comm->context, static_cast<int32_t>(c.comm->rank), f.operation->event, c.channel,
      static_cast<int32_t>(c.peer), static_cast<int32_t>(f.edge_slices * unit),
      static_cast<int32_t>(c.slot_bytes * f.slice_steps * f.slice_steps * 2), c.send);
}

void Engine::count_flow(Connection&, Flow& f, int32_t state, uint32_t count) {
  const uint32_t unit = profiler_.raw_steps() ? f.slice_steps : 1;
  if (!profiler_.by_steps()) profiler_.op_state(f.event, state, count * unit, f.bytes);
}

void Engine::sleep_sometimes(const Connection& c) {
  const double p = conditions.proxy_sleep_p.load(std::memory_order_relaxed);
  if (p <= 0 || !c.visible) return;
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  if (static_cast<double>(random_ >> 11) / 9007199254740992.0 >= p) return;
  const int64_t ns = conditions.proxy_sleep_ns.load(std::memory_order_relaxed);
  timespec t{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  nanosleep(&t, nullptr);
}

// Reads or writes the 16 bytes that run against the data.
bool Engine::exchange_frames(Connection& c) {
  if (blocked(c)) return false;
  bool moved = false;
  const int fd = c.sockets[0].fd;
  auto* bytes = reinterpret_cast<uint8_t*>(c.frame);
  for (;;) {
    if (!c.send && !c.frame_open) {
      if (c.told[0] == c.posted_total && c.told[1] == c.received_total) return moved;
      c.frame[0] = c.told[0] = c.posted_total;
      c.frame[1] = c.told[1] = c.received_total;
      c.frame_open = true;
    }
    const ssize_t n =
        c.send ? ::recv(fd, bytes + c.frame_at, sizeof c.frame - c.frame_at, 0)
               : ::send(fd, bytes + c.frame_at, sizeof c.frame - c.frame_at, MSG_NOSIGNAL);
    if (n <= 0) return moved;  // a connection that is gone shows as one that stands
    moved = true;
    c.frame_at += static_cast<size_t>(n);
    if (c.frame_at < sizeof c.frame) continue;
    c.frame_at = 0;
    c.frame_open = false;
    if (c.send) {
      c.credit_total = std::max(c.credit_total, c.frame[0]);
      c.acked_total = std::max(c.acked_total, c.frame[1]);
    }
  }
}

bool Engine::write_socket(Connection& c, Socket& s, int64_t now, int64_t& next) {
  bool moved = false;
  const bool limited = c.visible && (s.pace.bytes_per_s > 0 || nic_out_.bytes_per_s > 0);
  while (!s.out.empty() && !blocked(c)) {
    if (limited && (!s.pace.open(now) || !nic_out_.open(now))) {
      next = std::min({next, s.pace.bytes_per_s > 0 ? s.pace.free_at_ns : next,
                       nic_out_.bytes_per_s > 0 ? nic_out_.free_at_ns : next});
      break;
    }
    Message& m = s.out.front();
    iovec parts[2];
    int count = 0;
    size_t left = limited ? kQuantum : SIZE_MAX;
    if (m.sent < kHeader) {
      parts[count++] = {reinterpret_cast<uint8_t*>(m.header) + m.sent, kHeader - m.sent};
    }
    const size_t data_at = m.sent < kHeader ? 0 : m.sent - kHeader;
    if (data_at < m.size) {
      parts[count++] = {const_cast<uint8_t*>(m.data) + data_at, std::min(left, m.size - data_at)};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t n = ::sendmsg(s.fd, &message, MSG_NOSIGNAL);
    if (n <= 0) {
      if (again()) break;
      break;  // the peer is gone: NCCL's socket errors end the job; ours stands, as RDMA does until
              // its timeout
    }
    moved = true;
    m.sent += static_cast<size_t>(n);
    if (limited) {
      s.pace.used(now, static_cast<size_t>(n));
      nic_out_.used(now, static_cast<size_t>(n));
    }
    if (m.sent == kHeader + m.size) s.out.pop_front();
  }
  return moved;
}

bool Engine::advance_send(Connection& c, Flow& f, int64_t now, int64_t& next) {
  bool moved = exchange_frames(c);
  const uint32_t steps = f.slice_steps;
  const auto rank = static_cast<int32_t>(c.comm->rank);
  const uint64_t given_back = c.proxy.load(std::memory_order_relaxed);
  while (f.posted < f.edge_slices &&
         f.base + uint64_t{f.posted + 1} * steps <= given_back + kSlots) {
    if (c.visible && profiler_.by_steps()) {
      void*& step = f.steps[f.posted % kSlots];
      step = profiler_.step_start(c.comm->context, rank, f.event, static_cast<int32_t>(f.posted));
      profiler_.step_state(step, abi::kProxyStepSendGpuWait, 0);
    }
    ++f.posted;
    count_flow(c, f, abi::kProxyOpSendPosted, f.posted);
    moved = true;
  }
  // acquire: the slot's data and size are there once the count says so
  const uint64_t filled = c.gpu.load(std::memory_order_acquire);
  while (f.moved < f.posted && f.base + uint64_t{f.moved + 1} * steps <= filled) {
    void* step = f.steps[f.moved % kSlots];
    // Reported at every turn until the network takes it, as NCCL does.
    if (c.visible) {
      if (profiler_.by_steps()) profiler_.step_state(step, abi::kProxyStepSendPeerWait, 0);
      count_flow(c, f, abi::kProxyOpSendRemFifoWait, f.moved + 1);
    }
    if (c.credit_total <= c.sent_total) break;
    if (c.visible && conditions.no_send.load(std::memory_order_relaxed)) break;
    sleep_sometimes(c);
    const uint64_t at = f.base + uint64_t{f.moved} * steps;
    Message m;
    m.size = c.sizes[at % kSlots].load(std::memory_order_relaxed);
    m.data = c.slot(at);
    m.header[0] = static_cast<uint32_t>(m.size);
    m.header[1] = static_cast<uint32_t>(c.sent_total);
    c.sockets[c.sent_total % c.sockets.size()].out.push_back(m);
    ++c.sent_total;
    if (c.visible) {
      count_flow(c, f, abi::kProxyOpSendTransmitted, f.moved + 1);
      if (profiler_.by_steps()) profiler_.step_state(step, abi::kProxyStepSendWait, m.size);
      slices_sent_.fetch_add(1, std::memory_order_relaxed);
      bytes_sent_.fetch_add(m.size, std::memory_order_relaxed);
    }
    f.bytes += m.size;
    ++f.moved;
    moved = true;
  }
  for (Socket& s : c.sockets) moved |= write_socket(c, s, now, next);
  while (f.done < f.moved && f.first_slice + f.done < c.acked_total) {
    if (c.visible && profiler_.by_steps()) profiler_.stop(f.steps[f.done % kSlots]);
    ++f.done;
    count_flow(c, f, abi::kProxyOpSendDone, f.done);
    c.proxy.store(f.base + uint64_t{f.done} * steps,
                  std::memory_order_release);  // the slot may be filled again
    wake_device();
    moved = true;
  }
  return moved;
}

bool Engine::read_slice(Connection& c, Flow& f, int64_t now, int64_t& next) {
  Socket& s = c.sockets[c.received_total % c.sockets.size()];
  if (s.fd < 0 || blocked(c)) return false;
  const bool limited = c.visible && nic_in_.bytes_per_s > 0;
  if (limited && !nic_in_.open(now)) {
    next = std::min(next, nic_in_.free_at_ns);
    return false;
  }
  uint8_t* at = nullptr;
  size_t want = 0;
  if (s.got < kHeader) {
    at = reinterpret_cast<uint8_t*>(s.header) + s.got;
    want = kHeader - s.got;
  } else {
    const size_t room = size_t{c.slot_bytes} * f.slice_steps;
    if (s.header[0] > room) {
      fail("rank " + std::to_string(c.comm->rank) + " of " + c.comm->name + ": rank " +
           std::to_string(c.peer) + " sent " + std::to_string(s.header[0]) +
           " bytes into a buffer of " + std::to_string(room));
      return false;
    }
    at = c.slot(f.base + uint64_t{f.moved} * f.slice_steps) + (s.got - kHeader);
    want = s.header[0] + kHeader - s.got;
    if (limited) want = std::min(want, kQuantum);
  }
  ssize_t n = 0;
  if (want != 0) {
    n = ::recv(s.fd, at, want, 0);
    if (n <= 0) return false;
    s.got += static_cast<size_t>(n);
    if (limited) nic_in_.used(now, static_cast<size_t>(n));
  }
  if (s.got < kHeader || s.got < kHeader + s.header[0]) return true;
  s.got = 0;
  const uint64_t step = f.base + uint64_t{f.moved} * f.slice_steps;
  c.sizes[step % kSlots].store(s.header[0], std::memory_order_relaxed);
  ++c.received_total;
  ++f.moved;
  f.bytes += s.header[0];
  c.flush_at.push_back(now +
                       conditions.flush_ns.load(std::memory_order_relaxed) * (c.visible ? 1 : 0));
  if (c.visible) {
    count_flow(c, f, abi::kProxyOpRecvReceived, f.moved);
    if (profiler_.by_steps()) {
      profiler_.step_state(f.steps[(f.moved - 1) % kSlots], abi::kProxyStepRecvFlushWait,
                           s.header[0]);
    }
    slices_received_.fetch_add(1, std::memory_order_relaxed);
    bytes_received_.fetch_add(s.header[0], std::memory_order_relaxed);
  }
  return true;
}

bool Engine::advance_recv(Connection& c, Flow& f, int64_t now, int64_t& next) {
  bool moved = false;
  const uint32_t steps = f.slice_steps;
  const bool steps_told = c.visible && profiler_.by_steps();
  // acquire: the GPU has read what it gave back
  const uint64_t consumed = c.gpu.load(std::memory_order_acquire);
  while (f.done < f.ready && consumed >= f.base + uint64_t{f.done + 1} * steps) {
    if (steps_told) profiler_.stop(f.steps[f.done % kSlots]);
    ++f.done;
    count_flow(c, f, abi::kProxyOpRecvDone, f.done);
    moved = true;
  }
  while (f.posted < f.edge_slices && f.posted < f.done + kSlots / steps &&
         !(c.visible && conditions.no_post.load(std::memory_order_relaxed))) {
    sleep_sometimes(c);
    if (steps_told) {
      void*& step = f.steps[f.posted % kSlots];
      step = profiler_.step_start(c.comm->context, static_cast<int32_t>(c.comm->rank), f.event,
                                  static_cast<int32_t>(f.posted));
      profiler_.step_state(step, abi::kProxyStepRecvWait, 0);
    }
    ++f.posted;
    ++c.posted_total;
    count_flow(c, f, abi::kProxyOpRecvPosted, f.posted);
    moved = true;
  }
  if (c.connected()) {
    moved |= exchange_frames(c);
    while (f.moved < f.posted && read_slice(c, f, now, next)) moved = true;
    moved |= exchange_frames(c);
  }
  while (f.ready < f.moved && !c.flush_at.empty()) {
    if (c.flush_at.front() > now) {
      next = std::min(next, c.flush_at.front());
      break;
    }
    c.flush_at.pop_front();
    if (steps_told) profiler_.step_state(f.steps[f.ready % kSlots], abi::kProxyStepRecvGpuWait, 0);
    ++f.ready;
    count_flow(c, f, abi::kProxyOpRecvTransmitted, f.ready);
    c.proxy.store(f.base + uint64_t{f.ready} * steps,
                  std::memory_order_release);  // publishes the slot's data
    wake_device();
    moved = true;
  }
  return moved;
}

void Engine::settle() {
  if (unsettled_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard<std::mutex> lock(mutex_);  // nobody is between looking and waiting
  finished_.notify_all();
}

// One kernel event per channel; reported when the proxy comes by, as NCCL up to 2.30 does.
bool Engine::tell_kernels() {
  const auto told = [this](const std::shared_ptr<Operation>& op) {
    const uint64_t started = op->started_utc.load(std::memory_order_acquire);
    if (started == 0) return false;
    if (!op->told_start) {
      op->told_start = true;
      for (uint8_t c = 0; c < op->channels; ++c) {
        op->kernel_events.push_back(
            profiler_.kernel_start(op->comm->context, op->event, c, started));
      }
    }
    const uint64_t ended = op->ended_utc.load(std::memory_order_acquire);
    if (ended == 0) return false;
    for (void* event : op->kernel_events) profiler_.kernel_stop(event, ended);
    settle();
    return true;
  };
  return std::erase_if(with_kernels_, told) != 0;
}

bool Engine::proxy_turn(int64_t now, int64_t& next) {
  nic_out_.bytes_per_s = nic_in_.bytes_per_s =
      conditions.nic_bytes_per_s.load(std::memory_order_relaxed);
  const int limited = conditions.limited_channel.load(std::memory_order_relaxed);
  const double limit = conditions.channel_bytes_per_s.load(std::memory_order_relaxed);
  bool moved = tell_kernels();
  for (Connection* c : links_) {
    if (c->send) {
      for (Socket& s : c->sockets) {
        s.pace.bytes_per_s = limited < 0 || limited == c->channel ? limit : 0;
      }
    }
    while (!c->flows.empty()) {
      Flow& f = c->flows.front();
      if (!f.running) {
        f.running = true;
        if (c->visible && profiler_.by_steps()) {
          profiler_.op_state(f.event, abi::kProxyOpInProgress, 0, 0);
        } else if (c->visible) {
          start_flow(*c, f);
        }
      }
      moved |= c->send ? advance_send(*c, f, now, next) : advance_recv(*c, f, now, next);
      if (f.done < f.edge_slices) break;
      profiler_.stop(f.event);
      c->flows.pop_front();
      settle();
      moved = true;
    }
  }
  return moved;
}

void Engine::proxy_main() {
  prctl(PR_SET_NAME, "proxy", 0, 0, 0);
  std::vector<std::shared_ptr<Operation>> fresh;
  while (!stop_.load(std::memory_order_relaxed)) {
    attach_waiting();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      fresh.swap(to_proxy_);
    }
    for (const auto& op : fresh) take_operation(op);
    fresh.clear();
    int64_t next = now_ns() + 100000000;
    if (proxy_turn(now_ns(), next)) continue;
    proxy_sleeps_.store(true, std::memory_order_seq_cst);
    if (proxy_turn(now_ns(), next)) {
      proxy_sleeps_.store(false, std::memory_order_relaxed);
      continue;
    }
    bool idle = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle = to_proxy_.empty() && new_links_.empty();
    }
    const int64_t wait = next - now_ns();
    if (idle && wait > 0) {
      epoll_event events[16];
      const timespec timeout{static_cast<time_t>(wait / 1000000000),
                             static_cast<long>(wait % 1000000000)};
      const int n = epoll_pwait2(epoll_fd_, events, 16, &timeout, nullptr);
      for (int i = 0; i < n; ++i) {
        if (events[i].data.fd != wake_fd_) continue;
        uint64_t count = 0;
        (void)!read(wake_fd_, &count, sizeof count);
      }
    }
    proxy_sleeps_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace mycroft::testbed
