// Copies between the host side and memory that only the program sees, larger than a record: through pieces of shared
// memory, or in a VM by pinning the program's pages, and keeping them pinned for the next copy.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// `copy` is resolved: one end is host memory of this process (address, pitch, height), the other the runner's to reach.
// `judged`: the host may refuse the other end's address, and every record says where its word goes, so that nothing of
// it is left for later calls. From: returns when the source was read, or with `judged` when the host has said what came
// of it. To: returns when the bytes are there.
CUresult copy_from_program(Call& call, const vgpu_copy& copy, uint64_t stream, bool judged);
CUresult copy_to_program(Call& call, const vgpu_copy& copy, uint64_t stream, bool judged);

}  // namespace bandsaw::libcuda
