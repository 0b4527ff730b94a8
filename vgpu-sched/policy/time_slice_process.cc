#include "vgpu-sched/policy/time_slice_process.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bandsaw::sched {
namespace {

// What is known of the length of a round may be wrong by this part.
constexpr double kUnsureRound = 0.1;
// Two samples: how much longer a program may seem to have had work than it had.
constexpr Time kUnsure = 2 * kMillisecond;
// A program that has no work for so long waits for somebody, or begins.
constexpr Time kLongAway = 200 * kMillisecond;

}  // namespace

// Less than a time slice is not interrupted. Else it was interrupted for the time slices of the others some times,
// which may tell that it was work of a known length. If not: it began with a time slice of its own, after a wait that
// was not measured, whole rounds followed, and what is left of the last one is its own as far as its time slice goes.
double TimeSliceProcess::served(Time slice) const {
  const auto known = static_cast<double>(unrested_own);
  const auto rest = static_cast<double>(unrested) - known;
  if (rest <= static_cast<double>(slice) || rounds <= 0) return known + rest;
  const double each = filled / rounds, round = std::max(each, wall / rounds);
  if (const Whole* const whole = find_whole(rest, each, round - each))
    return std::max(known, static_cast<double>(whole->work));
  const double complete = std::floor(rest / round);
  return known + complete * each + std::min(rest - complete * round, each);
}

// The length that was seen most often of those which, with a whole number of interruptions by `others`, take about as
// long as was measured. Null: there is none.
const TimeSliceProcess::Whole* TimeSliceProcess::find_whole(double measured_then, double slice, double others) const {
  const Whole* found = nullptr;
  for (const Whole& whole : wholes_) {
    const double work = static_cast<double>(whole.work) - static_cast<double>(unrested_own);
    const double times = std::round((measured_then - work) / others);
    if (whole.times == 0 || work <= 0 || times < 1 || work > (times + 1) * slice * (1 + kUnsureRound)) continue;
    if (std::abs(measured_then - times * others - work) > kUnsureRound * times * others) continue;
    if (!found || whole.times > found->times) found = &whole;
  }
  return found;
}

// A pause is told when the next work begins, which may be after the rest was. The first ones are averaged, those before
// the last ones forgotten. What was before a long one says little of what comes then.
void TimeSliceProcess::note_rests(std::uint32_t times, Time pauses, Time issues) {
  pauses_told += static_cast<double>(pauses);
  issues_told += static_cast<double>(issues);
  if (times == 0) return;
  const bool long_away = pauses_told >= static_cast<double>(kLongAway);
  rests_noted = std::min(rests_noted + 1, kRestsRemembered);
  mean_pause += (std::exchange(pauses_told, 0) / times - mean_pause) / rests_noted;
  mean_issue += (std::exchange(issues_told, 0) / times - mean_issue) / rests_noted;
  if (long_away) rests_noted = 0;
}

bool TimeSliceProcess::had_all() const {
  constexpr double kNearly = 0.98;
  return wall > 0 && least >= kNearly * wall;
}

// Of several lengths that are close, all count, by how often each was seen: alone, too, the clock falls only after the
// first steps, and the step would be taken for one of these.
double TimeSliceProcess::as_alone(double work) const {
  constexpr double kClose = 0.12;  // beside one that draws all power the GPU's clock is up to a tenth lower
  double sum = 0, times = 0;
  for (const Whole& whole : wholes_) {
    const auto length = static_cast<double>(whole.work);
    if (!whole.alone || std::abs(work - length) > kClose * length) continue;
    sum += length * whole.times;
    times += whole.times;
  }
  return times > 0 ? sum / times : work;
}

// A program whose steps follow each other closely seems not to rest between some of them. So lengths are kept apart.
void TimeSliceProcess::note_whole(Time work, bool alone) {
  constexpr double kSame = 0.03;
  constexpr std::uint32_t kTimesMost = 64;
  Whole* rarest = &wholes_[0];
  for (Whole& whole : wholes_) {
    if (whole.times < rarest->times) rarest = &whole;
    if (whole.times == 0 || std::abs(static_cast<double>(work - whole.work)) > kSame * static_cast<double>(whole.work))
      continue;
    if (alone || !whole.alone) whole.work += (work - whole.work) / 4;
    whole.alone |= alone;
    if (++whole.times < kTimesMost) return;
    for (Whole& each : wholes_) each.times /= 2;
    return;
  }
  *rarest = {work, 1, alone};
}

// By its time slices it would be charged for what its work takes longer in them, for switches, and for what others left
// unused. So they only bound what it says.
double TimeSliceProcess::note_done(Time since) {
  constexpr double kLeast = 0.85, kMost = 1.05;  // nobody checks what a runner says
  constexpr double kEnough = 50e6;               // ns
  kept_done += std::max(0.0, static_cast<double>(since));
  if (kept_taken < kEnough) return 0;
  const bool tells = kept_done > 0;
  const double had = std::clamp(kept_done, kLeast * kept_taken, kMost * kept_taken);
  const double back = tells ? kept_charged - had : 0;
  yield += ((tells ? had / kept_taken : 1) - yield) / 4;
  // Its first and its last step were not whole.
  kept_done = tells ? std::clamp(kept_done - had, -kEnough / 4, kEnough / 4) : 0;
  kept_taken = kept_charged = 0;
  return back;
}

void TimeSliceProcess::forget_yield() {
  yield = 1;
  kept_done = kept_taken = kept_charged = 0;
}

void TimeSliceProcess::had_at_least(double had) {
  if (had <= static_cast<double>(burst)) return;
  burst = static_cast<Time>(had);
  outgrown = true;
}

double TimeSliceProcess::visit(Time slice) const {
  if (never_rests()) return static_cast<double>(slice);
  const double parts = static_cast<double>(burst) / static_cast<double>(slice);
  constexpr double kUnsurePart = 0.02;
  return static_cast<double>(burst) / std::max({1.0, parts, std::ceil(parts - kUnsurePart)});
}

// Its part of rounds in which all others
// used their whole time slices, less half a time slice for the last one. What is known of the round is a little wrong:
// its lengths have changed meanwhile, and samples say of a moment only that there was work then.
double TimeSliceProcess::certain(Time slice) const {
  constexpr double kSure = 0.9;
  return std::max(0.0, kSure * least - static_cast<double>(slice / 2 + kUnsure));
}

void TimeSliceProcess::restart(Time as_long) {
  burst = as_long;
  outgrown = false;
  unrested = unrested_own = 0;
  charged = taken = wall = rounds = filled = least = switched = 0;
}

}  // namespace bandsaw::sched
