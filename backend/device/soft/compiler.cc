#include "backend/device/soft/compiler.h"

#include <pthread.h>
#include <sys/resource.h>

#include <chrono>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw::soft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSilent{1};
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
  if (const std::string why = std::exchange(log_, {}); !why.empty()) log::error("kernel {}: {}", kernel_, why);
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

CompileJobRef Compiler::start(const std::string& kernel, CompileJob::Make make) {
  auto job = std::make_shared<CompileJob>(kernel, std::move(make));
  std::lock_guard lock(mutex_);
  waiting_.push_back(job);
  if (waiting_.size() > idle_ && threads_.size() < most_) threads_.emplace_back([this] { work(); });
  if (!watch_.joinable()) watch_ = std::thread([this] { watch(); });
  changed_.notify_all();
  return job;
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

// Says what is compiled when that has taken a second, and when it has ended.
void Compiler::watch() {
  pthread_setname_np(pthread_self(), "soft-compiles");
  std::unique_lock lock(mutex_);
  const auto busy = [this] { return !running_.empty() || !waiting_.empty(); };
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || busy(); });
    const auto since = Clock::now();
    if (changed_.wait_until(lock, since + kSilent, [&] { return stop_ || !busy(); })) {
      if (stop_) return;
      continue;
    }
    log_names();
    tell_(count());
    changed_.wait(lock, [&] { return stop_ || !busy(); });
    if (stop_) return;
    tell_(0);
    log::info("compiled after {:.1f} s", std::chrono::duration<double>(Clock::now() - since).count());
  }
}

void Compiler::log_names() {
  std::string names;
  size_t named = 0;
  for (const CompileJobRef& job : running_) {
    if (named++ == kNamesMost) break;
    names += (names.empty() ? "" : ", ") + job->kernel().substr(0, kNameMost);
  }
  log::info("compiling {} {}: {}{}", count(), count() == 1 ? "kernel" : "kernels", names,
            count() > named ? ", ..." : "");
}

}  // namespace bandsaw::soft
