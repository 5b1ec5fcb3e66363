// pybind11 face of the testbed: conversion only.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>

#include "engine.h"

namespace py = pybind11;
using namespace mycroft::testbed;

namespace {

// Floats that the engine reads and writes; shared with Python through the buffer protocol.
struct Buffer {
  explicit Buffer(size_t count) : data(count) {}
  std::vector<float> data;
  void fill(float start, float step) {
    for (size_t i = 0; i < data.size(); ++i) data[i] = start + step * static_cast<float>(i % 1021);
  }
  // How many of `count` elements from `from` on are not start + step * (i % 1021).
  size_t differences(float start, float step, size_t from, size_t count) const {
    size_t wrong = 0;
    for (size_t i = 0; i < count && from + i < data.size(); ++i) {
      wrong += data[from + i] != start + step * static_cast<float>(i % 1021) ? 1 : 0;
    }
    return wrong;
  }
};

struct PyCommunicator {
  Communicator* comm;
};

Kind kind_of(const std::string& name) {
  static const std::map<std::string, Kind> kNames = {{"all_reduce", Kind::all_reduce},
                                                     {"all_gather", Kind::all_gather},
                                                     {"reduce_scatter", Kind::reduce_scatter},
                                                     {"broadcast", Kind::broadcast},
                                                     {"all_to_all", Kind::all_to_all},
                                                     {"send", Kind::send},
                                                     {"recv", Kind::recv}};
  const auto found = kNames.find(name);
  if (found == kNames.end()) throw std::invalid_argument("there is no collective " + name);
  return found->second;
}

void need(const Buffer& b, uint64_t elements, const char* what) {
  if (b.data.size() < elements) {
    throw std::invalid_argument(std::string(what) + " holds " + std::to_string(b.data.size()) +
                                " elements, " + std::to_string(elements) + " are needed");
  }
}

void set_condition(Engine& e, const std::string& name, double value) {
  Conditions& c = e.conditions;
  if (name == "nic_bytes_per_s")
    c.nic_bytes_per_s = value;
  else if (name == "channel_bytes_per_s")
    c.channel_bytes_per_s = value;
  else if (name == "limited_channel")
    c.limited_channel = static_cast<int32_t>(value);
  else if (name == "nic_down")
    c.nic_down = value != 0;
  else if (name == "proxy_sleep_p")
    c.proxy_sleep_p = value;
  else if (name == "proxy_sleep_ns")
    c.proxy_sleep_ns = static_cast<int64_t>(value);
  else if (name == "no_post")
    c.no_post = value != 0;
  else if (name == "no_send")
    c.no_send = value != 0;
  else if (name == "flush_ns")
    c.flush_ns = static_cast<int64_t>(value);
  else if (name == "copy_bytes_per_s")
    c.copy_bytes_per_s = value;
  else if (name == "slow_compute")
    c.slow_compute = value;
  else if (name == "device_stopped")
    c.device_stopped = value != 0;
  else
    throw std::invalid_argument("there is no condition " + name);
}

}  // namespace

PYBIND11_MODULE(_testbed, m) {
  m.doc() = "Collectives with NCCL's shape over TCP";
  py::class_<Buffer, std::shared_ptr<Buffer>>(m, "Buffer", py::buffer_protocol())
      .def(py::init<size_t>(), py::arg("count"))
      .def("__len__", [](const Buffer& b) { return b.data.size(); })
      .def("fill", &Buffer::fill, py::arg("start"), py::arg("step") = 0.0f)
      .def("differences", &Buffer::differences, py::arg("start"), py::arg("step"), py::arg("first"),
           py::arg("count"))
      .def_buffer([](Buffer& b) {
        return py::buffer_info(b.data.data(), sizeof(float), py::format_descriptor<float>::format(),
                               1, {b.data.size()}, {sizeof(float)});
      });
  py::class_<PyCommunicator>(m, "Communicator")
      .def_property_readonly("name", [](const PyCommunicator& c) { return c.comm->name; })
      .def_property_readonly("rank", [](const PyCommunicator& c) { return c.comm->rank; })
      .def_property_readonly("size", [](const PyCommunicator& c) { return c.comm->ranks(); });
  py::class_<Engine>(m, "Engine")
      .def(py::init([](uint32_t rank, const std::string& address, const std::string& plugin,
                       int abi, uint32_t slot_bytes, bool direct_in_host) {
             return std::make_unique<Engine>(
                 EngineOptions{rank, address, plugin, abi, slot_bytes, direct_in_host});
           }),
           py::kw_only(), py::arg("rank"), py::arg("address") = "127.0.0.1", py::arg("plugin") = "",
           py::arg("abi") = 7, py::arg("slot_bytes") = 1 << 14, py::arg("direct_in_host") = true)
      .def_property_readonly("port", &Engine::port)
      .def_property_readonly("error", &Engine::error)
      .def_property_readonly("totals",
                             [](const Engine& e) {
                               const Totals t = e.totals();
                               py::dict out;
                               out["slices_sent"] = t.slices_sent;
                               out["slices_received"] = t.slices_received;
                               out["bytes_sent"] = t.bytes_sent;
                               out["bytes_received"] = t.bytes_received;
                               return out;
                             })
      .def("set_condition", &set_condition, py::arg("name"), py::arg("value"))
      .def(
          "open",
          [](Engine& e, const std::string& name, uint64_t hash, uint32_t rank,
             const std::vector<std::tuple<std::string, uint16_t, std::string>>& members,
             uint32_t channels, uint32_t connections) {
            std::vector<Endpoint> ends;
            for (const auto& [address, port, host] : members) ends.push_back({address, port, host});
            return PyCommunicator{e.open(name, hash, rank, std::move(ends), channels, connections)};
          },
          py::arg("name"), py::kw_only(), py::arg("hash_"), py::arg("rank"), py::arg("members"),
          py::arg("channels") = 2, py::arg("connections") = 1)
      .def(
          "close", [](Engine& e, const PyCommunicator& c) { e.close(c.comm); }, py::arg("comm"))
      .def(
          "enqueue",
          [](Engine& e, const PyCommunicator& c, const std::string& kind_name,
             const std::shared_ptr<Buffer>& input, const std::shared_ptr<Buffer>& output,
             uint64_t elements, const std::string& algo, uint32_t peer, uint64_t stream) {
            const Kind kind = kind_of(kind_name);
            const uint64_t n = c.comm->ranks();
            const uint64_t all = elements * n;
            const bool wide_in = kind == Kind::reduce_scatter || kind == Kind::all_to_all;
            const bool wide_out = kind == Kind::all_gather || kind == Kind::all_to_all;
            if (kind != Kind::recv) need(*input, wide_in ? all : elements, "input");
            if (kind != Kind::send) need(*output, wide_out ? all : elements, "output");
            py::gil_scoped_release release;
            return e.enqueue(c.comm, kind, algo == "TREE" ? Algo::tree : Algo::ring, peer, elements,
                             input->data.data(), output->data.data(), stream, {input, output});
          },
          py::arg("comm"), py::arg("kind"), py::arg("input"), py::arg("output"), py::kw_only(),
          py::arg("elements"), py::arg("algo") = "RING", py::arg("peer") = 0, py::arg("stream") = 0)
      .def(
          "compute",
          [](Engine& e, uint64_t work, int64_t hold_ns, uint64_t stream) {
            return e.compute(work, hold_ns, stream);
          },
          py::kw_only(), py::arg("work"), py::arg("hold_ns") = 0, py::arg("stream") = 0)
      .def("wait", &Engine::wait, py::arg("operation"), py::arg("timeout_ns"),
           py::call_guard<py::gil_scoped_release>())
      .def("drain", &Engine::drain, py::arg("timeout_ns"), py::call_guard<py::gil_scoped_release>())
      .def("shut_down", &Engine::shut_down, py::call_guard<py::gil_scoped_release>());
  m.def("programs",
        [](const std::string& kind, const std::string& algo, uint32_t rank, uint32_t ranks,
           uint32_t channels, uint32_t peer, uint64_t elements, uint32_t slot_bytes) {
          const auto made = make_programs({kind_of(kind), algo == "TREE" ? Algo::tree : Algo::ring,
                                           rank, ranks, channels, peer, elements, slot_bytes});
          py::list out;
          for (const Program& p : made) {
            for (const Edge& edge : p.edges)
              out.append(py::make_tuple(edge.channel, edge.peer, edge.send, edge.slices));
          }
          return out;
        });
}
