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

// Of the device's SMs, what each MPS client of `spec` that starts now may use, in thousandths. Two SMs less than all
// while another MPS virtual GPU has a latency bound: whatever lies on the others, its short work finds room there at
// once, and does not wait for the end of a block. 1000: all, also where SMs are given out, or are few.
// Source: measured on an H200, beside an sgemm of 163 ms that fills the GPU. A kernel of 20 us takes 26 us, 46 at p99,
// with two SMs left, as alone; 381 and 459 with a priority only; the sgemm takes 1.4 % longer.
uint32_t sm_thousandths(const VgpuSpec& spec, std::span<const VgpuSpec> all, const DeviceCapacity& device);
// Whether its SMs, or its bound, change what the others may use.
bool takes_from_others(const VgpuSpec& spec);

// {"first", "count", "own"}, in SMs; null: all of the device, with everybody.
nlohmann::json describe_part(const SmPart& part, const DeviceCapacity& device);
// {"step", "sms", "given": [{"vgpu", "first", "count"}]}; null: the device gives out none.
nlohmann::json describe_partitions(std::span<const VgpuSpec> all, const DeviceCapacity& device);
// The same of one, for people; empty: all of the device.
std::string sms_text(const SmPart& part, const DeviceCapacity& device);

}  // namespace bandsaw
