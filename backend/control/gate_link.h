// The gates: how the runners of one virtual GPU ask vgpud's arbiter for time on an engine, and how it grants it. There
// are no messages. Both sides map the grant page, which is part of the usage page (runner_link.h), and wake each other:
// the runner writes the doorbell (an eventfd), the arbiter wakes a futex.
//
// A gate belongs to one runner (a slot) and one engine. What passes it is a time slice: work that a runner puts on the
// engine in one go. Short kernels are gathered until they take about `quantum_ns`; a long one is a time slice of its
// own.
//
// Who writes what
//   runner    of its own slot: begun, asked, ended, rests, busy_ns, the record of its kernel, and a bit of `pending`
//   arbiter   granted, open, no_waiters, resident, leave_sms, blocks; depth, quantum_ns, slicing_off, uncut_block_ns,
//             planned; it clears bits of `pending`; it clears `no_arbiter`, and sets it while it does not schedule this
//             virtual GPU
//   session   `no_arbiter` when the arbiter's connection ends; when a runner has gone, it zeroes the counters of its
//             slot and counts up `generation`, so that the next runner there is not taken for the last one
//
// The life of a time slice
//   1. The runner counts up `begun` and then reads `open`. If that is not 0, the time slice begins at once.
//   2. If it is 0, the runner takes its count back, counts up `asked`, sets its bit of `pending` (and writes the
//      doorbell if the bit was clear), and sleeps on the futex `granted`. The arbiter copies the value of `asked` that
//      it saw to `granted`. When the two are equal, the runner counts up `begun`, and the time slice begins.
//   3. When the device has done all of it, the runner adds the measured time to `busy_ns` and then counts up `ended`.
//      At a closed gate it tells the arbiter as in step 2; at an open one the arbiter reads the counters by itself,
//      once in each scheduling period and when it closes the gate. Of a time slice that began at a wide open gate it
//      adds no more than what its launches take by themselves, as far as it has learnt that: others had the device in
//      between.
// The runner puts work without which nothing on the engine would ever end past a closed gate without asking. It counts
// that work in `begun` and `ended` too, and the virtual GPU is charged for it.
//
// Why no time slice begins unseen. The arbiter opens the gates of a virtual GPU while no other one wants the engine.
// When another one does, it clears `open` and then reads `begun`; `begun - ended` time slices still run, and it waits
// for them. The runner writes `begun` and then reads `open`; the arbiter writes `open` and then reads `begun`. All four
// accesses are sequentially consistent, so at least one side sees the other's write: either the arbiter counts the time
// slice, or the runner finds the gate closed. Both may happen. Then the arbiter has counted a time slice that the
// runner takes back; it corrects that when the runner asks.
//
// Without an arbiter `no_arbiter` is 1: from the session's start on, and again after vgpud has ended. Runners then
// begin without asking or counting. Whoever sets the word wakes the runners that sleep; they read it and go on. An
// arbiter that attaches takes the counters as it finds them, grants all that was asked, and clears `no_arbiter` last.
//
// Where the arbiter plans whose kernels run beside each other (`planned`), a runner that asks for a time slice for a
// long kernel describes that kernel first (kernel_descriptor.h), and makes its grid slice as large as was granted.
//
// Beside the memory, the session sends packets on the gate socket (GateMessage): the channel groups of the runner in
// each slot, with the descriptor by which vgpud can set their time slices. An arbiter that attaches gets those of all
// runners. The arbiter sends what is to be done with a runner that has gone too far (RunnerEndOrder).
//
// Counters wrap around: only their differences and their equality count. Neither side trusts the other. A runner may
// write anything anywhere on the page: the arbiter bounds what it reads, and nonsense harms this virtual GPU alone.
// What a runner reads decides only how long it waits and how large its time slices are.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "backend/control/channel_groups.h"
#include "backend/control/kernel_descriptor.h"
#include "vgpu-sched/engine.h"

namespace bandsaw {

inline constexpr uint32_t kGateSlots = 256;
// Time slices that one runner may have on one engine at a time, whatever it is told; twice as many if they are of
// several streams.
inline constexpr uint32_t kGateDepthMax = 8;
// In `open`: nobody waits for the end of what this gate lets in, because the hardware switches between programs.
inline constexpr uint32_t kOpenWide = 2;
// Instead of a number of resident blocks: none, for now.
inline constexpr uint32_t kNoResident = ~uint32_t{0};

struct alignas(64) Gate {
  // Written by the runner.
  std::atomic<uint32_t> begun, ended;  // time slices
  std::atomic<uint32_t> asked;         // time slices that were asked for
  std::atomic<uint32_t> rests;         // how often none of its time slices was left on the engine
  std::atomic<uint64_t> busy_ns;       // time of the time slices that have ended
  // Written by the arbiter. `granted` is a futex word.
  std::atomic<uint32_t> granted;  // the last `asked` that may begin
  std::atomic<uint32_t> open;     // 1: time slices begin without asking; kOpenWide: as many as the runner likes
  // 1: it is closed, but nobody waits for the end of the time slices that have begun; or it is wide open, and nobody
  // else has work.
  std::atomic<uint32_t> no_waiters;
  // Where grid slices are planned: what was granted, written before `granted`; 0: as the runner likes. Of persistent
  // blocks `resident` holds from now on: who has others stops at the end of a block, and asks again.
  std::atomic<uint32_t> resident;  // blocks on each SM, or kNoResident
  std::atomic<uint64_t> blocks;    // of the next grid slice
  // Written by the runner, before `busy_ns`: the part of it that is the own time of launches that are known. Where the
  // hardware switches between programs, the rest of `busy_ns` holds the others' time too.
  std::atomic<uint64_t> own_ns;
  std::atomic<uint64_t> paused_ns;  // written by the runner: time from each rest to its next time slice
  // Written by the runner: time from the first work after each rest to the last one before the next.
  std::atomic<uint64_t> issued_ns;
  // Written by the runner: what the steps take alone, pauses included, that ended while it kept the engine. While that
  // is not known it does not change.
  std::atomic<uint64_t> steps_ns;
  // Of a client of MPS, written by its runner: what time slices of known launches took, and what these take by
  // themselves; and what time slices took that hold launches whose time is not known.
  std::atomic<uint64_t> beside_ns, beside_own_ns, unknown_ns;
  // Written by the runner: samples that were too long for a time slice, of launches whose time is to be found out; and
  // how often it was found out then.
  std::atomic<uint32_t> cut_samples, learnt;
  // Written by the session: among the gates of one virtual GPU and engine, higher goes first (ArbiterOptions). What is
  // written after an ask holds for the next.
  std::atomic<int32_t> priority;
  // Written by the arbiter: so many SMs are to have no persistent blocks of this gate's kernel, of one that can leave
  // single SMs (KernelDescriptor::leaves_sms).
  std::atomic<uint32_t> leave_sms;
  // Of this process on the hardware, where priorities of processes are kept and it is longer than
  // GrantPage::time_slice_ns; else 0. Written by the arbiter.
  std::atomic<uint64_t> own_time_slice_ns;
};
static_assert(sizeof(Gate) == 128);

struct GrantPage {
  // 1: there is no arbiter, and everybody may begin.
  std::atomic<uint32_t> no_arbiter;
  std::atomic<uint32_t> depth;       // time slices of a runner in flight on an engine; set by the arbiter
  std::atomic<uint64_t> quantum_ns;  // short work is gathered to time slices of this length; set by the arbiter
  // A bit for each slot: its gates have changed since the arbiter read them. Who sets a bit that was clear writes the
  // doorbell. The arbiter clears a bit before it reads the gates, so that a later change sets it again.
  std::array<std::atomic<uint64_t>, kGateSlots / 64> pending;
  // Of each slot: how many runners have gone from it.
  std::array<std::atomic<uint32_t>, kGateSlots> generation;
  std::atomic<uint32_t> slicing_off;  // 1: kernels run in one piece, however long they are; set by the arbiter
  std::array<std::array<Gate, kEngines>, kGateSlots> gates;
  // Kernels whose blocks take less than this run in one piece: who goes before them waits for no more than a block. 0:
  // none do. Set by the arbiter.
  std::atomic<uint64_t> uncut_block_ns;
  // The shortest of its processes on the hardware, about; 0: not known, or the hardware has none for it. Set by the
  // arbiter.
  std::atomic<uint64_t> time_slice_ns;
  std::atomic<uint32_t> planned;  // 1: long kernels are to be described; set by the arbiter
  // 1: no other MPS virtual GPU has anything on the compute engine, nor may begin something: runners learn what their
  // launches take. Set by the arbiter.
  std::atomic<uint32_t> goes_alone;
  // 1: a runner keeps the compute engine in short pauses of its program, until its time slice of the hardware is over
  // (Device::keep_engine). Set by the arbiter.
  std::atomic<uint32_t> keep_engine;
  // When another virtual GPU of the device had work last, CLOCK_MONOTONIC in ns; 0: never. Set by the arbiter, every
  // 10 ms at most.
  std::atomic<int64_t> others_worked_at;
  std::array<KernelDescriptorSlot, kGateSlots> kernel_descriptors;  // of the compute gates
};

// What the session sends to who connects to its gate socket, with two descriptors: the usage page and the doorbell.
struct GateHello {
  uint64_t usage_page_bytes = 0;
  uint64_t grant_page_offset = 0;  // in the usage page
};

// What the session sends after that, each in a packet of exactly this size.
enum class GateMessageType : uint32_t {
  // What the slot's runner has said last. Descriptors, unless the list is empty: its /dev/nvidiactl, and a pidfd of the
  // runner. Who holds the first keeps the memory of the runner's contexts allocated, so it has to go when the runner
  // does.
  kChannelGroups = 1,
  kRunnerEnds,  // it has ended, or is being ended; the list is empty
};

struct GateMessage {
  GateMessageType type{};
  uint32_t slot = 0;
  ChannelGroupList channel_groups;
};

// What the arbiter sends to the session, in a packet of exactly this size: a runner is to be ended.
enum class RunnerEndReason : uint32_t {
  kDeadline = 1,   // its kernel runs for longer than the administrator lets it: its program gets that error
  kOwnTimeSlices,  // it sets its time slices by itself
};

struct RunnerEndOrder {
  RunnerEndReason reason{};
  uint32_t slot = 0;
  // Of a runner that has been in the slot since before this, in nanoseconds of CLOCK_MONOTONIC: none that has come
  // since.
  int64_t since_ns = 0;
};

// What the arbiter sends to a session whose usage page is laid out as its own, in a packet of exactly this size: how
// much of the device's memory the virtual GPU may hold. UsagePage::beyond says that the order is in force.
struct MemoryOrder {
  int64_t beyond = 0;      // beyond what is reserved for it; below 0: it lends so much
  int64_t coming = 0;      // what `beyond` will be soon, as far as others give up memory
  uint64_t host_room = 0;  // bytes of host memory that it may have for what it lends
};
static_assert(sizeof(MemoryOrder) != sizeof(RunnerEndOrder));

// Sets the slot's bit. True: it was clear, and the caller writes the doorbell.
inline bool set_pending(GrantPage& grant_page, uint32_t slot) {
  const uint64_t bit = uint64_t{1} << (slot % 64);
  return (grant_page.pending[slot / 64].fetch_or(bit) & bit) == 0;
}

}  // namespace bandsaw
