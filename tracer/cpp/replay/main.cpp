// mycroft_replay: loads any NCCL profiler plugin and plays a scripted job through it, one process a
// rank.
//
//   mycroft_replay --list
//   mycroft_replay --plugin FILE --abi 1..7 --scenario NAME --dir FOLDER [--real-clock]
//
// FOLDER gets the traces and one truth-<rank>.json each. Exit status 0: every rank played to its
// end.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "scenarios.h"
#include "virtual_clock.h"

// What a program with a CUDA runtime in it would answer, if REPLAY_GPU says so: the plugin looks
// for these names in the process and must live without them.
extern "C" __attribute__((visibility("default"))) int cudaGetDevice(int* device) {
  const char* wanted = getenv("REPLAY_GPU");
  if (wanted == nullptr) return 100;  // no device
  *device = std::atoi(wanted);
  return 0;
}
extern "C" __attribute__((visibility("default"))) int cudaDeviceGetPCIBusId(char* text, int size,
                                                                            int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", 0x10 + device);
  return 0;
}

namespace {

using namespace mycroft::replay;  // NOLINT: the driver is one program

constexpr uint64_t kStartNs = 1772410000u * uint64_t{1000000000};

int play_rank(const Scenario& scenario, const std::string& plugin, int abi,
              const std::string& directory, int rank, bool real_clock) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(scenario.ranks).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", std::to_string(scenario.ranks).c_str(), 1);
  const char* traces = getenv("REPLAY_TRACES");  // elsewhere than the truths
  setenv("MYCROFT_DIR", traces != nullptr ? traces : directory.c_str(), 1);
  setenv("MYCROFT_INTERVAL_MS", "1", 0);
  setenv("MYCROFT_RING_MB", "4", 0);
  setenv("MYCROFT_CONTROL", (directory + "/control-" + std::to_string(rank)).c_str(), 0);
  if (scenario.events != nullptr) setenv("MYCROFT_EVENTS", scenario.events, 1);
  if (!real_clock) {
    setenv("MYCROFT_CLOCK", "system", 1);
    use_virtual_clock(kStartNs);
  }
  Host host;
  const std::string wrong = host.load(plugin, abi);
  if (!wrong.empty()) {
    std::fprintf(stderr, "mycroft_replay: %s\n", wrong.c_str());
    return 2;
  }
  Truth truth;
  truth.rank = rank;
  truth.abi = abi;
  truth.pid = getpid();
  truth.scenario = scenario.name;
  {
    Player player(host, truth, rank);
    Stage stage{player, plugin, directory, scenario.ranks};
    scenario.play(stage);
  }
  for (const std::string& violation : host.violations()) truth.violations.push_back(violation);
  std::ofstream(directory + "/truth-" + std::to_string(rank) + ".json") << truth.to_json();
  if (scenario.dies) raise(SIGKILL);
  // As a process that ends while its communicators are open: destructors run, nothing is finalized.
  return 0;
}

int usage() {
  std::fprintf(stderr,
               "usage: mycroft_replay --plugin FILE --abi 1..7 --scenario NAME --dir FOLDER\n"
               "       mycroft_replay --list\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string plugin, name, directory;
  int abi = 7;
  bool real_clock = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--list") {
      for (const Scenario& scenario : scenarios()) std::printf("%s\n", scenario.name);
      return 0;
    }
    if (option == "--real-clock") {
      real_clock = true;
      continue;
    }
    if (i + 1 >= argc) return usage();
    const char* value = argv[++i];
    if (option == "--plugin") {
      plugin = value;
    } else if (option == "--abi") {
      abi = std::atoi(value);
    } else if (option == "--scenario") {
      name = value;
    } else if (option == "--dir") {
      directory = value;
    } else {
      return usage();
    }
  }
  const Scenario* chosen = nullptr;
  for (const Scenario& scenario : scenarios()) {
    if (name == scenario.name) chosen = &scenario;
  }
  if (chosen == nullptr || plugin.empty() || directory.empty() || abi < 1 || abi > 7) {
    return usage();
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < chosen->ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      const int status = play_rank(*chosen, plugin, abi, directory, rank, real_clock);
      std::exit(status);
    }
    if (child < 0) return 3;
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && chosen->dies;
    if (!killed && status != 0) worst = WIFEXITED(status) ? WEXITSTATUS(status) : 100 + status;
  }
  return worst;
}
