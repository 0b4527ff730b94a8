// What the arbiter knows of one gate: what was asked there, what is in flight, and what the counters were when they
// were read last. Plain values; times are nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "backend/control/gate_link.h"
#include "backend/vgpud/arbiter/kernel_deadline.h"
#include "vgpu-sched/policy/types.h"

namespace bandsaw {

inline constexpr sched::Time kNever = INT64_MAX;

// More time slices than this cannot run at one gate: counters that say so are nonsense.
inline constexpr uint32_t kTimeSlicesAtOnce = 64;

// What was forecast of short work beside a plan when it asked.
struct ExpectedWork {
  uint64_t shape = 0;
  bool known = false;             // its runner has described it
  bool room = false;              // there is room for it
  double slowdown = 1;            // by its room
  sched::Time takes = 0;          // from its grant to its end; 0: not known
  sched::Time ask_room = kNever;  // so long after its grant others are to make room for it
  int make_way = 1;               // persistent blocks on each SM that are to make way then
  int sms = 0;                    // or so many SMs that would hold it
};

// An ask, and later the time slice that was granted for it.
struct GrantedSlice {
  sched::RequestId id = 0;
  sched::Time asked = 0, granted = 0;
  uint64_t planned = 0;  // the plan's number for it; 0: none has
  ExpectedWork expected{};
};

// Of a compute gate under the hardware's time slices.
struct SlicedGate {
  sched::Time busy_at = -sched::kLongest;             // when it was last seen with work
  sched::Time measured = 0, measured_since = 0;       // the sum of what its runner measured, and since when
  sched::Time own = 0;                                // the part of it that holds nobody else's time
  sched::Time paused = 0;                             // between its rests and its next work
  sched::Time issued = 0;                             // from that to its last work before the next rest
  sched::Time done = 0;                               // what its steps take alone, while it kept the engine
  uint64_t own_ns = 0, paused_ns = 0, issued_ns = 0;  // what the gate said of these
  uint64_t steps_ns = 0;
  uint32_t ordered_us = 0;         // the time slice that was ordered last
  std::optional<bool> no_waiters;  // what the gate was told last
};

struct GateState {
  uint32_t ended = 0, asked = 0;
  uint64_t busy_ns = 0;
  bool waiting = false;
  bool admitted = false;            // the scheduler has sent the ask that waits, and the plan has not granted it
  GrantedSlice ask;                 // the one that waits
  std::deque<GrantedSlice> flying;  // granted, oldest first
  uint32_t leased = 0;              // begun at an open gate that has been closed since
  uint32_t overdue = 0;             // granted, and given up: they are no longer the scheduler's
  sched::Time overdue_since = 0;
  sched::Time last_end = 0;    // of a time slice
  sched::Time head_since = 0;  // since when the oldest one in flight is the oldest
  // The oldest one in flight is short work, and finds no room beside persistent blocks.
  bool waits_for_room = false;
  sched::RequestId room_asked_for = 0;  // the time slice for which room was asked last
  SlicedGate sliced;
  OldestSlice oldest;  // of a compute gate

  // It waits, and not for its turn in a plan.
  bool waits_unplanned() const { return waiting && !admitted; }
};

using GateStates = std::array<GateState, kEngines>;  // of one runner

}  // namespace bandsaw
