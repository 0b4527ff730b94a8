// vgpud-lab: vgpud with what benches and figures need beside it. Its table [lab]:
//
//   plan_seed = 1        of the planning mode "random"
//   profits = ""         a JSON file of pairs' speeds, for the planning mode "opt" (planning/pair_profits.h)
//   force_blocks = 0     every launch is cut into grid slices of so many blocks
//   count = true         where one plans, the first grid slice of a kernel counts what the kernel does
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "backend/vgpud/program.h"
#include "tools/benchmarks/research/planning/lab_planners.h"

namespace bandsaw::research {
namespace {

using nlohmann::json;

Status check_keys(const json& lab) {
  static const std::set<std::string> kKnown = {"plan_seed", "profits", "force_blocks", "count"};
  for (const auto& [key, value] : lab.items()) {
    if (!kKnown.contains(key)) return Status::error(EINVAL, "'{}' is not known", key);
  }
  return {};
}

// Runners read it again (backend/runner/slicing/slice_settings.h).
void add_to_slices(const json& lab, Config* config) {
  config->slices.rest += fmt::format(" force_blocks={} count={}", lab.value("force_blocks", std::uint64_t{0}),
                                     lab.value("count", true) ? 1 : 0);
}

Status read_lab(const std::string& text, Config* config) try {
  const json lab = json::parse(text);
  if (Status status = check_keys(lab); !status.ok()) return status;
  LabOptions options;
  options.seed = lab.value("plan_seed", options.seed);
  if (const auto path = lab.value("profits", std::string()); !path.empty()) {
    auto profits = load_profits(path);
    if (!profits.ok()) return profits.status();
    options.profits = std::move(profits.value());
  }
  config->planners = lab_planners(std::move(options));
  add_to_slices(lab, config);
  return {};
} catch (const json::exception& error) {
  return Status::error(EINVAL, "{}", error.what());
}

}  // namespace
}  // namespace bandsaw::research

int main(int argc, char** argv) { return bandsaw::run_vgpud(argc, argv, bandsaw::research::read_lab); }
