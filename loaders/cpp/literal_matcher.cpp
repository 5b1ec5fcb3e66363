#include "literal_matcher.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <stdexcept>

namespace mycroft {

namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct Node {
  std::vector<std::uint32_t> next;
  std::uint32_t fail = 0;
  std::vector<std::uint16_t> hits;
};

}  // namespace

LiteralMatcher::LiteralMatcher(const std::vector<std::pair<std::string, std::uint16_t>>& literals) {
  // Class 0 holds every byte that no literal uses.
  classes_ = 1;
  for (const auto& [literal, number] : literals) {
    if (literal.empty()) throw std::invalid_argument("a literal must not be empty");
    for (const char c : literal) {
      std::uint8_t& byte_class = class_of_[static_cast<unsigned char>(c)];
      if (byte_class == 0) byte_class = static_cast<std::uint8_t>(classes_++);
    }
  }
  std::vector<Node> nodes(1);
  nodes[0].next.assign(classes_, kNone);
  for (const auto& [literal, number] : literals) {
    std::uint32_t at = 0;
    for (const char c : literal) {
      const std::uint8_t byte_class = class_of_[static_cast<unsigned char>(c)];
      if (nodes[at].next[byte_class] == kNone) {
        nodes[at].next[byte_class] = static_cast<std::uint32_t>(nodes.size());
        nodes.emplace_back();
        nodes.back().next.assign(classes_, kNone);
      }
      at = nodes[at].next[byte_class];
    }
    nodes[at].hits.push_back(number);
  }
  if (nodes.size() > std::numeric_limits<std::uint16_t>::max()) {
    throw std::invalid_argument("too many literals for one automaton");
  }

  // Breadth first, so that the node behind a failure link is complete before it is copied from.
  std::queue<std::uint32_t> queue;
  for (std::uint32_t& next : nodes[0].next) {
    if (next == kNone) {
      next = 0;
    } else {
      queue.push(next);
    }
  }
  while (!queue.empty()) {
    const std::uint32_t at = queue.front();
    queue.pop();
    const std::vector<std::uint16_t> inherited = nodes[nodes[at].fail].hits;
    nodes[at].hits.insert(nodes[at].hits.end(), inherited.begin(), inherited.end());
    for (std::uint32_t c = 0; c < classes_; ++c) {
      const std::uint32_t behind = nodes[nodes[at].fail].next[c];
      std::uint32_t& next = nodes[at].next[c];
      if (next == kNone) {
        next = behind;
      } else {
        nodes[next].fail = behind;
        queue.push(next);
      }
    }
  }

  std::vector<std::uint32_t> order(nodes.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_partition(order.begin(), order.end(),
                        [&](std::uint32_t i) { return nodes[i].hits.empty(); });
  std::vector<std::uint32_t> number_of(nodes.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) number_of[order[i]] = i;

  root_ = number_of[0] * classes_;
  table_.resize(nodes.size() * classes_);
  first_hit_ = static_cast<std::uint32_t>(nodes.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const Node& node = nodes[order[i]];
    for (std::uint32_t c = 0; c < classes_; ++c) {
      table_[i * classes_ + c] = static_cast<std::uint16_t>(number_of[node.next[c]]);
    }
    if (node.hits.empty()) continue;
    first_hit_ = std::min(first_hit_, i);
    hit_start_.push_back(static_cast<std::uint32_t>(hits_.size()));
    hits_.insert(hits_.end(), node.hits.begin(), node.hits.end());
  }
  hit_start_.push_back(static_cast<std::uint32_t>(hits_.size()));
}

}  // namespace mycroft
