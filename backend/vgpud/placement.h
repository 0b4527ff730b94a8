// Which device a new virtual GPU is cut from.
#pragma once

#include <span>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/device.h"
#include "memory/base/status.h"

namespace bandsaw {

// Sets `spec->device` to one of `devices` that has room for it beside `others`, and rounds its SMs up as that device
// gives them out. Of several it is the one with the most compute share that nobody has been promised; of equal ones the
// one with the most free memory, then the first. A lost device takes none.
//
// No room anywhere: ENOSPC (or what all have in common: EINVAL, ERANGE, ENODEV), and the message says for each device
// why. `devices` has one element or more; with one, the error is that of check_shares() and fit_sms().
Status place(std::span<const PhysicalDevice* const> devices, std::span<const VgpuSpec> others, VgpuSpec* spec);

}  // namespace bandsaw
