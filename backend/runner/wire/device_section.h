// Where the record loop is while it takes no records: it calls the device, which may keep it for long, because a
// driver's locks are held by whoever loads code, or a queue of launches is full; or it waits until the device has got
// on. Another thread may then act in its stead.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace bandsaw::runner {

class DeviceSection {
 public:
  // The record loop's, one at a time. Its end waits for act_within().
  class Scope {
   public:
    explicit Scope(DeviceSection* section) : section_(section) {
      section_->state_.store(State::kWithin, std::memory_order_release);
    }
    ~Scope() {
      State seen = State::kWithin;
      while (!section_->state_.compare_exchange_weak(seen, State::kOutside, std::memory_order_acq_rel)) {
        seen = State::kWithin;
        std::this_thread::yield();
      }
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeviceSection* const section_;
  };

  // Calls `act`, which sees all that the record loop has written before, and the other way round, if the record loop is
  // within a scope, which it does not leave meanwhile. For one other thread.
  void act_within(const std::function<void()>& act) {
    State seen = State::kWithin;
    if (!state_.compare_exchange_strong(seen, State::kActing, std::memory_order_acq_rel)) return;
    act();
    state_.store(State::kWithin, std::memory_order_release);
  }

 private:
  enum class State { kOutside, kWithin, kActing };

  std::atomic<State> state_{State::kOutside};
};

}  // namespace bandsaw::runner
