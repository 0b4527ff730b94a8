// Text that kernels print, on its way to the guest's standard output.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

namespace bandsaw::runner {

// Thread-safe. Holds at most kMax bytes, like CUDA's own FIFO: the oldest text goes, with a note in its place.
class Output {
 public:
  static constexpr size_t kMax = 1u << 20;

  void print(std::string_view text);
  // The oldest text, at most `bytes` of it.
  std::string fetch(size_t bytes);
  // All that fetch() has not taken.
  std::string copy();
  const std::atomic<bool>& pending() const { return pending_; }

 private:
  std::mutex mutex_;
  std::string text_;      // guarded by mutex_
  size_t begin_ = 0;      // guarded by mutex_: what was fetched and not yet cut off
  uint64_t dropped_ = 0;  // guarded by mutex_: bytes lost since the last fetch
  std::atomic<bool> pending_{false};
};

}  // namespace bandsaw::runner
