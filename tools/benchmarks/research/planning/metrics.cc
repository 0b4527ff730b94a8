#include "tools/benchmarks/research/planning/metrics.h"

#include <algorithm>

namespace bandsaw::research {
namespace {

double turnaround(const Outcome& outcome) {
  return static_cast<double>(std::max<Time>(outcome.ended - outcome.arrived, 1));
}

}  // namespace

double system_throughput(std::span<const Outcome> outcomes) {
  double sum = 0;
  for (const Outcome& outcome : outcomes) sum += static_cast<double>(outcome.alone) / turnaround(outcome);
  return sum;
}

double normalized_turnaround(std::span<const Outcome> outcomes) {
  double sum = 0;
  for (const Outcome& outcome : outcomes) {
    sum += turnaround(outcome) / static_cast<double>(std::max<Time>(outcome.alone, 1));
  }
  return outcomes.empty() ? 0 : sum / static_cast<double>(outcomes.size());
}

Time total_time(std::span<const Outcome> outcomes) {
  if (outcomes.empty()) return 0;
  Time first = outcomes.front().arrived;
  Time last = outcomes.front().ended;
  for (const Outcome& outcome : outcomes) {
    first = std::min(first, outcome.arrived);
    last = std::max(last, outcome.ended);
  }
  return last - first;
}

}  // namespace bandsaw::research
