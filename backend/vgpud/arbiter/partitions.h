// Gives SMs of a GPU to virtual GPUs that have some of their own: from the front, to each in the order in which they
// were made; all other MPS ones have what is left, together. Nothing is kept but how many each has.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "backend/control/sm_part.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/status.h"

namespace bandsaw {

// Rounds the SMs of `spec` up to whole groups, and checks them beside those of the others on the device; one of
// `others` with its name is left out. EINVAL: it is time-sliced, or the device gives out none; ENOSPC: no group would
// be left.
Status fit_sms(std::span<const VgpuSpec> others, const DeviceCapacity& device, VgpuSpec* spec);

// Where programs of `spec` run that start while `all` is as it is.
SmPart sm_part(const VgpuSpec& spec, std::span<const VgpuSpec> all, const DeviceCapacity& device);

// The part of the device's SMs that `spec` has to itself; 0: none.
double own_part(const VgpuSpec& spec, std::span<const VgpuSpec> all, const DeviceCapacity& device);

// {"first", "count", "own"}, in SMs; null: all of the device, with everybody.
nlohmann::json describe_part(const SmPart& part, const DeviceCapacity& device);
// {"step", "sms", "given": [{"vgpu", "first", "count"}]}; null: the device gives out none.
nlohmann::json describe_partitions(std::span<const VgpuSpec> all, const DeviceCapacity& device);
// The same of one, for people; empty: all of the device.
std::string sms_text(const SmPart& part, const DeviceCapacity& device);

}  // namespace bandsaw
