// What a virtual GPU and its runners have used of the engines in the last second, from the usage page's counters.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "backend/session/usage_page_owner.h"

namespace bandsaw {

// Percent of one engine's time, 100 at most: runners write the counters, and are not believed. Bytes: copied.
struct UsageRate {
  uint32_t compute_percent = 0, copy_percent = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
};

class UsageRates {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Once a second. The first call only begins.
  void take(const UsagePageOwner& usage_page, Time now);

  UsageRate total() const { return total_; }
  UsageRate of(int slot) const { return rates_[static_cast<size_t>(slot)]; }

 private:
  using Slots = std::array<EngineUse, kUsageSlots>;
  Slots last_{};
  std::array<UsageRate, kUsageSlots> rates_{};
  UsageRate total_;
  Time taken_{};
};

}  // namespace bandsaw
