#include "backend/vgpud/arbiter/mps_progress.h"

#include <algorithm>
#include <utility>

namespace bandsaw {
namespace {

// Of the time of launches, at most the first part is of unknown ones where they are familiar from then on; above the
// second they are not any more.
constexpr double kUnknownLittle = 0.2, kUnknownMuch = 0.5;
// What is told of the last so much of its time counts.
constexpr double kOfLate = 200 * sched::kMillisecond, kAloneOfLate = sched::kSecond;
constexpr double kLongerLeast = 0.2, kLongerMost = 20;
constexpr double kNewRate = 0.2, kNewLength = 0.2, kStill = 0.98;

uint64_t since(uint64_t* last, uint64_t now) {
  const uint64_t before = std::exchange(*last, now);
  return now > before ? std::min<uint64_t>(now - before, sched::kLongest)
                      : 0;  // a program that goes takes its sums along
}

// Counts less and less of what was long ago.
void decay(double* one, double* other, double most) {
  const double sum = *one + *other;
  if (sum <= most) return;
  *one *= most / sum;
  *other *= most / sum;
}

}  // namespace

// What has ended would have taken so long alone.
double MpsProgress::work_of(const MpsTimes& times, bool alone, int sharers) {
  const auto known = static_cast<double>(since(&last_.known, times.known)),
             own = std::min(known, static_cast<double>(since(&last_.own, times.own))),
             unknown = static_cast<double>(since(&last_.unknown, times.unknown));
  judge(known, unknown);
  if (!alone && known > 0) rate_ = rate_ == 0 ? own / known : rate_ + kNewRate * (own / known - rate_);
  return own + unknown * rate(alone, sharers);
}

// How fast its work goes on. Where nothing is known, the device is taken to be divided.
double MpsProgress::rate(bool alone, int sharers) const {
  return alone ? 1 : rate_ > 0 ? rate_ : 1.0 / std::max(sharers, 1);
}

// What is on the device has come so far: since the last look, what began then half of the way, about; what goes on for
// longer, at most to where much of it ends.
double MpsProgress::in_flight(const MpsTimes& times, bool ended, double passed) const {
  if (times.running == 0) return 0;
  if (ended) return std::min(passed, each_ / 2);
  return most_ > 0 ? std::min(in_flight_ + passed, most_) : in_flight_ + passed;
}

// A pause is told when it has ended. As far as it was seen before, it was counted then.
sched::Time MpsProgress::pause_of(const MpsTimes& times, sched::Time passed) {
  const auto told = static_cast<sched::Time>(since(&last_.paused, times.paused));
  const sched::Time before = std::min(told, paused_before_);
  if (told > 0) paused_before_ = 0;
  if (times.programs > 1) return 0;  // another one goes on meanwhile
  return std::min(told - before, passed);
}

// From the end of one time slice to that of another.
void MpsProgress::learn_alone(double work, bool ended, sched::Time wall) {
  alone_since_end_ += wall;
  if (!ended) return;
  if (std::exchange(counts_alone_, true)) {
    wall_ += static_cast<double>(alone_since_end_);
    own_ += work;
    if (own_ > 0) longer_ = std::clamp(wall_ / own_, kLongerLeast, kLongerMost);
    decay(&wall_, &own_, kAloneOfLate);
  }
  alone_since_end_ = 0;
}

void MpsProgress::judge(double known, double unknown) {
  if (known + unknown <= 0) return;
  known_ += known;
  unknown_ += unknown;
  familiar_ = unknown_ <= (familiar_ ? kUnknownMuch : kUnknownLittle) * (known_ + unknown_);
  decay(&known_, &unknown_, kOfLate);
}

MpsProgress::Step MpsProgress::read(const MpsTimes& times, bool alone, int sharers, sched::Time now) {
  const sched::Time passed = now - std::exchange(at_, now);
  const uint64_t ended = since(&last_.ended, times.ended);
  Step step{.wants = times.running > 0 || times.waiting};
  const double work = work_of(times, alone, sharers);
  const sched::Time pause = pause_of(times, passed);
  if (ended > 0) {
    const double each = longer_ * work / static_cast<double>(ended);
    each_ += kNewLength * (each - each_);
    most_ = std::max(longer_ * work, kStill * most_);
  }
  const double came = static_cast<double>(passed) * rate(alone, sharers);
  const double before = std::exchange(in_flight_, in_flight(times, ended > 0, came));
  const auto did = static_cast<sched::Time>(longer_ * work + in_flight_ - before);
  if (!alone) counts_alone_ = false;
  if (!step.wants) {  // it lacks nothing
    paused_before_ = std::min(paused_before_ + passed, sched::kLongest);
    step.worked = passed;
    step.used = std::clamp<sched::Time>(did, 0, passed);
  } else if (alone && (times.running > 0 || ended > 0)) {
    learn_alone(work, ended > 0, passed - pause);
    step.worked = passed;
    step.used = passed - pause;
  } else {
    step.worked = did + pause;
    step.used = did;
  }
  return step;
}

}  // namespace bandsaw
