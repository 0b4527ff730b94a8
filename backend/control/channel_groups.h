// Channel groups as runners report them: by sessions (runner_link.h) to the arbiter (gate_link.h).
//
// A channel group is what the GPU's own scheduler gives time slices to. NVIDIA's driver makes a few for each context;
// the ones that count here are those of the compute engine. The driver knows a group by two handles: its client (which
// belongs to one open /dev/nvidiactl) and the group's own.
#pragma once

#include <array>
#include <cstdint>

namespace bandsaw {

inline constexpr uint32_t kChannelGroupsMax = 64;

struct ChannelGroupList {
  uint32_t client = 0;
  uint32_t count = 0;  // 0: none is known, and none will be unless another list follows
  std::array<uint32_t, kChannelGroupsMax> handles{};

  bool operator==(const ChannelGroupList&) const = default;
};

}  // namespace bandsaw
