#include "line_scanner_py.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "line_scanner.h"

namespace py = pybind11;

namespace mycroft {

namespace {

// Evidence may hold any bytes: what is not UTF-8 is replaced, never an exception.
py::object text(std::string_view bytes) {
  PyObject* made =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

template <typename T>
py::bytes column(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

py::tuple as_tuple(const LineScanner::Batch& batch) {
  py::list candidates;
  for (const LineScanner::Candidate& c : batch.candidates) {
    py::tuple ids(c.ids_size);
    for (std::size_t i = 0; i < c.ids_size; ++i) ids[i] = py::int_(batch.ids[c.ids_start + i]);
    candidates.append(py::make_tuple(
        c.line, c.offset, c.flags,
        text(std::string_view(batch.text).substr(c.text_start, c.text_size)), std::move(ids),
        text(std::string_view(batch.meta).substr(c.meta_start, c.meta_size))));
  }
  py::list bulk;
  for (const auto& [id, rows] : batch.bulk) {
    bulk.append(py::make_tuple(id, rows.lines.size(), column(rows.lines), column(rows.text_ends),
                               py::bytes(rows.text), column(rows.meta_ends), py::bytes(rows.meta)));
  }
  py::list blocks;
  for (const LineScanner::Block& block : batch.blocks) {
    blocks.append(py::make_tuple(block.first_line, block.lines, py::bytes(block.content)));
  }
  return py::make_tuple(std::move(candidates), std::move(bulk), std::move(blocks));
}

py::tuple feed(LineScanner& self, const py::buffer& data) {
  const py::buffer_info info = data.request();
  if (info.ndim != 1 || info.itemsize != 1) throw py::type_error("feed() takes bytes");
  const std::string_view bytes(static_cast<const char*>(info.ptr),
                               static_cast<std::size_t>(info.size));
  LineScanner::Batch batch;
  {
    const py::gil_scoped_release release;
    batch = self.feed(bytes);
  }
  return as_tuple(batch);
}

py::dict as_dict(const ScanCounts& counts) {
  using namespace py::literals;
  return py::dict("bytes"_a = counts.bytes, "lines"_a = counts.lines, "pieces"_a = counts.pieces,
                  "blank"_a = counts.blank, "candidates"_a = counts.candidates,
                  "cut"_a = counts.cut, "nul_bytes"_a = counts.nul_bytes,
                  "containers"_a = counts.containers, "joined"_a = counts.joined);
}

}  // namespace

void bind_line_scanner(py::module_& module) {
  py::class_<LinePlan, std::shared_ptr<LinePlan>>(
      module, "LinePlan",
      "The literals that make a line a candidate: (literals, follow, bulk) per matcher.")
      .def(py::init([](const std::vector<std::tuple<std::vector<std::string>, std::uint32_t, bool>>&
                           matchers) {
             std::vector<LineMatcher> all;
             for (const auto& [literals, follow, bulk] : matchers)
               all.push_back({literals, follow, bulk});
             return std::make_shared<LinePlan>(std::move(all));
           }),
           py::arg("matchers"));
  py::class_<LineScanner>(module, "LineScanner",
                          "Splits text into lines and hands out those that may matter.")
      .def(py::init([](const LinePlan& plan, bool keep_all, bool keep_blocks, std::size_t max_line,
                       std::size_t block_bytes) {
             return std::make_unique<LineScanner>(
                 plan, ScanOptions{keep_all, keep_blocks, max_line, block_bytes});
           }),
           py::arg("plan"), py::kw_only(), py::arg("keep_all") = false,
           py::arg("keep_blocks") = true, py::arg("max_line") = std::size_t{1} << 20,
           py::arg("block_bytes") = std::size_t{64} << 10, py::keep_alive<1, 2>())
      .def("feed", &feed, py::arg("data"),
           "Scan the next bytes; returns (candidates, bulk, blocks) of the lines that ended in "
           "them.")
      .def(
          "finish", [](LineScanner& self) { return as_tuple(self.finish()); },
          "Hand out what had no end; call once.")
      .def("counts", [](const LineScanner& self) { return as_dict(self.counts()); })
      .def("lengths", [](const LineScanner& self) {
        return std::vector<std::uint64_t>(self.lengths().begin(), self.lengths().end());
      });
}

}  // namespace mycroft
