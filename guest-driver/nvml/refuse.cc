#include "guest-driver/nvml/refuse.h"

#include "guest-driver/nvml/device.h"

namespace bandsaw::nvml {

int refuse(void* device, Refusal refusal) {
  const nvmlReturn_t result = check(static_cast<nvmlDevice_t>(device));
  return result != NVML_SUCCESS ? result : static_cast<int>(refusal);
}

int refuse(Refusal refusal) { return initialised() ? static_cast<int>(refusal) : NVML_ERROR_UNINITIALIZED; }

}  // namespace bandsaw::nvml
