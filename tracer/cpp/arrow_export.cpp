#include "arrow_export.h"

#include <cstring>
#include <vector>

namespace mycroft {
namespace {

constexpr int64_t kArrowNullable = 2;

// --- schema: one block owns all nodes ---

struct SchemaBlock {
  std::vector<ArrowSchema> nodes;
  std::vector<ArrowSchema*> pointers;
  size_t alive = 0;  // nodes not released; the root counts
};

void release_schema_node(ArrowSchema* node) {
  auto* block = static_cast<SchemaBlock*>(node->private_data);
  node->release = nullptr;
  if (--block->alive == 0) delete block;
}

void release_schema_root(ArrowSchema* root) {
  auto* block = static_cast<SchemaBlock*>(root->private_data);
  // A consumer may have moved a child away; it then releases its copy itself.
  for (ArrowSchema& node : block->nodes) {
    if (node.release != nullptr) {
      node.release = nullptr;
      --block->alive;
    }
  }
  root->release = nullptr;
  if (--block->alive == 0) delete block;
}

// --- array ---

struct ArrayBlock {
  std::shared_ptr<const Batch> batch;
  std::vector<std::vector<uint8_t>> validity;
  std::vector<const void*> buffers;  // two per column
  const void* root_buffer = nullptr;
  std::vector<ArrowArray> nodes;
  std::vector<ArrowArray*> pointers;
  size_t alive = 0;
};

void release_array_node(ArrowArray* node) {
  auto* block = static_cast<ArrayBlock*>(node->private_data);
  node->release = nullptr;
  if (--block->alive == 0) delete block;
}

void release_array_root(ArrowArray* root) {
  auto* block = static_cast<ArrayBlock*>(root->private_data);
  for (ArrowArray& node : block->nodes) {
    if (node.release != nullptr) {
      node.release = nullptr;
      --block->alive;
    }
  }
  root->release = nullptr;
  if (--block->alive == 0) delete block;
}

template <typename T>
int64_t find_nulls(const Column& column, std::vector<uint8_t>& bits) {
  const auto* values = reinterpret_cast<const T*>(column.data());
  const size_t n = column.size();
  const T missing = static_cast<T>(column.type.null_value);
  int64_t nulls = 0;
  for (size_t i = 0; i < n; ++i) nulls += values[i] == missing ? 1 : 0;
  if (nulls == 0) return 0;
  bits.assign((n + 7) / 8, 0);
  for (size_t i = 0; i < n; ++i) {
    if (values[i] != missing) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | 1u << (i % 8));
  }
  return nulls;
}

int64_t find_nulls(const Column& column, std::vector<uint8_t>& bits) {
  if (!column.type.nullable) return 0;
  switch (column.type.width) {
    case 1:
      return find_nulls<uint8_t>(column, bits);
    case 2:
      return find_nulls<uint16_t>(column, bits);
    case 4:
      return find_nulls<uint32_t>(column, bits);
    default:
      return find_nulls<uint64_t>(column, bits);
  }
}

}  // namespace

void export_schema(const Batch& batch, ArrowSchema* out) {
  auto block = std::make_unique<SchemaBlock>();
  const size_t n = batch.columns.size();
  block->nodes.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const ColumnType& type = batch.columns[i].type;
    block->nodes[i] = {type.format, type.name, nullptr, type.nullable ? kArrowNullable : 0,
                       0,           nullptr,   nullptr, release_schema_node,
                       block.get()};
    block->pointers.push_back(&block->nodes[i]);
  }
  block->alive = n + 1;
  *out = {"+s",
          "",
          nullptr,
          0,
          static_cast<int64_t>(n),
          block->pointers.data(),
          nullptr,
          release_schema_root,
          block.get()};
  block.release();
}

void export_array(const std::shared_ptr<const Batch>& batch, ArrowArray* out) {
  auto block = std::make_unique<ArrayBlock>();
  const size_t n = batch->columns.size();
  const auto rows = static_cast<int64_t>(batch->rows());
  block->batch = batch;
  block->validity.resize(n);
  block->buffers.resize(2 * n);
  block->nodes.resize(n);
  static const uint64_t nothing = 0;
  for (size_t i = 0; i < n; ++i) {
    const Column& column = batch->columns[i];
    const int64_t nulls = find_nulls(column, block->validity[i]);
    block->buffers[2 * i] = nulls != 0 ? block->validity[i].data() : nullptr;
    block->buffers[2 * i + 1] = column.data() != nullptr ? static_cast<const void*>(column.data())
                                                         : static_cast<const void*>(&nothing);
    block->nodes[i] = {
        rows,       nulls, 0, 2, 0, &block->buffers[2 * i], nullptr, nullptr, release_array_node,
        block.get()};
    block->pointers.push_back(&block->nodes[i]);
  }
  block->alive = n + 1;
  *out = {rows,
          0,
          0,
          1,
          static_cast<int64_t>(n),
          &block->root_buffer,
          block->pointers.data(),
          nullptr,
          release_array_root,
          block.get()};
  block.release();
}

}  // namespace mycroft
