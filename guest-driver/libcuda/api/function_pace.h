// A host function that touches managed memory has it copied by calls, and these wait behind all that was launched
// before them, which waits for the function. So a program that has managed memory goes only so far ahead of its host
// functions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace bandsaw::libcuda {

// Thread-safe.
class FunctionPace {
 public:
  // Never freed.
  static FunctionPace& get();

  // A host function is in its stream, and will run.
  void sent();
  // One of them has returned; the one that was sent first, if they are of one stream.
  void returned();
  // Before work is put on a stream: waits while too much is behind a function that has not returned, as long as some
  // return.
  void await_turn();

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t work_ = 0;          // guarded by mutex_: since the first was sent
  std::deque<uint64_t> sent_;  // guarded by mutex_: how much work was ahead of each
};

}  // namespace bandsaw::libcuda
