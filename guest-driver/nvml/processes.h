// The programs that use a virtual GPU now.
#pragma once

#include <vector>

#include "guest-driver/nvml/device.h"

namespace bandsaw::nvml {

inline constexpr unsigned kNoInstance = 0xffffffffu;  // not one of MIG

// `device` is checked. Processes may come and go meanwhile.
nvmlReturn_t processes_of(nvmlDevice_t device, std::vector<vgpu_answer_process>* processes);

// The name of a process of this machine, cut to `length`: its command line, without the arguments. 0 or an errno.
int process_name(unsigned pid, char* name, unsigned length);

}  // namespace bandsaw::nvml
