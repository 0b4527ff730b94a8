// A launch of a rewritten kernel in the place of the program's launch.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "backend/device/device.h"
#include "backend/runner/slicing/kernel_cloner.h"

namespace bandsaw::runner {

// Blocks of such a launch that fit on an SM; 0: none, or it is not known.
inline uint32_t resident_blocks(Device& device, const Launch& launch) {
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  uint32_t resident = 0;
  if (threads <= 1024) {
    device.occupancy(launch.code, static_cast<uint32_t>(threads), launch.shared_bytes, &resident);
  }
  return resident;
}

class CloneLaunch {
 public:
  // The clone's parameters begin with the program's own, of which there are at least clone->original_bytes.
  CloneLaunch(std::shared_ptr<const KernelClone> clone, const Launch& program)
      : clone_(std::move(clone)), parameters_(clone_->parameters), launch_(program) {
    std::memcpy(parameters_.data(), program.parameters.data(), clone_->original_bytes);
    set(clone_->grid_at, program.grid);
    launch_.grid[1] = launch_.grid[2] = 1;
    launch_.parameters = parameters_;
    launch_.code = {nullptr, clone_->function};
  }
  CloneLaunch(const CloneLaunch&) = delete;  // the launch points into it

  const KernelClone& clone() const { return *clone_; }
  // `at` is one of the clone's offsets.
  template <typename Value>
  void set(size_t at, const Value& value) {
    std::memcpy(parameters_.data() + at, &value, sizeof value);
  }
  // With so many blocks, and parameters as they are now.
  const Launch& with(uint64_t blocks) {
    launch_.grid[0] = static_cast<uint32_t>(blocks);
    return launch_;
  }
  uint32_t resident(Device& device) const { return resident_blocks(device, launch_); }

 private:
  const std::shared_ptr<const KernelClone> clone_;
  std::vector<std::byte> parameters_;
  Launch launch_;
};

}  // namespace bandsaw::runner
