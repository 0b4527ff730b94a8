#include <algorithm>
#include <thread>

#include "backend/device/soft/fault.h"
#include "backend/device/soft/soft_device.h"
#include "backend/device/soft/timing/machine.h"
#include "memory/base/log.h"

namespace bandsaw {

std::unique_ptr<Device> make_soft_device(const DeviceConfig& config, DeviceHost* host) {
  return std::make_unique<soft::SoftDevice>(config, host);
}

}  // namespace bandsaw

namespace bandsaw::soft {

namespace {

// Programs size their grids by the number of SMs. A few per core keeps every core busy when blocks differ in
// length; more would only make persistent-thread programs start blocks that wait.
constexpr int kSmsPerThread = 4;
constexpr int kSmsMax = 132;  // the largest part's

int count_threads(const DeviceConfig& config) {
  if (config.threads > 0) return config.threads;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int wanted = (static_cast<int>(config.soft_sms) + kSmsPerThread - 1) / kSmsPerThread;
  return wanted > 0 ? std::min(cores, wanted) : cores;
}

uint32_t count_sms(const DeviceConfig& config, int threads) {
  const int sms = config.soft_sms > 0 ? static_cast<int>(config.soft_sms) : kSmsPerThread * threads;
  return static_cast<uint32_t>(std::min(sms, kSmsMax));
}

std::unique_ptr<Recorder> make_recorder(const DeviceConfig& config) {
  if (config.recorded_launches == 0) return nullptr;
  timing::Machine machine = timing::h200();
  if (!config.recorded_gpu.empty() && !timing::find_machine(config.recorded_gpu, &machine)) {
    log::warn("timing: no GPU '{}' is known; nothing is recorded", config.recorded_gpu);
  } else if (config.cache_directory.empty()) {
    log::warn("timing: there is no folder for what kernels do");
  } else {
    return std::make_unique<Recorder>(config.cache_directory + "/timing", config.recorded_launches, machine.part);
  }
  return nullptr;
}

}  // namespace

SoftDevice::SoftDevice(const DeviceConfig& config, DeviceHost* host)
    : config_(config),
      host_(host),
      threads_(count_threads(config)),
      sms_(count_sms(config, threads_)),
      recorder_(make_recorder(config)),
      memory_(std::make_shared<Memory>(config.window_base, config.memory_share, host)),
      scheduler_(host),
      default_pool_(std::make_shared<SoftPool>(memory_, vgpu_pool_props{})),
      compiler_(threads_, [host](uint32_t kernels) { host->compiling(kernels); }),
      compute_(threads_, "soft-compute"),
      // Copies have threads of their own, so that kernels which spin on copied data do not starve them.
      copies_(std::clamp(threads_, 2, 8), "soft-copy") {
  install_fault_handler();
  pools_.push_back(default_pool_);
}

Status SoftDevice::use_part(uint32_t part) {
  if (memory_->use_part(part)) return {};
  return Status::error(EBUSY, "device memory is in use: it cannot move to part {} of the window", part);
}

SoftDevice::~SoftDevice() {
  for (const SoftContextRef& context : contexts()) context_destroy(context);
}

}  // namespace bandsaw::soft
