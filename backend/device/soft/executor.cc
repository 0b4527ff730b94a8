#include "backend/device/soft/executor.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <x86intrin.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>

#include "backend/device/soft/fault.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

// A GPU takes no processor from the threads that feed it, and a host may have few: workers stand back a little.
constexpr int kNice = 5;

void become_worker(const char* name) {
  pthread_setname_np(pthread_self(), name);
  // On Linux a thread's own.
  if (setpriority(PRIO_PROCESS, 0, kNice) != 0)
    log::debug("workers have the priority of all: {}", std::strerror(errno));
}

constexpr auto kSpin = std::chrono::microseconds(40);        // before a worker sleeps
constexpr auto kMonitorTick = std::chrono::milliseconds(2);  // how long a job may wait for a worker
constexpr size_t kGuardBytes = 4096;
constexpr uint64_t kTurnCycles = 400'000;  // 100 to 200 us on today's machines

}  // namespace

bool Worker::turn_over() const {
  if (executor_.epoch_.load(std::memory_order_relaxed) != seen_) return true;
  return held_.size() > 1 && __rdtsc() > turn_end_;
}

Fiber* Worker::get_fiber() {
  if (free_fibers_.empty()) {
    std::unique_ptr<Fiber> fiber = Fiber::make();
    if (!fiber) return nullptr;
    fibers_.push_back(std::move(fiber));
    return fibers_.back().get();
  }
  Fiber* fiber = free_fibers_.back();
  free_fibers_.pop_back();
  return fiber;
}

void Worker::put_fiber(Fiber* fiber) {
  fiber->next = nullptr;
  fiber->owner = nullptr;
  free_fibers_.push_back(fiber);
}

std::byte* Worker::get_shared() {
  if (!free_shared_.empty()) {
    std::byte* shared = free_shared_.back();
    free_shared_.pop_back();
    return shared;
  }
  void* at = ::mmap(nullptr, kSharedBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* shared = static_cast<std::byte*>(at);
  static_assert(kReservedPlace + kReservedBytes + kSharedPadding <= kSharedBytes);
  ::mprotect(shared + kSharedBytes, kGuardBytes, PROT_NONE);
  return shared;
}

void Worker::put_shared(std::byte* shared) { free_shared_.push_back(shared); }

Worker::~Worker() {
  held_.clear();
  for (std::byte* shared : free_shared_) ::munmap(shared, kSharedBytes + kGuardBytes);
}

void Worker::main() {
  describe_thread_stack(&point_);
  FaultThread guard(*this);
  while (true) {
    if (std::shared_ptr<Job> job = executor_.take(held_, &seen_)) {
      std::unique_ptr<Share> share = job->share(*this);
      held_.push_back({std::move(job), std::move(share)});
    }
    if (held_.empty()) {
      if (relief_ || !executor_.wait(*this)) return;
      continue;
    }
    if (!run_held() && executor_.epoch_.load(std::memory_order_relaxed) == seen_) {
      ::sched_yield();  // all that is held spins
    }
  }
}

// One turn for each job held. Returns whether anything but spinning happened.
bool Worker::run_held() {
  bool progress = false;
  for (size_t i = 0; i < held_.size();) {
    turn_end_ = __rdtsc() + kTurnCycles;
    const Turn turn = held_[i].share->run(*this);
    progress |= turn != Turn::kSpinning;
    const bool give_back =
        turn == Turn::kFinished || (!held_[i].share->holds_work() && executor_.others_wait(*held_[i].job));
    if (!give_back) {
      ++i;
      continue;
    }
    Held held = std::move(held_[i]);
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
    held.share.reset();
    executor_.leave(std::move(held.job));
  }
  return progress;
}

Executor::Executor(int threads, const char* name) : threads_(threads), name_(name) {
  for (int i = 0; i < threads; ++i) {
    workers_.emplace_back([this, i] {
      become_worker(name_);
      Worker worker(*this, i, false);
      worker.main();
    });
  }
  monitor_ = std::thread([this] { monitor(); });
}

Executor::~Executor() {
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    epoch_.fetch_add(1);
    wake_.notify_all();
    monitor_wake_.notify_all();
    relief_gone_.wait(lock, [this] { return relief_running_ == 0; });
  }
  monitor_.join();
  for (std::thread& thread : workers_) thread.join();
}

void Executor::push(std::shared_ptr<Job> job) {
  std::lock_guard lock(mutex_);
  const uint64_t tickets = job->total();
  if (jobs_.empty()) monitor_wake_.notify_one();
  job->listed_ = true;
  jobs_.push_back(std::move(job));
  epoch_.fetch_add(1, std::memory_order_release);
  const uint64_t spinning = static_cast<uint64_t>(std::max(0, spinners_.load(std::memory_order_relaxed)));
  if (sleepers_ == 0 || tickets <= spinning) return;
  if (tickets - spinning >= static_cast<uint64_t>(sleepers_)) {
    wake_.notify_all();
  } else {
    for (uint64_t i = spinning; i < tickets; ++i) wake_.notify_one();
  }
}

// The next job for a worker that already holds `held`, and the epoch at which it looked.
std::shared_ptr<Job> Executor::take(const std::vector<Worker::Held>& held, uint32_t* seen) {
  std::lock_guard lock(mutex_);
  *seen = epoch_.load(std::memory_order_relaxed);
  auto best = jobs_.end();
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = **at;
    if (!job.tickets_left()) {  // its workers will end it
      job.listed_ = false;
      at = jobs_.erase(at);
      continue;
    }
    const bool mine = std::any_of(held.begin(), held.end(), [&](const auto& have) { return have.job.get() == &job; });
    const bool full = job.most_workers_ != 0 && job.workers_ >= job.most_workers_;
    if (!mine && !full && !job.cancelled() && (best == jobs_.end() || job.priority_ < (*best)->priority_)) best = at;
    ++at;
  }
  if (best == jobs_.end()) return nullptr;
  std::shared_ptr<Job> job = *best;
  ++job->workers_;
  job->ticks_waiting_ = 0;
  jobs_.splice(jobs_.end(), jobs_, best);
  return job;
}

void Executor::leave(std::shared_ptr<Job> job) {
  {
    std::lock_guard lock(mutex_);
    --job->workers_;
    if (job->most_workers_ != 0 && job->tickets_left()) {  // workers that found it full may sleep
      epoch_.fetch_add(1, std::memory_order_release);
      wake_.notify_one();
    }
    if (job->workers_ != 0 || job->ended_ || (job->tickets_left() && !job->cancelled())) return;
    job->ended_ = true;
    if (job->listed_) jobs_.remove(job);
    job->listed_ = false;
  }
  job->finished();
}

void Executor::cancel(const std::shared_ptr<Job>& job) {
  job->set_cancelled();
  {
    std::lock_guard lock(mutex_);
    epoch_.fetch_add(1, std::memory_order_release);
    if (job->workers_ != 0 || job->ended_ || !job->listed_) return;
    job->ended_ = true;
    job->listed_ = false;
    jobs_.remove(job);
  }
  job->finished();
}

bool Executor::others_wait(const Job& job) {
  std::lock_guard lock(mutex_);
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [&](const auto& other) { return other.get() != &job && other->tickets_left(); });
}

// Waits for something new; spins first, as most waits between small launches are short. false: time to end.
bool Executor::wait(Worker& worker) {
  const uint32_t seen = worker.seen_;
  // On a machine with few cores a spinning worker takes time from whoever would bring the work.
  const int limit = std::max(1, threads_ / 2);
  if (spinners_.fetch_add(1) < limit) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    for (uint32_t round = 0; epoch_.load(std::memory_order_acquire) == seen; ++round) {
      _mm_pause();
      if (round % 64 != 63) continue;
      if (std::chrono::steady_clock::now() > end) break;
      ::sched_yield();
    }
  }
  spinners_.fetch_sub(1);
  std::unique_lock lock(mutex_);
  ++sleepers_;
  wake_.wait(lock, [&] { return stop_ || epoch_.load(std::memory_order_relaxed) != seen; });
  --sleepers_;
  return !stop_;
}

void Executor::monitor() {
  pthread_setname_np(pthread_self(), (std::string(name_) + "-watch").c_str());
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (jobs_.empty()) {
      monitor_wake_.wait(lock);
      continue;
    }
    monitor_wake_.wait_for(lock, kMonitorTick);
    for (const auto& job : jobs_) {
      if (job->workers_ != 0 || !job->tickets_left() || ++job->ticks_waiting_ < 2) continue;
      job->ticks_waiting_ = 0;
      if (!stop_ && relief_running_ < 3 * threads_) start_relief();
      break;
    }
  }
}

void Executor::start_relief() {
  const int index = threads_ + relief_made_++;
  try {
    std::thread([this, index] {
      become_worker(name_);
      {
        Worker worker(*this, index, true);
        worker.main();
      }
      std::lock_guard lock(mutex_);
      --relief_running_;
      relief_gone_.notify_all();
    }).detach();
    ++relief_running_;  // the thread waits for the mutex, which is held here
  } catch (const std::system_error& error) {
    log::warn("no relief worker: {}", error.what());
  }
}

}  // namespace bandsaw::soft
