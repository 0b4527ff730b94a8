// How long work on streams takes, by a pair of events around it; asked for later, so that nothing waits.
#pragma once

#include <chrono>
#include <functional>
#include <list>

#include "backend/device/device.h"
#include "backend/runner/execution/clock.h"

namespace bandsaw::runner {

// For one thread.
class StreamTimer {
 public:
  using Measured = std::function<void(uint64_t nanoseconds)>;
  struct Span {
    EventRef start;
  };

  // Both outlive it.
  StreamTimer(Device* device, const Clock* clock) : device_(device), clock_(*clock) {}

  // Around work that the stream, which does not capture, gets next. False: too much is being measured, or it cannot be.
  bool begin(const ContextRef& context, const StreamRef& stream, Span* span);
  // After it; `measured` is called from probe(), or never if the work failed.
  void end(const ContextRef& context, const StreamRef& stream, Span span, Measured measured);
  // Finds the spans that have ended. Cheap, however often it is called.
  void probe();

 private:
  struct Waiting {
    EventRef start, end;
    Measured measured;
  };
  static constexpr size_t kMost = 8;

  Device* const device_;
  const Clock& clock_;
  std::list<Waiting> waiting_;
  size_t open_ = 0;  // begun and not ended
  Clock::Point next_probe_;
};

}  // namespace bandsaw::runner
