// Who wants to send to us connects and says which connection it is; the proxy thread takes it over.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "engine.h"

namespace mycroft::testbed {
namespace {

struct Hello {
  uint32_t magic, channel, connection, source, target, unused;
  uint64_t hash;
};
constexpr uint32_t kHello = 0x4D59434F;

bool move_all(int fd, void* data, size_t bytes, bool writing) {
  auto* at = static_cast<uint8_t*>(data);
  while (bytes != 0) {
    const ssize_t n = writing ? ::send(fd, at, bytes, MSG_NOSIGNAL) : ::recv(fd, at, bytes, 0);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return false;
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

void Engine::listen_on(const std::string& address) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  socklen_t size = sizeof own;
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listen_fd_ < 0 || inet_pton(AF_INET, address.c_str(), &own.sin_addr) != 1 ||
      bind(listen_fd_, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      listen(listen_fd_, 256) != 0 ||
      getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    const std::string why = std::strerror(errno);
    if (listen_fd_ >= 0) ::close(listen_fd_);
    listen_fd_ = -1;
    throw std::runtime_error("cannot listen on " + address + ": " + why);
  }
  set_options(listen_fd_);
  port_ = ntohs(own.sin_port);
}

void Engine::connect_link(Connection& c) {
  const Endpoint& to = c.comm->members[c.peer];
  for (uint32_t i = 0; i < c.sockets.size(); ++i) {
    const int fd = connect_from(options_.address.c_str(), to.address.c_str(), to.port);
    Hello hello{kHello, c.channel, i, c.comm->rank, c.peer, 0, c.comm->hash};
    if (fd < 0 || !move_all(fd, &hello, sizeof hello, true)) {
      const std::string why = std::strerror(errno);
      if (fd >= 0) ::close(fd);
      throw std::runtime_error(c.comm->name + ": cannot connect to rank " + std::to_string(c.peer) +
                               " at " + to.address + ": " + why);
    }
    c.sockets[i].fd = fd;
  }
}

void Engine::accept_main() {
  prctl(PR_SET_NAME, "accept", 0, 0, 0);
  while (!stop_.load(std::memory_order_relaxed)) {
    pollfd p{listen_fd_, POLLIN, 0};
    if (poll(&p, 1, 100) <= 0) continue;
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    timeval patience{2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    Hello hello{};
    if (!move_all(fd, &hello, sizeof hello, false) || hello.magic != kHello) {
      ::close(fd);
      continue;
    }
    set_options(fd);
    const std::lock_guard<std::mutex> lock(mutex_);
    arrived_.push_back(
        {fd, hello.hash, hello.channel, hello.connection, hello.source, hello.target});
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof one);
  }
}

}  // namespace mycroft::testbed
