// What launches take by themselves, learnt from samples: launches that were measured in a time slice of their own.
//
// Where the hardware switches between programs, what is measured holds the others' time too. So a launch is taken to
// need what its samples took on average, as far as they differ little; of the first few from beside others the least
// counts, since a short interruption makes one a little longer. One that took clearly less takes their place at once,
// since others can only make it longer; where many in a row took clearly more, the least of those does: a
// kernel's time may change with its data.
//
// A sample that is longer than a time slice and was taken beside others may have been interrupted (it is "cut"), and
// says no more than that the launch takes no longer. A shorter one may have been, by somebody who had a little to do:
// so of a launch that is not long, and has to be found out, a few are wanted. If it would have fitted, many such in a
// row say that it is not known how long it takes. If it could not fit, that is no wonder; only after very many it is to
// be measured anew.
//
// Where the device has nothing to do, it waits for a launch to be issued, and a sample of little work says mostly how
// long that took: of kernels of 5 us, 15. Such a sample is loose: it only says that the launch takes no longer, and one
// that is not takes its place at once. Beside others, a sample that the device did not wait for holds what the others
// had between its begin and the launch, whatever it seems to be: it can say that the launch takes less, never more.
//
// Progress is counted in what a launch takes where nobody else has the device. Beside others it may take a little less
// (a GPU at its limit of power is faster beside a program that needs little) or more. So what was learnt alone stays,
// as long as samples beside others differ little from it.
//
// A launch with new parameters is taken to need what those with the same grid did, until it has a sample of its own; if
// that one is from beside others, and what those did was learnt alone, until it differs from that by more than a
// little. So a program whose kernels read from memory how long they are to run can be taken for shorter than it is.
// Where the first sample from beside others is clearly longer than those of the same grid, it may have been interrupted
// by time slices shorter than its own: the least of kEnough such counts.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>

#include "backend/runner/execution/clock.h"
#include "backend/runner/execution/launch_id.h"

namespace bandsaw::runner {

class LaunchTimes {
 public:
  static constexpr size_t kMost = 4096;    // shapes and launches; of more nothing is known
  static constexpr uint32_t kEnough = 3;   // samples, before the others are taken at leisure
  static constexpr uint32_t kFew = 4;      // samples from beside others, before the mean of them counts
  static constexpr uint32_t kLonger = 32;  // samples in a row that make a longer time be believed
  static constexpr uint32_t kDoubt = 256;  // samples in a row that were cut, before it is to be measured anew
  static constexpr uint64_t kLittle = 8;   // samples differ little if they do so by an eighth
  static constexpr uint64_t kBeside = 4;   // beside others a launch takes a quarter less than alone at most
  static constexpr uint64_t kAlone = ~0ull;
  static constexpr uint64_t kLong = 25'000'000;  // ns; to this a short interruption adds little
  static constexpr uint64_t kIssue = 20'000;     // ns that issuing a launch adds to a sample, if it does, at most
  // A sample costs about 10 us. There is at most one in each of these: where little is known, and else.
  static constexpr std::chrono::milliseconds kBetween{2}, kBetweenLater{10};
  // What is known well is sampled again after this time (alone: one launch of all), and forgotten if it was not
  // launched for that.
  static constexpr std::chrono::milliseconds kAgain{100}, kForget{1000};

  // `clock` outlives this.
  explicit LaunchTimes(const Clock* clock) : clock_(*clock) {}

  struct Known {
    uint64_t ns = 0;      // 0: not known
    bool sample = false;  // it should be measured now
  };
  // `alone`: no other program has the device.
  Known find(const LaunchId& id, bool alone);
  // A launch is measured; learn() may follow.
  void begin_sample(const LaunchId& id);

  enum class Learnt {
    kNothing,  // new
    kCut,      // it was longer than `within`, and it is to be found out how long the launch takes
    kKnown,    // it, or one of its shape, was kCut before, and now it is known for sure
  };
  // A sample took so long. 0: the device cannot say. One that is not longer than `within` was not interrupted for
  // long; kAlone: no other program had the device.
  // `waited`: the device had not come to it when all of it was issued.
  Learnt learn(const LaunchId& id, uint64_t ns, uint64_t within = kAlone, bool waited = true);

 private:
  struct Time {
    uint64_t usual = 0;         // of the samples that count; 0: not known
    uint64_t least_longer = 0;  // of the last samples, which were all longer; 0: all of them were cut
    uint32_t longer = 0;        // how many they are
    uint32_t like = 0;          // of the first kFew samples that differed little from `usual`, how many there were
    uint32_t cut = 0;           // samples in a row that could not fit
    uint32_t begun = 0;         // samples
    bool alone = false;         // `usual` was learnt where nobody else had the device
    bool loose = false;         // `usual` may hold what issuing it took
    bool wanted = false;        // kCut was said, and so many samples have fitted since
    uint32_t fitted = 0;
    Clock::Point sampled, used;
  };
  using Times = std::unordered_map<uint64_t, Time>;

  Time* place(uint64_t key, Clock::Point now);
  static uint64_t usual(const Time* shape, const Time* exact);
  static void learn(Time& time, uint64_t ns, uint64_t within, bool loose, uint64_t of_shape);
  static bool is_doubtful(Time& time, uint64_t* ns, uint64_t of_shape);
  static bool says_nothing(const Time& time, uint64_t ns);
  // `both`: of the launch, and of its shape, which may be null.
  static Learnt cut(std::span<Time* const, 2> both);
  static Learnt fitted(std::span<Time* const, 2> both, bool sure);
  static void note_longer(Time& time, uint64_t ns, uint64_t within, bool loose);

  const Clock& clock_;
  std::mutex mutex_;
  Times times_;             // guarded by mutex_, as the next; by shape and exact
  Clock::Point sampled_{};  // the last sample of all
  Clock::Point cleared_{};  // when times were last forgotten
};

}  // namespace bandsaw::runner
