// Arithmetic with a directed rounding mode: MXCSR is switched around the loop. Built with -frounding-math.
#include <immintrin.h>

#include <cmath>

#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

class RoundingMode {
 public:
  explicit RoundingMode(unsigned mode) : before_(_mm_getcsr()) { _mm_setcsr((before_ & ~0x6000u) | mode); }
  ~RoundingMode() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

// What the compiler cannot move out of the mode's scope or evaluate beforehand.
template <class T>
T hidden(T v) {
  asm volatile("" : "+x"(v));
  return v;
}

template <class T>
struct Add {
  static T f(T a, T b) { return a + b; }
};
template <class T>
struct Sub {
  static T f(T a, T b) { return a - b; }
};
template <class T>
struct Mul {
  static T f(T a, T b) { return a * b; }
};
template <class T>
struct Div {
  static T f(T a, T b) { return a / b; }
};

template <class T, template <class> class Op, unsigned Mode>
void binary(const T* a, const T* b, T* out) {
  RoundingMode mode(Mode);
  for (int l = 0; l < kWarpLanes; ++l) out[l] = hidden(Op<T>::f(hidden(a[l]), hidden(b[l])));
}
template <unsigned Mode>
void root32(const float* a, float* out) {
  RoundingMode mode(Mode);
  for (int l = 0; l < kWarpLanes; ++l) out[l] = hidden(_mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(hidden(a[l])))));
}
template <unsigned Mode>
void root64(const double* a, double* out) {
  RoundingMode mode(Mode);
  for (int l = 0; l < kWarpLanes; ++l) out[l] = hidden(_mm_cvtsd_f64(_mm_sqrt_pd(_mm_set1_pd(hidden(a[l])))));
}
template <unsigned Mode>
__attribute__((target("fma"))) void fma32(const float* a, const float* b, const float* c, float* out) {
  RoundingMode mode(Mode);
  for (int l = 0; l < kWarpLanes; ++l)
    out[l] = hidden(
        _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(hidden(a[l])), _mm_set_ss(hidden(b[l])), _mm_set_ss(hidden(c[l])))));
}
template <unsigned Mode>
__attribute__((target("fma"))) void fma64(const double* a, const double* b, const double* c, double* out) {
  RoundingMode mode(Mode);
  for (int l = 0; l < kWarpLanes; ++l)
    out[l] = hidden(
        _mm_cvtsd_f64(_mm_fmadd_sd(_mm_set_sd(hidden(a[l])), _mm_set_sd(hidden(b[l])), _mm_set_sd(hidden(c[l])))));
}
template <unsigned Mode>
void shorten(const double* a, float* out) {
  RoundingMode mode(Mode);
  for (int l = 0; l < kWarpLanes; ++l) out[l] = hidden(static_cast<float>(hidden(a[l])));
}

// Integers: through f64 when exact, else in two steps that keep what was cut off as a sticky bit.
template <class I, class F, unsigned Mode>
void from_integer(const I* a, F* out) {
  RoundingMode mode(Mode);
  for (int l = 0; l < kWarpLanes; ++l) {
    bool negative = a[l] < 0;
    uint64_t m = negative ? 0 - static_cast<uint64_t>(a[l]) : static_cast<uint64_t>(a[l]);
    // High and low parts are exact in either format's operands; their sum rounds once.
    double high = static_cast<double>(static_cast<uint32_t>(m >> 32)) * 4294967296.0,
           low = static_cast<double>(static_cast<uint32_t>(m));
    if (negative) {
      high = -high;
      low = -low;
    }
    if constexpr (sizeof(F) == 8) {
      out[l] = hidden(hidden(high) + hidden(low));
    } else {
      uint64_t kept = m;
      if (m >> 40) kept = (m & ~uint64_t{0xffff}) | ((m & 0xffff) ? 0x8000 : 0);  // at most 49 significant bits
      double exact = hidden(static_cast<double>(static_cast<int64_t>(kept >> 1)));
      exact = exact * 2 + static_cast<double>(kept & 1);
      out[l] = m == 0 ? 0.0f : hidden(static_cast<float>(hidden(negative ? -exact : exact)));
    }
  }
}

constexpr unsigned kDown = 0x2000, kUp = 0x4000, kZero = 0x6000;

template <unsigned Mode>
void add_mode(SymbolTable* table, const char* const (&names)[18]) {
  int n = 0;
  auto add = [&](auto* f) { table->push_back({names[n++], reinterpret_cast<void*>(f)}); };
  add(binary<float, Add, Mode>);
  add(binary<float, Sub, Mode>);
  add(binary<float, Mul, Mode>);
  add(binary<float, Div, Mode>);
  add(root32<Mode>);
  add(fma32<Mode>);
  add(binary<double, Add, Mode>);
  add(binary<double, Sub, Mode>);
  add(binary<double, Mul, Mode>);
  add(binary<double, Div, Mode>);
  add(root64<Mode>);
  add(fma64<Mode>);
  add(shorten<Mode>);
  add(from_integer<int64_t, float, Mode>);
  add(from_integer<uint64_t, float, Mode>);
  add(from_integer<int64_t, double, Mode>);
  add(from_integer<uint64_t, double, Mode>);
}

}  // namespace

#define BANDSAW_NAMES(m)                                                      \
  {"bsw_add_" m "_f32",     "bsw_sub_" m "_f32",     "bsw_mul_" m "_f32",     \
   "bsw_div_" m "_f32",     "bsw_sqrt_" m "_f32",    "bsw_fma_" m "_f32",     \
   "bsw_add_" m "_f64",     "bsw_sub_" m "_f64",     "bsw_mul_" m "_f64",     \
   "bsw_div_" m "_f64",     "bsw_sqrt_" m "_f64",    "bsw_fma_" m "_f64",     \
   "bsw_cvt_f32_f64_" m,    "bsw_i2f_" m "_s64_f32", "bsw_i2f_" m "_u64_f32", \
   "bsw_i2f_" m "_s64_f64", "bsw_i2f_" m "_u64_f64", ""}

void add_rounding_symbols(SymbolTable* table) {
  add_mode<kZero>(table, BANDSAW_NAMES("rz"));
  add_mode<kDown>(table, BANDSAW_NAMES("rm"));
  add_mode<kUp>(table, BANDSAW_NAMES("rp"));
}

}  // namespace bandsaw::soft
