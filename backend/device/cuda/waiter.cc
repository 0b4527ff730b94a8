#include "backend/device/cuda/waiter.h"

#include <immintrin.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <chrono>

namespace bandsaw::cuda {
namespace {

// A little more than a program takes between two synchronising calls; waking a sleeping thread costs it some 5 us.
constexpr std::chrono::microseconds kPollBudget{50};

}  // namespace

Waiter::~Waiter() {
  for (const auto& worker : workers_) {
    // A call under way is ended first: its mailbox reads filled until then.
    uint32_t seen = worker->mailbox.load();
    while (seen == Worker::kFilled || !worker->mailbox.compare_exchange_weak(seen, Worker::kStop)) {
      std::this_thread::yield();
      seen = worker->mailbox.load();
    }
    worker->mailbox.notify_one();
    worker->thread.join();
  }
}

void Waiter::run(std::function<void()> call) {
  Worker* worker = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      workers_.push_back(std::make_unique<Worker>());
      worker = workers_.back().get();
      worker->thread = std::thread([this, worker] { work(worker); });
    } else {
      worker = idle_.back();
      idle_.pop_back();
    }
  }
  worker->call = std::move(call);
  if (worker->mailbox.exchange(Worker::kFilled, std::memory_order_acq_rel) == Worker::kSleeping) {
    worker->mailbox.notify_one();
  }
}

// What is in the mailbox when something is: kFilled or kStop.
uint32_t Waiter::next_mail(Worker* worker) {
  const auto until = std::chrono::steady_clock::now() + kPollBudget;
  do {
    for (int i = 0; i < 32; ++i) {
      const uint32_t mail = worker->mailbox.load(std::memory_order_acquire);
      if (mail != Worker::kPolling) return mail;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  uint32_t mail = Worker::kPolling;
  if (worker->mailbox.compare_exchange_strong(mail, Worker::kSleeping)) mail = Worker::kSleeping;
  while (mail == Worker::kSleeping) {
    worker->mailbox.wait(Worker::kSleeping);
    mail = worker->mailbox.load(std::memory_order_acquire);
  }
  return mail;
}

void Waiter::work(Worker* worker) {
  pthread_setname_np(pthread_self(), "waiter");
  prctl(PR_SET_TIMERSLACK, 1'000, 0, 0, 0);  // ns: waits nap
  while (next_mail(worker) == Worker::kFilled) {
    worker->call();
    worker->call = nullptr;
    worker->mailbox.store(Worker::kPolling, std::memory_order_release);
    std::lock_guard lock(mutex_);
    idle_.push_back(worker);
  }
}

}  // namespace bandsaw::cuda
