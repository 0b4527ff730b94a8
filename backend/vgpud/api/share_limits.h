// What virtual GPUs of a device may have, by themselves and together.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "memory/base/status.h"

namespace bandsaw {

// Checks `spec` by itself and beside the other virtual GPUs of the device; one of `others` with its name is left
// out. EINVAL: out of bounds; ENOSPC: the shares do not fit, with the figures; ERANGE: no GPU can keep its latency
// bound, with the least that one can.
Status check_shares(const VgpuSpec& spec, std::span<const VgpuSpec> others, const DeviceCapacity& device);
// What lies in the host's memory instead of on a device: `most` bytes for all virtual GPUs together, `others` being
// those of all devices. ENOSPC with the figures.
Status check_swap(const VgpuSpec& spec, std::span<const VgpuSpec> others, uint64_t most);

// The same of one that is to be suspended, with `bytes` bytes on its device now.
Status check_suspend(const VgpuSpec& spec, uint64_t bytes, std::span<const VgpuSpec> others, uint64_t most);

// Bytes that a virtual GPU's programs have, and of these on the device.
struct MemoryUse {
  uint64_t all = 0, resident = 0;
};
// EBUSY with both figures if less is to be reserved than is on the device.
Status check_resident_in_use(const VgpuSpec& spec, uint64_t resident);
// EBUSY with both figures if the memory share is below what is in use.
Status check_memory_in_use(const VgpuSpec& spec, uint64_t used);
// Shares that earlier versions stored may sum to a little more than 100: takes the excess from the largest. What was
// changed, in words; empty: nothing.
std::string lower_to_fit(std::vector<VgpuSpec>* specs);

}  // namespace bandsaw
