// The guest says in a record that a host function has returned, and records are executed in order. The record loop may
// be kept in the device by work that waits for just that function: then this thread hears of it.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "backend/runner/wire/callbacks.h"
#include "backend/runner/wire/device_section.h"

namespace bandsaw::runner {

class EarlyPolls {
 public:
  // `take` takes such records out of the rings, ahead of their turn, on this object's thread while the record loop is
  // in the section, and says whether there was one. Both outlive this.
  EarlyPolls(CallbackQueue* callbacks, DeviceSection* section, std::function<bool()> take);
  ~EarlyPolls();

 private:
  void run();

  CallbackQueue* const callbacks_;
  DeviceSection* const section_;
  const std::function<bool()> take_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace bandsaw::runner
