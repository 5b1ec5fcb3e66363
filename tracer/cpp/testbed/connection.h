// One direction of one channel between two ranks: eight slots shared by the GPU thread and the
// proxy thread, and the sockets behind them.
//
//   sender:   GPU fills slots (gpu) --> proxy hands them to the network, gets them back (proxy)
//   receiver: proxy fills slots (proxy) --> GPU consumes them (gpu)
//
// `gpu` and `proxy` count steps since the connection was made and are the only words that both
// threads touch. Everything else belongs to the proxy thread, but for `enqueued`, which belongs to
// the thread that enqueues operations.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "algorithms.h"

namespace mycroft::testbed {

struct Operation;
struct Communicator;

struct Pace {              // a bandwidth limit that is kept by the proxy itself
  double bytes_per_s = 0;  // 0: none
  int64_t free_at_ns = 0;
  bool open(int64_t now_ns) const { return bytes_per_s <= 0 || free_at_ns <= now_ns; }
  void used(int64_t now_ns, size_t bytes) {
    if (bytes_per_s <= 0) return;
    const int64_t from = free_at_ns > now_ns - 2000000 ? free_at_ns : now_ns - 2000000;
    free_at_ns = from + static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / bytes_per_s);
  }
};

struct Message {                // one slice on its way out
  uint32_t header[2] = {0, 0};  // bytes, low half of the slice number
  const uint8_t* data = nullptr;
  size_t size = 0;
  size_t sent = 0;  // header included
};

struct Socket {
  int fd = -1;
  Pace pace;
  std::deque<Message> out;  // sender
  uint32_t header[2] = {0, 0};
  size_t got = 0;  // receiver: bytes of the slice being read, header included
};

struct Flow {  // one flow half of one operation
  std::shared_ptr<Operation> operation;
  uint32_t edge_slices = 0;
  uint32_t slice_steps = 1;
  uint64_t base = 0;         // step of its first slice
  uint64_t first_slice = 0;  // number of its first slice on the connection
  uint32_t posted = 0, ready = 0, moved = 0, done = 0;
  uint64_t bytes = 0;
  bool running = false;
  bool peer_wait = false;
  void* event = nullptr;
  void* steps[kSlots] = {};
};

struct Connection {
  Communicator* comm = nullptr;
  uint8_t channel = 0;
  uint32_t peer = 0;
  bool send = false;
  bool visible = true;  // false: same host, as a transport without proxy events
  uint32_t slot_bytes = 0;
  std::vector<uint8_t> slots;  // kSlots x slot_bytes
  std::atomic<uint32_t> sizes[kSlots] = {};
  std::atomic<uint64_t> gpu{0};
  std::atomic<uint64_t> proxy{0};
  uint64_t enqueued = 0;
  uint64_t enqueued_slices = 0;

  std::vector<Socket> sockets;  // several connections share a channel's slices in turn
  std::deque<Flow> flows;       // in order; only the first is at work
  uint64_t posted_total = 0;    // receiver: slices posted and received so far
  uint64_t received_total = 0;
  uint64_t told[2] = {0, 0};   // receiver: last told to the sender
  uint64_t frame[2] = {0, 0};  // being written or read
  size_t frame_at = 0;
  bool frame_open = false;
  uint64_t credit_total = 0;  // sender: slices the receiver has posted and has received
  uint64_t acked_total = 0;
  uint64_t sent_total = 0;
  std::deque<int64_t> flush_at;

  uint8_t* slot(uint64_t step) { return slots.data() + (step % kSlots) * slot_bytes; }
  bool connected() const {
    for (const Socket& s : sockets) {
      if (s.fd < 0) return false;
    }
    return !sockets.empty();
  }
};

int64_t now_ns();
uint64_t utc_ns();
void set_options(int fd);
// Non-blocking connect from `from` to `to`:port; -1 and errno if it fails at once.
int connect_from(const char* from, const char* to, uint16_t port);

}  // namespace mycroft::testbed
