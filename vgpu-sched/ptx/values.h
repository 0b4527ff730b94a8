// Where values go in a function, whatever the order: a graph over the nodes of a Flow.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "vgpu-sched/ptx/flow.h"

namespace bandsaw::ptx {

class Values {
 public:
  // Whether what a step reads (the nth of its uses) flows into its result.
  using Carries = std::function<bool(const Step& step, size_t use)>;
  // `guards`: what decides over a result flows into it, too: guards, and addresses of memory that nobody writes.
  // Without `carries` all does that is read.
  explicit Values(const Flow& flow, bool guards = false, const Carries& carries = {});

  // Nodes of the flow come first, then one for each of its steps.
  size_t size() const { return forward_.size(); }
  uint32_t step_node(size_t step) const { return static_cast<uint32_t>(nodes_ + step); }

  // Spreads marks along the flow of values (or against it) until nothing changes. merge(into, from) says whether `into`
  // changed; it may change a bounded number of times.
  template <class T, class Merge>
  void spread(std::vector<T>* marks, bool forward, Merge merge) const {
    const auto& edges = forward ? forward_ : backward_;
    std::vector<uint32_t> work;
    for (uint32_t i = 0; i < edges.size(); ++i)
      if (!edges[i].empty() && (*marks)[i] != T{}) work.push_back(i);
    while (!work.empty()) {
      const uint32_t from = work.back();
      work.pop_back();
      for (const uint32_t to : edges[from])
        if (merge((*marks)[to], (*marks)[from])) work.push_back(to);
    }
  }
  void spread_bits(std::vector<uint8_t>* marks, bool forward) const;

 private:
  void connect(uint32_t from, uint32_t to);
  size_t nodes_;
  std::vector<std::vector<uint32_t>> forward_, backward_;
};

// The same address gives the same value during a launch.
bool loads_constant(const Step& step);

// The variable of the function itself (a parameter, a spilled local) that a load or store names, or -1.
int64_t variable_named(const Flow& flow, const Step& step);

}  // namespace bandsaw::ptx
