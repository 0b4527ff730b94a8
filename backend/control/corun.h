// Whether kernels of several virtual GPUs may be on a device at once, and how it is planned which of them are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw {

// Of a virtual GPU.
enum class Sharing {
  kIsolated,  // contexts of its own: on an engine, only one virtual GPU's work at a time
  kCorun,     // its runners are clients of vgpud's MPS daemon: kernels of different virtual GPUs overlap
};

// Of a device, for all its virtual GPUs that are kCorun.
enum class CorunMode {
  kMps,               // MPS as it is: whatever is launched goes to the device
  kConsolidation,     // whole kernels in pairs, no slices
  kSlicesFifo,        // slices, in the order of arrival
  kKernelet,          // pairs of slices by predicted profit
  kPersistentGreedy,  // persistent blocks, resident blocks given out greedily
  kOpt,               // the best ratio of a pair, by trying all
  kRandom,            // random plans
};

// A folder that does not exist, for who must not find any MPS daemon, nor the one that a host may have for all.
inline constexpr const char* kNoMpsDirectory = "/nonexistent/bandsaw-isolated";

const char* to_text(Sharing sharing);
const char* to_text(CorunMode mode);
// EINVAL, with the names that there are.
Result<Sharing> parse_sharing(std::string_view text);
Result<CorunMode> parse_corun_mode(std::string_view text);
// As they are written, in the order of the enumeration.
std::vector<std::string> corun_mode_names();

}  // namespace bandsaw
