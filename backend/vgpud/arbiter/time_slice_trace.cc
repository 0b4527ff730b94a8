#include "backend/vgpud/arbiter/time_slice_trace.h"

#include <utility>

namespace bandsaw {
namespace {

constexpr size_t kTraceMax = 1 << 20;

}  // namespace

void TimeSliceTrace::start() {
  on_ = true;
  records_.clear();
  lost_ = 0;
}

std::vector<TimeSliceRecord> TimeSliceTrace::take(uint64_t* lost) {
  on_ = false;
  *lost = std::exchange(lost_, 0);
  return std::exchange(records_, {});
}

void TimeSliceTrace::add(TimeSliceRecord record) {
  if (!on_) return;
  if (records_.size() >= kTraceMax) {
    ++lost_;
  } else {
    records_.push_back(std::move(record));
  }
}

}  // namespace bandsaw
