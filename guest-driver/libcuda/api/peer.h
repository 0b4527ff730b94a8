// Memory of one device that another one's kernels and copies reach, at its own addresses: its runner lends it, the
// other's borrows it and maps it there. The owner alone is charged for it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// Whether `gpu` reaches `other`'s memory. Found out once for a pair, by lending some.
bool can_reach(VirtualGpu& gpu, VirtualGpu& other);

// Contexts of devices that can. CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, ..._UNSUPPORTED, ..._NOT_ENABLED.
CUresult enable_peer(Context& context, Context& peer);
CUresult disable_peer(Context& context, Context& peer);

// cuMemAlloc's memory, for the devices that may access its device. Before it is freed all work of these has ended.
CUresult show_to_peers(const Range& range);
void hide_from_peers(const Range& range);
// The same for one device, of memory that is lent by itself: a pool's. Without waiting for its work.
CUresult show_on(VirtualGpu& gpu, const Range& range);
void hide_on(const VirtualGpu& gpu, const Range& range);
// Whether `gpu`, another device, has the memory mapped now.
bool is_shown(const VirtualGpu& gpu, const Range& range);

// Maps memory that another device lends at these addresses of the call's device, reserving them if they are not its
// own. Nothing is left behind when it fails.
CUresult map_borrowed(Call& call, const vgpu_exchange_key& key, uint64_t address, uint64_t bytes, uint64_t offset,
                      uint32_t access);
CUresult unmap_borrowed(Call& call, uint64_t address, uint64_t bytes);

}  // namespace bandsaw::libcuda
