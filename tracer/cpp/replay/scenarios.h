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

}  // namespace mycroft::replay
