// What the process has as a whole: made by the first successful cuInit, never freed, so that calls during exit (after
// static destructors) still find it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "guest-driver/libcuda/core/host_calls.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

class Transport;
class CommandRingPool;
class SharedMemory;

enum class State : int {
  kUninitialised,  // also in a child of fork: CUDA does not survive fork
  kReady,
  kLost,  // the host side is gone; every call returns the sticky error or, if there is none, kLostHost
};

// What a program sees when its runner or session has died. This process cannot recover from it, as from a GPU that has
// fallen off the bus.
inline constexpr CUresult kLostHost = CUDA_ERROR_DEVICE_UNAVAILABLE;

// What cuDriverGetVersion says; the API that this library implements.
inline constexpr int kDriverVersion = 13000;

struct Process {
  Transport* transport = nullptr;
  SharedMemory* memory = nullptr;
  CommandRingPool* rings = nullptr;
  HostCalls calls;                    // read-only after cuInit
  vgpu_device_info device{};          // read-only after cuInit
  std::atomic<uint64_t> next_seq{1};  // of records, over all rings
  std::atomic<uint32_t> sticky{0};    // first sticky error seen
};

State state();
void set_lost();

// Valid in State::kReady and kLost.
Process& process();

// cuInit's work; thread-safe.
CUresult initialise();

// CUDA_SUCCESS, or what a call that needs an initialised driver returns now: not initialised, lost, or sticky error.
CUresult health();

}  // namespace bandsaw::libcuda
