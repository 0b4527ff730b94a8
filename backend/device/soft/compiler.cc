#include "backend/device/soft/compiler.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw::soft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSilent{1};
constexpr std::chrono::milliseconds kPause{50};
constexpr int kNice = 5;  // less than the threads that feed the device
constexpr size_t kNamesMost = 3, kNameMost = 120;

}  // namespace

bool CompileJob::done() const {
  std::lock_guard lock(mutex_);
  return done_;
}

KernelEntry CompileJob::wait() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return done_; });
  if (const std::string why = std::exchange(log_, {}); !why.empty())
    log::error("kernel {}{}: {}", kernel_, part_.empty() ? "" : ", " + part_, why);
  return entry_;
}

void CompileJob::run() {
  std::string log;
  const KernelEntry entry = std::exchange(make_, nullptr)(&log);
  finish(entry, entry ? std::string() : std::move(log));
}

void CompileJob::abandon() {
  make_ = nullptr;
  finish(nullptr, {});
}

void CompileJob::finish(KernelEntry entry, std::string log) {
  std::lock_guard lock(mutex_);
  entry_ = entry;
  log_ = std::move(log);
  done_ = true;
  finished_.notify_all();
}

Compiler::~Compiler() {
  std::deque<CompileJobRef> abandoned;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    abandoned.swap(waiting_);
    changed_.notify_all();
  }
  for (const CompileJobRef& job : abandoned) job->abandon();
  for (std::thread& thread : threads_) thread.join();
  if (watch_.joinable()) watch_.join();
}

CompileJobRef Compiler::start(const std::string& kernel, const std::string& part, CompileJob::Make make) {
  auto job = std::make_shared<CompileJob>(kernel, part, std::move(make));
  std::lock_guard lock(mutex_);
  waiting_.push_back(job);
  if (waiting_.size() > idle_ && threads_.size() < most_) threads_.emplace_back([this] { work(); });
  if (!watch_.joinable()) watch_ = std::thread([this] { watch(); });
  changed_.notify_all();
  return job;
}

void Compiler::generates() {
  std::lock_guard lock(mutex_);
  generates_ = true;
}

void Compiler::work() {
  pthread_setname_np(pthread_self(), "soft-compiler");
  setpriority(PRIO_PROCESS, 0, kNice);  // of this thread
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    --idle_;
    if (stop_) return;
    const CompileJobRef job = std::move(waiting_.front());
    waiting_.pop_front();
    running_.insert(job);
    lock.unlock();
    job->run();
    lock.lock();
    running_.erase(job);
    changed_.notify_all();
  }
}

// Whether all is compiled; waits until then for it. Parts of one kernel come one after the other, each when a warp
// comes there: a pause between them is no end.
bool Compiler::ended(std::unique_lock<std::mutex>* lock, Clock::time_point until) {
  for (;;) {
    if (!changed_.wait_until(*lock, until, [&] { return stop_ || !busy(); })) return false;
    if (stop_ || !changed_.wait_for(*lock, kPause, [&] { return stop_ || busy(); })) return true;
  }
}

// Says what is compiled when that has taken a second, and when it has ended.
void Compiler::watch() {
  pthread_setname_np(pthread_self(), "soft-compiles");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || busy(); });
    const auto since = Clock::now();
    bool said = false;
    while (!ended(&lock, Clock::now() + kSilent)) {
      if (said || !generates_) continue;
      const std::set<std::string> names = kernels();
      if (std::includes(said_.begin(), said_.end(), names.begin(), names.end())) continue;  // parts that came later
      said_.insert(names.begin(), names.end());
      log_names(names);
      tell_(static_cast<uint32_t>(names.size()));
      said = true;
    }
    if (stop_) return;
    generates_ = false;
    if (!said) continue;
    tell_(0);
    log::info("compiled after {:.1f} s", std::chrono::duration<double>(Clock::now() - kPause - since).count());
  }
}

std::set<std::string> Compiler::kernels() const {
  std::set<std::string> names;
  for (const CompileJobRef& job : running_) names.insert(job->kernel());
  for (const CompileJobRef& job : waiting_) names.insert(job->kernel());
  return names;
}

void Compiler::log_names(const std::set<std::string>& kernels) {
  std::string names;
  size_t named = 0;
  for (const std::string& kernel : kernels) {
    if (named++ == kNamesMost) break;
    names += (names.empty() ? "" : ", ") + kernel.substr(0, kNameMost);
  }
  log::info("compiling {} {}: {}{}", kernels.size(), kernels.size() == 1 ? "kernel" : "kernels", names,
            kernels.size() > kNamesMost ? ", ..." : "");
}

}  // namespace bandsaw::soft
