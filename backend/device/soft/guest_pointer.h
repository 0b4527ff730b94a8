// The one way from an address that a kernel chose to a pointer of this process. Who reads or writes for a kernel asks
// here, for all bytes that it touches: an address is any 64-bit number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/device/soft/warp.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {

enum class AccessSpace : uint32_t { kGeneric = 0, kGlobal = 1, kShared = 2, kLocal = 3 };

// Local memory is word-interleaved, so the pointer of a local access is good for one word.
struct Resolved {
  enum Kind : uint8_t {
    kFound,
    kNowhere,  // in a state space of the lane, and outside of what it has there
    kOther,  // in no state space and not in the window: registered host memory (LaunchServices::visible_host), or wild
  } kind = kNowhere;
  bool local = false;
  std::byte* pointer = nullptr;
};

namespace detail {

inline Resolved inside(std::byte* base, uint64_t offset, uint64_t bytes, uint64_t limit) {
  if (offset > limit || limit - offset < bytes) return {};
  return {Resolved::kFound, false, base + offset};
}

// Shared memory of this block, its reserved part too, or of another one of its cluster.
inline Resolved shared(const WarpState& warp, uint64_t offset, uint64_t bytes) {
  if (offset < kClusterStep) return inside(warp.shared, offset, bytes, warp.shared_bytes);
  if (offset / kClusterStep == kReservedOffset / kClusterStep && warp.shared)
    return inside(warp.shared + kReservedPlace, offset - kReservedOffset, bytes, kReservedBytes);
  const uint64_t rank = offset / kClusterStep - 1,
                 blocks = uint64_t{warp.cluster[0]} * warp.cluster[1] * warp.cluster[2];
  if (rank >= blocks) return {};
  std::byte* const base = warp.cluster_shared ? warp.cluster_shared[rank] : warp.shared;
  return inside(base, offset % kClusterStep, bytes, warp.shared_bytes);
}

inline Resolved local(const WarpState& warp, uint32_t lane, uint64_t offset, uint64_t bytes) {
  if (offset > warp.local_bytes || warp.local_bytes - offset < bytes) return {};
  return {Resolved::kFound, true, warp.local + offset / 4 * (4 * kWarpLanes) + lane * 4 + offset % 4};
}

}  // namespace detail

// Whether [address, +bytes) lies in the window of global addresses, where all memory is the guest's. bytes <= its size.
inline bool in_window(const WarpState& warp, uint64_t address, uint64_t bytes) {
  return address - warp.window_base <= VGPU_WINDOW_BYTES - bytes;
}

// Where [address, +bytes) of one lane is. Says nothing of alignment, nor whether pages are there: a touch of what is
// not mapped is a fault in the window, which ends the launch (fault.h).
inline Resolved find_bytes(const WarpState& warp, uint32_t lane, uint64_t address, uint64_t bytes, AccessSpace space,
                           bool write) {
  if (space == AccessSpace::kShared) return detail::shared(warp, address, bytes);
  if (space == AccessSpace::kLocal) return detail::local(warp, lane, address, bytes);
  if (in_window(warp, address, bytes)) return {Resolved::kFound, false, reinterpret_cast<std::byte*>(address)};
  if (space == AccessSpace::kGeneric) {
    if (address - kSharedWindow < kSpaceWindowBytes) return detail::shared(warp, address - kSharedWindow, bytes);
    if (address - kLocalWindow < kSpaceWindowBytes) return detail::local(warp, lane, address - kLocalWindow, bytes);
    if (address - kParameterWindow < kSpaceWindowBytes && !write)
      return detail::inside(const_cast<std::byte*>(warp.parameters), address - kParameterWindow, bytes,
                            warp.parameter_bytes);
  }
  return {Resolved::kOther, false, nullptr};
}

}  // namespace bandsaw::soft
