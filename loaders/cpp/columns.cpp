#include "columns.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

namespace mycroft {
namespace {

constexpr std::int64_t kNullableFlag = 2;  // ARROW_FLAG_NULLABLE

template <typename T>
constexpr T null_of() {
  if constexpr (std::is_same_v<T, std::int64_t>) return kNull64;
  if constexpr (std::is_same_v<T, std::uint32_t>) return kNull32;
  if constexpr (std::is_same_v<T, std::uint8_t>) return kNull8;
}

template <typename T>
constexpr const char* format_of() {
  if constexpr (std::is_same_v<T, std::int64_t>) return "l";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "I";
  if constexpr (std::is_same_v<T, std::uint8_t>) return "C";
}

// Everything that an exported schema points to.
struct SchemaHolder {
  std::vector<ArrowSchema> fields;
  std::vector<ArrowSchema*> children;
};

// Everything that an exported array points to. Only the parent owns it.
struct ArrayHolder {
  std::shared_ptr<const Columns> columns;
  std::vector<std::vector<std::uint8_t>> validity;
  std::vector<const void*> buffers;  // two for each column
  std::vector<ArrowArray> arrays;
  std::vector<ArrowArray*> children;
  const void* no_validity = nullptr;
};

// A child may be moved out and released by itself: the memory stays with the parent's holder, which
// each of them shares.
void release_schema(ArrowSchema* schema) {
  for (int64_t i = 0; i < schema->n_children; ++i) {
    if (schema->children[i]->release != nullptr) schema->children[i]->release(schema->children[i]);
  }
  delete static_cast<std::shared_ptr<SchemaHolder>*>(schema->private_data);
  schema->release = nullptr;
}

void release_array(ArrowArray* array) {
  for (int64_t i = 0; i < array->n_children; ++i) {
    if (array->children[i]->release != nullptr) array->children[i]->release(array->children[i]);
  }
  delete static_cast<std::shared_ptr<ArrayHolder>*>(array->private_data);
  array->release = nullptr;
}

}  // namespace

Columns concatenate(std::vector<Columns>& parts) {
  Columns out;
  Columns::each(out, [&](const char* name, auto& joined) {
    using Vector = std::remove_reference_t<decltype(joined)>;
    auto of = [&](Columns& part) -> Vector& {
      Vector* found = nullptr;
      Columns::each(part, [&](const char* other, auto& column) {
        if constexpr (std::is_same_v<std::remove_reference_t<decltype(column)>, Vector>) {
          if (std::string_view(other) == name) found = &column;
        }
      });
      return *found;
    };
    std::size_t rows = 0;
    for (Columns& part : parts) rows += of(part).size();
    joined.reserve(rows);
    for (Columns& part : parts) {
      Vector& column = of(part);
      joined.insert(joined.end(), column.begin(), column.end());
      Vector().swap(column);
    }
  });
  return out;
}

void export_schema(ArrowSchema* out) {
  auto holder = std::make_shared<SchemaHolder>();
  const Columns none;
  Columns::each(none, [&](const char* name, const auto& column) {
    using T = typename std::remove_reference_t<decltype(column)>::value_type;
    ArrowSchema field{};
    field.format = format_of<T>();
    field.name = name;
    field.flags = kNullableFlag;
    field.release = release_schema;
    holder->fields.push_back(field);
  });
  for (ArrowSchema& field : holder->fields) {
    field.private_data = new std::shared_ptr<SchemaHolder>(holder);
    holder->children.push_back(&field);
  }
  *out = ArrowSchema{};
  out->format = "+s";
  out->name = "";
  out->n_children = static_cast<int64_t>(holder->children.size());
  out->children = holder->children.data();
  out->release = release_schema;
  out->private_data = new std::shared_ptr<SchemaHolder>(holder);
}

void export_array(std::shared_ptr<const Columns> columns, ArrowArray* out) {
  auto holder = std::make_shared<ArrayHolder>();
  const std::size_t rows = columns->rows();
  holder->columns = std::move(columns);
  Columns::each(*holder->columns, [&](const char*, const auto& column) {
    using T = typename std::remove_reference_t<decltype(column)>::value_type;
    std::size_t nulls =
        static_cast<std::size_t>(std::count(column.begin(), column.end(), null_of<T>()));
    std::vector<std::uint8_t> bits;
    if (nulls > 0) {
      bits.resize((rows + 7) / 8);
      for (std::size_t i = 0; i < rows; ++i) {
        if (column[i] != null_of<T>()) bits[i / 8] |= static_cast<std::uint8_t>(1u << (i % 8));
      }
    }
    holder->validity.push_back(std::move(bits));
    holder->buffers.push_back(nulls > 0 ? holder->validity.back().data() : nullptr);
    holder->buffers.push_back(column.data());
    ArrowArray array{};
    array.length = static_cast<int64_t>(rows);
    array.null_count = static_cast<int64_t>(nulls);
    array.n_buffers = 2;
    array.release = release_array;
    holder->arrays.push_back(array);
  });
  for (std::size_t i = 0; i < holder->arrays.size(); ++i) {
    holder->arrays[i].buffers = &holder->buffers[2 * i];
    holder->arrays[i].private_data = new std::shared_ptr<ArrayHolder>(holder);
    holder->children.push_back(&holder->arrays[i]);
  }
  *out = ArrowArray{};
  out->length = static_cast<int64_t>(rows);
  out->n_buffers = 1;
  out->buffers = &holder->no_validity;
  out->n_children = static_cast<int64_t>(holder->children.size());
  out->children = holder->children.data();
  out->release = release_array;
  out->private_data = new std::shared_ptr<ArrayHolder>(holder);
}

}  // namespace mycroft
