#include "backend/device/soft/timing/sharing.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "backend/device/soft/timing/cursor.h"

namespace bandsaw::soft::timing {
namespace {

void add_lines(const WarpTrace& warp, std::unordered_set<uint64_t>* lines) {
  for_events(warp.words, [&](uint32_t, std::span<const uint32_t> found) {
    for (size_t i = 0; i < found.size() / 2; ++i) lines->insert(line_at(found, i));
  });
}

// How many different lines the first blocks of the trace have touched: by number of blocks, from 0 on.
std::vector<uint64_t> lines_by_blocks(const LaunchTrace& launch) {
  std::vector<uint64_t> counts{0};
  std::unordered_set<uint64_t> lines;
  for (size_t i = 0; i < launch.warps.size(); ++i) {
    add_lines(launch.warps[i], &lines);
    const bool last = i + 1 == launch.warps.size() || launch.warps[i + 1].block != launch.warps[i].block;
    if (last) counts.push_back(lines.size());
  }
  return counts;
}

}  // namespace

double sharing_of(const LaunchTrace& launch, uint64_t simulated, const Machine& machine) {
  const std::vector<uint64_t> lines = lines_by_blocks(launch);
  const uint64_t recorded = lines.size() - 1, half = recorded / 2;
  const double parts = static_cast<double>(machine.part.total_sms) / machine.part.sms;
  if (half == 0 || simulated == 0 || simulated > recorded || lines[simulated] == 0) return 1;
  const double growth = static_cast<double>(lines[recorded] - lines[half]) / static_cast<double>(recorded - half);
  const double more = static_cast<double>(std::max(launch.blocks(), recorded) - recorded);
  const double all = static_cast<double>(lines[recorded]) + growth * more;
  const double own =
      static_cast<double>(lines[simulated]) * static_cast<double>(launch.blocks()) / static_cast<double>(simulated);
  return std::clamp(own / all, 1.0, parts);
}

}  // namespace bandsaw::soft::timing
