// The device runtime: functions that nvcc links from libcudadevrt, as PTX for this device. A program declares what it
// calls of them; the definitions are added to its text before it is compiled.
#pragma once

#include <string>

namespace bandsaw::soft {

// The module with the functions of the device runtime that it declares and does not define, behind its end, so that
// lines keep their numbers. Throws ParseError where the module's own text cannot be read.
std::string with_device_runtime(std::string module);

}  // namespace bandsaw::soft
