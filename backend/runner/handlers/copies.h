// From addresses as the guest gives them to what a Device takes.
#pragma once

#include <cuda.h>

#include "backend/device/device.h"
#include "backend/runner/memory/guest_memory.h"
#include "backend/runner/objects/handles.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::runner {

// What keeps the host memory of a copy mapped until it is done.
struct CopyHolds {
  RegionRef destination, source;
};

// `bytes` of device memory at `address`: of a device-visible region, which becomes a host pointer held by `hold`, or
// else an address that the Device is to judge.
CUresult resolve_device(const GuestMemory& memory, uint64_t address, uint64_t bytes, Access access, CopyEnd* end,
                        RegionRef* hold);

// Checks lengths, pitches and addresses of both ends; nothing of `copy` is trusted. A copy of nothing gives
// width_bytes, height or depth 0 and holds nothing.
// Arrays are looked up among `handles`; whether a box lies inside one, the Device judges.
CUresult resolve_copy(const HandleTable& handles, const GuestMemory& memory, const vgpu_copy& copy, Copy* out,
                      CopyHolds* holds);

// The whole extent of a copy's end, from its first byte to its last; false: it does not fit in 64 bits.
bool copy_extent(const Copy& copy, const CopyEnd& end, uint64_t* bytes);

// The way back, for a graph node that is read: pointers become guest addresses.
vgpu_copy describe_copy(const HandleTable& handles, const GuestMemory& memory, const Copy& copy);

// Fills: the address must be device memory or a device-visible region. `hold` as above, may stay null.
CUresult resolve_fill(const GuestMemory& memory, const vgpu_fill& fill, RegionRef* hold);

}  // namespace bandsaw::runner
