// Hands batches to anyone who speaks Arrow's C data interface; no Arrow library is needed. The
// buffers of a batch are shared, not copied, and live until the last consumer has released them.
#pragma once

#include <cstdint>
#include <memory>

#include "arrow_abi.h"
#include "trace_reader.h"

namespace mycroft {

// Both are filled; each must be released by its receiver through its `release`.
void export_schema(const Batch& batch, ArrowSchema* out);
void export_array(const std::shared_ptr<const Batch>& batch, ArrowArray* out);

}  // namespace mycroft
