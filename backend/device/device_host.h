// What a device asks of the process around it.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "guest-driver/uapi/vgpu_wire.h"
#include "memory/swap/book.h"

namespace bandsaw {

using Done = std::function<void(CUresult)>;

// What a program's host function needs to run in the guest: `run` delivers the request, and the device goes on
// with the stream when `done` is called. `status` is the stream's error for CUstreamCallback.
struct HostCallback {
  vgpu_callback_kind kind{};
  uint64_t function = 0, data = 0;
  uint64_t stream = 0;  // handle, for CUstreamCallback
};

// Given at the device's creation; outlives it.
class DeviceHost {
 public:
  virtual ~DeviceHost() = default;
  // Runs a guest function; `done` may be called from any thread, once.
  virtual void run_callback(const HostCallback& callback, CUresult status, Done done) = 0;
  // The first sticky error; called once.
  virtual void poisoned(CUresult error) = 0;
  // The error that a guarded kernel has reported, or CUDA_SUCCESS. To be asked when work has ended: it is the work's.
  virtual CUresult guard_error() { return CUDA_SUCCESS; }
  // Text of kernel printf and assert, in order.
  virtual void print(std::string_view text) = 0;
  // So many kernels are being compiled, which has taken a second; 0: none any more. By any thread.
  virtual void compiling(uint32_t) {}
  // Reserves or gives back bytes of the virtual GPU's memory share; false: over the share.
  virtual bool charge_memory(int64_t bytes) = 0;
  // Where chunks of plain allocations lie, of a virtual GPU whose programs may allocate more than it holds of the
  // device; null: all of it lies on the device. Always the same answer.
  virtual swap::Book* swap_book() { return nullptr; }
  // Before a further context is made, which stops everybody on a GPU for a moment: waits until that may be.
  virtual void pace_context() {}
  // GPU time used on an engine, in nanoseconds, and the bytes that were copied.
  virtual void charge_time(int engine, uint64_t nanoseconds, uint64_t bytes) = 0;
  // Whether another thread of the guest has a call waiting for the thread that now calls the device. Only from inside
  // the device's methods for synchronising and copying, on their caller's thread.
  virtual bool others_wait() { return true; }
  // A wait is about to end, at this time at the latest: who was told that it has will call again at once. By any
  // thread.
  virtual void expect_calls(std::chrono::steady_clock::time_point /*latest*/) {}
  // A device-visible region at this guest address outside the window (registered host memory), or nullptr.
  // Must be callable from a kernel's slow path: no allocation.
  virtual void* visible_host(uint64_t guest_address, uint64_t bytes) = 0;
};

}  // namespace bandsaw
