// What a linear filter makes of floats: a sum by whole weights of 256ths, rounded once. An H200 reads texels of one
// plane together and cuts off what lies far below the largest of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backend/device/soft/codegen/axis.h"

namespace bandsaw::soft {

namespace detail {

constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

inline double power_of_two(int64_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// To so many bits, halves away from zero.
template <int kBits>
inline double rounded_to(double value) {
  constexpr int kDropped = 53 - kBits;
  const uint64_t bits = std::bit_cast<uint64_t>(value) + (uint64_t{1} << (kDropped - 1));
  return std::bit_cast<double>(bits >> kDropped << kDropped);
}

}  // namespace detail

// How many bits below the largest texel's first one count, of a texel in its plane and of a plane's sum; and which
// results there are.
struct FloatFormat {
  static constexpr int kBelow = 27, kSum = 36;
  static constexpr uint32_t kNan = 0x7fffffff, kLeast = 0x00800000;  // what is below is zero
  static double rounded(double value) { return detail::rounded_to<24>(value); }
};
struct HalfFormat {
  static constexpr int kBelow = 14, kSum = 24;
  static constexpr uint32_t kNan = 0x7fffe000, kLeast = 0x33800000;
  static double rounded(double value) {
    const double size = value < 0 ? -value : value, subnormal = detail::whole(size * 0x1p24 + 0.5) * 0x1p-24;
    return size >= 0x1p-14 ? detail::rounded_to<11>(value) : value < 0 ? -subnormal : subnormal;
  }
};

// Of sRGB, whose texels have exponents by blocks of codes.
struct SrgbFormat : HalfFormat {
  static constexpr int kBelow = 7, kSum = 17;
};

// texel(i): bits of a float; steps(i): how many 256ths it counts, all of them 256. Texels of a plane follow one
// another. sized(i): a float whose exponent counts as its own. Loops over lanes become vectors, so there are no
// branches.
template <class Format, uint32_t kTexels, uint32_t kPlane, class Texels, class Steps, class Sizes>
inline uint32_t blended(Texels&& texel, Steps&& steps, Sizes&& sized) {
  using namespace detail;
  constexpr uint32_t kPlanes = kTexels / kPlane;
  const auto counts = [&](uint32_t i) { return 0u - static_cast<uint32_t>(steps(i) != 0); };
  const auto size = [&](uint32_t i) { return texel(i) & kMagnitude & counts(i); };
  uint32_t largest[kPlanes] = {}, all = 0, sign = 1u << 31, infinities = 0;
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kTexels; ++i) {
    const uint32_t own = sized(i) & kMagnitude & counts(i);
    largest[i / kPlane] = std::max(largest[i / kPlane], own);
    all = std::max(all, own);
    sign &= texel(i) | ~counts(i);
    infinities |= (0u - static_cast<uint32_t>(size(i) == kInfinity)) & (1 + (texel(i) >> 31));
  }
  const auto exponent = [](uint32_t bits) { return static_cast<int64_t>(bits >> 23); };  // and 127
  double sum = 0;
#pragma GCC unroll 4
  for (uint32_t plane = 0; plane < kPlanes; ++plane) {
    const double unit = power_of_two(Format::kBelow + 127 - exponent(largest[plane]));
    double of_plane = 0;
#pragma GCC unroll 16
    for (uint32_t i = plane * kPlane; i < (plane + 1) * kPlane; ++i) {
      const uint32_t bits = size(i) & (0u - static_cast<uint32_t>(size(i) >= Format::kLeast));
      const double cut = whole(static_cast<double>(std::bit_cast<float>(bits)) * unit);
      of_plane +=
          cut * static_cast<double>(steps(i)) * (1.0 - 2.0 * static_cast<double>(static_cast<int32_t>(texel(i) >> 31)));
    }
    sum += whole(of_plane * power_of_two(exponent(largest[plane]) - exponent(all) + Format::kSum - 8 - Format::kBelow));
  }
  const double value = Format::rounded(sum * power_of_two(exponent(all) - 127 - Format::kSum));
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  uint32_t result = (bits & kMagnitude) < Format::kLeast ? bits & ~kMagnitude : bits;
  result = sum == 0 ? sign : result;
  const uint32_t infinity = kInfinity | (infinities & 2) << 30;
  result = all >= kInfinity ? infinity : result;
  result = infinities == 3 ? Format::kNan : result;
  return all > kInfinity ? Format::kNan : result;
}

template <class Format, uint32_t kTexels, uint32_t kPlane, class Texels, class Steps>
inline uint32_t blended(Texels&& texel, Steps&& steps) {
  return blended<Format, kTexels, kPlane>(texel, steps, texel);
}

}  // namespace bandsaw::soft
