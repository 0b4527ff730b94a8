// f16 and bf16 arithmetic of all lanes (PTX ISA 9.7.4, 9.7.5). Each result is rounded once: sums that are not exact are
// made odd before (Boldo, Melquiond: Emulation of a FMA and correctly rounded sums).
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "backend/device/soft/codegen/halves.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/half.h"

#define BANDSAW_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#define BANDSAW_INLINE inline __attribute__((always_inline))

namespace bandsaw::soft {
namespace {

constexpr int kHalves = 2 * kWarpLanes;
using Halves = std::array<uint16_t, kHalves>;
using Floats = std::array<float, kHalves>;

constexpr uint32_t kSign32 = 0x80000000, kInfinity32 = 0x7f800000;
constexpr uint16_t kSign16 = 0x8000, kNan16 = 0x7fff;

struct F16 {
  static constexpr uint16_t kInfinity = 0x7c00;
  static BANDSAW_INLINE float widen(uint16_t half) {
    const uint32_t magnitude = half & 0x7fffu;
    // The exponents differ by 112; subnormal numbers come out right too.
    uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    bits |= magnitude >= kInfinity ? kInfinity32 : 0;
    return std::bit_cast<float>(bits | static_cast<uint32_t>(half & kSign16) << 16);
  }
  static BANDSAW_INLINE uint16_t narrow(float f) {
    constexpr uint32_t kTooLarge = 0x47800000, kNormal = 0x38800000;
    const uint32_t bits = std::bit_cast<uint32_t>(f), magnitude = bits & ~kSign32;
    // The last place of a subnormal half is that of a float at 0.5.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t half = magnitude < kNormal ? small : normal;
    half = magnitude >= kTooLarge ? kInfinity : half;
    half |= bits >> 16 & kSign16;
    return static_cast<uint16_t>(magnitude > kInfinity32 ? kNan16 : half);
  }
};

struct Bf16 {
  static constexpr uint16_t kInfinity = 0x7f80;
  static BANDSAW_INLINE float widen(uint16_t half) { return from_bf16(half); }
  static BANDSAW_INLINE uint16_t narrow(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    const uint32_t half = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return static_cast<uint16_t>((bits & ~kSign32) > kInfinity32 ? kNan16 : half);
  }
};

template <class Format>
BANDSAW_INLINE void flush(Halves* values) {
  for (uint16_t& v : *values) v = v & Format::kInfinity ? v : v & kSign16;
}

// Where a sum has an error, the odd neighbour of its exact value.
template <class Float, class Bits>
BANDSAW_INLINE Float odd_sum(Float a, Float b) {
  const Float sum = a + b, back = sum - a, error = (a - (sum - back)) + (b - back);
  const Bits bits = std::bit_cast<Bits>(sum);
  const bool inexact = (error < 0 || error > 0) && (bits & 1) == 0, grows = (error > 0) == (sum > 0);
  return std::bit_cast<Float>(inexact ? (grows ? bits + 1 : bits - 1) : bits);
}

BANDSAW_INLINE float odd_narrow(double d) {
  const float f = static_cast<float>(d);
  const double back = f;
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const bool above = (back < 0 ? -back : back) > (d < 0 ? -d : d), inexact = back < d || back > d;
  return std::bit_cast<float>(inexact ? (bits - above) | 1 : bits);
}

BANDSAW_INLINE void limit(Floats* values, uint32_t flags) {
  if (flags & kHalfSat) {
    for (float& v : *values) {
      v = v > 0 ? v : 0;
      v = v < 1 ? v : 1;
    }
  }
  if (flags & kHalfRelu) {
    for (float& v : *values) v = v <= 0 ? 0 : v;
  }
}

template <class Format>
BANDSAW_INLINE Floats widened(const Halves& halves) {
  Floats floats;
  for (int i = 0; i < kHalves; ++i) floats[i] = Format::widen(halves[i]);
  return floats;
}

// Whether floats have room for all products, as they always have for those of f16.
BANDSAW_INLINE bool fits_floats(const Floats& a, const Floats& b) {
  uint32_t outside = 0;
  for (int i = 0; i < kHalves; ++i) {
    const float product = a[i] * b[i];
    const uint32_t magnitude = std::bit_cast<uint32_t>(product) & ~kSign32, zero = a[i] == 0 || b[i] == 0 ? 1 : 0;
    constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-100f), kMost = std::bit_cast<uint32_t>(0x1p126f);
    outside |= (magnitude - kLeast > kMost - kLeast ? 1u : 0u) & ~zero;
  }
  return outside == 0;
}

template <bool kWide>
BANDSAW_INLINE Floats computed(HalfOp op, const Floats& a, const Floats& b, const Floats& c) {
  Floats r{};
  switch (op) {
    case HalfOp::kAdd:
      for (int i = 0; i < kHalves; ++i) r[i] = a[i] + b[i];
      break;
    case HalfOp::kSub:
      for (int i = 0; i < kHalves; ++i) r[i] = a[i] - b[i];
      break;
    case HalfOp::kMul:
      for (int i = 0; i < kHalves; ++i) r[i] = kWide ? odd_narrow(double{a[i]} * double{b[i]}) : a[i] * b[i];
      break;
    default:
      for (int i = 0; i < kHalves; ++i) {
        r[i] = kWide ? odd_narrow(odd_sum<double, uint64_t>(double{a[i]} * double{b[i]}, double{c[i]}))
                     : odd_sum<float, uint32_t>(a[i] * b[i], c[i]);
      }
  }
  return r;
}

// Both zeros are ordered, and a NaN operand is ignored unless that is asked for.
template <class Format>
BANDSAW_INLINE Halves selected(bool is_min, const Halves& a, const Halves& b, uint32_t flags) {
  const uint16_t magnitudes = flags & kHalfXorsign ? 0x7fff : 0xffff;
  Halves r;
  for (int i = 0; i < kHalves; ++i) {
    const uint16_t x = a[i] & magnitudes, y = b[i] & magnitudes;
    const auto order = [](uint16_t v) { return static_cast<int16_t>(v ^ (v & kSign16 ? 0x7fff : 0)); };
    const bool first = is_min ? order(x) < order(y) : order(x) > order(y);
    const bool nan_x = (x & 0x7fff) > Format::kInfinity, nan_y = (y & 0x7fff) > Format::kInfinity;
    const uint16_t number = nan_y || (first && !nan_x) ? x : y;
    const auto sign = static_cast<uint16_t>((a[i] ^ b[i]) & ~magnitudes);
    const bool nan = flags & kHalfNan ? nan_x || nan_y : nan_x && nan_y;
    r[i] = nan ? kNan16 : number | sign;
  }
  return r;
}

BANDSAW_INLINE Halves halves_of(const uint32_t* words) {
  Halves halves;
  std::memcpy(halves.data(), words, sizeof halves);
  return halves;
}

template <class Format>
BANDSAW_INLINE void compute(const uint32_t* words_a, const uint32_t* words_b, const uint32_t* words_c, uint32_t* out,
                            uint32_t flags) {
  Halves a = halves_of(words_a), b = halves_of(words_b), c = halves_of(words_c);
  if (flags & kHalfFtz) {
    for (Halves* const operand : {&a, &b, &c}) flush<Format>(operand);
  }
  const auto op = static_cast<HalfOp>(flags & 0xff);
  Halves r;
  if (op == HalfOp::kMin || op == HalfOp::kMax) {
    r = selected<Format>(op == HalfOp::kMin, a, b, flags);
  } else {
    const Floats x = widened<Format>(a), y = widened<Format>(b), z = widened<Format>(c);
    const bool wide = Format::kInfinity == Bf16::kInfinity && op >= HalfOp::kMul && !fits_floats(x, y);
    Floats values = wide ? computed<true>(op, x, y, z) : computed<false>(op, x, y, z);
    limit(&values, flags);
    for (int i = 0; i < kHalves; ++i) r[i] = Format::narrow(values[i]);
  }
  if (flags & kHalfFtz) flush<Format>(&r);
  std::memcpy(out, r.data(), sizeof r);
}

BANDSAW_VECTORS void compute_f16(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out,
                                 uint32_t flags) {
  compute<F16>(a, b, c, out, flags);
}
BANDSAW_VECTORS void compute_bf16(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out,
                                  uint32_t flags) {
  compute<Bf16>(a, b, c, out, flags);
}

}  // namespace

extern "C" {
static void bsw_halves(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, uint32_t flags) {
  (flags & kHalfBf16 ? compute_bf16 : compute_f16)(a, b, c, out, flags);
}
}

void add_half_symbols(SymbolTable* table) { table->push_back({"bsw_halves", reinterpret_cast<void*>(bsw_halves)}); }

}  // namespace bandsaw::soft
