// What functions of NVML that are not there return. Without nvml.h, whose types the generated callers do not know.
#pragma once

namespace bandsaw::nvml {

// As nvmlReturn_t.
enum class Refusal : int { kInvalidArgument = 2, kNotSupported = 3, kNoPermission = 4, kNotFound = 6 };

// `refusal`, if the library is initialised and the handle is one of ours; else what is wrong with that.
int refuse(void* device, Refusal refusal);
int refuse(Refusal refusal);

}  // namespace bandsaw::nvml
