#include "backend/vgpud/arbiter/allowance.h"

#include <algorithm>
#include <utility>

namespace bandsaw {
namespace {

constexpr double kAllowanceLeast = 0.1;
// The others' progress is known a little later (mps_progress.h).
constexpr sched::Time kTrial = 400 * sched::kMillisecond, kPauseMost = 16 * sched::kSecond;
constexpr sched::Time kSuccess = 2 * sched::kSecond;

}  // namespace

sched::Time Allowance::count(const sched::Share& share, uint64_t busy_ns, sched::Time most, sched::Time now) {
  const double rate = std::max(kAllowanceLeast, share.percent / 100.0);
  const sched::Time passed = std::min(now - at_, 100 * sched::kSecond);
  const auto used =
      static_cast<sched::Time>(std::min<uint64_t>(busy_ns - std::exchange(busy_ns_, busy_ns), sched::kLongest / 2));
  left_ += static_cast<sched::Time>(static_cast<double>(passed) * rate) - used;
  left_ = std::clamp<sched::Time>(left_, -sched::kSecond, most);
  at_ = now;
  sched::Time excess = 0;
  if (left_ < 0 && !spent_) {
    spent_ = true;
    excess = -left_;
    trial_at_ = now + pause_;
  }
  if (left_ >= most) spent_ = false;
  return excess;
}

void Allowance::judge(std::optional<bool> others_have_theirs, sched::Time most, sched::Time now) {
  if (!others_have_theirs) return;
  if (spent_) {
    if (now < trial_at_) return;
    spent_ = false;
    left_ = most;
    trial_until_ = now + kTrial;
    pause_ = std::min(2 * pause_, kPauseMost);
  } else if (*others_have_theirs || now < trial_until_) {
    left_ = most;
    if (now >= trial_until_ + kSuccess) pause_ = sched::kSecond;
  }
}

}  // namespace bandsaw
