// The gates of one virtual GPU's guest processes, in the memory of its usage page: how runners ask the arbiter for
// slices of an engine, and how it answers.
//
// A runner gathers work into slices. Before it begins one it counts it in `begun`; if the gate then is not open, it
// takes that back, counts up `asked`, rings, and sleeps on `granted` until that is equal. When all work of a slice is
// done, it adds the measured time to `busy_ns` and counts up `ended`. The arbiter opens a gate while nobody else wants
// the engine. To close it, it clears `open` and then reads `begun`; the runner counts `begun` and then reads `open`
// (both sequentially consistent), so one of the two sees the other.
//
// Where the arbiter plans whose kernels run beside each other (`planned`), a runner that asks for a slice of a long
// kernel says first what kernel that is (offer.h), and makes the slice as large as was granted.
//
// Counters wrap around. Neither side believes the other: the arbiter bounds what it reads, and a runner that finds
// `no_arbiter` asks nobody.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "backend/control/offer.h"

namespace bandsaw {

inline constexpr uint32_t kGateSlots = 256;
inline constexpr uint32_t kGateEngines = 3;  // compute, copy in, copy out
// Slices that one runner may have on one engine at a time, whatever it is told.
inline constexpr uint32_t kGateDepthMax = 8;
// Instead of a number of resident blocks: none, for now.
inline constexpr uint32_t kNoResident = ~uint32_t{0};

struct alignas(64) Gate {
  // Written by the runner.
  std::atomic<uint32_t> begun, ended;  // slices
  std::atomic<uint32_t> asked;
  uint32_t reserved;
  std::atomic<uint64_t> busy_ns;  // of the slices that have ended
  // Written by the arbiter. `granted` is a futex word.
  std::atomic<uint32_t> granted;     // the last `asked` that may begin
  std::atomic<uint32_t> open;        // 1: slices begin without asking
  std::atomic<uint32_t> no_waiters;  // 1: where it is not open, nobody waits for the end of what has begun
  // Where slices are planned: what was granted, written before `granted`; 0: as the runner likes. Of resident blocks
  // `resident` holds from now on: who has others stops at the end of a block, and asks again.
  std::atomic<uint32_t> resident;  // blocks on each SM, or kNoResident
  std::atomic<uint64_t> blocks;    // of the next slice
};

struct GrantPage {
  // A futex word. 1: there is no arbiter, everybody may begin. Set by the session when the arbiter's connection ends,
  // cleared by the arbiter.
  std::atomic<uint32_t> no_arbiter;
  std::atomic<uint32_t> depth;       // slices of a runner in flight on an engine; set by the arbiter
  std::atomic<uint64_t> quantum_ns;  // short work is gathered to slices of this length; set by the arbiter
  // Slots with news for the arbiter, a bit for each. Who sets one that was clear writes the doorbell (an eventfd).
  std::array<std::atomic<uint64_t>, kGateSlots / 64> pending;
  // Counted up by the session when a slot's runner has gone and its gates are cleared.
  std::array<std::atomic<uint32_t>, kGateSlots> generation;
  std::atomic<uint32_t> slicing_off;  // 1: kernels are not to be cut, whatever they take; set by the arbiter
  std::array<std::array<Gate, kGateEngines>, kGateSlots> gates;
  std::atomic<uint32_t> planned;         // 1: long kernels are to be offered; set by the arbiter
  std::array<Offer, kGateSlots> offers;  // of the compute gates
};

// What the session sends to who connects to its gate socket, with two descriptors: the usage page and the doorbell.
struct GateHello {
  uint64_t usage_page_bytes = 0;
  uint64_t grant_page_offset = 0;  // in the usage page
};

// True: the doorbell is to be rung.
inline bool set_pending(GrantPage& grant_page, uint32_t slot) {
  const uint64_t bit = uint64_t{1} << (slot % 64);
  return (grant_page.pending[slot / 64].fetch_or(bit) & bit) == 0;
}

}  // namespace bandsaw
