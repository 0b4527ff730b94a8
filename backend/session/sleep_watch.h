// Sees when a virtual GPU has had nothing to do for as long as its administrator has set, so that it can leave its
// device, and says so. vgpud then finds the room in the host's memory, and tells it to sleep.
#pragma once

#include <chrono>
#include <functional>

#include "backend/control/event_ptr.h"
#include "backend/session/idle_timer.h"
#include "backend/session/usage_page_owner.h"

namespace bandsaw {

// Threads: the event loop's only.
class SleepWatch {
 public:
  // All outlive this.
  struct Session {
    std::function<Activity()> activity;
    std::function<bool()> awake;  // its programs may run, and nothing about that changes
    std::function<void()> idle;   // to be said to vgpud
  };
  SleepWatch(event_base* base, Session session);

  // 0: never. Looks from now on.
  void set_after(std::chrono::milliseconds after);
  // Somebody calls, or asks for a runner.
  void called();
  // It is idle now, and not only at the last look.
  bool idle();
  // It has said that it would sleep, and nothing has come since.
  bool would_sleep() const { return would_sleep_; }
  // Awake, or told to stay so: the time begins anew.
  void begin();

 private:
  void look();
  void note(IdleTimer::Time now);

  const Session session_;
  IdleTimer timer_;
  std::chrono::milliseconds after_{0};
  uint64_t calls_ = 0;
  bool would_sleep_ = false;
  IdleTimer::Time said_{};
  EventPtr event_;
};

}  // namespace bandsaw
