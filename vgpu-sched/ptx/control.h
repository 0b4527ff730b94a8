// The flow of control in one function, step by step. Inside of this folder only.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu-sched/ptx/flow.h"

namespace bandsaw::ptx {

// Analyses of control stop at this much work and say that they do not know: text may be made to be hard.
inline constexpr size_t kControlBudget = size_t{8} << 20;

// A node for each step and one, the last, for the end.
class Control {
 public:
  explicit Control(const Flow& flow);

  uint32_t end() const { return static_cast<uint32_t>(successors_.size() - 1); }
  const std::vector<uint32_t>& successors(uint32_t node) const { return successors_[node]; }
  const std::vector<uint32_t>& predecessors(uint32_t node) const { return predecessors_[node]; }
  // Threads may part here: more than one way to go.
  bool parts(uint32_t node) const { return successors_[node].size() > 1; }

  static constexpr uint32_t kNowhere = UINT32_MAX;
  // For each node the first that every way from it to the end comes by; kNowhere if there is none. Empty: too much
  // work.
  std::vector<uint32_t> meeting_points() const;

 private:
  void connect(uint32_t from, uint32_t to);
  std::vector<uint32_t> backward_order() const;
  std::vector<std::vector<uint32_t>> successors_, predecessors_;
};

// Which branches part the threads of a block, and what happens in between.
class Divergence {
 public:
  Divergence(const Flow& flow, const Control& control);

  bool known() const { return known_; }  // else nothing can be said
  const std::vector<uint32_t>& branches() const { return branches_; }
  // Calls f(node) for what lies between a branch and where its threads meet again, the end not included.
  template <class F>
  bool between(uint32_t branch, F&& f);

 private:
  void sources(std::vector<uint8_t>* varies, const class Values& values) const;
  bool varies_here(const Step& step, const std::vector<uint8_t>& varies) const;

  const Flow& flow_;
  const Control& control_;
  std::vector<uint32_t> meet_, branches_, seen_;
  uint32_t round_ = 0;
  size_t work_ = 0;
  bool known_ = true;
};

template <class F>
bool Divergence::between(uint32_t branch, F&& f) {
  ++round_;
  std::vector<uint32_t> work;
  auto enter = [&](uint32_t node) {
    if (node == meet_[branch] || node == control_.end() || seen_[node] == round_) return;
    seen_[node] = round_;
    work.push_back(node);
  };
  for (const uint32_t next : control_.successors(branch)) enter(next);
  while (!work.empty()) {
    const uint32_t node = work.back();
    work.pop_back();
    if (++work_ > kControlBudget) return known_ = false;
    f(node);
    for (const uint32_t next : control_.successors(node)) enter(next);
  }
  return true;
}

}  // namespace bandsaw::ptx
