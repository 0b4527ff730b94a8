// Plans the pair of ready kernels that gain most from running beside each other, and the sizes of their grid slices.
//
// Two shapes are a candidate pair if their use of issue slots (PUR) or of bandwidth (MUR) differs. For each pair it
// tries some ratios of blocks that fill an SM, and plans the pair and the ratio with the highest profit. The grid
// slices of both end together (balanced grid slice ratio): the kernel with shorter blocks has more of them in a grid
// slice. The best ratio of two shapes is remembered. One decision solves a bounded number of chains. It begins with the
// most promising pairs, by what issue slots and bandwidth allow at most; the others wait for the next decision.
//
// The paper's kernels are all long and may all be sliced. Here, short kernels go whole and at once, beside the others.
// A long one that may not be sliced has the GPU to itself when its turn comes.
//
// Source: Kernelet, section 4.2, algorithm 1 and FindCoSchedule; section 4.3, equation 7.
#pragma once

#include <vector>

#include "vgpu-sched/slice/planner.h"

namespace bandsaw::slice {

struct PairRules {
  bool prune = true;  // leave out pairs by PUR and MUR; OPT tries all
  int ratios = 6;     // tried for each pair; 0: all
  int solves = 24;    // chains solved for one decision; 0: no bound
};

class PairPlanner : public Planner {
 public:
  // `model` and `source` outlive the planner; `source` may be the model.
  PairPlanner(const CoRunModel& model, PairSource& source, const PlannerOptions& options, const PairRules& rules);

  Plan plan(const State& state, Time now) override;

  // Pairs that PUR and MUR ruled out, and pairs looked at, so far.
  std::uint64_t pruned() const { return pruned_; }
  std::uint64_t seen() const { return seen_; }

 private:
  // The best ratio for two shapes, a < b.
  struct Choice {
    ShapeId a = kNoShape;
    ShapeId b = kNoShape;
    std::uint32_t version_a = 0;
    std::uint32_t version_b = 0;
    int resident_a = 0;
    int resident_b = 0;
    PairForecast forecast;
  };
  // A shape and the kernel of it that has waited longest.
  struct Candidate {
    const ReadyKernel* kernel;
    const Fit* fit;
  };
  struct Pair {
    std::size_t first, second;  // of candidates_
    double bound;
  };

  // The best pair so far, in one decision.
  struct Best {
    Choice choice;  // of no blocks: none is worth it
    Pair pair{};
    double profit = 0;
  };

  bool brief(const ReadyKernel& kernel) const;
  void gather(const State& state);
  void scan(const ReadyKernel* wanted, Best* best);
  void consider(const Choice& choice, const Pair& pair, Best* best) const;
  bool worth_evaluating(const Fit& a, const Fit& b, double* bound);
  Choice* known(const Candidate& first, const Candidate& second);
  const Choice& decide(const Candidate& first, const Candidate& second);
  Plan choose(const State& state, Time now);
  Plan together(const Choice& choice, const Candidate& first, const Candidate& second) const;

  const CoRunModel& model_;
  PairSource& source_;
  PlannerOptions options_;
  PairRules rules_;
  std::vector<Choice> choices_;  // a table by hash of the two shapes
  std::vector<Candidate> candidates_;
  std::vector<Pair> pending_;
  std::uint64_t pruned_ = 0;
  std::uint64_t seen_ = 0;
};

}  // namespace bandsaw::slice
