#include "backend/runner/slicing/slicing_stats.h"

#include <algorithm>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw::runner {

void SlicingStats::met(KnownKernel& kernel) {
  if (!std::exchange(kernel.counted, true)) count(counters().kernels);
}

void SlicingStats::rewritten(KnownKernel& kernel) {
  if (!std::exchange(kernel.sliceable, true)) count(counters().sliceable);
}

void SlicingStats::refused(KnownKernel& kernel, const std::string& reason) {
  met(kernel);
  if (!kernel.reasons.insert(reason).second) return;
  log::info("{} is not cut into grid slices: {}", kernel.name.substr(0, 200), reason.substr(0, 400));
  add(reason);
}

// Once the places are full, the last one has all other reasons.
void SlicingStats::add(std::string_view reason) {
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
