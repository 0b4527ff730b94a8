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
  const int bias = (1 << (exponent_bits - 1)) - 1, min_exponent = 1 - bias;
  uint64_t bits = std::bit_cast<uint64_t>(f);
  uint16_t sign = static_cast<uint16_t>(bits >> 63 << (mantissa + exponent_bits));
  if (std::isnan(f)) return 0x7fff;
  uint16_t infinity = static_cast<uint16_t>(((1u << exponent_bits) - 1) << mantissa);
  if (std::isinf(f)) return sign | infinity;
  if (f == 0) return sign;
  int exponent;
  double magnitude = std::fabs(f);
  std::frexp(magnitude, &exponent);
  exponent -= 1;  // magnitude = 1.x * 2^exponent
  int ulp = (exponent < min_exponent ? min_exponent : exponent) - mantissa;
  double scaled = std::ldexp(magnitude, -ulp), whole = std::floor(scaled), rest = scaled - whole;
  bool up = false;
  switch (mode) {
    case Rounding::kNearest:
      up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0);
      break;
    case Rounding::kZero:
      break;
    case Rounding::kDown:
      up = sign && rest > 0;
      break;
    case Rounding::kUp:
      up = !sign && rest > 0;
      break;
  }
  uint64_t units = static_cast<uint64_t>(whole) + up;
  uint64_t value;  // exponent field and mantissa grow into each other
  if (exponent < min_exponent)
    value = units;
  else
    value = (static_cast<uint64_t>(exponent - min_exponent) << mantissa) + units;
  if (value >= infinity) {
    bool to_infinity =
        mode == Rounding::kNearest || (mode == Rounding::kUp && !sign) || (mode == Rounding::kDown && sign);
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
