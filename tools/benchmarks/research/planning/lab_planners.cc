#include "tools/benchmarks/research/planning/lab_planners.h"

#include <map>
#include <optional>
#include <utility>

#include "tools/benchmarks/research/planning/known_pairs.h"
#include "tools/benchmarks/research/planning/make_planner.h"
#include "tools/benchmarks/research/planning/profit_table.h"

namespace bandsaw::research {
namespace {

// What was measured of a pair does not change its plan.
bool is_kept(PlanningMode mode) { return mode == PlanningMode::kRandom || mode == PlanningMode::kEven; }

class LabPlanners : public PlannerSource {
 public:
  explicit LabPlanners(LabOptions options) : options_(std::move(options)) {}

  bool has(PlanningMode mode) const override {
    return PlannerSource::has(mode) || mode == PlanningMode::kOpt || is_kept(mode);
  }
  std::unique_ptr<Planner> make(PlanningMode mode, CoRunModel& model, const PlannerOptions& options) override {
    known_.emplace(model, &table_);
    return research::make_planner(to_text(mode), model, options, &*known_, options_.seed);
  }
  bool learns(PlanningMode mode) const override { return !is_kept(mode); }
  void add_shape(ShapeId shape, const std::string& name) override {
    names_[shape] = name;
    for (const PairProfit& profit : options_.profits) add_profit(profit, shape, name);
  }
  void remove_shape(ShapeId shape) override {
    table_.forget(shape);
    names_.erase(shape);
  }

 private:
  void add_profit(const PairProfit& profit, ShapeId shape, const std::string& name) {
    for (const auto& [other, other_name] : names_) {
      if (profit.a == name && profit.b == other_name) {
        table_.set(shape, profit.resident_a, other, profit.resident_b, profit.speed_a, profit.speed_b);
      }
      if (profit.b == name && profit.a == other_name) {
        table_.set(other, profit.resident_a, shape, profit.resident_b, profit.speed_a, profit.speed_b);
      }
    }
  }

  const LabOptions options_;
  ProfitTable table_;
  std::optional<KnownPairs> known_;
  std::map<ShapeId, std::string> names_;
};

}  // namespace

MakePlannerSource lab_planners(LabOptions options) {
  return [options = std::move(options)] { return std::make_unique<LabPlanners>(options); };
}

}  // namespace bandsaw::research
