// Slurm's generic resources of a job, as text: "gres:vgpu:1,gres:gpu:2".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memory/base/status.h"
#include "tools/fleet/slurm/request.h"

namespace bandsaw::slurm {

// What a node has of: virtual GPUs at once, bytes of device memory, percent of compute and of copies.
inline constexpr const char *kVgpus = "vgpu", *kMemory = "vgpumem", *kCompute = "vgpucompute", *kCopy = "vgpucopy";

// How many virtual GPUs the text asks for; 0: none. EINVAL: a number that is none or too large, a type, or one of the
// other three, which follow from --vgpu.
Result<uint32_t> count_vgpus(std::string_view text);
// The same text with the memory and shares of all the request's virtual GPUs.
std::string with_consumables(std::string_view text, const Request& request);

}  // namespace bandsaw::slurm
