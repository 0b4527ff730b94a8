// figures: simulated figures of the papers. `figures NAME [SCHEDULES]` prints a line of JSON for each value.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "tools/benchmarks/research/figures/figures.h"

namespace bandsaw::research {
namespace {

std::map<std::string, std::function<FigureValues()>> figures(int schedules) {
  return {{"gdev-10", gdev_10},
          {"gdev-14", gdev_14},
          {"kernelet-6", kernelet_6},
          {"kernelet-7", [=] { return kernelet_7(schedules); }},
          {"kernelet-8", kernelet_8},
          {"kernelet-9", kernelet_9},
          {"cruz", cruz_tables},
          {"bashizade-10", bashizade_10},
          {"bashizade-11", bashizade_11},
          {"maestro-5.10", maestro_10},
          {"maestro-5.13", maestro_13},
          {"maestro-5.15", maestro_15},
          {"chimera-bounds", chimera_bounds},
          {"chimera-idempotence", chimera_idempotence}};
}

int run(const std::string& name, int schedules) {
  const auto all = figures(schedules);
  const auto found = all.find(name);
  if (found == all.end() || schedules < 1) {
    std::fprintf(stderr, "figures: no figure '%s', or not a number of schedules; there are:", name.c_str());
    for (const auto& [known, make] : all) std::fprintf(stderr, " %s", known.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  for (const FigureValue& one : found->second()) {
    std::printf("{\"series\": \"%s\", \"at\": \"%s\", \"value\": %.17g}\n", one.series.c_str(), one.at.c_str(),
                one.value);
  }
  return 0;
}

}  // namespace
}  // namespace bandsaw::research

int main(int count, char** words) {
  return bandsaw::research::run(count > 1 ? words[1] : "", count > 2 ? std::atoi(words[2]) : 1000);
}
