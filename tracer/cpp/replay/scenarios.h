// Scripted scenarios: what the ranks of a small job do, and what is wrong with it.
#pragma once

#include <string>
#include <vector>

#include "player.h"

namespace mycroft::replay {

struct Stage {
  Player& player;
  std::string plugin;
  std::string directory;
  int ranks;
};

struct Scenario {
  const char* name;
  int ranks;
  void (*play)(Stage& stage);
  const char* events = nullptr;  // MYCROFT_EVENTS
  bool exact_times = true;       // false: several threads move the clock
  bool dies = false;             // its processes may end by a signal
};

const std::vector<Scenario>& scenarios();

// What scenarios begin with.
PlayedComm& world(Stage& stage);  // a communicator of all ranks
void begin_trace(Stage& stage);   // finds the trace file, for what looks into it
OpPlan plan_of(Pattern pattern, int ranks);
CollSpec coll_of(const OpPlan& plan);

OpPlan exchange(int ranks);

// What ends standing.
void stall_absent(Stage& stage);
void stall_gpu_idle(Stage& stage);
void stall_gpu(Stage& stage);
void stall_send_proxy(Stage& stage);
void stall_recv_proxy(Stage& stage);
void stall_network(Stage& stage);
void stall_flush(Stage& stage);
void stall_tree_network(Stage& stage);
void stall_tree_gpu(Stage& stage);
void stall_tree_absent(Stage& stage);
void stall_pair_absent(Stage& stage);
void stall_pair_network(Stage& stage);
void stall_across_comms(Stage& stage);
void crash(Stage& stage);

// Work inside a host, with and without events of its kernels.
void intra_node(Stage& stage);
void kernel_events(Stage& stage);
void kernel_events_lost(Stage& stage);
void kernel_events_asked_only(Stage& stage);
void stall_kernel(Stage& stage);
void stall_in_kernel(Stage& stage);
void abort_kernel(Stage& stage);

}  // namespace mycroft::replay
