// Functions of the program that streams wait for: they run in the guest, on its callback thread, which asks for the
// next one with a long poll (next_callback).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "backend/device/device.h"
#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::runner {

// Thread-safe.
class CallbackQueue {
 public:
  // `done` is called once the guest says that the function has returned.
  void add(const HostCallback& callback, CUresult status, Done done);
  // The guest's poll: `finished` is the token of the function that has returned, 0 for none.
  void next(uint64_t finished, wire::NextCallbackAnswer answer);
  // Sleeps until a function has not returned, or `stop` is set and wake() called.
  void await_running(const std::atomic<bool>& stop);
  void wake();

 private:
  std::mutex mutex_;
  uint64_t last_token_ = 0;                       // guarded by mutex_
  std::deque<vgpu_callback> ready_;               // guarded by mutex_
  std::deque<wire::NextCallbackAnswer> waiting_;  // guarded by mutex_: empty or ready_ is
  std::unordered_map<uint64_t, Done> running_;    // guarded by mutex_
  std::condition_variable begun_;                 // some run
};

}  // namespace bandsaw::runner
