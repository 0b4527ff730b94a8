// Loops over the lanes of a fetch, for the vectors that this processor has. Built with -O3, and without fused steps:
// lanes get what a lane by itself gets.
#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/device/soft/codegen/axis.h"
#include "backend/device/soft/codegen/blend.h"
#include "backend/device/soft/warp.h"

#define BANDSAW_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))

namespace bandsaw::soft {
namespace {

template <AddressMode kMode, bool kNormalized, bool kLinear>
__attribute__((always_inline)) inline void fill_axis(const uint32_t* coordinates, double texels, LaneAxis* out) {
  for (int l = 0; l < kWarpLanes; ++l) {
    const AxisSteps at = axis_steps<kMode, kNormalized, kLinear>(std::bit_cast<float>(coordinates[l]), texels);
    out->first[l] = static_cast<int32_t>(at.first);
    out->second[l] = static_cast<int32_t>(at.second);
    out->steps[l] = static_cast<int32_t>(at.steps);
  }
}

// One channel of each lane's texel, at a corner of the filter.
void read_corner(const TextureState& state, uint32_t axes, uint32_t corner, uint32_t channel, uint32_t mask,
                 const LaneAxis (&at)[3], uint32_t* out) {
  const TextureLevel& level = state.levels[0];
  const uint64_t steps[] = {state.texel_bytes(), level.pitch, level.plane};
  for (; mask; mask &= mask - 1) {
    const int l = __builtin_ctz(mask);
    uint64_t address = level.base + channel * sizeof(float);
    bool border = false;
    for (uint32_t i = 0; i < axes; ++i) {
      const int32_t where = corner >> i & 1 ? at[i].second[l] : at[i].first[l];
      border = border || where < 0;
      address += static_cast<uint64_t>(where) * steps[i];
    }
    if (border)
      out[l] = state.border[channel];
    else
      std::memcpy(&out[l], reinterpret_cast<const void*>(address), sizeof(float));
  }
}

using LaneSteps = int32_t[8][kWarpLanes];
using LaneTexels = uint32_t[8][kWarpLanes];

template <uint32_t kAxes>
__attribute__((always_inline)) inline void fill_steps(const LaneAxis (&at)[3], LaneSteps& steps) {
  for (int l = 0; l < kWarpLanes; ++l) {
    corner_steps_to<kAxes>(256, at[0].steps[l], kAxes > 1 ? at[1].steps[l] : 0, kAxes > 2 ? at[2].steps[l] : 0,
                           [&](uint32_t corner, int32_t value) { steps[corner][l] = value; });
  }
}

BANDSAW_VECTORS void steps_of_lanes(uint32_t axes, const LaneAxis (&at)[3], LaneSteps& steps) {
  if (axes == 1) return fill_steps<1>(at, steps);
  if (axes == 2) return fill_steps<2>(at, steps);
  fill_steps<3>(at, steps);
}

template <uint32_t kAxes>
__attribute__((always_inline)) inline void fill_sums(const LaneSteps& steps, const LaneTexels& texels, uint32_t* out) {
  constexpr uint32_t kTexels = 1 << kAxes, kPlane = kAxes > 1 ? 4 : 2;
  for (int l = 0; l < kWarpLanes; ++l) {
    out[l] = blended<FloatFormat, kTexels, kPlane>([&](uint32_t i) { return texels[i][l]; },
                                                   [&](uint32_t i) { return steps[i][l]; });
  }
}

BANDSAW_VECTORS void sums_of_lanes(uint32_t axes, const LaneSteps& steps, const LaneTexels& texels, uint32_t* out) {
  if (axes == 1) return fill_sums<1>(steps, texels, out);
  if (axes == 2) return fill_sums<2>(steps, texels, out);
  fill_sums<3>(steps, texels, out);
}

}  // namespace

BANDSAW_VECTORS void axis_of_lanes(AddressMode mode, bool normalized, bool linear, const uint32_t* coordinates,
                                   uint32_t texels, LaneAxis* out) {
  const double side = texels;
  with_axis(mode, normalized, linear, [&]<AddressMode kMode, bool kNormalized, bool kLinear>() {
    fill_axis<kMode, kNormalized, kLinear>(coordinates, side, out);
  });
}

void floats_of_lanes(const TextureState& state, uint32_t axes, bool linear, uint32_t mask, const LaneAxis (&at)[3],
                     uint32_t* out) {
  alignas(64) LaneSteps steps;
  alignas(64) LaneTexels texels{};
  if (linear) steps_of_lanes(axes, at, steps);
  for (uint32_t channel = 0; channel < 4; ++channel, out += kWarpLanes) {
    if (channel >= state.channels) {
      std::fill_n(out, kWarpLanes, 0);
    } else if (!linear) {
      read_corner(state, axes, 0, channel, mask, at, texels[0]);
      std::memcpy(out, texels[0], sizeof texels[0]);
    } else {
      for (uint32_t corner = 0; corner < 1u << axes; ++corner) {
        read_corner(state, axes, corner, channel, mask, at, texels[corner]);
      }
      sums_of_lanes(axes, steps, texels, out);
    }
  }
}

}  // namespace bandsaw::soft
