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

// Where a mirror turns the period around, texels are mirrored, not coordinates: on the edge of two texels the one with
// the lower number is taken, as before the turn the one with the higher.
template <AddressMode kMode, bool kNormalized, bool kLinear>
inline AxisSteps axis_steps(float coordinate, double texels) {
  constexpr bool kMirrors = kNormalized && kMode == AddressMode::kMirror;
  constexpr bool kWraps = kNormalized && kMode == AddressMode::kWrap;
  constexpr float kNoFraction = 1 << 24;  // floats from here on are whole numbers
  double at = coordinate == coordinate ? coordinate : 0.0f, below = 0;
  if constexpr (kMirrors || kWraps) {
    at = std::fabs(coordinate) < kNoFraction ? coordinate : 0.0f;
    below = detail::whole(at);
  }
  if constexpr (kNormalized) {  // an H200 holds 21 bits of them, and 22 for the largest textures
    const double fractions = texels > 8192 ? 1 << 22 : 1 << 21;
    at = detail::whole((at - below) * fractions) / fractions * texels;
  }
  const bool odd = kMirrors && below != 2 * detail::whole(below / 2);
  const auto texel = [&](double number) {
    const double found = detail::addressed<kMode, kNormalized>(number, texels);
    return odd ? texels - 1 - found : found;
  };
  if constexpr (!kLinear) {
    const double one = texel(detail::whole(at));
    return {one, one, 0};
  }
  const double steps = detail::whole((at - 0.5) * 256 + 0.5), first = detail::whole(steps / 256);
  const double near = texel(first), far = texel(first + 1);
  const bool clamped = kMode == AddressMode::kClamp && near == far;  // one texel, which is not split
  return {near, far, clamped ? 0.0 : steps - first * 256};
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
// counts; bit i of a corner's number chooses axis i's second texel. The steps sum up to `all`, which is 256 without a
// second level. An H200 shares them out along z, then x, then y, and rounds one part each time, halves upwards: of y
// the far one where x is far, else the near one. `put` gets each corner's.
template <uint32_t kAxes, class Put>
inline void corner_steps_to(int32_t all, int32_t x, int32_t y, int32_t z, Put&& put) {
  constexpr int32_t kAll = 256;
  const auto part = [](int32_t of, int32_t steps) { return (of * steps + kAll / 2) / kAll; };
  const auto share = [&](uint32_t first, int32_t of) {
    const int32_t far = part(of, x), near = of - far;
    if constexpr (kAxes == 1) {
      put(first, near), put(first + 1, far);
    } else {
      const int32_t far_far = part(far, y), near_near = part(near, kAll - y);
      put(first, near_near), put(first + 1, far - far_far), put(first + 2, near - near_near), put(first + 3, far_far);
    }
  };
  if constexpr (kAxes < 3) return share(0, all);
  const int32_t near = part(all, kAll - z);
  share(0, near);
  share(4, all - near);
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
