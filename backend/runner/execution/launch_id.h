// What a launch, a graph, a fill or a copy within the device has in common with others, as far as its time goes.
// Hashes: different ones may have the same, though hardly ever by chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/device/device.h"
#include "backend/runner/execution/piece_size.h"

namespace bandsaw::runner {

struct LaunchId {
  uint64_t shape = 0;   // of the kernel, its grid, block, clusters and dynamic shared memory
  uint64_t exact = 0;   // of that and of what is no address among the parameters
  uint64_t stream = 0;  // where it goes
};

// Addresses of device memory change from launch to launch of the same work. `window`: where they lie.
struct AddressSpan {
  uint64_t base = 0, bytes = 0;
};

// `parameters`: packed, so that addresses stand at multiples of 8. `stream`: unique within the context.
LaunchId identify(const vgpu_launch& launch, std::span<const std::byte> parameters, uint64_t context, uint64_t stream,
                  const AddressSpan& window);

// Of a graph, which has changed so often since it was made. `graph`: unique within the process.
LaunchId identify_graph(uint64_t graph, uint64_t changes, uint64_t context, uint64_t stream);

// Of a grid slice of so many blocks. `launch`: unique for the kernel and its grid within the process.
LaunchId identify_grid_slice(uint64_t launch, uint64_t blocks);

// Of a fill, or a copy within the device.
LaunchId identify(BulkKind kind, uint64_t bytes, uint64_t context, uint64_t stream);

}  // namespace bandsaw::runner
