// The device runtime: functions that nvcc links from libcudadevrt, as PTX for this device. A program declares what it
// calls of them; the definitions are added to its text before it is compiled.
#pragma once

#include <string>
#include <string_view>

#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

// One that the device itself answers. A program's call of it becomes one of kDevicePrefix and the name.
struct DeviceFunction {
  std::string_view name;        // behind cuda or __cudaCDP2
  std::string_view parameters;  // a letter each: i 32 bits, l 64 bits, d a dim3, p a cudaPitchedPtr, e a cudaExtent
  char result;                  // i, l, or v for none
  DeviceCall call;
  uint32_t words() const;  // that the parameters make, at most kDeviceCallWords
};
inline constexpr std::string_view kDevicePrefix = "bandsaw_cuda_";
// nullptr: that is none. `called`: with kDevicePrefix.
const DeviceFunction* device_function(std::string_view called);

// The module with the functions of the device runtime that it declares and does not define, behind its end, so that
// lines keep their numbers. Throws ParseError where the module's own text cannot be read.
std::string with_device_runtime(std::string module);

}  // namespace bandsaw::soft
