// Which device a virtual GPU that is new, or moves, is cut from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/device.h"
#include "memory/base/status.h"

namespace bandsaw {

// Among several devices with room: the one with the most compute share that nobody has been promised, so that tenants
// share with few others; or the one with the least, so that large virtual GPUs find room later.
enum class Placement : uint8_t { kSpread, kPack };
Result<Placement> parse_placement(const std::string& text);  // EINVAL: neither "spread" nor "pack"

// Sets `spec->device` to one of `devices` that has room for it beside `others`, and rounds its SMs up as that device
// gives them out. Where the compute share that is left is equal, free memory decides, then who is first. A device that
// is lost or drained takes none.
//
// No room anywhere: ENOSPC (or what all have in common: EINVAL, ERANGE, ENODEV), and the message says for each device
// why. `devices` has one element or more; with one, the error is that of check_shares() and fit_sms().
Status place(std::span<const PhysicalDevice* const> devices, std::span<const VgpuSpec> others, Placement placement,
             VgpuSpec* spec);

}  // namespace bandsaw
