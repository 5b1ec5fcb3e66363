#include "truth.h"

#include <algorithm>
#include <sstream>

namespace mycroft::replay {
namespace {

uint64_t difference(uint64_t later, uint64_t earlier) {
  return later > earlier ? later - earlier : 0;
}

// Writes one JSON object; values are numbers, booleans or plain text of ours.
class Json {
 public:
  Json& text(const char* key, const std::string& value) {
    std::string quoted = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c < ' ' ? ' ' : c;
    }
    return raw(key, quoted + "\"");
  }
  template <typename T>
  Json& number(const char* key, T value) {
    return raw(key, std::to_string(value));
  }
  Json& flag(const char* key, bool value) { return raw(key, value ? "true" : "false"); }
  Json& raw(const char* key, const std::string& value) {
    body_ += body_.empty() ? "" : ", ";
    body_ += std::string("\"") + key + "\": " + value;
    return *this;
  }
  std::string done() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

template <typename Items, typename Write>
std::string list(const Items& items, Write&& write) {
  std::string out = "[";
  for (const auto& item : items) {
    if (out.size() > 1) out += ",\n ";
    out += write(item);
  }
  return out + "]";
}

}  // namespace

TruthFlow::Sums TruthFlow::sums() const {
  Sums s;
  if (send) {
    for (size_t j = 0; j < t_done.size(); ++j) {
      const uint64_t before = j > 0 ? t_done[j - 1] : 0;
      const uint64_t term = difference(t_done[j], std::max(t_moved[j], before));
      s.net_busy += term;
      s.net_max = std::max(s.net_max, term);
    }
    for (size_t j = 0; j < t_moved.size(); ++j) {
      const uint64_t before = j > 0 ? t_moved[j - 1] : begin_ns;
      const uint64_t term = difference(t_moved[j], std::max(t_ready[j], before));
      s.peer_wait += term;
      s.peer_wait_max = std::max(s.peer_wait_max, term);
    }
    return s;
  }
  for (size_t j = 0; j < t_posted.size(); ++j) {
    uint64_t could = j > 0 ? std::max(t_posted[j - 1], begin_ns) : begin_ns;
    if (j >= window) could = std::max(could, t_done[j - window]);
    const uint64_t term = difference(t_posted[j], could);
    s.post_delay += term;
    s.post_delay_max = std::max(s.post_delay_max, term);
  }
  for (size_t j = 0; j < t_ready.size(); ++j) s.flush += difference(t_ready[j], t_moved[j]);
  for (size_t j = 0; j < t_done.size(); ++j) s.gpu_hold += difference(t_done[j], t_ready[j]);
  return s;
}

std::string Truth::to_json() const {
  Json top;
  top.text("scenario", scenario).number("rank", rank).number("abi", abi).number("pid", pid);
  top.raw("comms", list(comms, [](const TruthComm& c) {
            return Json()
                .text("name", c.name)
                .number("hash", c.hash)
                .number("rank", c.rank)
                .number("size", c.size)
                .flag("named", c.named)
                .flag("closed", c.closed)
                .number("last_seq", c.last_seq)
                .done();
          }));
  top.raw("ops", list(ops, [](const TruthOp& o) {
            return Json()
                .text("comm", o.comm)
                .number("seq", o.seq)
                .text("kind", o.kind)
                .flag("p2p", o.p2p)
                .number("peer", o.peer)
                .number("bytes", o.bytes)
                .number("source_seq", o.source_seq)
                .number("enq_ns", o.enq_ns)
                .text("state", o.state)
                .number("dur_ns", o.dur_ns)
                .number("flows", o.flows)
                .flag("kernel_end", o.kernel_end)
                .done();
          }));
  std::vector<TruthFlow> recorded;
  for (const TruthFlow& f : flows) {
    if (f.recorded && f.running && (f.stopped || f.aborted)) recorded.push_back(f);
  }
  top.raw("flows", list(recorded, [](const TruthFlow& f) {
            const auto s = f.sums();
            return Json()
                .text("comm", f.comm)
                .number("seq", f.seq)
                .text("kind", f.kind)
                .number("channel", f.channel)
                .number("peer", f.peer)
                .flag("send", f.send)
                .flag("foreign", f.foreign)
                .number("slices", f.done * f.unit)
                .number("bytes", f.bytes)
                .flag("partial", f.done * f.unit < f.total)
                .flag("aborted", f.aborted)
                .number("end_ns", f.t_done.empty() ? 0 : f.t_done.back())
                .number("net_busy_ns", s.net_busy)
                .number("net_max_ns", s.net_max)
                .number("peer_wait_ns", s.peer_wait)
                .number("peer_wait_max_ns", s.peer_wait_max)
                .number("post_delay_ns", s.post_delay)
                .number("post_delay_max_ns", s.post_delay_max)
                .number("flush_ns", s.flush)
                .number("gpu_hold_ns", s.gpu_hold)
                .done();
          }));
  top.raw("holds", list(holds, [](const TruthHold& h) {
            return Json()
                .number("from_ns", h.from_ns)
                .number("to_ns", h.to_ns)
                .number("open_ops", h.open_ops)
                .raw("rows", list(h.rows,
                                  [](const TruthHold::Row& r) {
                                    return Json()
                                        .text("comm", r.comm)
                                        .number("seq", r.seq)
                                        .number("channel", r.channel)
                                        .number("peer", r.peer)
                                        .flag("send", r.send)
                                        .flag("foreign", r.foreign)
                                        .number("total", r.total)
                                        .number("posted", r.posted)
                                        .number("ready", r.ready)
                                        .number("moved", r.moved)
                                        .number("done", r.done)
                                        .number("bytes", r.bytes)
                                        .number("last_move_ns", r.last_move_ns)
                                        .done();
                                  }))
                .done();
          }));
  top.raw("foreign", list(foreign, [](const TruthForeign& f) {
            return Json()
                .number("pid", f.pid)
                .number("context", f.context)
                .number("parent", f.parent)
                .number("rank", f.rank)
                .number("channel", f.channel)
                .number("peer", f.peer)
                .flag("send", f.send)
                .number("total", f.total)
                .done();
          }));
  top.raw("violations", list(violations, [](const std::string& v) {
            std::string quoted;
            for (const char c : v) quoted += c == '"' || c == '\\' ? '\'' : c;
            return "\"" + quoted + "\"";
          }));
  return top.done() + "\n";
}

}  // namespace mycroft::replay
