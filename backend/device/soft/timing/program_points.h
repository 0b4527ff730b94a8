// ELF's program points (Park, 3.3.1 and 3.3.2): from which instructions the distance to the next load of global memory
// is known, so that a warp's priority is a table look-up by its program counter.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {

struct ProgramPoint {
  uint32_t counter = 0;
  bool branch = false;
  uint32_t score =
      0;  // a branch's: instructions to the next load; a load's: what it is nearer by, once points are merged
};

inline constexpr uint32_t kMostScore = 255;  // 8 bits
inline constexpr uint32_t kPointSlots = 32;  // of the paper's hardware

class ProgramPoints {
 public:
  // `slots`: how many there may be; 0: as many as there are. Algorithms 1 and 2; backward branches alone.
  explicit ProgramPoints(const Code& code, uint32_t slots = kPointSlots);

  const std::vector<ProgramPoint>& points() const { return points_; }
  size_t found() const { return found_; }  // before any was merged
  // Instructions to the next load from `counter` on, at most kMostScore; lower goes first.
  uint32_t distance(uint32_t counter) const { return distances_[counter]; }
  // Whether a warp that has issued the instruction and goes on at `next` must look its distance up: after loads, and
  // after branches whose taken, or other, side is not what the distance before it said. Else it is one less.
  bool changes(uint32_t counter, uint32_t next) const;

 private:
  void find(const Code& code);
  bool merge();
  uint32_t score_from(uint32_t counter) const;
  uint32_t look_up(uint32_t counter) const;

  std::vector<ProgramPoint> points_;  // by counter
  size_t found_ = 0;
  uint32_t instructions_ = 0;
  std::vector<uint32_t> distances_;
  std::vector<bool> loads_, branches_;
};

}  // namespace bandsaw::soft::timing
