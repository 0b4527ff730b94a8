// Whether kernels of several virtual GPUs may be on a device at once, and how it is planned which of them are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw {

// Of a virtual GPU.
enum class Sharing {
  kTimeSliced,  // contexts of its own: on an engine, only one virtual GPU's work at a time
  kMps,         // its runners are clients of vgpud's MPS daemon: kernels of different virtual GPUs overlap
};

// Of a device, for all its MPS virtual GPUs.
enum class PlanningMode {
  kMps,               // MPS as it is: whatever is launched goes to the device
  kConsolidation,     // lab: whole kernels in pairs, no grid slices
  kSlicesFifo,        // grid slices, in the order of arrival
  kKernelet,          // pairs of grid slices by predicted profit
  kPersistentGreedy,  // persistent blocks, given out greedily
  kMaestroAntt,       // pairs whose ratio is found by trying, for the least mean turnaround
  kMaestroStp,        // the same, for the largest throughput
  kOpt,               // lab: the best ratio of a pair, by trying all
  kRandom,            // lab: random plans
  kEven,              // lab: two kernels with half of each SM
};

// A folder that does not exist: a time-sliced program must find no MPS daemon, not even one that the host has for all.
inline constexpr const char* kNoMpsDirectory = "/nonexistent/bandsaw-time-sliced";

const char* to_text(Sharing sharing);
const char* to_text(PlanningMode mode);
// Also the words of earlier versions ("isolated", "corun"). EINVAL: another, with the names that there are.
Result<Sharing> parse_sharing(std::string_view text);
// EINVAL, with the names that there are.
Result<PlanningMode> parse_planning_mode(std::string_view text);
// Modes that others are compared with. Only the lab's vgpud (tools/benchmarks/research) has them.
bool is_lab_mode(PlanningMode mode);
// As they are written, in the order of the enumeration; without the lab's.
std::vector<std::string> planning_mode_names();

}  // namespace bandsaw
