// Threads that compile kernels, so that those of several launches are compiled at once and calls go on meanwhile. After
// a second the log says what is compiled, and the guest process that it is.
#pragma once

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

// One kernel. Thread-safe.
class CompileJob {
 public:
  using Make = std::function<KernelEntry(std::string* log)>;  // nullptr: it failed, `log` says why

  CompileJob(std::string kernel, Make make) : kernel_(std::move(kernel)), make_(std::move(make)) {}
  const std::string& kernel() const { return kernel_; }
  bool done() const;
  KernelEntry wait();  // nullptr: it failed, as the log says then, or the compiler ended before
  void run();
  void abandon();

 private:
  void finish(KernelEntry entry, std::string log);

  const std::string kernel_;
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
  CompileJobRef start(const std::string& kernel, CompileJob::Make make);
  uint32_t at_once() const { return static_cast<uint32_t>(most_); }

 private:
  void work();
  void watch();
  void log_names();
  uint32_t count() const { return static_cast<uint32_t>(running_.size() + waiting_.size()); }

  const size_t most_;
  const Tell tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<CompileJobRef> waiting_;
  std::set<CompileJobRef> running_;
  size_t idle_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
  std::thread watch_;
};

}  // namespace bandsaw::soft
