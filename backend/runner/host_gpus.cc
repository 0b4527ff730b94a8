#include "backend/runner/host_gpus.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "backend/runner/nvml_library.h"

namespace bandsaw::runner {
namespace host_gpus {
namespace {

// As far as it is needed. Functions return 0 or an error.
using Gpu = void*;
using EventSet = void*;
using Count = int (*)(unsigned* count);
using ByIndex = int (*)(unsigned index, Gpu* gpu);
using MigByIndex = int (*)(Gpu gpu, unsigned index, Gpu* mig);
using ByUuid = int (*)(const char* uuid, Gpu* gpu);
using Related = int (*)(Gpu gpu, Gpu* other);
using Text = int (*)(Gpu gpu, char* text, unsigned length);
using One = int (*)(Gpu gpu, unsigned* value);
using Two = int (*)(Gpu gpu, unsigned* first, unsigned* second);
using Kind = int (*)(Gpu gpu, int kind, unsigned* value);
using MakeSet = int (*)(EventSet* set);
using Register = int (*)(Gpu gpu, unsigned long long types, EventSet set);

struct Event {
  Gpu gpu;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
using Wait = int (*)(EventSet set, Event* event, unsigned milliseconds);

constexpr int kGone = 15, kTimeout = 10;  // NVML_ERROR_GPU_IS_LOST, NVML_ERROR_TIMEOUT
constexpr unsigned long long kXid = 8;    // nvmlEventTypeXidCriticalError
constexpr unsigned kWaitMs = 1000, kUuidBytes = 96;

// Opens NVML. Null, or what is wrong.
const char* count_gpus(NvmlLibrary* nvml, unsigned* count, ByIndex* by_index) {
  if (const char* const wrong = nvml->open()) return wrong;
  const auto count_of = nvml->function<Count>("nvmlDeviceGetCount_v2");
  *by_index = nvml->function<ByIndex>("nvmlDeviceGetHandleByIndex_v2");
  const bool counted = count_of && *by_index && count_of(count) == 0;
  return counted ? nullptr : "it does not say how many GPUs there are";
}

// Empty: it does not say.
std::string uuid_of(const NvmlLibrary& nvml, Gpu gpu) {
  const auto ask = nvml.function<Text>("nvmlDeviceGetUUID");
  char uuid[kUuidBytes] = "";
  return ask && ask(gpu, uuid, sizeof uuid) == 0 ? uuid : "";
}

bool print_uuid(const NvmlLibrary& nvml, const char* prefix, Gpu gpu) {
  const std::string uuid = uuid_of(nvml, gpu);
  if (uuid.empty()) return false;
  std::printf("cuda:%s %s\n", prefix ? prefix : uuid.c_str(), uuid.c_str());
  return true;
}

// False: the GPU is not cut into instances.
bool print_instances(const NvmlLibrary& nvml, Gpu gpu) {
  const auto mode = nvml.function<Two>("nvmlDeviceGetMigMode");
  const auto most = nvml.function<One>("nvmlDeviceGetMaxMigDeviceCount");
  const auto instance = nvml.function<MigByIndex>("nvmlDeviceGetMigDeviceHandleByIndex");
  unsigned current = 0, pending = 0, count = 0;
  if (!mode || !most || !instance || mode(gpu, &current, &pending) != 0 || current == 0) return false;
  if (most(gpu, &count) != 0) return true;
  for (unsigned i = 0; i < count; ++i) {
    Gpu mig = nullptr;
    if (instance(gpu, i, &mig) == 0) print_uuid(nvml, nullptr, mig);
  }
  return true;
}

int say_wrong(const char* what) {
  std::fprintf(stderr, "NVML: %s\n", what);
  return EXIT_FAILURE;
}

// Says `text` to who reads; false: nobody does.
bool say(const char* text) {
  const auto length = static_cast<ssize_t>(std::strlen(text));
  return write(STDOUT_FILENO, text, static_cast<size_t>(length)) == length;
}

bool somebody_reads() {
  pollfd out{STDOUT_FILENO, 0, 0};
  return poll(&out, 1, 0) == 0;
}

class Watch {
 public:
  // Null, or what is wrong.
  const char* open(const char* uuid) {
    if (const char* const wrong = nvml_.open()) return wrong;
    const auto find = nvml_.function<ByUuid>("nvmlDeviceGetHandleByUUID");
    const auto make = nvml_.function<MakeSet>("nvmlEventSetCreate");
    const auto add = nvml_.function<Register>("nvmlDeviceRegisterEvents");
    wait_ = nvml_.function<Wait>("nvmlEventSetWait_v2");
    temperature_ = nvml_.function<Kind>("nvmlDeviceGetTemperature");
    if (!find || !make || !add || !wait_ || !temperature_) return "it lacks functions";
    if (find(uuid, &gpu_) != 0) return "it does not know this GPU";
    const auto whole = nvml_.function<Related>("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    Gpu parent = nullptr;
    if (whole && std::strncmp(uuid, "MIG-", 4) == 0 && whole(gpu_, &parent) == 0) gpu_ = parent;
    if (make(&set_) != 0 || add(gpu_, kXid, set_) != 0) return "it reports no errors of this GPU";
    return nullptr;
  }

  int run() {
    while (somebody_reads()) {
      Event event{};
      const int error = wait_(set_, &event, kWaitMs);
      unsigned degrees = 0;
      if (error == kGone || temperature_(gpu_, 0, &degrees) == kGone) {
        say("lost\n");
        return EXIT_SUCCESS;
      }
      if (error != 0 && error != kTimeout) return say_wrong("it has stopped to report errors");
      char line[32];
      std::snprintf(line, sizeof line, "xid %llu\n", event.data);
      if (error == 0 && event.type == kXid && !say(line)) break;
    }
    return EXIT_SUCCESS;
  }

 private:
  NvmlLibrary nvml_;
  Gpu gpu_ = nullptr;
  EventSet set_ = nullptr;
  Wait wait_ = nullptr;
  Kind temperature_ = nullptr;
};

}  // namespace
}  // namespace host_gpus

int list_gpus() {
  using namespace host_gpus;
  NvmlLibrary nvml;
  ByIndex by_index = nullptr;
  unsigned count = 0;
  if (const char* const wrong = count_gpus(&nvml, &count, &by_index)) return say_wrong(wrong);
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu = nullptr;
    const bool found = by_index(i, &gpu) == 0;
    if (found && print_instances(nvml, gpu)) continue;
    if (!found || !print_uuid(nvml, std::to_string(i).c_str(), gpu)) {
      std::fprintf(stderr, "NVML: GPU %u does not answer\n", i);
    }
  }
  return EXIT_SUCCESS;
}

Result<std::vector<std::string>> host_gpu_uuids() {
  using namespace host_gpus;
  NvmlLibrary nvml;
  ByIndex by_index = nullptr;
  unsigned count = 0;
  if (const char* const wrong = count_gpus(&nvml, &count, &by_index)) return Status::error(ENODEV, "NVML: {}", wrong);
  std::vector<std::string> uuids;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu = nullptr;
    std::string uuid = by_index(i, &gpu) == 0 ? uuid_of(nvml, gpu) : "";
    if (uuid.empty()) return Status::error(ENODEV, "NVML: GPU {} does not answer", i);
    uuids.push_back(std::move(uuid));
  }
  return uuids;
}

int watch_gpu(const char* uuid) {
  host_gpus::Watch watch;
  if (const char* const wrong = watch.open(uuid)) return host_gpus::say_wrong(wrong);
  return watch.run();
}

}  // namespace bandsaw::runner
