#include "vgpu-sched/slice/greedy.h"

#include <algorithm>
#include <numeric>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

// The next larger configuration that is faster; 0: none.
int next_configuration(const GreedyKernel& kernel, int now) {
  for (int more = now + 1; more <= static_cast<int>(kernel.times.size()); ++more) {
    if (kernel.times[more - 1] < kernel.times[now - 1]) return more;
  }
  return 0;
}

}  // namespace

std::vector<int> allocate_resident(const GpuModel& gpu, std::span<const GreedyKernel> kernels) {
  std::vector<int> resident(kernels.size(), 1);
  Room room = room_of(gpu);
  for (const GreedyKernel& kernel : kernels) {
    if (fit(gpu, room, kernel.needs) == 0) return resident;
    room = beside(gpu, room, kernel.needs, 1);
  }
  const auto remaining = [&](std::size_t i) { return kernels[i].times[resident[i] - 1] * kernels[i].left; };
  std::vector<std::size_t> open(kernels.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  while (!open.empty()) {
    const auto last = std::max_element(open.begin(), open.end(),
                                       [&](std::size_t a, std::size_t b) { return remaining(a) < remaining(b); });
    const GreedyKernel& kernel = kernels[*last];
    const int next = next_configuration(kernel, resident[*last]);
    const int more = next - resident[*last];
    if (next == 0 || fit(gpu, room, kernel.needs) < more) {
      open.erase(last);  // marked: it has all it can
      continue;
    }
    room = beside(gpu, room, kernel.needs, more);
    resident[*last] = next;
  }
  return resident;
}

}  // namespace bandsaw::slice
