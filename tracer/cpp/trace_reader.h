// Reading side: opens a trace file or a copy of one, checks everything it is told, and decodes the
// ring into columns. Read only; works on a live file, on one whose writer was killed, and on a
// damaged copy.
//
// A live file is copied block by block and the head is read again afterwards: a slot that was
// reserved anew meanwhile is dropped and counted, so no record that is returned is a mixture of
// two. Not thread safe. Throws TraceError with a one-line message; never trusts a length or an
// offset.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "record.h"

namespace mycroft {

struct TraceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One column of plain values. `format` is Arrow's (C data interface); values equal to `null_value`
// are NULL if `nullable`.
struct ColumnType {
  const char* name;
  const char* format;
  uint32_t width;
  bool nullable = false;
  uint64_t null_value = 0;
};

class Column {
 public:
  // `limit`: rows that can come at most; more is allowed and slower.
  explicit Column(const ColumnType& column_type, size_t limit = 0)
      : type(column_type), limit_(limit) {}
  Column(Column&& other) noexcept;
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  ~Column();

  // Makes room for `more` values and returns where the first of them goes.
  template <typename T>
  T* extend(size_t more) {
    return reinterpret_cast<T*>(grow(more));
  }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  ColumnType type;

 private:
  uint8_t* grow(size_t more);
  void enlarge(size_t rows);
  void map_whole();

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t limit_ = 0;
  void* mapping_ = nullptr;  // nullptr: data_ is from malloc
  size_t mapping_bytes_ = 0;
};

struct Batch {
  explicit Batch(const char* batch_name) : name(batch_name) {}
  const char* name;
  std::vector<Column> columns;
  size_t rows() const { return columns.empty() ? 0 : columns.front().size(); }
};

// What could not be returned, by reason.
struct Losses {
  uint64_t overwritten = 0;  // before this reader came, or while it was copying
  uint64_t torn = 0;         // begun and never finished: the writer died, or is still at it
  uint64_t unwritten = 0;    // reserved and never begun
  uint64_t unknown = 0;      // whole, but of a type this build does not know
  uint64_t missing = 0;      // the file ends before them
};

struct Decoded {
  std::vector<std::shared_ptr<Batch>> batches;  // state, flow, op, heartbeat, gap, foreign
  Losses losses;
  uint64_t from = 0;  // first position asked for that could still be there
  uint64_t next = 0;  // where to go on
  uint64_t records = 0;
};

class TraceReader {
 public:
  // `name` is used in messages only.
  static TraceReader open_file(const std::string& path);
  static TraceReader open_bytes(const void* data, size_t bytes, std::string name);
  TraceReader(TraceReader&& other) noexcept;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;
  ~TraceReader();

  // The header as it is now.
  FileHeader header() const;
  ProcessEntry process() const;
  std::vector<CommunicatorEntry> communicators() const;
  uint64_t size_bytes() const { return bytes_; }

  // Decodes positions `from` to the head. At most `most` records; go on with `next`. With `live`,
  // stops before a record that is being written right now, instead of counting it as torn.
  Decoded read(uint64_t from, uint64_t most, bool live) const;

 private:
  TraceReader() = default;
  void check();
  [[noreturn]] void fail(const std::string& what) const;
  size_t copy(uint64_t offset, void* out, size_t bytes) const;
  bool entry(uint32_t index, uint64_t* words) const;
  uint64_t head() const;
  uint64_t settled(uint64_t from, uint64_t end) const;

  std::string name_;
  int fd_ = -1;
  const uint8_t* memory_ = nullptr;  // borrowed
  uint64_t bytes_ = 0;
  FileHeader layout_{};  // as checked
};

}  // namespace mycroft
