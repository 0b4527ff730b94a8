// How bytes move: every form of memcpy ends here.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// What the program said about one end's address. With unified addressing this is only a hint, except for kArray: there
// the address is an array's handle.
enum class Side { kDevice, kHost, kUnified, kArray };

// Where an end really lies.
enum class Place {
  kDevice,  // device memory, arrays
  // Memory that libcuda does not know, such as a variable whose address a kernel returned. Only the host can tell
  // whether the address is valid, so the call waits for the host's result.
  kUnknown,
  kManaged,   // managed memory: the device reaches it, and the program may read it once a copy is done
  kShared,    // host memory that the runner sees
  kPageable,  // the program's own memory
  kPieces,    // registered host memory that the runner has in several regions: goes as pageable memory, after kernels
};

inline bool is_pageable(Place place) { return place == Place::kPageable || place == Place::kPieces; }

// Finds out where an end lies. Folds its x, y and z into its address (unless it is an array) and sets its kind.
// `extent` is the size of the copy. INVALID_VALUE: the range of addresses is not valid.
struct Extent {
  uint64_t width_bytes = 0, height = 1, depth = 1;
};
CUresult resolve_end(const Extent& extent, Side side, vgpu_copy_end* end, Place* place);

// Does one copy in the order of `stream`. `wait`: this is the synchronous form. It returns when the copy is done, as
// far as CUDA promises that: a copy from device to device never waits, and one from pageable memory waits only until
// the source has been read. An empty copy succeeds.
CUresult transfer(Call& call, vgpu_copy copy, Side destination, Side source, uint64_t stream, bool wait);

// A 1D copy as a structure.
vgpu_copy linear_copy(uint64_t destination, uint64_t source, uint64_t bytes);

}  // namespace bandsaw::libcuda
