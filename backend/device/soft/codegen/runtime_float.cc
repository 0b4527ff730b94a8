// Rare conversions, lane by lane.
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/device/soft/codegen/lanes.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/half.h"

namespace bandsaw::soft {
namespace {

template <uint16_t (*F)(double, Rounding), Rounding M>
void narrow_lanes(const double* a, uint16_t* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = F(a[l], M);
}

// satfinite: too large gives the largest finite number; NaN stays NaN (0x7f in both formats).
uint8_t to_fp8(float f, bool e5m2, bool relu) {
  if (std::isnan(f)) return 0x7f;
  if (relu && f < 0) f = 0;
  uint8_t sign = std::signbit(f) ? 0x80 : 0;
  double m = std::fabs(static_cast<double>(f));
  double largest = e5m2 ? 57344.0 : 448.0;
  int mantissa = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  if (m == 0) return sign;
  int exponent;
  std::frexp(m, &exponent);
  exponent -= 1;
  int least = 1 - bias;
  int ulp = (exponent < least ? least : exponent) - mantissa;
  double scaled = std::nearbyint(std::ldexp(m, -ulp));
  double rounded = std::ldexp(scaled, ulp);
  if (!(rounded <= largest)) return sign | (e5m2 ? 0x7b : 0x7e);
  uint32_t value = exponent < least
                       ? static_cast<uint32_t>(scaled)
                       : (static_cast<uint32_t>(exponent - least) << mantissa) + static_cast<uint32_t>(scaled);
  return sign | static_cast<uint8_t>(value);
}

float from_fp8(uint8_t v, bool e5m2) {
  int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  int exponent = (v & 0x7f) >> mantissa_bits, mantissa = v & ((1 << mantissa_bits) - 1);
  float r;
  if (e5m2 && exponent == 31)
    r = mantissa ? NAN : INFINITY;
  else if (!e5m2 && (v & 0x7f) == 0x7f)
    r = NAN;
  else if (exponent == 0)
    r = std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  else
    r = std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
  return v & 0x80 ? -r : r;
}

// What is too large or small is the largest or smallest; NaN is the top bit (PTX ISA, cvt).
template <class Integer>
void integers_of(const double* a, Integer* out) {
  using Limits = std::numeric_limits<Integer>;
  constexpr uint64_t kTop = uint64_t{1} << (8 * sizeof(Integer) - 1);
  constexpr double kEnd = static_cast<double>(kTop) * (Limits::is_signed ? 1 : 2);
  constexpr double kLeast = Limits::is_signed ? -kEnd : 0;
  for (int l = 0; l < kWarpLanes; ++l) {
    const double v = a[l];
    out[l] = std::isnan(v) ? static_cast<Integer>(kTop)
             : v >= kEnd   ? Limits::max()
             : v <= kLeast ? Limits::min()
                           : static_cast<Integer>(v);
  }
}

}  // namespace

extern "C" {
static void bsw_cvt_fp8x2(const float* high, const float* low, uint16_t* out, uint32_t format) {
  bool e5m2 = format & 1, relu = format & 2;
  for (int l = 0; l < kWarpLanes; ++l)
    out[l] = static_cast<uint16_t>(to_fp8(high[l], e5m2, relu) << 8 | to_fp8(low[l], e5m2, relu));
}
static void bsw_cvt_f16x2_fp8x2(const uint16_t* a, uint32_t* out, uint32_t format) {
  auto one = [&](uint8_t v) -> uint32_t {
    float f = from_fp8(v, format & 1);
    if ((format & 2) && f < 0) f = 0;
    return to_f16(f);
  };
  for (int l = 0; l < kWarpLanes; ++l) out[l] = one(a[l] >> 8) << 16 | one(a[l] & 0xff);
}
// mode: 1 max, 2 absolute values, 4 NaN wins
static void bsw_redux_f32(const float* a, uint32_t* out, uint32_t lanes, uint32_t mode) {
  float best = NAN;
  bool nan = false;
  for (uint32_t m = lanes; m; m &= m - 1) {
    float v = a[__builtin_ctz(m)];
    if (mode & 2) v = std::fabs(v);
    if (std::isnan(v)) {
      nan = true;
      continue;
    }
    if (std::isnan(best)) {
      best = v;
      continue;
    }
    bool better = mode & 1 ? v > best || (v == best && !std::signbit(v)) : v < best || (v == best && std::signbit(v));
    if (better) best = v;
  }
  uint32_t bits = std::bit_cast<uint32_t>(best);
  if (std::isnan(best) || (nan && (mode & 4))) bits = 0x7fffffff;
  for (int l = 0; l < kWarpLanes; ++l) out[l] = bits;
}
}

void add_float_symbols(SymbolTable* table) {
  auto add = [&](const char* name, auto* f) { table->push_back({name, reinterpret_cast<void*>(f)}); };
  add("bsw_cvt_f16_f64_rz", narrow_lanes<to_f16, Rounding::kZero>);
  add("bsw_cvt_f16_f64_rm", narrow_lanes<to_f16, Rounding::kDown>);
  add("bsw_cvt_f16_f64_rp", narrow_lanes<to_f16, Rounding::kUp>);
  add("bsw_cvt_bf16_f64_rz", narrow_lanes<to_bf16, Rounding::kZero>);
  add("bsw_cvt_bf16_f64_rm", narrow_lanes<to_bf16, Rounding::kDown>);
  add("bsw_cvt_bf16_f64_rp", narrow_lanes<to_bf16, Rounding::kUp>);
  add("bsw_f2i_f64_s32", integers_of<int32_t>);
  add("bsw_f2i_f64_u32", integers_of<uint32_t>);
  add("bsw_f2i_f64_s64", integers_of<int64_t>);
  add("bsw_f2i_f64_u64", integers_of<uint64_t>);
  add("bsw_cvt_tf32", round_to_tf32);
  add("bsw_cvt_fp8x2", bsw_cvt_fp8x2);
  add("bsw_cvt_f16x2_fp8x2", bsw_cvt_f16x2_fp8x2);
  add("bsw_redux_f32", bsw_redux_f32);
}

}  // namespace bandsaw::soft
