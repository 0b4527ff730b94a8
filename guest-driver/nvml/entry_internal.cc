// A table of functions that is not in nvml.h. nvidia-smi does not start without it, lists processes through it, and
// does without every function that the table does not have. Found by watching what nvidia-smi 535 and 550 ask for and
// show: the first word is the table's length in bytes, a function that is not there is null.
#include <cerrno>
#include <cstdio>
#include <string>

#include "guest-driver/nvml/device.h"
#include "guest-driver/nvml/processes.h"

using namespace bandsaw::nvml;

namespace {

constexpr uint8_t kTableId[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                  0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

// What nvidia-smi's lists are made of.
struct ListedProcess {
  uint32_t pid;
  uint32_t reserved;
  uint64_t memory_used;  // bytes
  uint32_t gpu_instance, compute_instance;
  uint64_t reserved_too;
  char name[4096];
};
static_assert(sizeof(ListedProcess) == 4128);

// `*count`: how much room there is, then how many there are.
int list_compute(nvmlDevice_t device, unsigned* count, ListedProcess* listed) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!count || (*count > 0 && !listed)) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<vgpu_answer_process> processes;
  if (const nvmlReturn_t result = processes_of(device, &processes); result != NVML_SUCCESS) return result;
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (room < processes.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < processes.size(); i++) {
    listed[i] = {};
    listed[i].pid = processes[i].pid;
    listed[i].memory_used = processes[i].memory_used;
    listed[i].gpu_instance = listed[i].compute_instance = kNoInstance;
    if (process_name(processes[i].pid, listed[i].name, sizeof(listed[i].name))) {
      std::memcpy(listed[i].name, "[Not Found]", sizeof("[Not Found]"));
    }
  }
  return NVML_SUCCESS;
}

int list_none(nvmlDevice_t device, unsigned* count, ListedProcess*) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

// Whether dmon and pmon may watch the device.
int can_be_watched(nvmlDevice_t device, unsigned* can) {
  if (const nvmlReturn_t result = check(device); result != NVML_SUCCESS) return result;
  if (!can) return NVML_ERROR_INVALID_ARGUMENT;
  *can = 1;
  return NVML_SUCCESS;
}

constexpr size_t kCanBeWatched = 72, kCompute = 213, kGraphics = 214, kMps = 215, kSlots = 216;

struct Table {
  uint64_t bytes = sizeof(Table);
  void* functions[kSlots - 1] = {};  // from slot 1 on

  Table() {
    at(kCanBeWatched) = reinterpret_cast<void*>(can_be_watched);
    at(kCompute) = reinterpret_cast<void*>(list_compute);
    at(kGraphics) = at(kMps) = reinterpret_cast<void*>(list_none);
  }
  void*& at(size_t slot) { return functions[slot - 1]; }
};

}  // namespace

extern "C" nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void* uuid) {
  if (!table || !uuid) return NVML_ERROR_INVALID_ARGUMENT;
  if (std::memcmp(uuid, kTableId, sizeof(kTableId)) != 0) return NVML_ERROR_NOT_FOUND;
  static const Table* const only = new Table;
  *table = only;
  return NVML_SUCCESS;
}
