#include "guest-driver/libcuda/core/host_calls.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace bandsaw::libcuda {

HostCalls::HostCalls() { std::iota(opcodes_.begin(), opcodes_.end(), 0); }

void HostCalls::learn(std::span<const uint64_t> ids) {
  for (uint32_t own = 1; own < wire::kOpcodes; own++) {
    const auto found = std::find(ids.begin(), ids.end(), wire::kIdOfCall[own]);
    opcodes_[own] = found == ids.end() ? 0 : static_cast<uint32_t>(std::distance(ids.begin(), found)) + 1;
  }
}

uint32_t HostCalls::missing() const {
  return static_cast<uint32_t>(std::count(std::next(opcodes_.begin()), opcodes_.end(), 0u));
}

}  // namespace bandsaw::libcuda
