// What launches take by themselves, learnt from samples: launches that were measured in a time slice of their own.
//
// Where the hardware switches between programs, what is measured holds the others' time too. So a launch is taken to
// need what its samples took on average, as far as they differ little. One that took clearly less takes their place at
// once, since others can only make it longer; where many in a row took clearly more, the least of those does: a
// kernel's time may change with its data. A sample that is longer than a time slice and was taken beside others may
// have been interrupted, and says no more than that the launch takes no longer; many in a row, and it is not known how
// long the launch takes. A launch with new parameters is taken to need what those with the same grid did, until it has
// a sample of its own. So a program whose kernels read from memory how long they are to run can be taken for shorter
// than it is.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "backend/runner/execution/clock.h"
#include "backend/runner/execution/launch_id.h"

namespace bandsaw::runner {

class LaunchTimes {
 public:
  static constexpr size_t kMost = 4096;    // shapes and launches; of more nothing is known
  static constexpr uint32_t kEnough = 3;   // samples, before the others are taken at leisure
  static constexpr uint32_t kLonger = 32;  // samples in a row that make a longer time be believed
  static constexpr uint64_t kLittle = 8;   // samples differ little if they do so by an eighth
  // A sample costs about 10 us. There is at most one in each of these: where little is known, and else.
  static constexpr std::chrono::milliseconds kBetween{2}, kBetweenLater{10};
  // What is known well is sampled again after this time, and forgotten if it was not launched for that.
  static constexpr std::chrono::milliseconds kAgain{100}, kForget{1000};

  // `clock` outlives this.
  explicit LaunchTimes(const Clock* clock) : clock_(*clock) {}

  struct Known {
    uint64_t ns = 0;      // 0: not known
    bool sample = false;  // it should be measured now
  };
  // `alone`: no other program has the device. Then nothing depends on what is known, and it is not sampled again.
  Known find(const LaunchId& id, bool alone);
  // A launch is measured; learn() may follow.
  void begin_sample(const LaunchId& id);
  // A sample took so long. 0: the device cannot say. `whole`: nobody had the device in between, as far as is known.
  // False: it was not, and nothing is known of this launch.
  bool learn(const LaunchId& id, uint64_t ns, bool whole = true);

 private:
  struct Time {
    uint64_t usual = 0;         // of the samples that count; 0: not known
    uint64_t least_longer = 0;  // of the last samples, which were all longer; 0: none of them was whole
    uint32_t longer = 0;        // how many they are
    uint32_t begun = 0;         // samples
    Clock::Point sampled, used;
  };
  using Times = std::unordered_map<uint64_t, Time>;

  Time* place(uint64_t key, Clock::Point now);
  static void learn(Time& time, uint64_t ns, bool whole);

  const Clock& clock_;
  std::mutex mutex_;
  Times times_;             // guarded by mutex_, as the next; by shape and exact
  Clock::Point sampled_{};  // the last sample of all
  Clock::Point cleared_{};  // when times were last forgotten
};

}  // namespace bandsaw::runner
