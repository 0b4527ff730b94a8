// What a process gives up of the device's memory because others want it: virtual GPUs that it is lent to, or was
// borrowed from (memory/swap/lending.h), and other processes of its own one (memory/swap/neighbours.h).
#pragma once

#include <optional>

#include "backend/device/device.h"
#include "backend/runner/swap/chunk_book.h"

namespace bandsaw::runner {

// For the record loop.
class Giving {
 public:
  // All outlive this.
  Giving(UsagePageView* page, ChunkBook* book, const Clock* clock) : page_(*page), book_(*book), clock_(*clock) {}

  // Bytes that are to go.
  uint64_t wanted() const;
  // There is something of it that can go now.
  bool begins();
  // What goes next: some at a time, so that others get it while there is more to go. Empty: what is here does not.
  swap::Chunks::Plan next();
  // Nothing goes before then.
  void not_before(Clock::Point time) { not_before_ = time; }
  // It did not go.
  void failed();
  // Has the device make host memory for what may have to go at once.
  void prepare(Device* device);

 private:
  UsagePageView& page_;
  ChunkBook& book_;
  const Clock& clock_;
  Clock::Point not_before_{};
  uint64_t prepared_ = 0;  // bytes
};

}  // namespace bandsaw::runner
