// How a session and its runners talk: one SOCK_SEQPACKET socket pair per runner (descriptor kRunnerSocket in the
// runner), one message = one RunnerMessage and its tail, descriptors by SCM_RIGHTS. The session has checked
// everything that came from the guest before it sends; the runner trusts the session and nobody else.
//
//   runner -> session   kReady          value = window base; + vgpu_device_info; the runner is warm and waits
//   session -> runner   kAssign         + AssignTail; fds: kick eventfd, wake eventfd, usage page memfd, limits page
//                                       memfd, doorbell eventfd. Direct mode adds the arena memfd as RAM 0.
//                       kRamAdd         id, value = bytes, offset = where it begins in the descriptor; fd
//                       kRamDrop        id; no ring or region uses it any more
//                       kAddRing        id, value = va, flags; + RunnerSegment[count]. offset: kRingGoesOn: another
//                                       runner has used it, and kSavedMake follows
//                       kAddRegion      id, value = va, flags (VGPU_REGION_*); + RunnerSegment[count]
//                       kDropRing, kDropRegion   id; answered when nothing touches the pages any more
//                       kFail           value = a CUresult: all calls of the guest process return it from now on
//                       kStandstill     value = milliseconds: records wait from now on, and what is in flight ends.
//                                       Answered when nothing happens any more; EBUSY: work did not end in that time,
//                                       and records go on. flags: kIfIdle: EBUSY too as soon as a record comes
//                       kMoveMemory     flags: kToDevice, or 0: to host memory. Only at a standstill
//                       kSaveMemory     what has left the device: flags: kSavedWrite to the pipe, kSavedForget: lets
//                                       go of it, kSavedRead from the pipe; fd but for kSavedForget. What goes through
//                                       the pipe are saved::Pieces, after a saved::StateHead and what it announces
//                                       in kSavedWrite (value: kContextsOff: the driver answers nothing now, so that
//                                       memory alone goes). EPROTO: these are not its own. kSavedMake: all of that
//                                       comes, and this runner becomes what the other one was: before any of its rings
//                                       and regions had work, at a standstill
//                       kGoOn           records go on
//                       kEnd            the guest process is gone: exit now
//   runner -> session   kDone           answers each session message but kKick; id = that message's serial,
//                                       value = errno or 0
//                       kAsksRoom       others of the virtual GPU are to look at UsageSlot::asked. Not answered
//                       kCallWaits      at a standstill, once: records have come, and wait for its end. Not answered
// Things that guest processes hand to each other, or one that has several virtual GPUs to itself, by keys that the
// sessions make. ExchangeTail follows each of these:
//   runner -> session   kPublish        id = the request's number, bytes; payload; fd, or none
//                       kFetch          id = the request's number; key; flags: kFetchLent, or 0
//                       kWithdraw       key; not answered
//   session -> runner   kExchanged      id = that number, value = errno or 0; of kPublish the key, of kFetch all that
//   was
//                                       published. Answered like every message of the session.
//                       kRevoked        key; what was fetched by it with kFetchLent, or attached, is not to be used any
//                                       more: whom it is charged to has freed it, has gone, or may not lend it.
//                                       Answered when nobody uses it.
// Shared segments, by name. ExchangeTail follows, with the name in its payload; kExchanged answers all but
// kSegmentDetach:
//   runner -> session   kSegmentGet     id, bytes wanted, flags VGPU_SEGMENT_*: answered with its bytes and SegmentTail
//                       kSegmentAttach  id, flags VGPU_SEGMENT_*: answered with its memory's descriptor and bytes, the
//                                       attachment's key, and SegmentTail
//                       kSegmentDetach  key
//                       kSegmentRemove  id: takes the name away
// Checkpoints of one process by another of the same virtual GPU. ExchangeTail follows, and means nothing:
//   runner -> session   kCheckpoint     id, value = the process's number as its kernel says, flags = a
//                                       vgpu_checkpoint_action, bytes = milliseconds that a lock may take: kExchanged
//                                       has its CUprocessState in bytes
// Channel groups, so that vgpud can set their time slices:
//   runner -> session   kChannelGroups  + ChannelGroupList; fd: the runner's /dev/nvidiactl, or none where the list is
//                                       empty. Before kReady, and again whenever the list has changed. Not answered.
// Compiled code, where the session keeps it. ExchangeTail follows, with the code's key in its payload. Not answered:
//   runner -> session   kKeepCode       bytes; fd: a sealed memfd with the file's content
//                       kCodeUsed       that file was read
// The end of the socket means the other side is gone; a runner then exits at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "backend/control/channel_groups.h"
#include "backend/control/gate_link.h"
#include "backend/control/object_limits.h"
#include "backend/control/slicing_counters.h"

namespace bandsaw {

inline constexpr int kRunnerSocket = 3;
inline constexpr uint32_t kRunnerMessageMax = 2u << 20;  // 65,536 segments and a header
// A longer tail travels as a memfd: the system bounds what a socket takes at once.
inline constexpr uint32_t kRunnerTailMax = 64u << 10;

enum class RunnerMessageType : uint32_t {
  kReady = 1,
  kAssign,
  kRamAdd,
  kRamDrop,
  kAddRing,
  kAddRegion,
  kDropRing,
  kDropRegion,
  kEnd,
  kDone,
  kPublish,
  kFetch,
  kWithdraw,
  kExchanged,
  kChannelGroups,
  kFail,
  kRevoked,
  kSegmentGet,
  kSegmentAttach,
  kSegmentDetach,
  kSegmentRemove,
  kStandstill,
  kMoveMemory,
  kGoOn,
  kCallWaits,
  kSaveMemory,
  kCheckpoint,
  kKeepCode,
  kCodeUsed,
  kAsksRoom,
};

constexpr bool is_about_segments(RunnerMessageType type) {
  return type >= RunnerMessageType::kSegmentGet && type <= RunnerMessageType::kSegmentRemove;
}

constexpr bool is_about_code(RunnerMessageType type) {
  return type == RunnerMessageType::kKeepCode || type == RunnerMessageType::kCodeUsed;
}

// Another virtual GPU's memory, for as long as it stays published there; that one is charged for it.
inline constexpr uint32_t kFetchLent = 1;
inline constexpr uint32_t kToDevice = 1;                                                      // of kMoveMemory
inline constexpr uint32_t kIfIdle = 1;                                                        // of kStandstill
inline constexpr uint32_t kSavedWrite = 1, kSavedForget = 2, kSavedRead = 3, kSavedMake = 4;  // of kSaveMemory
inline constexpr uint64_t kContextsOff = 1;                                                   // of kSaveMemory
inline constexpr uint64_t kRingGoesOn = 1;                                                    // of kAddRing

struct RunnerMessage {
  RunnerMessageType type{};
  uint32_t serial = 0;
  uint32_t id = 0;
  uint32_t flags = 0;
  uint64_t value = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  uint32_t count = 0;         // segments that follow
  uint32_t tail_in_file = 0;  // 1: the tail is what the last descriptor, a memfd, holds
};

struct RunnerSegment {
  uint32_t ram = 0;
  uint32_t reserved = 0;
  uint64_t offset = 0;  // into that RAM
  uint64_t bytes = 0;
};

struct AssignTail {
  uint32_t direct = 0;      // 1: wake by futex on the ring's wake word; 0: by the wake eventfd
  uint32_t usage_slot = 0;  // this runner's slot in the usage page memfd
  uint32_t guest_pid = 0;
  uint32_t part = 0;  // of the address window, for device memory
  char vgpu[64]{};
  char comm[16]{};
};

// The first 4 bytes, little endian, are the number of the virtual GPU where the thing was published, the others random.
using ExchangeKey = std::array<std::uint8_t, 16>;

inline uint32_t publisher_of(const ExchangeKey& key) {
  return uint32_t{key[0]} | uint32_t{key[1]} << 8 | uint32_t{key[2]} << 16 | uint32_t{key[3]} << 24;
}

struct ExchangeTail {
  ExchangeKey key{};
  std::array<std::uint8_t, 64> payload{};  // what a device needs beside the descriptor
};

// How kExchanged says in the payload what may be done with a segment.
struct SegmentTail {
  std::uint32_t access = 0;  // vgpu_segment_access
};

// The usage page of one virtual GPU: a memfd that its session makes and its runners map. A runner writes only its own
// slot and the shared words; the session takes a dead runner's slot back.
inline constexpr uint32_t kUsageSlots = kGateSlots;

struct UsageSlot {
  std::atomic<int64_t> memory_bytes;  // with those in host memory
  std::atomic<uint64_t> calls, launches;
  std::atomic<uint64_t> bytes_in, bytes_out, bytes_device;
  std::atomic<uint64_t> compute_ns, copy_ns;
  std::atomic<uint64_t> errors;
  std::atomic<uint32_t> sticky;  // the sticky CUresult, 0 while healthy
  uint32_t reserved;
  std::atomic<int32_t> held[kLimitedObjects];     // objects, by Limited
  std::atomic<int64_t> swapped_bytes;             // of memory_bytes: in host memory instead of on the device
  std::atomic<uint64_t> swapped_in, swapped_out;  // bytes that were moved
  // Before each move the process's work ended first: for so long; and so long moves took.
  std::atomic<uint64_t> swap_moves, swap_wait_ns, swap_move_ns;
  // Host memory that was made for moves, in bytes, as none was kept; chunks that had left the device with nothing at
  // their addresses, and were mapped there for what may reach them.
  std::atomic<uint64_t> swap_made, swap_mapped;
  std::atomic<int64_t> kept_bytes;  // host memory that is kept for the next moves
  // For the runners of the virtual GPU: bytes on the device that may leave it, when work was last begun, and bytes that
  // this one wants to be free there: for what its work needs, and for what can lie nowhere else.
  std::atomic<int64_t> movable, worked_at, asked[2];
  SlicingCounters slicing;
};

struct UsagePage {
  std::atomic<int64_t> memory_used;            // of all slots together
  std::atomic<int64_t> swapped;                // of memory_used: in host memory
  std::atomic<int64_t> held[kLimitedObjects];  // objects of all slots together
  // StallBudget's word; how often programs had to wait for it, and for how long.
  std::atomic<int64_t> stalls_paid_at;
  std::atomic<uint64_t> stall_waits, stall_wait_ns;
  // For vgpud, of a virtual GPU whose programs may allocate more than is resident, CLOCK_MONOTONIC in ns: when work was
  // last begun, and when work last found no room on the device. Who writes these for the first time in a while rings
  // the arbiter's doorbell.
  std::atomic<int64_t> worked_at, short_at;
  std::atomic<int64_t> kept;    // host memory that is kept for moves, of all slots together
  std::atomic<uint32_t> asks;   // how many of UsageSlot::asked are not 0
  std::atomic<int64_t> beyond;  // of the last MemoryOrder, once it is in force: written by the session
  UsageSlot slots[kUsageSlots];
  GrantPage grant_page;
};

}  // namespace bandsaw
