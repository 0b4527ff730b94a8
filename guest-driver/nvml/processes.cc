#include "guest-driver/nvml/processes.h"

#include <cerrno>
#include <cstdio>
#include <string>

namespace bandsaw::nvml {
namespace {

constexpr unsigned kProcessesMax = 4096;  // more than a session has

}  // namespace

// Each is asked for by its number, until there is none.
nvmlReturn_t processes_of(nvmlDevice_t device, std::vector<vgpu_answer_process>* processes) {
  for (uint32_t index = 0; index < kProcessesMax; index++) {
    uint8_t bytes[VGPU_ANSWER_BYTES] = {};
    const int error = ask(device->session, VGPU_QUERY_PROCESS, index, bytes);
    if (error == ENOENT) return NVML_SUCCESS;
    if (error) return to_nvml(error);
    vgpu_answer_process process;
    std::memcpy(&process, bytes, sizeof(process));
    processes->push_back(process);
  }
  return NVML_SUCCESS;
}

int process_name(unsigned pid, char* name, unsigned length) {
  std::FILE* const file = std::fopen(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), "re");
  if (!file) return errno;
  const size_t count = std::fread(name, 1, length - 1, file);
  std::fclose(file);
  name[count] = 0;
  return 0;
}

}  // namespace bandsaw::nvml
