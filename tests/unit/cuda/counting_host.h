// A runner of which a test sees what it was charged.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/device/device.h"

namespace bandsaw::cuda {

struct CountingHost : DeviceHost {
  void run_callback(const HostCallback&, CUresult, Done) override {}
  void poisoned(CUresult) override {}
  void print(std::string_view) override {}
  bool charge_memory(int64_t bytes) override {
    if (bytes > 0 && charged + bytes > most) return false;
    return charged += bytes, true;
  }
  void charge_time(int, uint64_t, uint64_t) override {}
  void* visible_host(uint64_t, uint64_t) override { return nullptr; }
  int64_t charged = 0, most = INT64_MAX;
};

}  // namespace bandsaw::cuda
