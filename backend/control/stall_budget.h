// How long a virtual GPU's programs may stop everybody on the GPU. While a context is made or ends, and while the
// driver recovers from a fault, nobody's work runs, so that no time slice holds that time against anyone. So while
// others have work, each such deed has a price in time of theirs. Who has used up what a second allows waits before the
// next one.
//
// Pure: `now` is a parameter, in nanoseconds of CLOCK_MONOTONIC.
// Source: the generic cell rate algorithm (ITU-T I.371, annex A), with time of others as cells.
#pragma once

#include <atomic>
#include <cstdint>

#include "backend/control/gate_link.h"

namespace bandsaw {

// How long others stand still, in nanoseconds: measured on an H100 (tools/bench hostile).
inline constexpr int64_t kContextStall = 25'000'000;  // a further context of a program is made, and ends
inline constexpr int64_t kProgramStall = 21'000'000;  // a program begins and ends, with its first context
inline constexpr int64_t kFaultStall = 150'000'000;   // the driver recovers from a kernel's fault
// So much may be taken at once by who has taken nothing for a while: some programs that begin together.
inline constexpr int64_t kStallBurst = 45'000'000;
// Others have work if they had some so recently.
inline constexpr int64_t kOthersWorkFor = 300'000'000;
inline constexpr uint32_t kStallUnlimited = 1000;  // milliseconds in a second

inline bool others_work(int64_t others_worked_at, int64_t now) {
  return others_worked_at != 0 && now - others_worked_at <= kOthersWorkFor;
}

// Whether who has this page is held to its budget now: an arbiter says who has work, and others have.
inline bool others_work(const GrantPage& page, int64_t now) {
  return page.no_arbiter == 0 && others_work(page.others_worked_at, now);
}

class StallBudget {
 public:
  // `paid_at`: when all that was taken will have been paid; 0 at first. Threads and processes share it; any value is
  // harmless. It outlives this.
  explicit StallBudget(std::atomic<int64_t>* paid_at) : paid_at_(paid_at) {}

  // Takes `stall` ns of the others' time, at `most` ms in a second. Returns how many ns to wait before the deed.
  int64_t take(int64_t stall, uint32_t most, int64_t now);
  // The same if the deed need not wait, and returns 0. Otherwise takes nothing.
  int64_t take_now(int64_t stall, uint32_t most, int64_t now);
  // Faults take more than may be taken at once: how long, in ns, until nothing beyond that is owed.
  int64_t debt(uint32_t most, int64_t now) const;
  // What is not paid yet, in ns of the others' time.
  int64_t owed(uint32_t most, int64_t now) const;

 private:
  std::atomic<int64_t>* paid_at_;
};

}  // namespace bandsaw
