// Numbers rounded to formats that C++ lacks, and C++'s own operations in a rounding mode. To be compiled with
// -frounding-math.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace bandsaw::soft::test {

struct Mode {
  const char* name;
  int fenv;
};
inline constexpr Mode kModes[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

template <class F>
auto in_mode(int mode, F f) {
  const int before = std::fegetround();
  std::fesetround(mode);
  auto result = f();
  std::fesetround(before);
  return result;
}

inline float f32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline double f64(uint64_t bits) { return std::bit_cast<double>(bits); }
inline uint64_t bits_of(float v) { return std::isnan(v) ? 0x7fffffff : std::bit_cast<uint32_t>(v); }
inline uint64_t bits_of(double v) { return std::isnan(v) ? 0x7fffffffffffffff : std::bit_cast<uint64_t>(v); }
inline float flushed(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; }

// A binary format: bits of the fraction, least and greatest exponent of a normal number, greatest finite number.
struct Format {
  int fraction, least, greatest;
  double most;
  uint32_t infinity, nan;
};
inline constexpr Format kHalf{10, -14, 15, 65504, 0x7c00, 0x7fff};
inline constexpr Format kBfloat{7, -126, 127, 0x1.fep127, 0x7f80, 0x7fff};
inline constexpr Format kTf32{10, -126, 127, 0x1.ffcp127, 0x3fc00, 0x3ffff};

// The sign bit lies above the bits of `infinity`.
inline uint64_t encode(long double value, const Format& format, int mode) {
  const uint64_t sign_bit = uint64_t{1} << (format.fraction + (format.greatest == 15 ? 5 : 8));
  if (std::isnan(value)) return format.nan;
  const uint64_t sign = std::signbit(value) ? sign_bit : 0;
  if (std::isinf(value)) return sign | format.infinity;
  if (value == 0) return sign;
  int exponent;
  std::frexp(value, &exponent);  // 0.5 <= |fraction| < 1
  const int unit = std::max(exponent - 1, format.least) - format.fraction;
  const long double count = in_mode(mode, [&] {
    volatile long double scaled = std::ldexp(value, -unit);
    return std::nearbyint(scaled);
  });
  const long double rounded = std::fabs(std::ldexp(count, unit));
  if (rounded > static_cast<long double>(format.most)) {
    const bool away = mode == FE_TONEAREST || mode == (sign ? FE_DOWNWARD : FE_UPWARD);
    return sign | (away ? format.infinity : format.infinity - 1);
  }
  if (rounded == 0) return sign;
  std::frexp(rounded, &exponent);
  const int normal = std::max(exponent - 1, format.least);
  const auto digits = static_cast<uint64_t>(std::ldexp(rounded, format.fraction - normal));
  // A normal number's leading digit adds one to the exponent's field.
  return sign | ((static_cast<uint64_t>(normal - format.least) << format.fraction) + digits);
}

inline double decode(uint64_t bits, const Format& format) {
  const int exponent_bits = format.greatest == 15 ? 5 : 8;
  const uint64_t fraction = bits & ((uint64_t{1} << format.fraction) - 1);
  const auto exponent = static_cast<int>(bits >> format.fraction & ((1u << exponent_bits) - 1));
  const bool negative = bits >> (format.fraction + exponent_bits) & 1;
  double value;
  if (exponent == (1 << exponent_bits) - 1)
    value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(static_cast<double>(fraction), format.least - format.fraction);
  else
    value = std::ldexp(static_cast<double>(fraction | uint64_t{1} << format.fraction),
                       exponent - 1 + format.least - format.fraction);
  return negative ? -value : value;
}

// a * b + c with the last bit set if something was cut off: rounding it once more to fewer digits is right.
inline double sticky_fma(double a, double b, double c) {
  return in_mode(FE_TOWARDZERO, [&] {
    volatile double x = a, y = b, z = c;
    std::feclearexcept(FE_INEXACT);
    volatile double r = std::fma(x, y, z);
    if (!std::fetestexcept(FE_INEXACT) || !std::isfinite(r)) return static_cast<double>(r);
    return std::bit_cast<double>(std::bit_cast<uint64_t>(static_cast<double>(r)) | 1);
  });
}

// After an instruction with a floating-point result in $0: one NaN for all.
inline std::string one_nan(const std::string& type) {
  const std::string bits = type == "f64" ? "b64" : type == "f32" ? "b32" : "b16";
  const std::string nan = bits == "b64" ? "0x7fffffffffffffff" : bits == "b32" ? "0x7fffffff" : "0x7fff";
  return " setp.nan." + type + " %tp, $0, $0; selp." + bits + " $0, " + nan + ", $0, %tp;";
}

}  // namespace bandsaw::soft::test
