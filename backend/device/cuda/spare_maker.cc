#include "backend/device/cuda/spare_maker.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace bandsaw::cuda {

SpareMaker::~SpareMaker() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

void SpareMaker::go_on(std::chrono::milliseconds later) {
  std::lock_guard lock(mutex_);
  goes_ = true;
  not_before_ = std::max(not_before_, std::chrono::steady_clock::now() + later);
  finds_none_ = false;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

bool SpareMaker::pause() {
  std::unique_lock lock(mutex_);
  const bool had = std::exchange(goes_, false) && (makes_ || !finds_none_);
  changed_.wait(lock, [this] { return !makes_; });
  return had;
}

void SpareMaker::run() {
  pthread_setname_np(pthread_self(), "spare-maker");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stops_ || (goes_ && !finds_none_); });
    if (stops_) return;
    if (std::chrono::steady_clock::now() < not_before_) {
      changed_.wait_until(lock, not_before_);
      continue;
    }
    makes_ = finds_none_ = true;
    lock.unlock();
    const bool made = make_();
    lock.lock();
    makes_ = false;
    if (made) finds_none_ = false;
    changed_.notify_all();
  }
}

}  // namespace bandsaw::cuda
