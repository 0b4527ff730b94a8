// A part of the virtual GPU's memory share.
#pragma once

#include <cstdint>
#include <utility>

#include "backend/device/device.h"

namespace bandsaw::cuda {

// Bytes that were charged, given back at the latest with the object that has them.
class Charge {
 public:
  Charge() = default;
  Charge(DeviceHost* host, uint64_t bytes) : host_(host), bytes_(bytes) {}
  Charge(Charge&& other) noexcept : host_(std::exchange(other.host_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&&) = delete;
  ~Charge() { give_back(); }
  void give_back() {
    if (host_) std::exchange(host_, nullptr)->charge_memory(-static_cast<int64_t>(bytes_));
  }

 private:
  DeviceHost* host_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace bandsaw::cuda
