// Which texels along one axis a coordinate takes, of one lane or of all; and how much the second one counts.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/device/soft/texture.h"

namespace bandsaw::soft {

// Two neighbours, -1: the border. The second one counts so many 256ths.
struct AxisSteps {
  double first, second, steps;
};

namespace detail {

// Loops over lanes become vectors, so what follows knows neither branches nor calls.

// The largest whole number below. As std::floor, which is a call on processors of the least kind; what is beyond every
// texture is brought near.
inline double whole(double value) {
  constexpr double kFar = 1e12, kRounds = 0x1.8p52;  // numbers of that size have no fraction
  value = value == value ? value : 0.0;
  value = value < kFar ? value : kFar;
  value = value > -kFar ? value : -kFar;
  const double near = (value + kRounds) - kRounds;
  return near - (near > value ? 1.0 : 0.0);
}

template <AddressMode kMode, bool kNormalized>
inline double addressed(double at, double texels) {
  const double last = texels - 1;
  if constexpr (kMode == AddressMode::kBorder) return at < 0 || at > last ? -1.0 : at;
  if constexpr (kMode == AddressMode::kWrap && kNormalized) {  // at most one beyond: the coordinate is wrapped already
    at = at < 0 ? at + texels : at;
    at = at > last ? at - texels : at;
  }
  at = at < 0 ? 0.0 : at;  // a mirrored edge is its own neighbour
  return at > last ? last : at;
}

}  // namespace detail

// Without a filter, where a mirror turns the period around, it is the texel that is mirrored: on the edge of two texels
// the one with the lower number is taken, as before the turn the one with the higher.
template <AddressMode kMode, bool kNormalized, bool kLinear>
inline AxisSteps axis_steps(float coordinate, double texels) {
  constexpr bool kMirrors = kNormalized && kMode == AddressMode::kMirror;
  constexpr bool kRepeats = kMirrors || (kNormalized && kMode == AddressMode::kWrap);
  constexpr float kNoFraction = 1 << 24;  // floats from here on are whole numbers
  double at = coordinate;
  bool odd = false;
  if constexpr (kRepeats) {
    const double bounded = std::fabs(coordinate) < kNoFraction ? coordinate : 0.0f, below = detail::whole(bounded);
    const double half = detail::whole(below / 2);
    odd = kMirrors && below != 2 * half;
    at = bounded - below;
    if constexpr (kMirrors && kLinear) at = odd ? 1 - at : at;
  }
  if constexpr (kNormalized) at *= texels;
  if constexpr (!kLinear) {
    at = detail::whole(at);
    if constexpr (kMirrors) at = odd ? texels - 1 - at : at;
    at = detail::addressed<kMode, kNormalized>(at, texels);
    return {at, at, 0};
  }
  const double steps = detail::whole((at - 0.5) * 256 + 0.5), first = detail::whole(steps / 256);
  return {detail::addressed<kMode, kNormalized>(first, texels),
          detail::addressed<kMode, kNormalized>(first + 1, texels), steps - first * 256};
}

// f.template operator()<mode, normalized, linear>().
template <class F>
inline auto with_axis(AddressMode mode, bool normalized, bool linear, F&& f) {
  using enum AddressMode;
  const auto by_filter = [&]<AddressMode kMode, bool kNormalized>() {
    return linear ? f.template operator()<kMode, kNormalized, true>()
                  : f.template operator()<kMode, kNormalized, false>();
  };
  // Only normalized coordinates repeat.
  if (mode == kBorder)
    return normalized ? by_filter.template operator()<kBorder, true>()
                      : by_filter.template operator()<kBorder, false>();
  if (!normalized) return by_filter.template operator()<kClamp, false>();
  if (mode == kWrap) return by_filter.template operator()<kWrap, true>();
  if (mode == kMirror) return by_filter.template operator()<kMirror, true>();
  return by_filter.template operator()<kClamp, true>();
}

// What each corner counts in a filter of 1 to 3 axes, in steps of 1/256, by the steps that each axis's second texel
// counts; bit i of a corner's number chooses axis i's second texel. A product is rounded to a step before the sum is
// taken, as an H200 does (which way halves go is not known); the steps sum up to 256. `put` gets each corner's.
template <uint32_t kAxes, class Put>
inline void corner_steps_to(int32_t x, int32_t y, int32_t z, Put&& put) {
  constexpr int32_t kAll = 256;
  const auto product = [](int32_t a, int32_t b) { return (a * b + kAll / 2) / kAll; };
  if constexpr (kAxes == 1) {
    put(0, kAll - x), put(1, x);
    return;
  }
  const int32_t both = product(x, y), flat[] = {kAll - x - y + both, x - both, y - both, both};
  for (uint32_t i = 0; i < 4; ++i) {
    const int32_t behind = kAxes == 3 ? product(flat[i], z) : 0;
    put(i, flat[i] - behind);
    if constexpr (kAxes == 3) put(i + 4, behind);
  }
}

// The texels of all lanes along one axis.
struct LaneAxis {
  alignas(64) int32_t first[32], second[32], steps[32];
};
void axis_of_lanes(AddressMode mode, bool normalized, bool linear, const uint32_t* coordinates, uint32_t texels,
                   LaneAxis* out);

// Texels of 32-bit floats that lie in the window, filtered or not; `out` has four arrays of 32 lanes.
void floats_of_lanes(const TextureState& state, uint32_t axes, bool linear, uint32_t mask, const LaneAxis (&at)[3],
                     uint32_t* out);

}  // namespace bandsaw::soft
