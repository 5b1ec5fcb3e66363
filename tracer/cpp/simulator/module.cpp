// pybind11 face of the simulator: conversion only. Columns go over as NumPy arrays without a copy.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "job.h"

namespace py = pybind11;
using namespace mycroft::simulator;

namespace {

template <typename T>
py::array_t<T> take(std::vector<T>& column) {
  auto* owned = new std::vector<T>(std::move(column));
  column = {};
  py::capsule owner(owned, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(static_cast<py::ssize_t>(owned->size()), owned->data(), owner);
}

py::dict take_rows(Rows& rows) {
  py::dict out, state, flow, op, heartbeat;
#define MYCROFT_TAKE(kind, name) kind[#name] = take(rows.kind.name)
  MYCROFT_TAKE(state, trace);
  MYCROFT_TAKE(state, ts);
  MYCROFT_TAKE(state, comm);
  MYCROFT_TAKE(state, op_seq);
  MYCROFT_TAKE(state, op_kind);
  MYCROFT_TAKE(state, channel);
  MYCROFT_TAKE(state, send);
  MYCROFT_TAKE(state, peer);
  MYCROFT_TAKE(state, chunks_total);
  MYCROFT_TAKE(state, posted);
  MYCROFT_TAKE(state, ready);
  MYCROFT_TAKE(state, moved);
  MYCROFT_TAKE(state, done);
  MYCROFT_TAKE(state, idle_ms);
  MYCROFT_TAKE(state, bytes);
  MYCROFT_TAKE(state, flow_id);
  MYCROFT_TAKE(flow, trace);
  MYCROFT_TAKE(flow, end_ts);
  MYCROFT_TAKE(flow, comm);
  MYCROFT_TAKE(flow, op_seq);
  MYCROFT_TAKE(flow, op_kind);
  MYCROFT_TAKE(flow, channel);
  MYCROFT_TAKE(flow, send);
  MYCROFT_TAKE(flow, peer);
  MYCROFT_TAKE(flow, slices);
  MYCROFT_TAKE(flow, bytes);
  MYCROFT_TAKE(flow, net_busy_ns);
  MYCROFT_TAKE(flow, net_max_ns);
  MYCROFT_TAKE(flow, peer_wait_ns);
  MYCROFT_TAKE(flow, peer_wait_max_ns);
  MYCROFT_TAKE(op, trace);
  MYCROFT_TAKE(op, enq_ts);
  MYCROFT_TAKE(op, kstart_ts);
  MYCROFT_TAKE(op, dur_ns);
  MYCROFT_TAKE(op, comm);
  MYCROFT_TAKE(op, op_seq);
  MYCROFT_TAKE(op, op_kind);
  MYCROFT_TAKE(op, bytes);
  MYCROFT_TAKE(op, channels);
  MYCROFT_TAKE(op, flows);
  MYCROFT_TAKE(op, peer);
  MYCROFT_TAKE(heartbeat, trace);
  MYCROFT_TAKE(heartbeat, ts);
  MYCROFT_TAKE(heartbeat, open_ops);
  MYCROFT_TAKE(heartbeat, oldest_open_ts);
  MYCROFT_TAKE(heartbeat, progress_ts);
#undef MYCROFT_TAKE
  out["state"] = state;
  out["flow"] = flow;
  out["op"] = op;
  out["heartbeat"] = heartbeat;
  return out;
}

}  // namespace

PYBIND11_MODULE(_simulator, m) {
  m.doc() = "A training job in virtual time";
  m.attr("START_UTC_NS") = kStartUtcNs;
  m.def("fault_names", [] { return fault_names(); });
  py::class_<Config> config(m, "Config");
  config.def(py::init<>());
#define MYCROFT_FIELD(name) config.def_readwrite(#name, &Config::name)
  MYCROFT_FIELD(tp);
  MYCROFT_FIELD(pp);
  MYCROFT_FIELD(dp);
  MYCROFT_FIELD(ep);
  MYCROFT_FIELD(ranks_per_host);
  MYCROFT_FIELD(microbatches);
  MYCROFT_FIELD(channels);
  MYCROFT_FIELD(tree);
  MYCROFT_FIELD(forward_ns);
  MYCROFT_FIELD(backward_ns);
  MYCROFT_FIELD(tp_ns);
  MYCROFT_FIELD(optimiser_ns);
  MYCROFT_FIELD(dp_ns);
  MYCROFT_FIELD(pair_ns);
  MYCROFT_FIELD(expert_ns);
  MYCROFT_FIELD(host_ns);
  MYCROFT_FIELD(noise);
  MYCROFT_FIELD(benign);
  MYCROFT_FIELD(checkpoint_every_s);
  MYCROFT_FIELD(seed);
  MYCROFT_FIELD(rows);
  MYCROFT_FIELD(interval_ns);
#undef MYCROFT_FIELD
  py::class_<Job>(m, "Job")
      .def(py::init<const Config&>(), py::arg("config"))
      .def("fork", [](const Job& job) { return std::make_unique<Job>(job); })
      .def("fork_state", [](const Job& job) { return job.without_rows(); })
      .def(
          "inject",
          [](Job& job, const std::string& fault, uint32_t rank, double at_ns, double severity) {
            job.inject({fault_of(fault), rank, at_ns, severity});
          },
          py::arg("fault"), py::kw_only(), py::arg("rank"), py::arg("at_ns"),
          py::arg("severity") = 1.0)
      .def("run", &Job::run, py::arg("iterations"), py::call_guard<py::gil_scoped_release>())
      .def("run_until", &Job::run_until, py::arg("horizon_ns"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("now_ns", &Job::most)
      .def_property_readonly("iteration_ns", &Job::iteration_ns)
      .def_property_readonly("row_count", [](Job& job) { return job.rows().count(); })
      .def_property_readonly("counts",
                             [](const Job& job) {
                               py::dict out;
                               out["rank_operations"] = job.counts().rank_operations;
                               out["slices"] = job.counts().slices;
                               out["iterations"] = job.counts().iterations;
                               return out;
                             })
      .def("take_rows", [](Job& job) { return take_rows(job.rows()); });
}
