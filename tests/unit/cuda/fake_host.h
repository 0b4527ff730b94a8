// Whom a device on the fake driver (FAKE_DRIVER) serves.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>

#include "backend/device/device.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/cuda/fake_driver.h"

namespace bandsaw::cuda {

constexpr int64_t kMiB = 1 << 20;

struct FakeHost : DeviceHost {
  void run_callback(const HostCallback&, CUresult, Done) override {}
  void poisoned(CUresult) override { ++poisonings; }
  void print(std::string_view) override {}
  bool charge_memory(int64_t bytes) override {
    int64_t now = charged;
    do {
      if (bytes > 0 && bytes > share - now) return false;
    } while (!charged.compare_exchange_weak(now, now + bytes));
    return true;
  }
  void charge_time(int, uint64_t, uint64_t) override {}
  void* visible_host(uint64_t, uint64_t) override { return nullptr; }
  std::atomic<int64_t> charged{0};
  int64_t share = 4096 * kMiB;
  std::atomic<int> poisonings{0};
};

inline Result<std::unique_ptr<Device>> make_fake_device(const DeviceConfig& config, DeviceHost* host) {
  setenv("BANDSAW_CUDA_DRIVER", FAKE_DRIVER, 1);
  const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);  // the device takes them
  auto made = make_cuda_device(config, 0, host);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  close(out);
  close(err);
  return made;
}

// On a GPU that is as new, with one window. nullptr, which the test fails of: the device is refused.
inline std::unique_ptr<Device> new_fake_device(DeviceHost* host, bool replaceable = false) {
  fake_gpu() = {};
  DeviceConfig config;
  config.replaceable = replaceable;
  config.window_base = VGPU_WINDOW_BASE_0;
  auto made = make_fake_device(config, host);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made.value()) : nullptr;
}

}  // namespace bandsaw::cuda
