// Which way of keeping the engine does more for a program (Device::keep_engine). Beside its work, the keep-alive takes
// the place of a block: kernels that fill the GPU take up to twice as long. Behind its work it costs little, but where
// kernels are short the engine is lost now and then. Both are tried, and compared by how much work has ended in the
// same time.
//
// For one thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "backend/device/keep.h"

namespace bandsaw::runner {

class KeepTrial {
 public:
  using Point = std::chrono::steady_clock::time_point;

  struct Program {
    uint64_t done_ns = 0;  // of work whose time by itself is known, what has ended; the sum
    bool ahead = false;    // it issues its work ahead of the device (IssueTimes)
    bool slow = false;     // its work takes longer than by itself: only then there is something to gain
  };
  // The way from now on. To be asked often while the engine is kept. `since`: from then on without a break.
  Keep ask(Point now, Point since, const Program& program);
  Keep way() const { return way_; }  // as said last
  // Beside its work is too slow, whatever is lost behind it. False: it is behind it already.
  bool leave_side(Point now);

 private:
  enum class Stage : uint8_t { kSettles, kMeasures, kStays };

  void enter(Stage stage, Keep way, Point now);
  void measured(double rate, bool slow, Point now);

  Stage stage_ = Stage::kSettles;
  Keep way_ = Keep::kBesideWork, last_ = Keep::kNot;  // now; the better one of the last trial
  Point since_{}, entered_{};                         // the engine is kept; this stage
  uint64_t done_ = 0;                                 // when measuring began
  double beside_ = 0;                                 // work in the same time; 0: not measured yet
  unsigned same_ = 0;                                 // so often trials have ended as the one before
};

}  // namespace bandsaw::runner
