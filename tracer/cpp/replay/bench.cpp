// mycroft_bench: what one plugin costs in the process of a job. One measurement a run, one number a
// line as `name value`; tests/bench/tracer_overhead.py repeats and compares. CPU time of the
// calling thread, so that other load on the machine does not count.
//
//   mycroft_bench --plugin FILE --abi N step-send|step-recv|poll|op|memory|sampler|volume
//   [--threads N] mycroft_bench write
#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "../recorder.h"
#include "abi_host.h"

namespace {

using namespace mycroft;          // NOLINT: one program
using namespace mycroft::replay;  // NOLINT

constexpr int kSteps = 200000;
constexpr int kStepsPerOp = 500;

uint64_t thread_cpu_ns() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1000000000u + static_cast<uint64_t>(ts.tv_nsec);
}

void sleep_ms(int ms) { usleep(static_cast<useconds_t>(ms) * 1000u); }

// One communicator with one operation of one flow, as many as threads.
struct Flowing {
  Host& host;
  CommSpec comm;
  void* context;
  Event coll = nullptr;
  Event op = nullptr;

  Flowing(Host& plugin_host, const std::string& name, uint64_t hash)
      : host(plugin_host), comm{name, hash, 0, 2}, context(host.init(comm)) {}
  void start(uint8_t channel, bool send, int steps) {
    CollSpec spec;
    spec.count = 1 << 20;
    coll = host.coll_start(context, comm, spec, nullptr, nullptr);
    if (coll != nullptr) host.stop(coll);
    op = host.proxy_op_start(context, comm, {getpid(), channel, 1, steps, 1 << 17, send}, coll);
    if (!host.counts_by_op()) host.step_state(op, abi::kProxyOpInProgress, 0);
  }
  void stop() {
    if (op != nullptr) host.stop(op);
  }
};

// The five callbacks of a step, straight through the table: descriptors are as NCCL has them on its
// stack.
template <typename Descr>
double steps(Flowing& flow, bool send, int rounds) {
  uint64_t spent = 0;
  Descr d{};
  d.type = abi::kProxyStep;
  abi::Args4 args{};
  args.proxy_step.trans_size = 1 << 17;
  const Host& host = flow.host;
  for (int round = 0; round < rounds; ++round) {
    flow.start(0, send, kStepsPerOp);
    d.parent = flow.op;
    const uint64_t before = thread_cpu_ns();
    for (int step = 0; step < kStepsPerOp; ++step) {
      d.proxy_step.step = step;
      void* handle = nullptr;
      host.start_fn(flow.context, &handle, &d);
      if (send) {
        host.state_fn(handle, abi::kProxyStepSendGpuWait, &args);
        host.state_fn(handle, abi::kProxyStepSendPeerWait, &args);
        host.state_fn(handle, abi::kProxyStepSendWait, &args);
      } else {
        host.state_fn(handle, abi::kProxyStepRecvWait, &args);
        host.state_fn(handle, abi::kProxyStepRecvFlushWait, &args);
        host.state_fn(handle, abi::kProxyStepRecvGpuWait, &args);
      }
      host.stop_fn(handle);
    }
    spent += thread_cpu_ns() - before;
    flow.stop();
  }
  return static_cast<double>(spent) / (static_cast<double>(rounds) * kStepsPerOp);
}

double step_cost(Flowing& flow, bool send, int rounds) {
  return flow.host.abi() >= 5 ? steps<abi::Descr<7>>(flow, send, rounds)
                              : steps<abi::Descr<4>>(flow, send, rounds);
}

void bench_step(Host& host, bool send, int threads) {
  std::vector<double> cost(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  std::vector<Flowing> flows;
  for (int t = 0; t < threads; ++t) {
    flows.emplace_back(host, "comm" + std::to_string(t), 100u + static_cast<unsigned>(t));
  }
  std::atomic<int> ready{0};
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      const auto i = static_cast<size_t>(t);
      step_cost(flows[i], send, 20);  // warm
      ++ready;
      while (ready.load() < threads) {
      }
      cost[i] = step_cost(flows[i], send, kSteps / kStepsPerOp);
    });
  }
  for (std::thread& thread : running) thread.join();
  double worst = 0;
  for (const double c : cost) worst = c > worst ? c : worst;
  std::printf("ns %.3f\n", worst);
  for (Flowing& flow : flows) host.finalize(flow.context);
}

void bench_poll(Host& host) {
  Flowing flow(host, "comm", 100);
  flow.start(0, true, 10);
  Event step = host.proxy_step_start(flow.context, flow.comm, 0, flow.op);
  host.step_state(step, abi::kProxyStepSendGpuWait, 0);
  host.step_state(step, abi::kProxyStepSendPeerWait, 0);
  abi::Args4 args{};
  constexpr int kPolls = 2000000;
  const uint64_t before = thread_cpu_ns();
  for (int i = 0; i < kPolls; ++i) host.state_fn(step, abi::kProxyStepSendPeerWait, &args);
  std::printf("ns %.3f\n", static_cast<double>(thread_cpu_ns() - before) / kPolls);
  flow.stop();
  host.finalize(flow.context);
}

// A whole operation with one flow of no steps: what is paid per operation and flow.
void bench_op(Host& host) {
  Flowing flow(host, "comm", 100);
  constexpr int kOps = 50000;
  uint64_t before = 0;
  for (int i = -1000; i < kOps; ++i) {
    if (i == 0) before = thread_cpu_ns();
    flow.start(0, true, 10);
    flow.stop();
  }
  std::printf("ns %.3f\n", static_cast<double>(thread_cpu_ns() - before) / kOps);
  host.finalize(flow.context);
}

// Resident kilobytes of this process, without the trace file.
uint64_t resident_kb() {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  uint64_t sum = 0;
  bool trace = false;
  while (std::getline(smaps, line)) {
    if (line.find(".ring") != std::string::npos) {
      trace = true;
    } else if (line.find('-') != std::string::npos && line.find(':') != std::string::npos &&
               line.find("kB") == std::string::npos) {
      trace = false;
    }
    if (!trace && line.rfind("Rss:", 0) == 0) {
      sum += std::strtoull(line.c_str() + 4, nullptr, 10);
    }
  }
  return sum;
}

// 64 operations of four flows each in flight, every flow with steps behind it, and a few hundred
// finished.
void busy(Host& host, std::vector<Flowing>& flows, int operations) {
  for (int i = 0; i < operations; ++i) {
    flows.emplace_back(host, "comm" + std::to_string(i), 100u + static_cast<unsigned>(i));
    CollSpec spec;
    Flowing& flow = flows.back();
    flow.coll = host.coll_start(flow.context, flow.comm, spec, nullptr, nullptr);
    if (flow.coll != nullptr) host.stop(flow.coll);
    for (uint8_t c = 0; c < 4; ++c) {
      flow.op = host.proxy_op_start(flow.context, flow.comm,
                                    {getpid(), c, 1, 100, 1 << 17, c % 2 == 0}, flow.coll);
      host.step_state(flow.op, abi::kProxyOpInProgress, 0);
      for (int step = 0; step < 8; ++step) {
        host.proxy_step_start(flow.context, flow.comm, step, flow.op);
      }
    }
  }
}

void bench_memory(Host& host) {
  std::vector<Flowing> flows;
  flows.reserve(64);
  busy(host, flows, 64);
  sleep_ms(350);
  std::printf("kb %llu\n", static_cast<unsigned long long>(resident_kb()));
}

// CPU time of every thread but the calling one, ns.
uint64_t other_threads_ns() {
  uint64_t sum = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return 0;
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.' || std::atoi(entry->d_name) == getpid()) continue;
    std::ifstream stat(std::string("/proc/self/task/") + entry->d_name + "/schedstat");
    uint64_t ns = 0;
    if (stat >> ns) sum += ns;
  }
  closedir(tasks);
  return sum;
}

void bench_sampler(Host& host) {
  std::vector<Flowing> flows;
  flows.reserve(64);
  busy(host, flows, 16);  // 16 operations of four flows: 64 ProxyOps in flight
  sleep_ms(300);
  const uint64_t before = other_threads_ns();
  constexpr int kMs = 4000;
  sleep_ms(kMs);
  const uint64_t spent = other_threads_ns() - before;
  std::printf("percent %.5f\n", 100.0 * static_cast<double>(spent) / (kMs * 1e6));
}

// The shape of the design: four flows in flight, eight completions a second; bytes the ring grew
// by.
void bench_volume(Host& host, const std::string& directory) {
  Flowing flow(host, "comm", 100);
  Flowing standing(host, "standing", 101);
  CollSpec spec;
  standing.coll = host.coll_start(standing.context, standing.comm, spec, nullptr, nullptr);
  host.stop(standing.coll);
  std::vector<Event> ops;
  for (uint8_t c = 0; c < 4; ++c) {
    ops.push_back(host.proxy_op_start(standing.context, standing.comm,
                                      {getpid(), c, 1, 1000, 1 << 17, c % 2 == 0}, standing.coll));
    host.step_state(ops.back(), abi::kProxyOpInProgress, 0);
  }
  const auto head = [&directory] {
    uint64_t records = 0;
    DIR* listing = opendir(directory.c_str());
    if (listing == nullptr) return records;
    const std::string mine = std::to_string(getpid());
    while (const dirent* entry = readdir(listing)) {
      const std::string name = entry->d_name;
      if (name.find(mine) == std::string::npos) continue;
      std::ifstream file(directory + "/" + name, std::ios::binary);
      file.seekg(offsetof(FileHeader, head));
      file.read(reinterpret_cast<char*>(&records), sizeof records);
    }
    closedir(listing);
    return records;
  };
  sleep_ms(1300);
  const uint64_t before = head();
  constexpr int kSeconds = 6;
  for (int i = 0; i < 8 * kSeconds; ++i) {
    // An intra-node operation: a completion record without flows of its own.
    const Event coll = host.coll_start(flow.context, flow.comm, spec, nullptr, nullptr);
    host.stop(coll);
    for (size_t c = 0; c < ops.size(); ++c) {
      host.proxy_step_start(standing.context, standing.comm, i, ops[c]);
    }
    sleep_ms(125);
  }
  const uint64_t records = head() - before;
  std::printf("bytes_per_rank_and_second %.1f\n",
              static_cast<double>(records * kRecordBytes) / kSeconds);
  std::printf("records_per_rank_and_second %.2f\n", static_cast<double>(records) / kSeconds);
}

// Completion and state records written by one rank, through the recorder itself.
void bench_write(const std::string& directory) {
  Recorder recorder;
  RecorderOptions options;
  options.shm.directory = directory.c_str();
  options.shm.file_bytes = 64u << 20;
  options.control_path = "";
  char why[256] = {};
  if (!recorder.open(options, why, sizeof why)) {
    std::fprintf(stderr, "mycroft_bench: %s\n", why);
    std::exit(2);
  }
  const uint32_t comm = recorder.comm_of(recorder.comm_open({}));
  OpInfo op;
  FlowInfo flow;
  flow.total = 10;
  std::vector<Handle> standing;
  const Handle parent = recorder.op_start(comm, op);
  for (uint8_t i = 0; i < 64; ++i) {
    flow.channel = i;
    standing.push_back(recorder.flow_start(comm, parent, flow));
  }
  const uint64_t before_records = recorder.ring().head();
  const uint64_t before = thread_cpu_ns();
  for (int i = 0; i < 20000; ++i) {
    for (int k = 0; k < 64; ++k) {
      const Handle h = recorder.flow_start(comm, parent, flow);
      send_moved(*recorder.flow(h), 1, 100, recorder.clock());
      recorder.flow_stop(h);
    }
    recorder.tick();
  }
  const uint64_t records = recorder.ring().head() - before_records;
  const uint64_t spent = thread_cpu_ns() - before;
  std::printf("records_per_second %.0f\n",
              static_cast<double>(records) * 1e9 / static_cast<double>(spent));
  std::printf("records %llu\n", static_cast<unsigned long long>(records));
}

}  // namespace

int main(int argc, char** argv) {
  std::string plugin, what;
  int abi_version = 7;
  int threads = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--plugin" && i + 1 < argc) {
      plugin = argv[++i];
    } else if (option == "--abi" && i + 1 < argc) {
      abi_version = std::atoi(argv[++i]);
    } else if (option == "--threads" && i + 1 < argc) {
      threads = std::atoi(argv[++i]);
    } else {
      what = option;
    }
  }
  const char* directory = std::getenv("MYCROFT_DIR");
  if (directory == nullptr) {
    std::fprintf(stderr, "mycroft_bench: set MYCROFT_DIR to a folder for the traces\n");
    return 2;
  }
  if (what == "write") {
    bench_write(directory);
    return 0;
  }
  Host host;
  // Another plugin may export fewer versions: the newest it has, as NCCL would take.
  std::string wrong = "no version";
  for (int v = abi_version; v >= 4 && !wrong.empty(); --v) wrong = host.load(plugin, v);
  if (!wrong.empty()) {
    std::fprintf(stderr, "mycroft_bench: %s\n", wrong.c_str());
    return 2;
  }
  if (what == "step-send" || what == "step-recv") {
    bench_step(host, what == "step-send", threads);
  } else if (what == "poll") {
    bench_poll(host);
  } else if (what == "op") {
    bench_op(host);
  } else if (what == "memory") {
    bench_memory(host);
  } else if (what == "sampler") {
    bench_sampler(host);
  } else if (what == "volume") {
    bench_volume(host, directory);
  } else {
    std::fprintf(stderr, "mycroft_bench: unknown measurement %s\n", what.c_str());
    return 2;
  }
  return 0;
}
