#include "backend/control/sharing.h"

#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <utility>

namespace bandsaw {
namespace {

constexpr std::array<std::pair<Sharing, const char*>, 2> kSharings = {
    {{Sharing::kTimeSliced, "time-sliced"}, {Sharing::kMps, "mps"}}};
// As earlier versions wrote them into files, and people into scripts.
constexpr std::array<std::pair<Sharing, const char*>, 2> kOldSharings = {
    {{Sharing::kTimeSliced, "isolated"}, {Sharing::kMps, "corun"}}};

constexpr std::array<std::pair<PlanningMode, const char*>, 10> kModes = {
    {{PlanningMode::kMps, "mps"},
     {PlanningMode::kConsolidation, "consolidation"},
     {PlanningMode::kSlicesFifo, "slices-fifo"},
     {PlanningMode::kKernelet, "kernelet"},
     {PlanningMode::kPersistentGreedy, "persistent-greedy"},
     {PlanningMode::kMaestroAntt, "maestro-antt"},
     {PlanningMode::kMaestroStp, "maestro-stp"},
     {PlanningMode::kOpt, "opt"},
     {PlanningMode::kRandom, "random"},
     {PlanningMode::kEven, "even"}}};

template <typename Names>
std::vector<std::string> names_of(const Names& names) {
  std::vector<std::string> result;
  for (const auto& [value, name] : names) result.emplace_back(name);
  return result;
}

template <typename Value, typename Names>
const char* name_of(Value wanted, const Names& names) {
  for (const auto& [value, name] : names) {
    if (value == wanted) return name;
  }
  return "?";
}

}  // namespace

const char* to_text(Sharing sharing) { return name_of(sharing, kSharings); }
const char* to_text(PlanningMode mode) { return name_of(mode, kModes); }

Result<Sharing> parse_sharing(std::string_view text) {
  for (const auto& names : {kSharings, kOldSharings}) {
    for (const auto& [value, name] : names) {
      if (text == name) return value;
    }
  }
  return Status::error(EINVAL, "no sharing '{}'; there are {}", text.substr(0, 64),
                       fmt::join(names_of(kSharings), ", "));
}

Result<PlanningMode> parse_planning_mode(std::string_view text) {
  for (const auto& [value, name] : kModes) {
    if (text == name) return value;
  }
  return Status::error(EINVAL, "no planning mode '{}'; there are {}", text.substr(0, 64),
                       fmt::join(planning_mode_names(), ", "));
}

bool is_lab_mode(PlanningMode mode) {
  return mode == PlanningMode::kConsolidation || mode == PlanningMode::kOpt || mode == PlanningMode::kRandom ||
         mode == PlanningMode::kEven;
}

std::vector<std::string> planning_mode_names() {
  std::vector<std::string> names;
  for (const auto& [mode, name] : kModes) {
    if (!is_lab_mode(mode)) names.emplace_back(name);
  }
  return names;
}

}  // namespace bandsaw
