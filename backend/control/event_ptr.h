// libevent's objects with one owner, and its times.
#pragma once

#include <event2/event.h>

#include <chrono>
#include <memory>

namespace bandsaw {

struct FreeEvent {
  void operator()(event* e) const { event_free(e); }
};
using EventPtr = std::unique_ptr<event, FreeEvent>;

struct FreeBase {
  void operator()(event_base* base) const { event_base_free(base); }
};
using BasePtr = std::unique_ptr<event_base, FreeBase>;

inline timeval to_timeval(std::chrono::milliseconds time) { return {time.count() / 1000, time.count() % 1000 * 1000}; }

}  // namespace bandsaw
