// How bytes move: every form of memcpy ends here.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// What the program said about one end's address. With unified addressing it is only a hint, but for arrays, whose
// handle stands in the address's place.
enum class Side { kDevice, kHost, kUnified, kArray };

// Where an end really lies.
enum class Place {
  kDevice,  // device memory, arrays
  // The device's, if it is anybody's, such as a variable's that a kernel took: the host judges, and the call waits for
  // its word, so that it can refuse.
  kUnknown,
  kManaged,   // managed memory: the device's to reach, and the program's to look at as soon as a copy is done
  kShared,    // host memory that the runner sees
  kPageable,  // the program's own memory
};

// Looks an end up, folds its x, y, z into the address (not an array's) and sets its kind. `extent` gives the bytes from
// the folded address to the last one copied. INVALID_VALUE for addresses that cannot be.
struct Extent {
  uint64_t width_bytes = 0, height = 1, depth = 1;
};
CUresult resolve_end(const Extent& extent, Side side, vgpu_copy_end* end, Place* place);

// Does one copy in the order of `stream`. `wait`: the form that returns when the copy is done, as far as CUDA promises
// that for these kinds of memory (device to device never waits; pageable sources are only read). An empty copy is
// success.
CUresult transfer(Call& call, vgpu_copy copy, Side destination, Side source, uint64_t stream, bool wait);

// A 1D copy as a structure.
vgpu_copy linear_copy(uint64_t destination, uint64_t source, uint64_t bytes);

}  // namespace bandsaw::libcuda
