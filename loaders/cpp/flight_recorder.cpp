#include "flight_recorder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "entry_fields.h"
#include "entry_lists.h"
#include "json.h"
#include "local_texts.h"
#include "neighbours.h"
#include "op_facts.h"
#include "pickle.h"

namespace mycroft {
namespace {

// Years 1990 to 2200: a time outside is a damaged number, not a time.
constexpr std::int64_t kFirstTime = 631'152'000'000'000'000;
constexpr std::int64_t kLastTime = 7'258'118'400'000'000'000;

// More groups than any job has: a dump that names more is made up.
constexpr std::size_t kMaxGroups = 16'384;
// What one row costs in all columns together, and twice that while they grow.
constexpr std::size_t kRowBytes = 400;

class DumpReader {
 public:
  DumpReader(std::uint32_t file, Document& doc, Pool& pool)
      : file_(file), doc_(doc), pool_(pool), texts_(doc), lists_(doc, texts_, info_.dropped) {}

  Dump read(std::string_view input) {
    try {
      Parsed parsed = parse(input);
      info_.damage = parsed.damage;
      info_.trailing = parsed.trailing;
      lists_.begin();
      top(parsed.root);
      derive(info_, out_, numbers_);
      publish();
    } catch (const ReadError& error) {
      fail(error.what());
    } catch (const std::exception&) {
      fail("does not fit into memory");
    }
    return {std::move(info_), std::move(out_)};
  }

 private:
  // An entry as it is read, before it becomes a row.
  struct Entry {
    std::int64_t record_id = kNull64, pg_id = kNull64, seq = kNull64, p2p_seq = kNull64,
                 op_id = kNull64, created = kNull64, seen_start = kNull64, seen_end = kNull64,
                 dur_ns = kNull64, timeout_ms = kNull64;
    std::uint32_t group_name = kNoCode, group_desc = kNoCode, name = kNoCode, stack = kNoCode;
    Value in_sizes, out_sizes, in_dtypes, out_dtypes;
    std::uint8_t state = kNull8, retired = kNull8, is_p2p = kNull8;
    bool named = false;
  };

  // What is known of one name of an operation: parsed once.
  struct NameFacts {
    std::uint32_t op_name = kNoCode;
    std::uint32_t own = kNull32, peer = kNull32;
    std::uint8_t kind = kOther;
    std::string_view backend;
  };

  void fail(const std::string& what) {
    info_.error = what;
    info_.entries = 0;
    info_.groups.clear();
    info_.config.clear();
    info_.status.clear();
    out_ = Columns();
  }

  Parsed parse(std::string_view input) {
    std::string_view json = input;
    if (json.starts_with("\xef\xbb\xbf")) json.remove_prefix(3);
    while (!json.empty() &&
           (json[0] == ' ' || json[0] == '\n' || json[0] == '\r' || json[0] == '\t')) {
      json.remove_prefix(1);
    }
    bool is_json = json.starts_with('{') || json.starts_with('[');
    // A pickle can be many times larger once read, by short references to long things: the limit
    // grows with the file.
    ReadLimits limits;
    limits.memory = std::min(limits.memory, (std::size_t{16} << 20) + 96 * input.size());
    limits.output = (std::size_t{32} << 20) + 16 * input.size();
    doc_.clear(limits);
    return is_json ? read_json(input.substr(input.size() - json.size()), doc_)
                   : read_pickle(input, doc_);
  }

  std::int64_t number(const Value& value, const char* field) {
    if (value.kind == Kind::kInt) return value.as.i;
    if (value.kind == Kind::kText) {  // JSON writes the numbers of pg_status as text
      std::int64_t i = 0;
      std::string_view s = value.str();
      auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), i);
      if (error == std::errc() && end == s.data() + s.size()) return i;
    }
    if (value.kind != Kind::kNone) odd(field);
    return kNull64;
  }

  // A number that counts or names: never negative.
  std::int64_t natural(const Value& value, const char* field) {
    std::int64_t i = number(value, field);
    if (i < 0 && i != kNull64) {
      odd(field);
      return kNull64;
    }
    return i;
  }

  // JSON writes 0 for a time that there is not.
  std::int64_t time(const Value& value, std::int64_t unit, const char* field) {
    std::int64_t i = number(value, field);
    if (i == kNull64 || i == 0) return kNull64;
    if (i < kFirstTime / unit || i > kLastTime / unit) {
      odd(field);
      return kNull64;
    }
    return i * unit;
  }

  std::uint8_t flag(const Value& value, const char* field) {
    if (value.kind == Kind::kBool) return value.as.i != 0 ? 1 : 0;
    if (value.kind != Kind::kNone) odd(field);
    return kNull8;
  }

  std::uint32_t text(const Value& value, const char* field) {
    if (value.is_text()) return texts_.code(value.str());
    if (value.kind != Kind::kNone) odd(field);
    return kNoCode;
  }

  void odd(const char* field) { drop(std::string("unusable ") + field); }
  void drop(const std::string& reason) { ++info_.dropped[reason]; }

  void top(const Value& root) {
    if (root.is_sequence()) {
      info_.version = "list";
      entries(root);
      info_.is_dump = info_.entries > 0 || doc_.size(root) == 0;
    } else if (root.kind == Kind::kDict) {
      doc_.each_pair(root, [&](const Value& key, const Value& value) {
        if (!key.is_text()) return;
        std::string_view name = key.str();
        if (name == "version") {
          if (value.is_text()) info_.version = clean_utf8(value.str().substr(0, 64));
        } else if (name == "comm_lib_version" || name == "nccl_version") {
          if (value.is_text()) info_.lib_version = clean_utf8(value.str().substr(0, 64));
        } else if (name == "pg_config") {
          config(value);
          info_.is_dump = true;
        } else if (name == "pg_status") {
          status(value);
          info_.is_dump = true;
        } else if (name == "entries") {
          info_.is_dump = true;
          entries(value);
        }
      });
    }
    if (!info_.is_dump) {
      fail(info_.damage.empty()
               ? "is plain data without the keys of a Flight Recorder dump (entries, pg_config)"
               : info_.damage + "; nothing of a dump comes before");
    }
  }

  void config(const Value& value) {
    if (value.kind != Kind::kDict) return drop("pg_config that is no dict");
    doc_.each_pair(value, [&](const Value& key, const Value& group) {
      if (info_.config.size() >= kMaxGroups) return drop("pg_config beyond 16,384 groups");
      GroupConfig found;
      if (key.is_int()) found.group.pg_id = key.as.i;
      if (key.is_text()) found.group.name = texts_.code(key.str());
      if (group.kind == Kind::kDict) {
        doc_.each_pair(group, [&](const Value& k, const Value& v) {
          if (!k.is_text()) return;
          if (k.str() == "name") found.group.name = text(v, "pg_config name");
          if (k.str() == "desc") found.group.desc = text(v, "pg_config desc");
          if (k.str() == "ranks") found.ranks = lists_.ranks(v);
        });
      } else {
        found.ranks = lists_.ranks(group);
      }
      info_.config.push_back(found);
    });
  }

  void status(const Value& value) {
    if (value.kind != Kind::kDict) return drop("pg_status that is no dict");
    doc_.each_pair(value, [&](const Value& key, const Value& group) {
      if (info_.status.size() >= kMaxGroups) return drop("pg_status beyond 16,384 groups");
      GroupStatus found;
      found.pg_id = number(key, "pg_status key");
      if (group.kind != Kind::kDict || found.pg_id == kNull64) return drop("unusable pg_status");
      doc_.each_pair(group, [&](const Value& k, const Value& v) {
        if (!k.is_text()) return;
        std::string_view name = k.str();
        if (name == "last_enqueued_collective") found.last_enqueued = progress(v);
        if (name == "last_started_collective") found.last_started = progress(v);
        if (name == "last_completed_collective") found.last_completed = progress(v);
      });
      info_.status.push_back(found);
    });
  }

  // -1 says none.
  std::int64_t progress(const Value& value) {
    std::int64_t i = number(value, "pg_status");
    return i < 0 ? kNull64 : i;
  }

  void entries(const Value& list) {
    if (list.kind == Kind::kNone) return;
    if (!list.is_sequence()) return drop("entries that are no list");
    info_.has_entries = true;
    std::uint32_t line = 0;
    doc_.each(list, [&](const Value& value) {
      std::uint32_t at = line++;
      if (value.kind != Kind::kDict) return drop("entry that is no dict");
      if (!doc_.take(value)) return drop("entry listed twice");
      if (doc_.is_partial(value)) return drop("entry cut off by the end of the file");
      Entry entry = this->entry(value);
      if (!entry.named) return drop("entry without profiling_name");
      row(entry, at);
    });
  }

  Entry entry(const Value& dict) {
    Entry e;
    doc_.each_pair(dict, [&](const Value& key, const Value& value) {
      if (!key.is_text()) return;
      switch (fields_.of(key.str())) {
        case Field::kFrames:
          e.stack = lists_.stack(value);
          break;
        case Field::kRecordId:
          e.record_id = natural(value, "record_id");
          break;
        case Field::kPgId:
          e.pg_id = number(value, "pg_id");
          break;
        case Field::kProcessGroup:
          process_group(value, e);
          break;
        case Field::kSeqId:
        case Field::kCollectiveSeqId:
          e.seq = natural(value, "collective_seq_id");
          break;
        case Field::kP2pSeqId:
          e.p2p_seq = natural(value, "p2p_seq_id");
          break;
        case Field::kOpId:
          e.op_id = natural(value, "op_id");
          break;
        case Field::kProfilingName:
          e.name = text(value, "profiling_name");
          e.named = e.name != kNoCode;
          break;
        case Field::kTimeCreatedNs:
          e.created = time(value, 1, "time_created_ns");
          break;
        case Field::kTimeCreatedUs:
          e.created = time(value, 1000, "time_created_us");
          break;
        case Field::kDurationMs:
          e.dur_ns = duration(value);
          break;
        case Field::kInputSizes:
          e.in_sizes = value;
          break;
        case Field::kInputDtypes:
          e.in_dtypes = value;
          break;
        case Field::kOutputSizes:
          e.out_sizes = value;
          break;
        case Field::kOutputDtypes:
          e.out_dtypes = value;
          break;
        case Field::kState:
          e.state = state(value);
          break;
        case Field::kSeenStart:
          e.seen_start = time(value, 1, "time_discovered_started_ns");
          break;
        case Field::kSeenEnd:
          e.seen_end = time(value, 1, "time_discovered_completed_ns");
          break;
        case Field::kRetired:
          e.retired = flag(value, "retired");
          break;
        case Field::kTimeoutMs:
          e.timeout_ms = natural(value, "timeout_ms");
          break;
        case Field::kIsP2p:
          e.is_p2p = flag(value, "is_p2p");
          break;
        case Field::kUnknown:
          break;
      }
    });
    return e;
  }

  void process_group(const Value& value, Entry& e) {
    if (!value.is_sequence() || doc_.size(value) != 2) return odd("process_group");
    std::uint32_t* into = &e.group_name;
    doc_.each(value, [&](const Value& part) {
      *into = text(part, "process_group");
      into = &e.group_desc;
    });
  }

  std::uint8_t state(const Value& value) {
    if (value.is_text()) {
      std::string_view s = value.str();
      if (s == "completed") return kCompleted;
      if (s == "scheduled") return kScheduled;
      if (s == "started") return kStarted;
    }
    if (value.kind != Kind::kNone) odd("state");
    return kNull8;
  }

  std::int64_t duration(const Value& value) {
    double ms = value.kind == Kind::kFloat ? value.as.f
                : value.is_int()           ? static_cast<double>(value.as.i)
                                           : -1;
    if (value.kind == Kind::kNone) return kNull64;
    if (!(ms >= 0 && ms < 1e12)) {  // also NaN
      odd("duration_ms");
      return kNull64;
    }
    return static_cast<std::int64_t>(ms * 1e6 + 0.5);
  }

  const NameFacts& facts(std::uint32_t code) {
    auto [place, added] = names_.try_emplace(code);
    NameFacts& facts = place->second;
    if (added) {
      std::string_view full = texts_.text(code);
      std::string_view name = full;
      // The prefix is a backend only where it is one word: names of user functions may hold colons.
      std::size_t colon = full.find(':');
      if (colon != std::string_view::npos && full.find(' ') > colon) {
        facts.backend = full.substr(0, colon);
        name = full.substr(colon + 1);
      }
      facts.op_name = texts_.made(std::string(name));
      facts.kind = kind_of(name);
      if (facts.kind == kSend || facts.kind == kRecv) parse_p2p(name, facts.own, facts.peer);
    }
    return facts;
  }

  std::uint32_t group(const Entry& e) {
    GroupName name{e.pg_id, e.group_name, e.group_desc};
    for (std::size_t i = 0; i < last_groups_.size(); ++i) {
      if (last_groups_[i] < info_.groups.size() && info_.groups[last_groups_[i]] == name) {
        return last_groups_[i];
      }
    }
    std::string key(reinterpret_cast<const char*>(&name.pg_id), sizeof(name.pg_id));
    key.append(reinterpret_cast<const char*>(&name.name), sizeof(name.name));
    key.append(reinterpret_cast<const char*>(&name.desc), sizeof(name.desc));
    auto [place, added] =
        group_codes_.try_emplace(key, static_cast<std::uint32_t>(info_.groups.size()));
    if (added) {
      doc_.charge(sizeof(GroupName) + kRowBytes, 0);
      info_.groups.push_back(name);
    }
    last_groups_[next_group_++ % last_groups_.size()] = place->second;
    return place->second;
  }

  void row(const Entry& e, std::uint32_t line) {
    std::uint32_t of_group = group(e);
    if (of_group >= kMaxGroups) return drop("entry of a group beyond 16,384 groups");
    const NameFacts& name = facts(e.name);
    if (info_.backend.empty() && !name.backend.empty()) {
      info_.backend = clean_utf8(name.backend.substr(0, 64));
    }
    bool p2p = e.is_p2p == 1 || (e.is_p2p == kNull8 && (name.kind == kSend || name.kind == kRecv));
    std::int64_t p2p_seq = e.p2p_seq == kNull64 ? e.seq : e.p2p_seq;
    std::int64_t in_numel, out_numel;
    unsigned in_item, out_item;
    out_.in_sizes.push_back(lists_.sizes(e.in_sizes, in_numel, "input_sizes"));
    out_.out_sizes.push_back(lists_.sizes(e.out_sizes, out_numel, "output_sizes"));
    out_.dtype.push_back(lists_.dtypes(e.in_dtypes, in_item, "input_dtypes"));
    out_.out_dtype.push_back(lists_.dtypes(e.out_dtypes, out_item, "output_dtypes"));
    std::int64_t in_bytes = kNull64, out_bytes = kNull64;
    if (in_item == 0 || in_numel == kNull64 || __builtin_mul_overflow(in_numel, in_item, &in_bytes))
      in_bytes = kNull64;
    if (out_item == 0 || out_numel == kNull64 ||
        __builtin_mul_overflow(out_numel, out_item, &out_bytes))
      out_bytes = kNull64;
    out_.bytes.push_back(std::max(in_bytes, out_bytes));
    out_.in_numel.push_back(in_numel);
    out_.out_numel.push_back(out_numel);
    out_.file.push_back(file_);
    out_.group.push_back(of_group);
    out_.line.push_back(line);
    out_.op_name.push_back(name.op_name);
    out_.stack.push_back(e.stack);
    out_.own_rank.push_back(name.own);
    out_.peer_rank.push_back(name.peer);
    out_.record_id.push_back(e.record_id);
    out_.op_seq.push_back(p2p ? p2p_seq : e.seq);
    out_.op_id.push_back(e.op_id);
    out_.pair_seq.push_back(kNull64);
    out_.enq_ts.push_back(e.created);
    out_.seen_start_ts.push_back(e.seen_start);
    out_.seen_end_ts.push_back(e.seen_end);
    out_.dur_ns.push_back(e.dur_ns);
    out_.timeout_ms.push_back(e.timeout_ms);
    out_.op_kind.push_back(name.kind);
    out_.state.push_back(e.state);
    out_.retired.push_back(e.retired);
    out_.is_p2p.push_back(p2p ? 1 : 0);
    out_.coalesced.push_back(0);
    doc_.charge(kRowBytes, 0);
    // Every row may end up with the whole text of its sizes, also where all share one list.
    for (std::uint32_t code : {name.op_name, out_.in_sizes.back(), out_.out_sizes.back(),
                               out_.dtype.back(), out_.out_dtype.back()}) {
      if (code != kNoCode) doc_.charge_output(texts_.text(code).size());
    }
    numbers_.collective.push_back(e.seq);
    numbers_.p2p.push_back(p2p_seq);
    ++info_.entries;
  }

  // Replaces the codes of this file by those of the shared pool.
  void publish() {
    if (info_.groups.size() > kMaxGroups) info_.groups.resize(kMaxGroups);
    std::vector<std::uint32_t> codes = pool_.texts(texts_.all());
    auto shared = [&](std::uint32_t& code) {
      if (code != kNoCode) code = codes[code];
    };
    for (auto& stack : lists_.stacks())
      for (auto& code : stack) shared(code);
    std::vector<std::uint32_t> stack_codes = pool_.stacks(lists_.stacks());
    for (auto& code : out_.stack)
      if (code != kNoCode) code = stack_codes[code];
    for (auto* column :
         {&out_.op_name, &out_.in_sizes, &out_.out_sizes, &out_.dtype, &out_.out_dtype})
      for (auto& code : *column) shared(code);
    for (GroupName& group : info_.groups) {
      shared(group.name);
      shared(group.desc);
    }
    for (GroupConfig& config : info_.config) {
      shared(config.group.name);
      shared(config.group.desc);
      shared(config.ranks);
    }
  }

  std::uint32_t file_;
  Document& doc_;
  Pool& pool_;
  DumpInfo info_;
  Columns out_;
  LocalTexts texts_;
  EntryLists lists_;
  std::unordered_map<std::string, std::uint32_t> group_codes_;
  std::array<std::uint32_t, 8> last_groups_ = {kNoCode, kNoCode, kNoCode, kNoCode,
                                               kNoCode, kNoCode, kNoCode, kNoCode};
  std::size_t next_group_ = 0;
  std::unordered_map<std::uint32_t, NameFacts> names_;
  EntryFields fields_;
  Numbers numbers_;
};

}  // namespace

Dump read_dump(std::string_view input, std::uint32_t file_index, Document& doc, Pool& pool) {
  return DumpReader(file_index, doc, pool).read(input);
}

}  // namespace mycroft
