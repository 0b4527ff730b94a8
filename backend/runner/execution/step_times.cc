#include "backend/runner/execution/step_times.h"

namespace bandsaw::runner {

void StepTimes::end_alone(uint64_t ns) {
  if (is_known()) alone_.add(static_cast<double>(ns), static_cast<double>(own_));
  begin();
}

uint64_t StepTimes::end() {
  const double takes = is_known() ? alone_.ratio() * static_cast<double>(own_) : 0;
  begin();
  if (!alone_.known()) return 0;
  known_.add(takes > 0 ? 1 : 0, 1);
  if (takes > 0) mean_.add(takes, 1);
  if (known_.ratio() < 0.5) return 0;
  return static_cast<uint64_t>(takes > 0 ? takes : mean_.ratio());
}

void StepTimes::begin() {
  own_ = 0;
  unknown_ = false;
}

}  // namespace bandsaw::runner
