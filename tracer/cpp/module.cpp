// mycroft.tracer._core: conversion only. Reading gives Arrow batches, writing takes plain values.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>

#include "arrow_export.h"
#include "decode.h"
#include "layout.h"
#include "op_names.h"
#include "recorder.h"
#include "trace_reader.h"

namespace py = pybind11;
using namespace mycroft;  // NOLINT: this file is nothing but glue

namespace {

py::object known(uint32_t value) {
  return value == kUnknown32 ? py::object(py::none()) : py::object(py::int_(value));
}

template <size_t N>
py::str text(const char (&field)[N]) {
  // Whatever lies in the file; undecodable bytes are replaced, not trusted.
  const size_t n = strnlen(field, N);
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(field, static_cast<Py_ssize_t>(n), "replace"));
}

void release_schema_capsule(PyObject* capsule) {
  auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule, "arrow_schema"));
  if (schema == nullptr) return;
  if (schema->release != nullptr) schema->release(schema);
  delete schema;
}

void release_array_capsule(PyObject* capsule) {
  auto* array = static_cast<ArrowArray*>(PyCapsule_GetPointer(capsule, "arrow_array"));
  if (array == nullptr) return;
  if (array->release != nullptr) array->release(array);
  delete array;
}

struct PyBatch {
  std::shared_ptr<Batch> batch;

  py::object schema() const {
    auto schema = std::make_unique<ArrowSchema>();
    export_schema(*batch, schema.get());
    py::object capsule = py::reinterpret_steal<py::object>(
        PyCapsule_New(schema.get(), "arrow_schema", release_schema_capsule));
    if (!capsule) throw py::error_already_set();
    schema.release();
    return capsule;
  }
  py::tuple array(const py::object& /*requested_schema*/) const {
    auto array = std::make_unique<ArrowArray>();
    export_array(batch, array.get());
    py::object capsule = py::reinterpret_steal<py::object>(
        PyCapsule_New(array.get(), "arrow_array", release_array_capsule));
    if (!capsule) throw py::error_already_set();
    array.release();
    return py::make_tuple(schema(), capsule);
  }
};

py::dict describe(const Losses& losses) {
  py::dict out;
  out["overwritten"] = losses.overwritten;
  out["torn"] = losses.torn;
  out["unwritten"] = losses.unwritten;
  out["unknown"] = losses.unknown;
  out["missing"] = losses.missing;
  return out;
}

py::dict describe(const FileHeader& h) {
  py::dict out;
  out["version"] = h.version;
  out["writer"] = text(h.writer);
  out["clock"] = h.clock == 1 ? "cycles" : "system";
  out["ring_records"] = h.ring_records;
  out["created_ns"] = h.created_ns;
  out["head"] = h.head;
  out["lost"] = h.lost;
  out["ticks"] = h.ticks / 2;
  out["tick_ns"] = h.tick_ns;
  out["closed"] = h.state == static_cast<uint32_t>(FileState::closed);
  out["closed_ns"] = h.closed_ns;
  out["interval_ms"] = h.interval_ms;
  out["enabled"] = h.enabled != 0;
  out["events"] = h.events;
  return out;
}

py::dict describe(const ProcessEntry& p) {
  py::dict out;
  out["pid"] = p.pid;
  out["proc_start"] = p.proc_start;
  out["started_ns"] = p.started_ns;
  out["salt"] = p.salt;
  out["pid_namespace"] = p.pid_namespace;
  std::string boot;
  for (const uint8_t byte : p.boot_id) {
    boot += "0123456789abcdef"[byte >> 4];
    boot += "0123456789abcdef"[byte & 15];
  }
  out["boot_id"] = boot;
  out["rank"] = known(p.rank);
  out["world_size"] = known(p.world_size);
  out["local_rank"] = known(p.local_rank);
  out["local_world_size"] = known(p.local_world_size);
  out["device"] = known(p.device);
  out["bus_id"] = text(p.bus_id);
  out["rank_source"] = text(p.rank_source);
  out["host"] = text(p.host);
  out["addresses"] = text(p.addresses);
  return out;
}

py::dict describe(const CommunicatorEntry& c) {
  py::dict out;
  out["comm"] = static_cast<uint32_t>(c.word0 >> 48);
  out["hash"] = c.hash;
  out["name"] = text(c.name);
  out["backend"] = text(c.backend);
  out["rank"] = known(c.rank);
  out["size"] = known(c.size);
  out["nodes"] = known(c.nodes);
  out["abi"] = c.abi;
  out["opened_ns"] = c.opened_ns;
  out["closed_ns"] = c.closed_ns == 0 ? py::object(py::none()) : py::object(py::int_(c.closed_ns));
  out["last_seq"] = c.last_seq == 0 ? py::object(py::none()) : py::object(py::int_(c.last_seq - 1));
  out["last_enq_ns"] =
      c.last_enq_ns == 0 ? py::object(py::none()) : py::object(py::int_(c.last_enq_ns));
  out["p2p_started"] = c.p2p_started;
  return out;
}

// A reader and, for bytes, the object that keeps them alive.
struct PyTrace {
  TraceReader reader;
  py::object owner;

  py::dict read(uint64_t since, std::optional<uint64_t> most, bool live) const {
    Decoded decoded;
    {
      const py::gil_scoped_release release;
      decoded = reader.read(since, most.value_or(UINT64_MAX), live);
    }
    py::dict batches;
    for (const auto& batch : decoded.batches) batches[batch->name] = PyBatch{batch};
    py::dict out;
    out["batches"] = batches;
    out["losses"] = describe(decoded.losses);
    out["from"] = decoded.from;
    out["next"] = decoded.next;
    out["records"] = decoded.records;
    return out;
  }
};

struct TracerOffError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

uint32_t or_unknown(const std::optional<uint32_t>& value) { return value.value_or(kUnknown32); }

// The recorder as Python sees it: contexts and handles are numbers.
class PyRecorder {
 public:
  PyRecorder(const std::optional<std::string>& directory, uint64_t budget_bytes,
             uint64_t file_bytes, uint32_t interval_ms, const std::optional<uint32_t>& rank,
             const std::optional<uint32_t>& world_size, const std::optional<uint32_t>& local_rank,
             const std::optional<std::string>& host, const std::optional<std::string>& control,
             bool sampler) {
    RecorderOptions options;
    options.shm.directory = directory ? directory->c_str() : nullptr;
    options.shm.budget_bytes = budget_bytes;
    options.shm.file_bytes = file_bytes;
    options.interval_ms = interval_ms;
    options.rank = or_unknown(rank);
    options.world_size = or_unknown(world_size);
    options.local_rank = or_unknown(local_rank);
    options.host = host ? host->c_str() : nullptr;
    options.control_path = control ? control->c_str() : nullptr;
    char why[256] = {};
    recorder_ = std::make_unique<Recorder>();
    if (!recorder_->open(options, why, sizeof why)) throw TracerOffError(why);
    recorder_->set_events(kEventsDefault);
    if (sampler && !recorder_->start_sampler()) throw TracerOffError("no thread for the sampler");
  }

  std::string path() const { return recorder_->path(); }
  bool enabled() const { return recorder_->enabled(); }
  void set_enabled(bool on) { recorder_->set_enabled(on); }
  void abandon() { recorder_->abandon(); }
  void close() {
    const py::gil_scoped_release release;
    recorder_->close();
  }
  void tick() {
    const py::gil_scoped_release release;
    recorder_->tick();
  }

  uint64_t comm_open(const std::string& name, uint64_t hash, const std::optional<uint32_t>& rank,
                     const std::optional<uint32_t>& size, const std::string& backend) {
    CommInfo info;
    info.name = name.c_str();
    info.hash = hash;
    info.rank = or_unknown(rank);
    info.size = or_unknown(size);
    info.backend = backend.c_str();
    return recorder_->comm_open(info);
  }
  void comm_close(uint64_t context) { recorder_->comm_close(context); }

  Handle op_start(uint64_t context, uint8_t kind, uint64_t bytes,
                  const std::optional<uint32_t>& peer, bool p2p, uint8_t dtype, uint8_t channels) {
    OpInfo info;
    info.kind =
        kind <= static_cast<uint8_t>(OpKind::other) ? static_cast<OpKind>(kind) : OpKind::other;
    info.bytes = clamp48(bytes);
    info.peer = or_unknown(peer);
    info.p2p = p2p;
    info.dtype = dtype <= static_cast<uint8_t>(DataType::float8e5m2) ? static_cast<DataType>(dtype)
                                                                     : DataType::unknown;
    info.channels = channels;
    return recorder_->op_start(recorder_->comm_of(context), info);
  }
  void op_stop(Handle op) { recorder_->op_stop(op); }
  void op_end(Handle op) { recorder_->op_end(op); }

  Handle flow_start(uint64_t context, Handle op, uint32_t peer, bool send, uint32_t total,
                    uint8_t channel) {
    FlowInfo info;
    info.peer = peer;
    info.send = send;
    info.total = total;
    info.channel = channel;
    return recorder_->flow_start(recorder_->comm_of(context), op, info);
  }
  // Each number is how many chunks have reached that stage; None: as before.
  void flow_reach(Handle flow, const std::optional<uint32_t>& posted,
                  const std::optional<uint32_t>& ready, const std::optional<uint32_t>& moved,
                  const std::optional<uint32_t>& done, uint64_t size) {
    FlowSlot* f = handle_kind(flow) == HandleKind::flow ? recorder_->flow(flow) : nullptr;
    if (f == nullptr) return;
    const Clock& clock = recorder_->clock();
    if ((f->mode.load(std::memory_order_relaxed) & FlowSlot::kSend) != 0) {
      if (posted) send_posted(*f, *posted);
      if (ready && *ready > 0) send_ready(*f, *ready, clock);
      if (moved && *moved > 0) send_moved(*f, *moved, size, clock);
      if (done && *done > 0) send_done(*f, *done, clock);
    } else {
      if (posted && *posted > 0) recv_posted(*f, *posted, clock);
      if (moved && *moved > 0) recv_moved(*f, *moved, size, clock);
      if (ready && *ready > 0) recv_ready(*f, *ready, clock);
      if (done && *done > 0) recv_done(*f, *done, clock);
    }
  }
  void flow_stop(Handle flow) { recorder_->flow_stop(flow); }

 private:
  std::unique_ptr<Recorder> recorder_;
};

template <typename Code, size_t N>
py::dict names(const NamedCode<Code> (&list)[N]) {
  py::dict out;
  for (const auto& entry : list) out[entry.name] = static_cast<uint8_t>(entry.code);
  return out;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "Reading and writing of Mycroft's trace files";
  m.attr("LAYOUT_VERSION") = kLayoutVersion;
  m.attr("RECORD_BYTES") = kRecordBytes;
  m.attr("UNKNOWN8") = kUnknown8;
  m.attr("KINDS") = names(kOpNames);
  m.attr("DTYPES") = names(kTypeNames);
  m.attr("ALGOS") = names(kAlgoNames);
  m.attr("PROTOS") = names(kProtoNames);
  py::register_exception<TraceError>(m, "TraceError", PyExc_ValueError);
  py::register_exception<TracerOffError>(m, "TracerOffError", PyExc_OSError);

  py::class_<PyBatch>(m, "Batch")
      .def_property_readonly("name", [](const PyBatch& b) { return b.batch->name; })
      .def("__len__", [](const PyBatch& b) { return b.batch->rows(); })
      .def("__arrow_c_schema__", &PyBatch::schema)
      .def("__arrow_c_array__", &PyBatch::array, py::arg("requested_schema") = py::none());

  py::class_<PyTrace>(m, "Trace")
      .def(py::init([](const std::string& path) {
             return std::make_unique<PyTrace>(PyTrace{TraceReader::open_file(path), py::none()});
           }),
           py::arg("path"))
      .def_static(
          "from_bytes",
          [](const py::bytes& data, const std::string& name) {
            char* at = nullptr;
            Py_ssize_t n = 0;
            if (PyBytes_AsStringAndSize(data.ptr(), &at, &n) != 0) throw py::error_already_set();
            return std::make_unique<PyTrace>(
                PyTrace{TraceReader::open_bytes(at, static_cast<size_t>(n), name), data});
          },
          py::arg("data"), py::arg("name") = "<bytes>")
      .def_property_readonly("header", [](const PyTrace& t) { return describe(t.reader.header()); })
      .def_property_readonly("process",
                             [](const PyTrace& t) { return describe(t.reader.process()); })
      .def_property_readonly("communicators",
                             [](const PyTrace& t) {
                               py::list out;
                               for (const auto& c : t.reader.communicators())
                                 out.append(describe(c));
                               return out;
                             })
      .def("read", &PyTrace::read, py::arg("since") = 0, py::arg("most") = py::none(),
           py::kw_only(), py::arg("live") = false);

  py::class_<PyRecorder>(m, "Recorder")
      .def(py::init<const std::optional<std::string>&, uint64_t, uint64_t, uint32_t,
                    const std::optional<uint32_t>&, const std::optional<uint32_t>&,
                    const std::optional<uint32_t>&, const std::optional<std::string>&,
                    const std::optional<std::string>&, bool>(),
           py::kw_only(), py::arg("directory") = py::none(),
           py::arg("budget_bytes") = uint64_t{512} << 20, py::arg("file_bytes") = 0,
           py::arg("interval_ms") = 100, py::arg("rank") = py::none(),
           py::arg("world_size") = py::none(), py::arg("local_rank") = py::none(),
           py::arg("host") = py::none(), py::arg("control") = py::none(), py::arg("sampler") = true)
      .def_property_readonly("path", &PyRecorder::path)
      .def_property("enabled", &PyRecorder::enabled, &PyRecorder::set_enabled)
      .def("abandon", &PyRecorder::abandon)
      .def("close", &PyRecorder::close)
      .def("tick", &PyRecorder::tick)
      .def("comm_open", &PyRecorder::comm_open, py::arg("name"), py::kw_only(), py::arg("hash_"),
           py::arg("rank") = py::none(), py::arg("size") = py::none(),
           py::arg("backend") = "python")
      .def("comm_close", &PyRecorder::comm_close, py::arg("context"))
      .def("op_start", &PyRecorder::op_start, py::arg("context"), py::arg("kind"), py::kw_only(),
           py::arg("size_bytes") = 0, py::arg("peer") = py::none(), py::arg("p2p") = false,
           py::arg("dtype") = kUnknown8, py::arg("channels") = kUnknown8)
      .def("op_stop", &PyRecorder::op_stop, py::arg("op"))
      .def("op_end", &PyRecorder::op_end, py::arg("op"))
      .def("flow_start", &PyRecorder::flow_start, py::arg("context"), py::arg("op"), py::kw_only(),
           py::arg("peer"), py::arg("send"), py::arg("total"), py::arg("channel") = 0)
      .def("flow_reach", &PyRecorder::flow_reach, py::arg("flow"), py::kw_only(),
           py::arg("posted") = py::none(), py::arg("ready") = py::none(),
           py::arg("moved") = py::none(), py::arg("done") = py::none(), py::arg("size") = 0)
      .def("flow_stop", &PyRecorder::flow_stop, py::arg("flow"));

  m.def("layout", [] {
    py::list out;
    for (const LayoutField& field : kLayoutFields) {
      out.append(py::make_tuple(field.structure, field.name, field.offset, field.bytes));
    }
    return out;
  });
  m.def("batch_columns", [] {
    py::dict out;
    for (const auto& batch : empty_batches()) {
      py::list columns;
      for (const Column& column : batch->columns) {
        columns.append(py::make_tuple(column.type.name, column.type.format, column.type.nullable));
      }
      out[batch->name] = columns;
    }
    return out;
  });
}
