#include "tools/benchmarks/research/planning/profit_table.h"

namespace bandsaw::research {

void ProfitTable::set(ShapeId a, int resident_a, ShapeId b, int resident_b, double speed_a, double speed_b) {
  if (a > b) return set(b, resident_b, a, resident_a, speed_b, speed_a);
  known_[{a, resident_a, b, resident_b}] = {.speed_a = speed_a, .speed_b = speed_b, .measured = true};
}

void ProfitTable::forget(ShapeId shape) {
  std::erase_if(known_, [shape](const auto& entry) {
    return std::get<0>(entry.first) == shape || std::get<2>(entry.first) == shape;
  });
}

PairForecast ProfitTable::pair(ShapeId a, int resident_a, ShapeId b, int resident_b) {
  const bool swapped = a > b;
  const auto found =
      swapped ? known_.find({b, resident_b, a, resident_a}) : known_.find({a, resident_a, b, resident_b});
  if (found == known_.end()) return {};
  PairForecast forecast = found->second;
  if (swapped) std::swap(forecast.speed_a, forecast.speed_b);
  return forecast;
}

}  // namespace bandsaw::research
