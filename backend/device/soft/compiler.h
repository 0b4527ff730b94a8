// Threads that compile kernels, so that those of several launches are compiled at once and calls go on meanwhile. After
// a second the log says what is compiled, and the guest process that it is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

// One kernel or function, or a part of it. Thread-safe.
class CompileJob {
 public:
  using Make = std::function<KernelEntry(std::string* log)>;  // nullptr: it failed, `log` says why

  CompileJob(std::string kernel, std::string part, Make make)
      : kernel_(std::move(kernel)), part_(std::move(part)), make_(std::move(make)) {}
  const std::string& kernel() const { return kernel_; }
  bool done() const;
  KernelEntry wait();  // nullptr: it failed, as the log says then, or the compiler ended before
  void run();
  void abandon();

 private:
  void finish(KernelEntry entry, std::string log);

  const std::string kernel_, part_;
  Make make_;  // gone once it has run
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;  // guarded by mutex_, as the next
  KernelEntry entry_ = nullptr;
  std::string log_;  // why it failed, until that is said
};
using CompileJobRef = std::shared_ptr<CompileJob>;

// Threads start with the first jobs. The destructor finishes what has begun and abandons the rest.
class Compiler {
 public:
  // `tell` hears how many kernels are compiled once that has taken a second, and 0 when it has ended.
  using Tell = std::function<void(uint32_t kernels)>;
  Compiler(int threads, Tell tell) : most_(static_cast<size_t>(threads)), tell_(std::move(tell)) {}
  ~Compiler();
  // `part`: which, in words; empty: all of it.
  CompileJobRef start(const std::string& kernel, const std::string& part, CompileJob::Make make);
  // Of what a job does: it is not in the cache. Only then something is said.
  void generates();
  uint32_t at_once() const { return static_cast<uint32_t>(most_); }

 private:
  void work();
  void watch();
  bool busy() const { return !running_.empty() || !waiting_.empty(); }
  bool ended(std::unique_lock<std::mutex>* lock, std::chrono::steady_clock::time_point until);
  std::set<std::string> kernels() const;
  static void log_names(const std::set<std::string>& kernels);

  const size_t most_;
  const Tell tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<CompileJobRef> waiting_;
  std::set<CompileJobRef> running_;
  bool generates_ = false;      // not all of it was in the cache
  std::set<std::string> said_;  // kernels that were named
  size_t idle_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
  std::thread watch_;
};

}  // namespace bandsaw::soft
