#include "tools/benchmarks/research/planning/oldest_first_model.h"

#include <algorithm>

namespace bandsaw::research {
namespace {

// Each kernel's grid slices follow each other in a stream. Whose slice ends is the younger from then on. `first` has
// the speeds while a is the older, `second` while b is. The part of the time in which a is the older is such that as
// many grid slices of one end as of the other; it is all of the time, or none, where one kernel ends several beside one
// of the other. `work`: time alone of such a grid slice, in any unit.
PairForecast alternating(const PairForecast& first, double work_a, const PairForecast& second, double work_b) {
  const double wins = (first.speed_a - second.speed_a) / work_a + (second.speed_b - first.speed_b) / work_b;
  const double lacks = second.speed_b / work_b - second.speed_a / work_a;
  const double part = wins > 1e-12 / work_a ? std::clamp(lacks / wins, 0.0, 1.0) : 0.5;
  return {.speed_a = second.speed_a + part * (first.speed_a - second.speed_a),
          .speed_b = second.speed_b + part * (first.speed_b - second.speed_b)};
}

}  // namespace

PairForecast OldestFirstModel::solve_pair(const Fit& first, int resident_a, const Fit& second, int resident_b) {
  return alternating(solve_chain(first, resident_a, second, resident_b, Older::kFirstKernel, in_order_),
                     first.profile.block_ns * resident_a,
                     solve_chain(first, resident_a, second, resident_b, Older::kSecondKernel, in_order_),
                     second.profile.block_ns * resident_b);
}

}  // namespace bandsaw::research
