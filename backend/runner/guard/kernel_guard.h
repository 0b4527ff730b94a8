// Code of virtual GPUs that share their faults, and their SMs, with others: kernels are kept to their own memory
// (vgpu-sched/ptx/guard.h) and clear their shared memory (clear.h), as far as the administrator wants that.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device/device.h"
#include "memory/base/status.h"

namespace bandsaw::runner {

struct GuardSettings {
  bool guard = false;
  bool clear_shared = false;  // kernels clear their shared memory at the end
  bool machine_code = false;  // images without PTX are loaded as they are
  bool any_gpu = false;       // the device takes PTX for any GPU
};

// Any of the words "guard", "machine-code", "clear-shared", with commas between.
Result<GuardSettings> read_guard_settings(std::string_view text);

// Thread-safe.
class KernelGuard {
 public:
  // The device must outlive it, and, if kernels are guarded, have no memory allocated yet; `memory` bytes of it may be.
  static Result<std::unique_ptr<KernelGuard>> make(Device* device, const GuardSettings& settings, uint64_t memory);

  // An image for the device becomes one whose kernels are guarded. Takes long.
  CUresult rewrite(std::vector<std::byte>* image, std::string* log) const;
  // Kernels may reach [begin, begin + bytes), which is mapped; `forbid` takes one such call back.
  void allow(uint64_t begin, uint64_t bytes);
  void forbid(uint64_t begin, uint64_t bytes);
  // The same for a variable of code, until `owner`, a library or module, is forgotten.
  void allow_variable(const Object* owner, uint64_t begin, uint64_t bytes);
  void forget(const Object* owner);
  // What kernels have reported; CUDA_SUCCESS: nothing.
  CUresult error() const;
  uint64_t wrong_address() const { return place_.report->address; }

 private:
  KernelGuard(Device* device, const GuardSettings& settings, const GuardPlace& place);
  void write_ranges();

  Device& device_;
  const GuardSettings settings_;
  const GuardPlace place_;
  uint32_t gpu_ = 0;  // compute capability; 0: takes PTX for any
  std::mutex mutex_;
  std::multimap<uint64_t, uint64_t> ranges_;  // guarded by mutex_: begin, end; they may overlap
  std::multimap<const Object*, std::pair<uint64_t, uint64_t>> variables_;  // guarded by mutex_: begin, bytes
  uint32_t list_ = 0;                                                      // guarded by mutex_: the current one
  bool told_ = false;                                                      // guarded by mutex_: that there are too many
};

}  // namespace bandsaw::runner
