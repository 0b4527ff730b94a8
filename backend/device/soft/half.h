// f16, bf16 and fp8 numbers on the host, with every rounding mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace bandsaw::soft {

enum class Rounding { kNearest, kZero, kDown, kUp };

// `f` to a format with `mantissa` explicit bits and exponents [min_exponent, max_exponent], IEEE layout with
// infinities; NaN is 0x7fff for the 16-bit formats.
inline uint16_t narrow(double f, int mantissa, int exponent_bits, Rounding mode) {
  constexpr int kMantissa = 52, kBias = 1023;
  const int min_exponent = 2 - (1 << (exponent_bits - 1));
  const uint64_t bits = std::bit_cast<uint64_t>(f), magnitude = bits & ~(uint64_t{1} << 63);
  const bool negative = bits != magnitude;
  const auto sign = static_cast<uint16_t>(negative << (mantissa + exponent_bits));
  const auto infinity = static_cast<uint16_t>(((1u << exponent_bits) - 1) << mantissa);
  if (std::isnan(f)) return 0x7fff;
  if (std::isinf(f)) return sign | infinity;
  const int exponent = static_cast<int>(magnitude >> kMantissa) - kBias;  // magnitude = 1.x * 2^exponent
  uint64_t significand = magnitude & ((uint64_t{1} << kMantissa) - 1);
  if (exponent != -kBias) significand |= uint64_t{1} << kMantissa;
  const int below = exponent < min_exponent ? min_exponent - exponent : 0;
  const int dropped = below < 63 - kMantissa + mantissa ? kMantissa - mantissa + below : 63;
  const uint64_t half = uint64_t{1} << (dropped - 1), rest = significand & (2 * half - 1);
  uint64_t units = significand >> dropped;
  if (mode == Rounding::kNearest) units += rest > half || (rest == half && units & 1);
  if (mode == Rounding::kDown) units += negative && rest;
  if (mode == Rounding::kUp) units += !negative && rest;
  // Exponent field and mantissa grow into each other.
  uint64_t value = below ? units : (static_cast<uint64_t>(exponent - min_exponent) << mantissa) + units;
  if (value >= infinity) {
    const bool to_infinity = mode == Rounding::kNearest || mode == (negative ? Rounding::kDown : Rounding::kUp);
    value = to_infinity ? infinity : infinity - 1;
  }
  return sign | static_cast<uint16_t>(value);
}

inline uint16_t to_f16(double f, Rounding mode = Rounding::kNearest) { return narrow(f, 10, 5, mode); }
inline uint16_t to_bf16(double f, Rounding mode = Rounding::kNearest) { return narrow(f, 7, 8, mode); }

inline float from_bf16(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }
inline float from_f16(uint16_t v) {
  const uint32_t magnitude = v & 0x7fff;
  // The exponents differ by 112; subnormal numbers come out right too.
  float r = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  if (magnitude >= 0x7c00) r = magnitude > 0x7c00 ? NAN : INFINITY;
  return v & 0x8000 ? -r : r;
}

}  // namespace bandsaw::soft
