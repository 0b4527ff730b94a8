#include "vgpu-sched/slice/charge.h"

#include <algorithm>
#include <cmath>

namespace bandsaw::slice {
namespace {

double bounded(double footprint) { return std::isfinite(footprint) ? std::clamp(footprint, 1e-4, 1.0) : 1.0; }

}  // namespace

void ChargeMeter::pass(Time now) {
  if (now <= last_) return;
  double sum = 0;
  for (const User& user : users_) sum += user.footprint;
  for (User& user : users_) user.charged += static_cast<double>(now - last_) * user.footprint / sum;
  last_ = now;
}

void ChargeMeter::resize(UserId user, double footprint, Time now) {
  pass(now);
  for (User& one : users_) {
    if (one.id == user) one.footprint = bounded(footprint);
  }
}

bool ChargeMeter::begin(UserId user, double footprint, Time now) {
  if (std::any_of(users_.begin(), users_.end(), [user](const User& one) { return one.id == user; })) return false;
  pass(now);
  users_.push_back({.id = user, .footprint = bounded(footprint)});
  return true;
}

Time ChargeMeter::end(UserId user, Time now) {
  const auto found = std::find_if(users_.begin(), users_.end(), [user](const User& one) { return one.id == user; });
  if (found == users_.end()) return 0;
  pass(now);
  const auto charged = static_cast<Time>(std::llround(found->charged));
  users_.erase(found);
  return charged;
}

}  // namespace bandsaw::slice
