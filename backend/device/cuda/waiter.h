// Threads that wait in the driver for somebody, so that nobody else has to.
//
// Each blocking call has a thread of its own while it lasts: threads of the guest never wait for one another. A thread
// that has finished polls its own mailbox for the next call for a moment, as programs synchronise again and again, then
// sleeps. Handing a call to a polling thread is one store: no lock that both sides want, no system call.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace bandsaw::cuda {

// Thread-safe.
class Waiter {
 public:
  Waiter() = default;
  ~Waiter();  // waits for the calls under way
  // Runs `call`, which may block, on a thread of this.
  void run(std::function<void()> call);

 private:
  struct Worker {
    enum : uint32_t { kPolling, kFilled, kSleeping, kStop };
    std::atomic<uint32_t> mailbox{kPolling};
    std::function<void()> call;  // the worker's while the mailbox is filled
    std::thread thread;
  };

  void work(Worker* worker);
  static uint32_t next_mail(Worker* worker);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;  // guarded by mutex_
  std::vector<Worker*> idle_;                     // guarded by mutex_; the one that was busy last at the end
};

}  // namespace bandsaw::cuda
