// Python face of LineScanner.

#pragma once

#include <pybind11/pybind11.h>

namespace mycroft {

void bind_line_scanner(pybind11::module_& module);

}  // namespace mycroft
