#include "json_elements_py.h"

#include <pybind11/stl.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json_elements.h"

namespace py = pybind11;

namespace mycroft {

namespace {

struct Piece {
  bool member;
  std::string key;
  std::string value;
  std::uint64_t offset;
};

// The scan runs without the GIL; Python objects are made afterwards, and only of what is wanted.
py::list feed(JsonElements& self, const py::buffer& data) {
  const py::buffer_info info = data.request();
  if (info.ndim != 1 || info.itemsize != 1) throw py::type_error("feed() takes bytes");
  const std::string_view bytes(static_cast<const char*>(info.ptr),
                               static_cast<std::size_t>(info.size));
  std::vector<Piece> pieces;
  {
    const py::gil_scoped_release release;
    self.feed(bytes, [&](JsonElements::Kind kind, std::string_view key, std::string_view value,
                         std::uint64_t offset) {
      pieces.push_back(
          {kind == JsonElements::Kind::member, std::string(key), std::string(value), offset});
    });
  }
  py::list out;
  for (const Piece& piece : pieces) {
    // Keys are data of unknown encoding: what is not UTF-8 is replaced, never an exception.
    PyObject* key = PyUnicode_DecodeUTF8(piece.key.data(),
                                         static_cast<Py_ssize_t>(piece.key.size()), "replace");
    if (key == nullptr) throw py::error_already_set();
    out.append(py::make_tuple(piece.member, py::reinterpret_steal<py::str>(key),
                              py::bytes(piece.value), piece.offset));
  }
  return out;
}

py::dict as_dict(const JsonElements::Counts& counts) {
  using namespace py::literals;
  return py::dict("elements"_a = counts.elements, "wanted"_a = counts.wanted,
                  "oversized"_a = counts.oversized, "documents"_a = counts.documents,
                  "bytes"_a = counts.bytes, "open"_a = counts.open);
}

}  // namespace

void bind_json_elements(py::module_& module) {
  py::class_<JsonElements>(
      module, "JsonElements",
      "Splits JSON text of any size into elements of named arrays and other members.")
      .def(py::init<std::vector<std::string>, std::vector<std::string>, std::size_t>(),
           py::arg("arrays"), py::arg("needles"), py::arg("max_element"))
      .def("feed", &feed, py::arg("data"),
           "Scan the next bytes; returns (is_member, key, value, offset) of every finished piece "
           "that is wanted.")
      .def(
          "finish", [](JsonElements& self) { return as_dict(self.finish()); },
          "Say how much was seen; `open` means that the text ended inside a value.");
}

}  // namespace mycroft
