#include "backend/vgpud/arbiter/allowance.h"

#include <algorithm>
#include <utility>

namespace bandsaw {
namespace {

constexpr double kAllowanceLeast = 0.1;

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
  }
  if (left_ >= most) spent_ = false;
  return excess;
}

}  // namespace bandsaw
