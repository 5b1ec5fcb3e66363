// Python face of JsonElements.

#pragma once

#include <pybind11/pybind11.h>

namespace mycroft {

void bind_json_elements(pybind11::module_& module);

}  // namespace mycroft
