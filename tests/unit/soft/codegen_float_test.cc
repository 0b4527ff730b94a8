// Floating point instructions against the host's arithmetic in every rounding mode; conversions against definitions
// written out here. Built with -frounding-math.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cfloat>
#include <cmath>

#include "tests/unit/soft/codegen_cases.h"

namespace bandsaw::soft::test {
namespace {

using U = uint64_t;
float f(U v) { return std::bit_cast<float>(static_cast<uint32_t>(v)); }
double d(U v) { return std::bit_cast<double>(v); }
U bits(float v) { return std::bit_cast<uint32_t>(v); }
U bits(double v) { return std::bit_cast<U>(v); }

template <class F>
auto in_mode(int mode, F compute) {
  std::fesetround(mode);
  volatile auto r = compute();
  std::fesetround(FE_TONEAREST);
  return r;
}

struct Mode {
  const char* name;
  int host;
};
const Mode kModes[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

TEST(CodegenFloat, RoundingModes32) {
  std::vector<Case> cases;
  for (auto [name, mode] : kModes) {
    std::string n = name;
    auto add = [&](const std::string& code, std::function<float(float, float, float)> g) {
      cases.push_back({code, 'd',
                       [=](U a, U b, U c) {
                         return bits(in_mode(mode, [&] {
                           volatile float x = f(a), y = f(b), z = f(c);
                           return g(x, y, z);
                         }));
                       },
                       true});
    };
    add("add." + n + ".f32 %d, %a, %b;", [](float a, float b, float) { return a + b; });
    add("sub." + n + ".f32 %d, %a, %b;", [](float a, float b, float) { return a - b; });
    add("mul." + n + ".f32 %d, %a, %b;", [](float a, float b, float) { return a * b; });
    add("div." + n + ".f32 %d, %a, %b;", [](float a, float b, float) { return a / b; });
    add("rcp." + n + ".f32 %d, %a;", [](float a, float, float) { return 1.0f / a; });
    add("sqrt." + n + ".f32 %d, %a;", [](float a, float, float) { return std::sqrt(a); });
    add("fma." + n + ".f32 %d, %a, %b, %c;", [](float a, float b, float c) { return std::fma(a, b, c); });
  }
  check_cases(cases, float_values());
}

TEST(CodegenFloat, RoundingModes64) {
  std::vector<Case> cases;
  for (auto [name, mode] : kModes) {
    std::string n = name;
    auto add = [&](const std::string& code, std::function<double(double, double, double)> g) {
      cases.push_back({code, 'D',
                       [=](U a, U b, U c) {
                         return bits(in_mode(mode, [&] {
                           volatile double x = d(a), y = d(b), z = d(c);
                           return g(x, y, z);
                         }));
                       },
                       true});
    };
    add("add." + n + ".f64 %D, %A, %B;", [](double a, double b, double) { return a + b; });
    add("mul." + n + ".f64 %D, %A, %B;", [](double a, double b, double) { return a * b; });
    add("div." + n + ".f64 %D, %A, %B;", [](double a, double b, double) { return a / b; });
    add("sqrt." + n + ".f64 %D, %A;", [](double a, double, double) { return std::sqrt(a); });
    add("fma." + n + ".f64 %D, %A, %B, %C;", [](double a, double b, double c) { return std::fma(a, b, c); });
    cases.push_back({"cvt." + n + ".f32.f64 %d, %A;", 'd',
                     [=](U a, U, U) {
                       return bits(in_mode(mode, [&] {
                         volatile double x = d(a);
                         return static_cast<float>(x);
                       }));
                     },
                     true});
    cases.push_back({"cvt." + n + ".f32.s64 %d, %A;", 'd',
                     [=](U a, U, U) {
                       return bits(in_mode(mode, [&] {
                         volatile int64_t x = static_cast<int64_t>(a);
                         return static_cast<float>(x);
                       }));
                     },
                     true});
    cases.push_back({"cvt." + n + ".f32.u32 %d, %a;", 'd',
                     [=](U a, U, U) {
                       return bits(in_mode(mode, [&] {
                         volatile uint32_t x = static_cast<uint32_t>(a);
                         return static_cast<float>(x);
                       }));
                     },
                     true});
    cases.push_back({"cvt." + n + ".f64.s64 %D, %A;", 'D',
                     [=](U a, U, U) {
                       return bits(in_mode(mode, [&] {
                         volatile int64_t x = static_cast<int64_t>(a);
                         return static_cast<double>(x);
                       }));
                     },
                     true});
  }
  check_cases(cases, double_values());
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float pick(float a, float b, bool min) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) == min ? a : b;
  return (a < b) == min ? a : b;
}

// As the hardware's div.approx and div.full, but for the last bits of its reciprocals.
float fast_quotient(float a, float b, bool full) {
  const bool large = std::fabs(b) > 0x1p126f;
  const float scale = std::fabs(b) < FLT_MIN ? 0x1p24f : full && large ? 0.25f : 1;
  const float reciprocal = large && !full ? std::copysign(0.0f, b) : 1 / (b * scale);
  const float r = full ? a * scale * reciprocal : a * reciprocal * scale;
  return std::isnan(r) ? f(0x7fffffff) : r;
}

TEST(CodegenFloat, FastQuotients) {
  std::vector<Case> cases;
  for (const bool full : {false, true}) {
    const std::string name = full ? "div.full" : "div.approx";
    cases.push_back(
        {name + ".f32 %d, %a, %b;", 'd', [=](U a, U b, U) { return bits(fast_quotient(f(a), f(b), full)); }});
    cases.push_back({name + ".ftz.f32 %d, %a, %b;", 'd',
                     [=](U a, U b, U) { return bits(flushed(fast_quotient(flushed(f(a)), flushed(f(b)), full))); }});
  }
  check_cases(cases, float_values());
}

TEST(CodegenFloat, Variants) {
  check_cases(
      {
          {"add.ftz.f32 %d, %a, %b;", 'd', [](U a, U b, U) { return bits(flushed(flushed(f(a)) + flushed(f(b)))); },
           true},
          {"mul.ftz.f32 %d, %a, %b;", 'd', [](U a, U b, U) { return bits(flushed(flushed(f(a)) * flushed(f(b)))); },
           true},
          {"add.sat.f32 %d, %a, %b;", 'd',
           [](U a, U b, U) {
             float r = f(a) + f(b);
             return bits(r > 0 ? std::min(r, 1.0f) : 0.0f);
           }},
          {"min.f32 %d, %a, %b;", 'd', [](U a, U b, U) { return bits(pick(f(a), f(b), true)); }, true},
          {"max.f32 %d, %a, %b;", 'd', [](U a, U b, U) { return bits(pick(f(a), f(b), false)); }, true},
          {"min.NaN.f32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U {
             return std::isnan(f(a)) || std::isnan(f(b)) ? 0x7fffffff : bits(pick(f(a), f(b), true));
           }},
          {"max.xorsign.abs.f32 %d, %a, %b;", 'd',
           [](U a, U b, U) -> U {
             return (bits(pick(std::fabs(f(a)), std::fabs(f(b)), false)) & 0x7fffffff) | ((a ^ b) & 0x80000000);
           },
           true},
          {"max.f32 %d, %a, %b, %c;", 'd',
           [](U a, U b, U c) { return bits(pick(pick(f(a), f(b), false), f(c), false)); }, true},
          {"abs.f32 %d, %a;", 'd', [](U a, U, U) -> U { return a & 0x7fffffff; }, true},
          {"neg.f32 %d, %a;", 'd', [](U a, U, U) -> U { return uint32_t(a ^ 0x80000000); }, true},
          {"copysign.f32 %d, %a, %b;", 'd', [](U a, U b, U) -> U { return (a & 0x80000000) | (b & 0x7fffffff); }},
          {"testp.subnormal.f32 %p, %a;", 'p', [](U a, U, U) -> U { return std::fpclassify(f(a)) == FP_SUBNORMAL; }},
          {"testp.normal.f32 %p, %a;", 'p', [](U a, U, U) -> U { return std::isnormal(f(a)) || f(a) == 0; }},
          {"testp.notanumber.f32 %p, %a;", 'p', [](U a, U, U) -> U { return std::isnan(f(a)); }},
          {"setp.lt.f32 %p, %a, %b;", 'p', [](U a, U b, U) -> U { return f(a) < f(b); }},
          {"setp.geu.f32 %p, %a, %b;", 'p', [](U a, U b, U) -> U { return !(f(a) < f(b)); }},
          {"setp.ne.f32 %p, %a, %b;", 'p', [](U a, U b, U) -> U { return f(a) < f(b) || f(a) > f(b); }},
          {"setp.nan.f32 %p, %a, %b;", 'p', [](U a, U b, U) -> U { return std::isnan(f(a)) || std::isnan(f(b)); }},
          {"cvt.rni.f32.f32 %d, %a;", 'd', [](U a, U, U) { return bits(std::nearbyint(f(a))); }, true},
          {"cvt.rmi.f32.f32 %d, %a;", 'd', [](U a, U, U) { return bits(std::floor(f(a))); }, true},
          {"cvt.sat.f32.f32 %d, %a;", 'd',
           [](U a, U, U) {
             float r = f(a);
             return bits(r > 0 ? std::min(r, 1.0f) : 0.0f);
           }},
          {"cvt.f64.f32 %D, %a;", 'D', [](U a, U, U) { return bits(static_cast<double>(f(a))); }, true},
      },
      float_values());
}

// NaN as the hardware converts it: 0, but the highest bit alone from f64 and to 64 bits.
template <class I>
U to_int(double v, bool from_f64 = false) {
  if (std::isnan(v)) return from_f64 || sizeof(I) == 8 ? U{1} << (8 * sizeof(I) - 1) : 0;
  if (v <= static_cast<double>(std::numeric_limits<I>::min())) return static_cast<U>(std::numeric_limits<I>::min());
  if (v >= static_cast<double>(std::numeric_limits<I>::max())) return static_cast<U>(std::numeric_limits<I>::max());
  return static_cast<U>(static_cast<I>(v));
}
uint32_t low(U v) { return static_cast<uint32_t>(v); }

TEST(CodegenFloat, ToInteger) {
  check_cases(
      {
          {"cvt.rzi.s32.f32 %d, %a;", 'd', [](U a, U, U) -> U { return low(to_int<int32_t>(std::trunc(f(a)))); }},
          {"cvt.rni.s32.f32 %d, %a;", 'd', [](U a, U, U) -> U { return low(to_int<int32_t>(std::nearbyint(f(a)))); }},
          {"cvt.rmi.u32.f32 %d, %a;", 'd', [](U a, U, U) -> U { return low(to_int<uint32_t>(std::floor(f(a)))); }},
          {"cvt.rpi.s64.f32 %D, %a;", 'D', [](U a, U, U) -> U { return to_int<int64_t>(std::ceil(f(a))); }},
          {"cvt.rzi.u8.f32 %d, %a;", 'd', [](U a, U, U) -> U { return to_int<uint8_t>(std::trunc(f(a))); }},
          {"cvt.rzi.s16.f32 %d, %a;", 'd', [](U a, U, U) -> U { return low(to_int<int16_t>(std::trunc(f(a)))); }},
      },
      float_values());
  check_cases(
      {
          {"cvt.rzi.s64.f64 %D, %A;", 'D', [](U a, U, U) -> U { return to_int<int64_t>(std::trunc(d(a))); }},
          {"cvt.rni.u64.f64 %D, %A;", 'D', [](U a, U, U) -> U { return to_int<uint64_t>(std::nearbyint(d(a))); }},
          {"cvt.rzi.s32.f64 %d, %A;", 'd', [](U a, U, U) -> U { return low(to_int<int32_t>(std::trunc(d(a)), true)); }},
      },
      double_values());
}

// The nearest number of a format (ties to even), or the one that the mode asks for, found by definition.
U narrow_reference(double v, int mantissa, int exponent_bits, int mode) {
  int total = mantissa + exponent_bits;
  U inf = ((U{1} << exponent_bits) - 1) << mantissa, sign = std::signbit(v) ? U{1} << total : 0;
  if (std::isnan(v)) return 0x7fff;
  auto value = [&](U m) -> double {
    int e = static_cast<int>(m >> mantissa), bias = (1 << (exponent_bits - 1)) - 1;
    U frac = m & ((U{1} << mantissa) - 1);
    if (m >= inf) return std::ldexp(1.0, bias + 1) + std::ldexp(double(m - inf), bias + 1 - mantissa);
    return e ? std::ldexp(static_cast<double>(frac | U{1} << mantissa), e - bias - mantissa)
             : std::ldexp(static_cast<double>(frac), 1 - bias - mantissa);
  };
  double m = std::fabs(v);
  if (std::isinf(m)) return sign | inf;
  U lo = 0, hi = inf;
  while (hi - lo > 1) {
    U mid = (lo + hi) / 2;
    (value(mid) <= m ? lo : hi) = mid;
  }
  if (value(lo) == m) return sign | lo;
  U up = lo + 1;
  bool take_up = false;
  if (m >= value(inf)) {
    lo = inf - 1;
    up = inf;
    take_up = mode == FE_TONEAREST || (mode == FE_UPWARD && !sign) || (mode == FE_DOWNWARD && sign);
    return sign | (take_up ? inf : lo);
  }
  if (mode == FE_TONEAREST) {
    long double x = static_cast<long double>(m) - value(lo), y = static_cast<long double>(value(up)) - m;
    take_up = x > y || (x == y && (lo & 1));
  } else {
    take_up = (mode == FE_UPWARD && !sign) || (mode == FE_DOWNWARD && sign);
  }
  return sign | (take_up ? up : lo);
}

TEST(CodegenFloat, ToHalf) {
  std::vector<Case> f32, f64;
  for (auto [name, mode] : kModes) {
    std::string n = name;
    int m = mode;
    f32.push_back({"cvt." + n + ".f16.f32 %hd, %a;", 'h', [m](U a, U, U) { return narrow_reference(f(a), 10, 5, m); }});
    f32.push_back({"cvt." + n + ".bf16.f32 %hd, %a;", 'h', [m](U a, U, U) { return narrow_reference(f(a), 7, 8, m); }});
    f64.push_back(
        {"cvt." + n + ".f16.f64 %hd, %A;", 'h', [m](U a, U, U) { return narrow_reference(d(a), 10, 5, m); }, true});
  }
  f32.push_back({"cvt.rn.f16x2.f32 %d, %a, %b;", 'd', [](U a, U b, U) {
                   return narrow_reference(f(a), 10, 5, FE_TONEAREST) << 16 |
                          narrow_reference(f(b), 10, 5, FE_TONEAREST);
                 }});
  f32.push_back({"cvt.rn.bf16x2.f32 %d, %a, %b;", 'd', [](U a, U b, U) {
                   return narrow_reference(f(a), 7, 8, FE_TONEAREST) << 16 | narrow_reference(f(b), 7, 8, FE_TONEAREST);
                 }});
  check_cases(f32, float_values());
  check_cases(f64, double_values());
}

double half(U v) {
  int e = v >> 10 & 31;
  U m = v & 1023;
  double r = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(double(m + 1024), e - 25) : std::ldexp(double(m), -24);
  return v & 0x8000 ? -r : r;
}
double brain(U v) { return f((v & 0xffff) << 16); }
U to_half(double v) { return narrow_reference(v, 10, 5, FE_TONEAREST); }
U to_brain(double v) { return narrow_reference(v, 7, 8, FE_TONEAREST); }

// a + b rounded to odd, so that rounding again is right.
double odd_sum(double a, double b) {
  auto sum = [&](int mode) {
    return in_mode(mode, [&] {
      volatile double x = a, y = b;
      return x + y;
    });
  };
  double down = sum(FE_TOWARDZERO), up = sum(FE_UPWARD), low = sum(FE_DOWNWARD);
  return up == low || std::isnan(down) ? down : std::bit_cast<double>(std::bit_cast<U>(down) | 1);
}

TEST(CodegenFloat, Halves) {
  check_cases(
      {
          {"cvt.f32.f16 %d, %ha;", 'd', [](U a, U, U) { return bits(static_cast<float>(half(a))); }, true},
          {"cvt.f32.bf16 %d, %ha;", 'd', [](U a, U, U) { return bits(static_cast<float>(brain(a))); }, true},
          {"add.f16 %hd, %ha, %hb;", 'h', [](U a, U b, U) { return to_half(half(a) + half(b)); }, true},
          {"mul.f16 %hd, %ha, %hb;", 'h', [](U a, U b, U) { return to_half(half(a) * half(b)); }, true},
          {"fma.rn.f16 %hd, %ha, %hb, %hc;", 'h',
           [](U a, U b, U c) { return to_half(std::fma(half(a), half(b), half(c))); }, true},
          {"sub.bf16 %hd, %ha, %hb;", 'h',
           [](U a, U b, U) { return to_brain(static_cast<float>(brain(a) - brain(b))); }, true},
          {"fma.rn.bf16 %hd, %ha, %hb, %hc;", 'h',
           [](U a, U b, U c) { return to_brain(odd_sum(brain(a) * brain(b), brain(c))); }, true},
          {"fma.rn.f16x2 %d, %a, %b, %c; and.b32 %d, %d, 0xffff0000;", 'd',
           [](U a, U b, U c) {
             return to_half(std::fma(half(a >> 16 & 0xffff), half(b >> 16 & 0xffff), half(c >> 16 & 0xffff))) << 16;
           }},
          {"setp.lt.f16 %p, %ha, %hb;", 'p', [](U a, U b, U) -> U { return half(a) < half(b); }},
          {"cvt.rzi.s32.f16 %d, %ha;", 'd', [](U a, U, U) -> U { return low(to_int<int32_t>(std::trunc(half(a)))); }},
          {"cvt.rn.f16.s32 %hd, %a;", 'h', [](U a, U, U) { return to_half(static_cast<int32_t>(a)); }},
          {"neg.f16 %hd, %ha;", 'h', [](U a, U, U) -> U { return uint16_t(a ^ 0x8000); }, true},
      },
      half_values());
}

TEST(CodegenFloat, EightBits) {
  // Every e4m3 and e5m2 value to f16 and back.
  check_cases(
      {
          {"cvt.rn.f16x2.e4m3x2 %d, %ha; cvt.rn.satfinite.e4m3x2.f16x2 %hd, %d; or.b16 %hd, %hd, 0;", 'h',
           [](U a, U, U) -> U {
             auto nan = [](U v) { return (v & 0x7f) == 0x7f ? 0x7f : v; };
             return nan(a >> 8 & 255) << 8 | nan(a & 255);
           }},
          {"cvt.rn.f16x2.e5m2x2 %d, %ha; cvt.rn.satfinite.e5m2x2.f16x2 %hd, %d;", 'h',
           [](U a, U, U) -> U {
             auto one = [](U v) -> U {
               U m = v & 0x7f;
               return m > 0x7c ? 0x7f : m == 0x7c ? (v & 0x80) | 0x7b : v;
             };
             return one(a >> 8 & 255) << 8 | one(a & 255);
           }},
      },
      half_values());
}

U near(double want, U got_unused) { return bits(static_cast<float>(want)) + 0 * got_unused; }

TEST(CodegenFloat, Approximations) {
  // Compared after rounding away what approximations may differ in.
  auto close = [](const std::string& code, double (*g)(double)) {
    return Case{code + " mov.b32 %b, %d; add.f32 %d, %b, 0f43800000; ", 'd',
                [g](U a, U, U) { return near(static_cast<float>(g(f(a))) + 256.0f, 0); }, true};
  };
  std::vector<U> values;
  for (float x = -3; x <= 3; x += 0.037f) values.push_back(bits(x));
  check_cases({close("sin.approx.f32 %d, %a;", std::sin), close("cos.approx.f32 %d, %a;", std::cos),
               close("ex2.approx.f32 %d, %a;", std::exp2), close("tanh.approx.f32 %d, %a;", std::tanh)},
              values);
}

}  // namespace
}  // namespace bandsaw::soft::test
