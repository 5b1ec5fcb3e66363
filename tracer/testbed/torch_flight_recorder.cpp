// torch's own Flight Recorder for a backend that is registered from Python.
//
// torch 2.13 exports how its recorder of CPU backends is dumped, and not how an operation is put
// into it: only its own backends can. It ships the recorder as headers, though; this module is
// them, compiled. So entries, their states and the dump are torch's code; what is put in, and when,
// is what ProcessGroupGloo puts into its own: every operation when it is called, retired when it
// has ended.
//
// Built by torch.utils.cpp_extension where torch is installed; no part of the package's own build.
#include <torch/extension.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/FlightRecorderDetail.hpp>
#include <tuple>
#include <vector>

namespace mycroft::testbed {

// Work without events, as that of Gloo: its end is told by retiring it.
struct NoEvent {
  static bool query() { return false; }
};

}  // namespace mycroft::testbed

template <>
float c10d::getDurationFromEvent<mycroft::testbed::NoEvent>(mycroft::testbed::NoEvent&,
                                                            mycroft::testbed::NoEvent&) {
  return 0;
}

namespace {

using Recorder = c10d::FlightRecorder<mycroft::testbed::NoEvent>;

// By number of the group; used with the interpreter's lock held.
std::map<size_t, std::shared_ptr<c10d::ProcessGroupStatus>>& statuses() {
  static std::map<size_t, std::shared_ptr<c10d::ProcessGroupStatus>> found;
  return found;
}

std::shared_ptr<c10d::ProcessGroupStatus> status_of(size_t group) {
  auto& status = statuses()[group];
  if (!status) status = std::make_shared<c10d::ProcessGroupStatus>();
  return status;
}

std::optional<size_t> record(size_t group, const std::string& name, const std::string& description,
                             size_t collective, size_t p2p, size_t op, const std::string& title,
                             const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& outputs, int64_t timeout_ms,
                             bool is_p2p) {
  auto status = status_of(group);
  status->lastEnqueuedSeq = static_cast<int64_t>(op);
  status->lastEnqueuedWorkName = title;
  return Recorder::get()->record(group, std::make_tuple(name, description), collective, p2p, op,
                                 title, inputs, outputs, nullptr, nullptr,
                                 std::chrono::milliseconds(timeout_ms), status, is_p2p);
}

void retire(std::optional<size_t> id, size_t group, size_t op, const std::string& title) {
  auto status = status_of(group);
  status->lastCompletedSeq = static_cast<int64_t>(op);
  status->lastCompletedWorkName = title;
  Recorder::get()->retire_id(id, false);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("record", &record);
  m.def("retire", &retire);
  m.def("ranks",
        [](const std::string& name, const std::string& description, std::vector<uint64_t> ranks) {
          Recorder::get()->record_pg_ranks({name, description}, std::move(ranks));
        });
  // The first use of stacks imports much of torch: better before a fork and before time matters.
  m.def("prepare", [] {
    const auto stack = torch::CapturedTraceback::gather(true, true, false);
    torch::symbolize({stack.get()});
  });
  m.def("dump", [] { return py::bytes(Recorder::get()->dump(std::nullopt, true, true, false)); });
}
