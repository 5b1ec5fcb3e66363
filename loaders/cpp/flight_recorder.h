// A Flight Recorder dump, of any layout, as columns. What a field means: docs and
// `loaders/flight_recorder.py`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "columns.h"
#include "pool.h"
#include "value.h"

namespace mycroft {

// A group as an entry names it. Texts are codes in the pool.
struct GroupName {
  std::int64_t pg_id = kNull64;
  std::uint32_t name = kNoCode;
  std::uint32_t desc = kNoCode;
  bool operator==(const GroupName&) const = default;
};

// A group as pg_config lists it; `ranks` is the text of the list, not yet parsed.
struct GroupConfig {
  GroupName group;
  std::uint32_t ranks = kNoCode;
};

struct GroupStatus {
  std::int64_t pg_id = kNull64;
  std::int64_t last_enqueued = kNull64;
  std::int64_t last_started = kNull64;
  std::int64_t last_completed = kNull64;
};

// What one dump says besides its operations.
struct DumpInfo {
  bool is_dump = false;  // it has the shape of a dump
  std::string error;     // why nothing was read; empty: something was
  std::string damage;    // where a file that was cut short ends
  std::size_t trailing = 0;
  std::string version;  // "list" for the bare list, empty where none is written
  std::string backend;  // prefix of the operations' names
  std::string lib_version;
  bool has_entries = false;                    // the dump was asked for operations
  std::size_t entries = 0;                     // rows
  std::map<std::string, std::size_t> dropped;  // by reason
  std::vector<GroupName> groups;
  std::vector<GroupConfig> config;
  std::vector<GroupStatus> status;

  // Signs of what the recorder can see.
  std::size_t completed = 0;  // state completed, or an end was seen
  std::size_t retired_only =
      0;  // retired though neither started nor completed, outside coalesced groups
  std::size_t started_signs = 0;  // a start was seen, or a duration measured
  bool record_gaps = false;
  std::int64_t first_record = kNull64, last_record = kNull64;
  std::int64_t first_ts = kNull64, last_ts = kNull64;
};

struct Dump {
  DumpInfo info;
  Columns columns;
};

// Reads one dump, pickle or JSON by its first byte. Never throws for what the input says: see
// DumpInfo::error. `doc` is scratch space of the calling thread.
Dump read_dump(std::string_view input, std::uint32_t file_index, Document& doc, Pool& pool);

}  // namespace mycroft
