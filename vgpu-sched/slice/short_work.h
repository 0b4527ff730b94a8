// What short work meets that comes beside planned kernels: whether blocks of it find room on the SMs at once, when they
// do else, how much slower it is, and how many persistent blocks would have to make way for it. The forecast is that of
// two launches (overlap.h): what runs is the first one, and what it leaves is the short work's.
//
// What forecasts prove to be wrong by is learnt, by whose work it is and its shape, and the next ones are corrected.
//
// Pure: no clock, no threads; one thread at a time. Source: Cruz et al., sections 4 and 5.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "vgpu-sched/slice/overlap.h"
#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

// A kernel that has so many blocks on each SM for the time that it has left.
struct RunningKernel {
  BlockNeeds needs;
  int resident = 0;
  Time left = 0;
  double issue = 0;  // as OverlapKernel's
};

struct ShortWorkForecast {
  bool room = false;  // some of its blocks begin at once
  Time begins = 0;    // if there is none: when what runs has ended, at the latest
  // From now to its end, by its time alone; if that is not known, by its room.
  double slowdown = 1;
  // If there is no room: so many blocks of what has most of them have to go from each SM. 0: half of them would not do.
  int make_way = 0;
  // How much slower that kernel is then, at most.
  double cost = 1;
};

// `work.time` 0: not known.
ShortWorkForecast forecast_short_work(const GpuModel& gpu, std::span<const RunningKernel> running,
                                      const OverlapKernel& work);

// Times of short work, as measured.
class ShortWorkTimes {
 public:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // whose, and which shape
  static constexpr std::size_t kMost = 64;              // shapes of one owner

  // What a launch of that shape takes alone; 0: not known.
  Time alone(const Key& key) const;
  // What forecasts of it are to be multiplied by.
  double correction(const Key& key) const;
  // It took so long while nothing else ran.
  void learn_alone(const Key& key, Time took);
  // It was said to take `forecast`, corrected, where it found room, and took so long.
  void learn_beside(const Key& key, Time forecast, Time took);
  void forget_owner(std::uint64_t owner);

  std::uint64_t judged() const { return judged_; }
  // Mean error of the last forecasts, relative to what was measured.
  double error() const { return error_; }

 private:
  struct Shape {
    Time alone = 0;
    double correction = 1;
    std::uint64_t used = 0;
  };
  Shape& place(const Key& key);

  std::map<Key, Shape> shapes_;
  std::uint64_t uses_ = 0, judged_ = 0;
  double error_ = 0;
};

}  // namespace bandsaw::slice
