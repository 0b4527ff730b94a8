// A thread that makes host memory ahead of the moves that will need it, one piece after the other, while nothing moves:
// the driver has one lock for that and for the mappings of moves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace bandsaw::cuda {

// Thread-safe. `make` is called by a thread of its own, which begins with the first go_on().
class SpareMaker {
 public:
  // Makes a piece. False: it made none, and none is wanted before the next go_on().
  explicit SpareMaker(std::function<bool()> make) : make_(std::move(make)) {}
  ~SpareMaker();
  SpareMaker(const SpareMaker&) = delete;
  SpareMaker& operator=(const SpareMaker&) = delete;

  // `later`: not before that. A move is seldom the only one.
  void go_on(std::chrono::milliseconds later = {});
  // Returns when none is being made, and none is before the next go_on(). True: one would have been.
  bool pause();

 private:
  void run();

  const std::function<bool()> make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  bool goes_ = false, makes_ = false, stops_ = false;
  bool finds_none_ = false;  // since the last go_on()
  std::chrono::steady_clock::time_point not_before_{};
  std::thread thread_;
};

}  // namespace bandsaw::cuda
