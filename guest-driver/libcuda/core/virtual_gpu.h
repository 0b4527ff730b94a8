// One virtual GPU as this process uses it: its session, its runner, what cuInit learned of it. A process has one for
// each device that the program sees; none is ever freed, so that calls during exit still find it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "guest-driver/libcuda/core/host_calls.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

class Transport;
class CommandRingPool;
class SharedMemory;
struct Context;

// What a program sees when a runner or session has died. This process cannot use that device again, as on a GPU that
// has fallen off the bus.
inline constexpr CUresult kLostHost = CUDA_ERROR_DEVICE_UNAVAILABLE;

inline constexpr uint32_t kGpusMax = VGPU_WINDOW_PARTS;

struct VirtualGpu {
  CUdevice ordinal = 0;  // the program's number for it
  uint32_t part = 0;     // of the address window; stands in its handles
  Transport* transport = nullptr;
  SharedMemory* memory = nullptr;
  CommandRingPool* rings = nullptr;
  HostCalls calls;                    // read-only after cuInit
  vgpu_device_info info{};            // read-only after cuInit
  std::atomic<uint64_t> next_seq{1};  // of records, over all rings
  std::atomic<uint32_t> sticky{0};    // first sticky error seen
  std::atomic<bool> lost{false};      // its host side is gone
  Context* primary = nullptr;         // alive or not

  // CUDA_SUCCESS, the sticky error, or kLostHost.
  CUresult health() const {
    const auto error = static_cast<CUresult>(sticky.load(std::memory_order_relaxed));
    return error == CUDA_SUCCESS && lost.load(std::memory_order_acquire) ? kLostHost : error;
  }
  void set_lost();
};

// Which part of the window a handle of the runner's names. Only of handles above VGPU_STREAM_PER_THREAD.
constexpr uint32_t part_of_handle(uint64_t handle) {
  return handle >> VGPU_HANDLE_PART_SHIFT & (VGPU_WINDOW_PARTS - 1);
}

// Valid once cuInit has succeeded.
int gpu_count();
VirtualGpu& gpu_at(CUdevice ordinal);          // below gpu_count()
VirtualGpu* gpu_of_part(uint32_t part);        // nullptr: none has it
VirtualGpu* gpu_of_address(uint64_t address);  // whose device memory lies there; nullptr: nobody's
// That of the calling thread's current context; without one the first.
VirtualGpu& current_gpu();

}  // namespace bandsaw::libcuda
