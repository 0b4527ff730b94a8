#include "backend/vgpud/arbiter/mps_progress.h"

#include <algorithm>
#include <utility>

namespace bandsaw {
namespace {

// Of the measured time, at least this part has to be of launches that are known.
constexpr double kKnownLeast = 0.25;

}  // namespace

void MpsProgress::read(const MpsTimes& times, sched::Time now) {
  if (!is_due(now)) return;
  const sched::Time passed = now - at_;
  at_ = now;
  const MpsTimes last = std::exchange(last_, times);
  if (passed > 4 * kBetween || times.busy < last.busy || times.known < last.known || times.own < last.own) {
    active_ = times.busy > last.busy;
    value_.reset();
    return;
  }
  const auto busy = static_cast<double>(times.busy - last.busy), known = static_cast<double>(times.known - last.known);
  active_ = busy > 0;
  if (!active_ || known < kKnownLeast * busy) return value_.reset();
  const double part = std::min(1.0, busy / static_cast<double>(passed));
  const double progress = part * std::min(1.0, static_cast<double>(times.own - last.own) / known);
  value_ = value_ ? (*value_ + progress) / 2 : progress;
}

}  // namespace bandsaw
