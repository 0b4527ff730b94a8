// Where an address window may lie (vgpu_control.h).
#pragma once

#include <array>
#include <cstdint>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw {

inline constexpr std::array<uint64_t, 3> kWindowBases = {VGPU_WINDOW_BASE_0, VGPU_WINDOW_BASE_1, VGPU_WINDOW_BASE_2};

// As in VGPU_WINDOW_TAKEN_MASK; 0: no window begins there.
constexpr uint32_t bit_of_base(uint64_t base) {
  for (uint32_t i = 0; i < kWindowBases.size(); ++i) {
    if (kWindowBases[i] == base) return 1u << i;
  }
  return 0;
}

}  // namespace bandsaw
