// How a session and its checkpointer (`bandsaw-runner --checkpointer`) talk: packets over descriptor kRunnerSocket. The
// checkpointer answers each order once, in any order, and ends with the socket.
#pragma once

#include <array>
#include <cstdint>

namespace bandsaw {

// "GPU-" and the UUID, as text that ends with 0.
using GpuUuidText = std::array<char, 48>;

struct CheckpointOrder {
  int32_t pid = 0;               // a runner of the session's
  uint32_t off = 0;              // 1: its contexts leave the GPU; 0: they come back
  GpuUuidText left{}, wanted{};  // of a return: the GPU that they left, and the one they come to; empty: the same
};

struct CheckpointAnswer {
  int32_t pid = 0;
  uint32_t off = 0;
  int32_t error = 0;  // an errno, or 0
  uint32_t took_us = 0;
};

}  // namespace bandsaw
