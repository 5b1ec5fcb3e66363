// Hands batches to anyone who speaks Arrow's C data interface; no Arrow library is needed. The
// buffers of a batch are shared, not copied, and live until the last consumer has released them.
#pragma once

#include <cstdint>
#include <memory>

#include "trace_reader.h"

extern "C" {

// As published by Arrow: a stable ABI.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

}  // extern "C"

namespace mycroft {

// Both are filled; each must be released by its receiver through its `release`.
void export_schema(const Batch& batch, ArrowSchema* out);
void export_array(const std::shared_ptr<const Batch>& batch, ArrowArray* out);

}  // namespace mycroft
