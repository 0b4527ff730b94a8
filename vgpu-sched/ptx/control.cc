#include "vgpu-sched/ptx/control.h"

#include <algorithm>

#include "vgpu-sched/ptx/values.h"

namespace bandsaw::ptx {

Control::Control(const Flow& flow) : successors_(flow.steps().size() + 1), predecessors_(successors_.size()) {
  for (uint32_t s = 0; s < end(); ++s) {
    const Step& step = flow.steps()[s];
    const bool leaves = step.kind == Kind::kBranch || step.kind == Kind::kEnd;
    for (const uint32_t target : flow.targets(s)) connect(s, target);
    if (step.kind == Kind::kEnd) connect(s, end());
    if (!leaves || step.instruction->guard) connect(s, s + 1);
  }
}

void Control::connect(uint32_t from, uint32_t to) {
  auto& list = successors_[from];
  if (list.size() < 64 && std::find(list.begin(), list.end(), to) != list.end()) return;
  list.push_back(to);
  predecessors_[to].push_back(from);
}

// From the end backwards, each node after those that it can be reached from on the reversed edges: post-order,
// reversed.
std::vector<uint32_t> Control::backward_order() const {
  std::vector<uint32_t> order;
  std::vector<uint32_t> next(predecessors_.size());
  std::vector<bool> known(predecessors_.size());
  std::vector<uint32_t> path{end()};
  known[end()] = true;
  while (!path.empty()) {
    const uint32_t node = path.back();
    if (next[node] == predecessors_[node].size()) {
      order.push_back(node);
      path.pop_back();
      continue;
    }
    const uint32_t to = predecessors_[node][next[node]++];
    if (known[to]) continue;
    known[to] = true;
    path.push_back(to);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// Immediate post-dominators, after Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm".
std::vector<uint32_t> Control::meeting_points() const {
  const std::vector<uint32_t> order = backward_order();
  std::vector<uint32_t> rank(successors_.size(), kNowhere), meet(successors_.size(), kNowhere);
  for (uint32_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  meet[end()] = end();
  size_t work = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 1; i < order.size(); ++i) {
      uint32_t found = kNowhere;
      for (uint32_t other : successors_[order[i]]) {
        if (meet[other] == kNowhere) continue;
        if (found == kNowhere) {
          found = other;
          continue;
        }
        while (found != other) {
          if (++work > kControlBudget) return {};
          (rank[found] > rank[other] ? found : other) = meet[rank[found] > rank[other] ? found : other];
        }
      }
      if (++work > kControlBudget) return {};
      if (meet[order[i]] != found) meet[order[i]] = found, changed = true;
    }
  }
  return meet;
}

Divergence::Divergence(const Flow& flow, const Control& control)
    : flow_(flow), control_(control), meet_(control.meeting_points()), seen_(control.end() + 1) {
  if (meet_.empty() || flow.has_unknown_target()) {
    known_ = false;
    return;
  }
  const Values values(flow, true);
  std::vector<uint8_t> varies(values.size());
  std::vector<bool> done(control.end());
  sources(&varies, values);
  for (bool more = true; more && known_;) {
    more = false;
    values.spread_bits(&varies, true);
    work_ += values.size();
    for (uint32_t s = 0; s < control.end() && known_; ++s) {
      if (done[s] || !control.parts(s) || !varies_here(flow.steps()[s], varies)) continue;
      done[s] = more = true;
      branches_.push_back(s);
      // What is computed while the threads are apart differs between them.
      between(s, [&](uint32_t node) { varies[values.step_node(node)] = 1; });
    }
    if (work_ > kControlBudget) known_ = false;
  }
}

bool Divergence::varies_here(const Step& step, const std::vector<uint8_t>& varies) const {
  for (const Use& use : flow_.uses(step)) {
    if (use.named == Named::kNode && varies[use.index]) return true;
    if (use.named == Named::kSpecial && use.index == static_cast<uint32_t>(Special::kThread)) return true;
  }
  return false;
}

// What differs between the threads of a block by itself.
void Divergence::sources(std::vector<uint8_t>* varies, const Values& values) const {
  for (size_t s = 0; s < flow_.steps().size(); ++s) {
    const Step& step = flow_.steps()[s];
    const Instruction& i = *step.instruction;
    uint8_t& mine = (*varies)[values.step_node(s)];
    if (is_full_barrier(i)) continue;  // a reduction over the block is the same for all
    if (step.kind == Kind::kLoad) {
      if (variable_named(flow_, step) < 0 && !loads_constant(step)) mine = 1;
    } else if (step.kind != Kind::kValue && step.kind != Kind::kStore) {
      mine = 1;
    } else if (i.has("sync") || i.opcode == "vote" || i.opcode == "activemask" || i.opcode == "elect" ||
               i.opcode == "shfl" || i.opcode == "match") {
      mine = 1;
    }
    for (const Use& use : flow_.uses(step))
      if (use.named == Named::kSpecial && use.index == static_cast<uint32_t>(Special::kThread)) mine = 1;
  }
}

}  // namespace bandsaw::ptx
