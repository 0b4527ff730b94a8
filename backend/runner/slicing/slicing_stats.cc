#include "backend/runner/slicing/slicing_stats.h"

#include <algorithm>

#include "memory/base/log.h"

namespace bandsaw::runner {

void SlicingStats::refused(std::string_view kernel, std::string_view reason) {
  log::info("{} is not cut into grid slices: {}", kernel.substr(0, 200), reason.substr(0, 400));
  std::lock_guard lock(mutex_);
  auto& places = counters().refused;
  SlicingRefusal* place = &places.back();
  const std::string_view text = reason.substr(0, sizeof(place->text) - 1);
  for (SlicingRefusal& candidate : places) {
    const bool same = text == candidate.text;
    if (!same && candidate.text[0] != '\0' && &candidate != &places.back()) continue;
    place = &candidate;
    break;
  }
  const std::string_view said = place == &places.back() ? "other" : text;
  if (place->text[0] == '\0') std::copy(said.begin(), said.end(), place->text);
  count(place->kernels);
}

}  // namespace bandsaw::runner
