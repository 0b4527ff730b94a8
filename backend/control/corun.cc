#include "backend/control/corun.h"

#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <utility>

namespace bandsaw {
namespace {

constexpr std::array<std::pair<Sharing, const char*>, 2> kSharings = {
    {{Sharing::kIsolated, "isolated"}, {Sharing::kCorun, "corun"}}};

constexpr std::array<std::pair<CorunMode, const char*>, 7> kModes = {
    {{CorunMode::kMps, "mps"},
     {CorunMode::kConsolidation, "consolidation"},
     {CorunMode::kSlicesFifo, "slices-fifo"},
     {CorunMode::kKernelet, "kernelet"},
     {CorunMode::kPersistentGreedy, "persistent-greedy"},
     {CorunMode::kOpt, "opt"},
     {CorunMode::kRandom, "random"}}};

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
const char* to_text(CorunMode mode) { return name_of(mode, kModes); }

Result<Sharing> parse_sharing(std::string_view text) {
  for (const auto& [value, name] : kSharings) {
    if (text == name) return value;
  }
  return Status::error(EINVAL, "no sharing '{}'; there are {}", text.substr(0, 64),
                       fmt::join(names_of(kSharings), ", "));
}

Result<CorunMode> parse_corun_mode(std::string_view text) {
  for (const auto& [value, name] : kModes) {
    if (text == name) return value;
  }
  return Status::error(EINVAL, "no corun mode '{}'; there are {}", text.substr(0, 64),
                       fmt::join(corun_mode_names(), ", "));
}

std::vector<std::string> corun_mode_names() { return names_of(kModes); }

}  // namespace bandsaw
