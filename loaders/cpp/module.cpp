// The Python face of the readers: conversion only.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "json_elements_py.h"
#include "line_scanner_py.h"
#include "read_dumps.h"

namespace py = pybind11;
using namespace mycroft;

namespace {

py::object optional(std::int64_t value) {
  return value == kNull64 ? py::object(py::none()) : py::int_(value);
}

py::object optional_code(std::uint32_t code) {
  return code == kNoCode ? py::object(py::none()) : py::int_(code);
}

py::tuple group_tuple(const GroupName& group) {
  return py::make_tuple(optional(group.pg_id), optional_code(group.name),
                        optional_code(group.desc));
}

// Columns of many dumps, handed out once or often: the memory is shared with whoever imported it.
struct ColumnBatch {
  std::shared_ptr<const Columns> columns;

  py::tuple arrow() const {
    auto schema = std::make_unique<ArrowSchema>();
    export_schema(schema.get());
    py::capsule schema_capsule(schema.release(), "arrow_schema", [](PyObject* capsule) {
      auto* held = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule, "arrow_schema"));
      if (held->release != nullptr) held->release(held);
      delete held;
    });
    auto array = std::make_unique<ArrowArray>();
    export_array(columns, array.get());
    py::capsule array_capsule(array.release(), "arrow_array", [](PyObject* capsule) {
      auto* held = static_cast<ArrowArray*>(PyCapsule_GetPointer(capsule, "arrow_array"));
      if (held->release != nullptr) held->release(held);
      delete held;
    });
    return py::make_tuple(schema_capsule, array_capsule);
  }
};

// Reads dumps and keeps one pool of texts for all of them.
class DumpReaderFace {
 public:
  py::tuple read(const std::vector<std::string>& paths, unsigned threads, std::size_t max_bytes) {
    std::vector<DumpInfo> infos;
    auto columns = std::make_shared<Columns>();
    {
      py::gil_scoped_release unlocked;
      std::vector<Dump> dumps = read_dumps(paths, threads, max_bytes, pool_);
      std::vector<Columns> parts;
      parts.reserve(dumps.size());
      infos.reserve(dumps.size());
      for (Dump& dump : dumps) {
        parts.push_back(std::move(dump.columns));
        infos.push_back(std::move(dump.info));
      }
      dumps.clear();
      *columns = concatenate(parts);
    }
    return py::make_tuple(std::move(infos), ColumnBatch{std::move(columns)});
  }

  py::tuple read_bytes(const py::bytes& content) {
    std::string_view input = content;
    Document doc;
    Dump dump;
    {
      py::gil_scoped_release unlocked;
      dump = read_dump(input, 0, doc, pool_);
    }
    return py::make_tuple(std::move(dump.info),
                          ColumnBatch{std::make_shared<Columns>(std::move(dump.columns))});
  }

  std::vector<std::string> texts(std::size_t first) const { return pool_.texts_from(first); }
  std::vector<std::vector<std::uint32_t>> stacks(std::size_t first) const {
    return pool_.stacks_from(first);
  }

 private:
  Pool pool_;
};

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "Readers of untrusted evidence, straight into columns.";
  bind_json_elements(m);
  bind_line_scanner(m);

  py::class_<DumpInfo>(m, "DumpInfo")
      .def_readonly("is_dump", &DumpInfo::is_dump)
      .def_readonly("error", &DumpInfo::error)
      .def_readonly("damage", &DumpInfo::damage)
      .def_readonly("trailing", &DumpInfo::trailing)
      .def_readonly("version", &DumpInfo::version)
      .def_readonly("backend", &DumpInfo::backend)
      .def_readonly("lib_version", &DumpInfo::lib_version)
      .def_readonly("has_entries", &DumpInfo::has_entries)
      .def_readonly("entries", &DumpInfo::entries)
      .def_readonly("dropped", &DumpInfo::dropped)
      .def_readonly("completed", &DumpInfo::completed)
      .def_readonly("retired_only", &DumpInfo::retired_only)
      .def_readonly("started_signs", &DumpInfo::started_signs)
      .def_readonly("record_gaps", &DumpInfo::record_gaps)
      .def_property_readonly("first_record",
                             [](const DumpInfo& d) { return optional(d.first_record); })
      .def_property_readonly("last_record",
                             [](const DumpInfo& d) { return optional(d.last_record); })
      .def_property_readonly("first_ts", [](const DumpInfo& d) { return optional(d.first_ts); })
      .def_property_readonly("last_ts", [](const DumpInfo& d) { return optional(d.last_ts); })
      .def_property_readonly("groups",
                             [](const DumpInfo& d) {
                               py::list out;
                               for (const GroupName& group : d.groups)
                                 out.append(group_tuple(group));
                               return out;
                             })
      .def_property_readonly("config",
                             [](const DumpInfo& d) {
                               py::list out;
                               for (const GroupConfig& config : d.config) {
                                 out.append(py::make_tuple(optional(config.group.pg_id),
                                                           optional_code(config.group.name),
                                                           optional_code(config.group.desc),
                                                           optional_code(config.ranks)));
                               }
                               return out;
                             })
      .def_property_readonly("status", [](const DumpInfo& d) {
        py::list out;
        for (const GroupStatus& s : d.status) {
          out.append(py::make_tuple(s.pg_id, optional(s.last_enqueued), optional(s.last_started),
                                    optional(s.last_completed)));
        }
        return out;
      });

  py::class_<ColumnBatch>(m, "ColumnBatch")
      .def("__len__", [](const ColumnBatch& b) { return b.columns->rows(); })
      .def(
          "__arrow_c_array__", [](const ColumnBatch& b, const py::object&) { return b.arrow(); },
          py::arg("requested_schema") = py::none());

  py::class_<DumpReaderFace>(m, "DumpReader")
      .def(py::init<>())
      .def("read", &DumpReaderFace::read, py::arg("paths"), py::kw_only(), py::arg("threads"),
           py::arg("max_bytes"))
      .def("read_bytes", &DumpReaderFace::read_bytes, py::arg("content"))
      .def("texts", &DumpReaderFace::texts, py::arg("first") = 0)
      .def("stacks", &DumpReaderFace::stacks, py::arg("first") = 0);
}
