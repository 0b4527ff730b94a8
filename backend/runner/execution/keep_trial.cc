#include "backend/runner/execution/keep_trial.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

// Several rounds of the hardware's time slices. What a wrong try loses is little beside the time until the next.
constexpr std::chrono::milliseconds kSettle{60}, kMeasure{400};
constexpr std::chrono::seconds kStay{20};
constexpr unsigned kDoublings = 4;
// Where both are equal, beside its work is the one that loses nothing in pauses.
constexpr double kBetter = 1.03;

}  // namespace

void KeepTrial::enter(Stage stage, Keep way, Point now) {
  stage_ = stage;
  way_ = way;
  entered_ = now;
}

bool KeepTrial::leave_side(Point now) {
  if (way_ == Keep::kBehindWork) return false;
  enter(Stage::kStays, Keep::kBehindWork, now);
  return true;
}

void KeepTrial::measured(double rate, bool slow, Point now) {
  if (way_ == Keep::kBesideWork) {
    beside_ = rate;
    return enter(Stage::kSettles, slow ? Keep::kBehindWork : Keep::kBesideWork, now);
  }
  const Keep better = rate > kBetter * beside_ ? Keep::kBehindWork : Keep::kBesideWork;
  same_ = better == last_ ? std::min(same_ + 1, kDoublings) : 0;
  last_ = better;
  enter(Stage::kStays, better, now);
}

Keep KeepTrial::ask(Point now, Point since, const Program& program) {
  const bool breaks = since != since_;
  since_ = since;
  if (!program.ahead) {
    enter(Stage::kSettles, Keep::kBesideWork, now);
    return way_;
  }
  const auto spent = now - entered_;
  switch (stage_) {
    case Stage::kSettles:
      if (spent < kSettle) break;
      done_ = program.done_ns;
      enter(Stage::kMeasures, way_, now);
      break;
    case Stage::kMeasures:
      if (breaks) {
        enter(Stage::kSettles, way_, now);
      } else if (spent >= kMeasure) {
        const auto done = static_cast<double>(program.done_ns - done_);
        measured(done / static_cast<double>(std::chrono::nanoseconds(spent).count()), program.slow, now);
      }
      break;
    case Stage::kStays:
      if (spent >= kStay * (1u << same_)) enter(Stage::kSettles, Keep::kBesideWork, now);
      break;
  }
  return way_;
}

}  // namespace bandsaw::runner
