#include "backend/device/soft/timing/reorder.h"

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

namespace bandsaw::soft::timing {
namespace {

constexpr uint32_t kMostMoved = 48;  // instructions: further ahead a compiler would run short of registers

bool keeps_order(Kind kind) {
  switch (kind) {
    case Kind::kLoad:
    case Kind::kStore:
    case Kind::kAtomic:
    case Kind::kOtherAccess:
    case Kind::kBarrier:
    case Kind::kArrive:
      return true;
    default:
      return false;
  }
}

uint32_t latency_of(const Instruction& one, const Machine& machine) {
  switch (one.kind) {
    case Kind::kLoad:
    case Kind::kAtomic:
    case Kind::kOtherAccess:
      return one.global_load ? machine.hit_latency + machine.l2_latency : machine.shared_latency;
    case Kind::kStore:
      return machine.simple_latency;
    default:
      return machine.latency_of(one.kind);
  }
}

// One straight part: who waits for whom.
class Stretch {
 public:
  Stretch(std::span<const Instruction> code, const Machine& machine);
  std::vector<Instruction> ordered() const;

 private:
  struct Node {
    std::vector<uint32_t> after;  // come later
    uint32_t before = 0;          // so many come first
    uint32_t latency = 1, path = 0;
  };
  void wait_for(uint32_t later, uint32_t earlier);

  const std::span<const Instruction> code_;
  std::vector<Node> nodes_;
};

Stretch::Stretch(std::span<const Instruction> code, const Machine& machine) : code_(code), nodes_(code.size()) {
  std::unordered_map<uint32_t, uint32_t> writer;
  std::unordered_map<uint32_t, std::vector<uint32_t>> readers;
  int64_t last_access = -1;
  for (uint32_t i = 0; i < code.size(); ++i) {
    nodes_[i].latency = latency_of(code[i], machine);
    for (const uint32_t reg : code[i].reads) {
      if (const auto found = writer.find(reg); found != writer.end()) wait_for(i, found->second);
      readers[reg].push_back(i);
    }
    for (const uint32_t reg : code[i].writes) {
      if (const auto found = writer.find(reg); found != writer.end()) wait_for(i, found->second);
      for (const uint32_t reader : readers[reg]) wait_for(i, reader);
      readers[reg].clear();
      writer[reg] = i;
    }
    if (!keeps_order(code[i].kind)) continue;
    if (last_access >= 0) wait_for(i, static_cast<uint32_t>(last_access));
    last_access = i;
  }
  for (uint32_t i = static_cast<uint32_t>(nodes_.size()); i-- > 0;) {
    Node& node = nodes_[i];
    for (const uint32_t later : node.after) node.path = std::max(node.path, nodes_[later].path);
    node.path += node.latency;
  }
}

void Stretch::wait_for(uint32_t later, uint32_t earlier) {
  if (later == earlier) return;
  nodes_[earlier].after.push_back(later);
  ++nodes_[later].before;
}

// Each cycle the one of those that may begin from which most is left to do; if none may yet, the next one that may.
std::vector<Instruction> Stretch::ordered() const {
  std::vector<uint64_t> ready(nodes_.size(), 0);
  std::vector<uint32_t> before(nodes_.size());
  std::vector<uint32_t> open;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    before[i] = nodes_[i].before;
    if (before[i] == 0) open.push_back(i);
  }
  std::vector<Instruction> order;
  for (uint64_t now = 0; !open.empty(); ++now) {
    const auto better = [&](uint32_t a, uint32_t b) {
      const uint64_t at_a = std::max(ready[a], now), at_b = std::max(ready[b], now);
      if (at_a != at_b) return at_a < at_b;
      return nodes_[a].path != nodes_[b].path ? nodes_[a].path > nodes_[b].path : a < b;
    };
    const auto chosen = std::min_element(open.begin(), open.end(), better);
    const uint32_t one = *chosen;
    open.erase(chosen);
    now = std::max(now, ready[one]);
    order.push_back(code_[one]);
    for (const uint32_t later : nodes_[one].after) {
      const bool waits = std::ranges::any_of(code_[later].reads, [&](uint32_t reg) {
        return std::ranges::find(code_[one].writes, reg) != code_[one].writes.end();
      });
      ready[later] = std::max(ready[later], now + (waits ? nodes_[one].latency : 1));
      if (--before[later] == 0) open.push_back(later);
    }
  }
  return order;
}

// Where warps begin a stretch of instructions.
std::set<uint32_t> begins(const LaunchTrace& launch) {
  std::set<uint32_t> found{0};
  for (const WarpTrace& warp : launch.warps)
    for_events(warp.words, [&](uint32_t word, auto) {
      if ((word & kEventMask) == kStretch) found.insert(counter_of(word));
    });
  return found;
}

}  // namespace

Code reorder(const LaunchTrace& launch, const Machine& machine) {
  Code code = launch.code;
  const std::set<uint32_t> begin = begins(launch);
  const auto size = static_cast<uint32_t>(code.instructions.size());
  for (uint32_t first = 0; first < size;) {
    uint32_t end = first;
    const auto ends = [&](uint32_t i) {
      const Instruction& one = code.instructions[i];
      return one.ends_stretch || one.kind == Kind::kBranch || i - first >= kMostMoved;
    };
    while (end < size && !ends(end) && (end == first || !begin.contains(end))) ++end;
    const std::span<Instruction> straight(code.instructions.data() + first, end - first);
    if (straight.size() > 2) std::ranges::copy(Stretch(straight, machine).ordered(), straight.begin());
    first = end == first || (end < size && ends(end)) ? end + 1 : end;
  }
  return code;
}

}  // namespace bandsaw::soft::timing
