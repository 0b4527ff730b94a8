// Records of time slices that have ended, between start() and take().
#pragma once

#include <string>
#include <vector>

#include "backend/vgpud/arbiter/arbiter.h"

namespace bandsaw {

class TimeSliceTrace {
 public:
  bool on() const { return on_; }
  void start();
  // `lost` counts those that found no room.
  std::vector<TimeSliceRecord> take(uint64_t* lost);
  // Does nothing outside of start() and take().
  void add(TimeSliceRecord record);

 private:
  bool on_ = false;
  std::vector<TimeSliceRecord> records_;
  uint64_t lost_ = 0;
};

}  // namespace bandsaw
