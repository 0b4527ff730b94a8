// Copies between device memory and the program's own (pageable) memory that are too large for a record. In a VM they
// pin the program's pages and keep them pinned for the next copy. Short copies, and copies whose pages cannot be
// pinned, go through staging memory that both sides see.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// `copy` is resolved: one end is the program's memory (address, pitch, height), the other is memory that the runner
// reaches. `judged`: only the host knows whether the other end's address is valid. The call then waits for the result
// of each record, so that it returns the error itself instead of leaving it to a later call.
// copy_from_program returns when the source has been read; with `judged`, when the host has reported the result.
// copy_to_program returns when the bytes are in the program's memory.
CUresult copy_from_program(Call& call, const vgpu_copy& copy, uint64_t stream, bool judged);
CUresult copy_to_program(Call& call, const vgpu_copy& copy, uint64_t stream, bool judged);

}  // namespace bandsaw::libcuda
