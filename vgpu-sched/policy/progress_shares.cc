#include "vgpu-sched/policy/progress_shares.h"

#include <algorithm>
#include <vector>

#include "vgpu-sched/policy/promised.h"

namespace bandsaw::sched {
namespace {

// Between two calls of advance(), at most so much time counts.
constexpr Time kProgressSpanMost = 100 * kMillisecond;
// Who goes first and uses less of the engine's time, over kUseOf, is held back by nothing, and disturbs nobody's
// measurements.
constexpr double kLittle = 0.1;
constexpr double kUseOf = 100 * kMillisecond;

}  // namespace

void ProgressShares::set(VgpuId vgpu, const Share& share) {
  entries_[vgpu].share = share;
  share_out();
}

void ProgressShares::wake(VgpuId vgpu, Time now) {
  Entry& entry = entries_[vgpu];
  entry.wants = true;
  entry.last_wanted = std::max(entry.last_wanted, now);
  if (entry.fraction == 0) share_out();
}

int ProgressShares::active() const {
  return static_cast<int>(std::ranges::count_if(entries_, [](const auto& each) { return each.second.fraction > 0; }));
}

bool ProgressShares::is_steered() const {
  return active() > 1 || std::ranges::any_of(entries_, [](const auto& each) {
           return each.second.fraction > 0 && each.second.share.cap < 100;
         });
}

bool ProgressShares::may_run(VgpuId vgpu) const {
  const auto found = entries_.find(vgpu);
  if (found == entries_.end()) return true;
  const Entry& entry = found->second;
  if (is_capped(entry)) return false;
  if (is_light(vgpu)) return true;
  return learner_ ? *learner_ == vgpu : !entry.held;
}

bool ProgressShares::is_capped(const Entry& entry) { return entry.share.cap < 100 && entry.tokens < 0; }

bool ProgressShares::is_light(VgpuId vgpu) const {
  const auto found = entries_.find(vgpu);
  return found != entries_.end() && found->second.first && found->second.use < kLittle;
}

void ProgressShares::advance(Time now, std::span<const Work> work) {
  const auto span = static_cast<double>(std::clamp<Time>(now - now_, 0, kProgressSpanMost));
  now_ = std::max(now, now_);
  for (auto& [vgpu, entry] : entries_) {
    const double rate = entry.share.cap / 100.0;
    entry.tokens = std::min(static_cast<double>(options_.cap_burst) * rate, entry.tokens + span * rate);
  }
  for (const Work& each : work) {
    const auto found = entries_.find(each.vgpu);
    if (found == entries_.end()) continue;
    Entry& entry = found->second;
    entry.wants = each.wants;
    entry.familiar = each.familiar;
    entry.first = each.first;
    if (each.wants) entry.last_wanted = now_;
    entry.tokens -= static_cast<double>(each.used);
    entry.use += (static_cast<double>(each.used) - entry.use * span) / kUseOf;
    if (entry.fraction == 0) continue;
    const double promised = is_capped(entry) ? 0 : span * entry.fraction;
    entry.lack += promised - static_cast<double>(each.worked);
    entry.over += static_cast<double>(each.used) - span * entry.fraction;
  }
  share_out();
  settle();
  choose_learner();
  hold_back();
}

void ProgressShares::share_out() {
  std::vector<Share> active;
  const auto takes_part = [this](const Entry& entry) { return now_ - entry.last_wanted <= options_.memory; };
  for (auto& [vgpu, entry] : entries_) {
    if (takes_part(entry)) active.push_back(entry.share);
  }
  const double scale = scale_to_fill(active);
  for (auto& [vgpu, entry] : entries_) {
    const bool before = entry.fraction > 0;
    entry.fraction = takes_part(entry) ? part_of(entry.share, scale) : 0;
    if (!before || entry.fraction == 0) entry.lack = std::min(entry.lack, static_cast<double>(options_.carry));
    if (entry.fraction == 0) entry.held = false, entry.over = std::min(entry.over, 0.0);
  }
}

// Who used more than its promise lacks nothing, though it makes no progress while it is held back for that.
void ProgressShares::settle() {
  const auto most = static_cast<double>(options_.most), forgotten = static_cast<double>(options_.forgotten);
  double least = most, lacking = 0;
  for (auto& [vgpu, entry] : entries_) {
    if (entry.fraction == 0) continue;
    entry.lack = std::clamp(entry.lack, -forgotten, entry.over > 0 ? 0 : most);
    least = std::min(least, entry.lack / entry.fraction);
  }
  for (auto& [vgpu, entry] : entries_) {
    if (entry.fraction == 0) continue;
    if (least > 0) entry.lack -= least * entry.fraction;
    lacking += std::max(entry.lack, 0.0);
  }
  for (auto& [vgpu, entry] : entries_) {
    const double lack = entry.fraction > 0 ? std::max(entry.lack, 0.0) : 0;
    entry.over = std::clamp(entry.over, -lack - forgotten, lacking - lack + forgotten);
  }
}

// Who lacks something has what it lacks before those who do not begin anything more; little is let be. That one rests
// for a moment, between two steps, does not let them in: what they begin then may be long.
void ProgressShares::hold_back() {
  const auto bound = static_cast<double>(options_.bound);
  for (auto& [vgpu, entry] : entries_) {
    const double least = entry.held ? 0 : bound;
    const bool others_lack = std::ranges::any_of(entries_, [&, &one = entry](const auto& each) {
      const Entry& other = each.second;
      return &other != &one && other.fraction > 0 && other.lack > least;
    });
    entry.held = entry.fraction > 0 && others_lack && entry.over > (entry.held ? -bound / 2 : 0);
  }
}

void ProgressShares::choose_learner() {
  for (auto& [vgpu, entry] : entries_) {
    if (entry.familiar) entry.learn_pause = 0, entry.learn_at = now_;
  }
  if (learner_) {
    const auto found = entries_.find(*learner_);
    if (found != entries_.end() && found->second.fraction > 0 && !found->second.familiar &&
        now_ - learns_since_ < options_.learn_for)
      return;
    if (found != entries_.end() && !found->second.familiar) {
      Entry& entry = found->second;
      entry.learn_pause = std::clamp(2 * entry.learn_pause, options_.learn_again, options_.learn_last);
      entry.learn_at = now_ + entry.learn_pause;
    }
    learner_.reset();
  }
  if (active() < 2) return;
  for (auto& [vgpu, entry] : entries_) {
    if (entry.fraction == 0 || !entry.wants || entry.familiar || now_ < entry.learn_at) continue;
    learner_ = vgpu;
    learns_since_ = now_;
    return;
  }
}

}  // namespace bandsaw::sched
