// Reads JSON text as data, into the same Document as the pickles.
#pragma once

#include <string_view>

#include "pickle.h"

namespace mycroft {

// Throws ReadError for what is not JSON. A text cut short is no error: see `Parsed::damage`.
// NaN and Infinity are taken, since Python writes them. `doc` and `input` must outlive the result.
Parsed read_json(std::string_view input, Document& doc);

}  // namespace mycroft
