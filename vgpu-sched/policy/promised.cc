#include "vgpu-sched/policy/promised.h"

#include <algorithm>

namespace bandsaw::sched {
namespace {

constexpr int kWhole = 100;

bool in_range(int value, int least, int most) { return value >= least && value <= most; }

bool valid(const Share& share) {
  return in_range(share.percent, 1, kWhole) && in_range(share.reservation, 0, kWhole) &&
         in_range(share.cap, 1, kWhole) && share.reservation <= share.cap;
}

}  // namespace

bool within_engine(int sum) { return sum <= kWhole; }

Error check_share(const Share& share, const Promised& others) {
  if (!valid(share)) return Error::kBadShare;
  return within_engine(share.percent + others.percent) && within_engine(share.reservation + others.reservation)
             ? Error::kNone
             : Error::kOversubscribed;
}

double part_of(const Share& share, double scale) {
  return std::clamp(share.percent * scale, share.reservation / 100.0, share.cap / 100.0);
}

double scale_to_fill(std::span<const Share> shares) {
  double low = 0, high = 1;  // 1: a share of 1 % alone
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (const Share& share : shares) sum += part_of(share, middle);
    (sum < 1 ? low : high) = middle;
  }
  return high;
}

}  // namespace bandsaw::sched
