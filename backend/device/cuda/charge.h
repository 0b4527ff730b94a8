// A part of the virtual GPU's memory share.
#pragma once

#include "backend/device/device.h"
#include "memory/share.h"

namespace bandsaw::cuda {

using Charge = bandsaw::Charge<DeviceHost>;

}  // namespace bandsaw::cuda
