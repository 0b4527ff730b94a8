#include "backend/runner/sensors.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "backend/control/gpu_report.h"
#include "backend/runner/gpu_links.h"
#include "backend/runner/nvml_library.h"

namespace bandsaw::runner {
namespace sensors {
namespace {

constexpr timespec kPeriod{1, 0};
constexpr unsigned kLinksEvery = 60;  // periods: links seldom change, and each costs several questions

// As far as it is needed. Functions return 0 or an error.
using Gpu = void*;
using Find = int (*)(const char* bus_id, Gpu* device);
using One = int (*)(Gpu device, unsigned* value);
using Kind = int (*)(Gpu device, int kind, unsigned* value);
using Two = int (*)(Gpu device, unsigned* first, unsigned* second);
using Bits = int (*)(Gpu device, unsigned long long* bits);

struct OneValue {
  vgpu_sensor which;
  const char* function;
};
constexpr OneValue kOneValues[] = {
    {VGPU_SENSOR_POWER_MW, "nvmlDeviceGetPowerUsage"},
    {VGPU_SENSOR_POWER_LIMIT_MW, "nvmlDeviceGetEnforcedPowerLimit"},
    {VGPU_SENSOR_POWER_LIMIT_DEFAULT_MW, "nvmlDeviceGetPowerManagementDefaultLimit"},
    {VGPU_SENSOR_FAN_PERCENT, "nvmlDeviceGetFanSpeed"},
    {VGPU_SENSOR_PERFORMANCE_STATE, "nvmlDeviceGetPerformanceState"},
    {VGPU_SENSOR_PCIE_GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration"},
    {VGPU_SENSOR_PCIE_WIDTH, "nvmlDeviceGetCurrPcieLinkWidth"},
    {VGPU_SENSOR_PCIE_GENERATION_MOST, "nvmlDeviceGetMaxPcieLinkGeneration"},
    {VGPU_SENSOR_PCIE_WIDTH_MOST, "nvmlDeviceGetMaxPcieLinkWidth"},
    {VGPU_SENSOR_BRAND, "nvmlDeviceGetBrand"},
};

struct KindOfValue {
  vgpu_sensor which;
  const char* function;
  int kind;
};
constexpr KindOfValue kKindsOfValues[] = {
    {VGPU_SENSOR_TEMPERATURE_C, "nvmlDeviceGetTemperature", 0},
    {VGPU_SENSOR_TEMPERATURE_SHUTDOWN_C, "nvmlDeviceGetTemperatureThreshold", 0},
    {VGPU_SENSOR_TEMPERATURE_SLOWDOWN_C, "nvmlDeviceGetTemperatureThreshold", 1},
    {VGPU_SENSOR_CLOCK_GRAPHICS_MHZ, "nvmlDeviceGetClockInfo", 0},
    {VGPU_SENSOR_CLOCK_SM_MHZ, "nvmlDeviceGetClockInfo", 1},
    {VGPU_SENSOR_CLOCK_MEMORY_MHZ, "nvmlDeviceGetClockInfo", 2},
    {VGPU_SENSOR_CLOCK_VIDEO_MHZ, "nvmlDeviceGetClockInfo", 3},
    {VGPU_SENSOR_CLOCK_GRAPHICS_MOST_MHZ, "nvmlDeviceGetMaxClockInfo", 0},
    {VGPU_SENSOR_CLOCK_SM_MOST_MHZ, "nvmlDeviceGetMaxClockInfo", 1},
    {VGPU_SENSOR_CLOCK_MEMORY_MOST_MHZ, "nvmlDeviceGetMaxClockInfo", 2},
    {VGPU_SENSOR_CLOCK_VIDEO_MOST_MHZ, "nvmlDeviceGetMaxClockInfo", 3},
};

class Reader {
 public:
  // 0, or a text that says what is wrong.
  const char* open(const char* bus_id) {
    if (const char* const wrong = library_.open()) return wrong;
    const auto find = library_.function<Find>("nvmlDeviceGetHandleByPciBusId_v2");
    if (!find) return "it lacks functions";
    return find(bus_id, &device_) == 0 ? nullptr : "it does not know this GPU";
  }

  vgpu_answer_sensors read() {
    sensors_ = {};
    unsigned first = 0, second = 0;
    for (const OneValue& row : kOneValues) {
      const auto get = library_.function<One>(row.function);
      if (get && get(device_, &first) == 0) put(row.which, first);
    }
    for (const KindOfValue& row : kKindsOfValues) {
      const auto get = library_.function<Kind>(row.function);
      if (get && get(device_, row.kind, &first) == 0) put(row.which, first);
    }
    const auto limits = library_.function<Two>("nvmlDeviceGetPowerManagementLimitConstraints");
    if (limits && limits(device_, &first, &second) == 0) {
      put(VGPU_SENSOR_POWER_LIMIT_LEAST_MW, first);
      put(VGPU_SENSOR_POWER_LIMIT_MOST_MW, second);
    }
    const auto ecc = library_.function<Two>("nvmlDeviceGetEccMode");
    if (ecc && ecc(device_, &first, &second) == 0) put(VGPU_SENSOR_ECC, first);
    unsigned long long reasons = 0;
    const auto get_reasons = library_.function<Bits>("nvmlDeviceGetCurrentClocksThrottleReasons");
    if (get_reasons && get_reasons(device_, &reasons) == 0) {
      put(VGPU_SENSOR_CLOCK_REASONS, static_cast<unsigned>(reasons));
    }
    return sensors_;
  }

  GpuLinks links() const { return read_links(library_, device_); }

 private:
  void put(vgpu_sensor which, unsigned value) {
    sensors_.known |= 1ull << which;
    sensors_.values[which] = value;
  }

  NvmlLibrary library_;
  Gpu device_ = nullptr;
  vgpu_answer_sensors sensors_{};
};

}  // namespace
}  // namespace sensors

int print_sensors(const char* bus_id) {
  sensors::Reader reader;
  if (const char* const wrong = reader.open(bus_id)) {
    std::fprintf(stderr, "no sensors of %s: NVML: %s\n", bus_id, wrong);
    return EXIT_FAILURE;
  }
  GpuReport report;
  for (unsigned period = 0;; ++period) {
    report.sensors = reader.read();
    if (period % sensors::kLinksEvery == 0) report.links = reader.links();
    if (::write(STDOUT_FILENO, &report, sizeof(report)) != static_cast<ssize_t>(sizeof(report))) return EXIT_SUCCESS;
    nanosleep(&sensors::kPeriod, nullptr);
  }
}

}  // namespace bandsaw::runner
