// Kernels and functions: what launches need to know about them, kept in the guest.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

inline constexpr int kFunctionAttributes = 20;

// A CUkernel or a CUfunction. Everything but `attributes` and what `mutex` guards is fixed once it is in the table.
struct FunctionRecord {
  uint64_t handle = 0;
  uint64_t owner = 0;    // its library or module
  uint64_t kernel = 0;   // of a function that came from a kernel
  uint64_t context = 0;  // of a function; 0 for kernels
  std::string name;
  std::vector<vgpu_parameter> parameters;
  uint32_t parameter_bytes = 0;
  std::atomic<int32_t> attributes[kFunctionAttributes]{};  // indexed by CUfunction_attribute

  std::mutex mutex;
  std::map<uint64_t, uint64_t> functions;                          // of a kernel: context -> function
  std::map<uint32_t, uint64_t> elsewhere;                          // of a kernel: part -> the kernel of that device
  std::map<std::tuple<uint32_t, uint64_t>, uint32_t> occupancies;  // (block, shared bytes) -> blocks per SM
  // The device's answers about clusters, by the bytes of the question. Guarded by mutex.
  std::map<std::string, std::pair<uint32_t, uint32_t>> cluster_answers;

  int32_t attribute(CUfunction_attribute which) const { return attributes[which].load(std::memory_order_relaxed); }
};

// Programs pass CUkernel handles where a CUfunction is asked for, so both are looked up the same way.
FunctionRecord* find_function(uint64_t handle);
inline FunctionRecord* find_function(CUfunction function) {
  return find_function(reinterpret_cast<uint64_t>(function));
}
inline FunctionRecord* find_function(CUkernel kernel) { return find_function(reinterpret_cast<uint64_t>(kernel)); }

// Puts the host's answer about a function into the table. `parameters` is the reply's vgpu_parameter array.
FunctionRecord* add_function(uint64_t handle, uint64_t owner, uint64_t kernel, uint64_t context, std::string name,
                             const vgpu_function_info& info, const std::vector<std::byte>& parameters);

// Forgets all functions of a library or module.
void forget_functions_of(uint64_t owner);

// A kernel as the call's device has it: its library is loaded there at first use. A function of that device is its own.
CUresult kernel_on_device(Call& call, FunctionRecord* function, FunctionRecord** there);

// The function of a kernel in the current context (asked once per context); a function is its own.
CUresult function_in_context(uint64_t handle, uint64_t* function);

// Active blocks per SM; asked once per configuration. Errors as cuOccupancyMaxActiveBlocksPerMultiprocessor.
CUresult occupancy_of(FunctionRecord* function, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks);

}  // namespace bandsaw::libcuda
