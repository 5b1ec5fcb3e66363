// The trace file of one process: naming, budget, creation, mapping.
//
// The file is created with all its blocks reserved, so that a full /dev/shm is an error here and
// never a SIGBUS in a record. Not thread safe; called once per recorder, outside of every record
// path.
#pragma once

#include <cstdint>

#include "record.h"

namespace mycroft {

struct ShmOptions {
  const char* directory = nullptr;              // nullptr: /dev/shm/mycroft-<uid>
  uint64_t budget_bytes = uint64_t{512} << 20;  // of all trace files in the directory
  uint64_t file_bytes = 0;                      // 0: budget / max(8, processes on this host)
  uint32_t processes = 8;
  const char* label = nullptr;  // part of the name; nullptr: "pid"
};

class TraceFile {
 public:
  TraceFile() = default;
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile();

  // Creates, reserves and maps the file and writes the constant part of the header. Returns false
  // and leaves a one-line reason in `why` if that cannot be; nothing is left behind then.
  bool create(const ShmOptions& options, char* why, uint32_t why_bytes) noexcept;

  // Marks the trace as ended in order. The file stays.
  void close(uint64_t now_ns) noexcept;

  FileHeader* header() const noexcept { return static_cast<FileHeader*>(base_); }
  uint64_t* directory() const noexcept;
  uint64_t* ring() const noexcept;
  uint64_t records() const noexcept { return records_; }
  uint64_t bytes() const noexcept { return bytes_; }
  const char* path() const noexcept { return path_; }

 private:
  void* base_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t records_ = 0;
  char path_[512] = {};
};

}  // namespace mycroft
