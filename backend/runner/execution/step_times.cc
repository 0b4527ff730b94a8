#include "backend/runner/execution/step_times.h"

#include <algorithm>
#include <utility>

namespace bandsaw::runner {
namespace {

// A step that takes so much longer was interrupted: what others have at a time at least, and two switches, is more.
constexpr double kLongerMost = 0.2, kLongerMostNs = 300e3;
// So much of what steps were shorter is taken off from what later ones are longer.
constexpr double kShorterMost = 1e6;

}  // namespace

void StepTimes::end_alone(uint64_t ns) {
  if (is_known()) alone_.add(static_cast<double>(ns), static_cast<double>(own_));
  end();
}

uint64_t StepTimes::end_kept(uint64_t ns) {
  const double expected = is_known() ? alone_.ratio() * static_cast<double>(own_) : 0;
  end();
  if (expected == 0) return 0;
  double longer = static_cast<double>(ns) - expected;
  if (longer > kLongerMost * expected + kLongerMostNs) {
    longer = expected * std::max(0.0, kept_.ratio() - 1);
  } else {
    kept_.add(static_cast<double>(ns), expected);
  }
  longer_ = std::max(longer_ + longer, -kShorterMost);
  return longer_ > 0 ? static_cast<uint64_t>(std::exchange(longer_, 0)) : 0;
}

void StepTimes::end() {
  own_ = 0;
  unknown_ = false;
}

}  // namespace bandsaw::runner
