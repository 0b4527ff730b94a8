// The inner loop of large matrix products, for the vectors that this processor has.
#include "backend/device/soft/codegen/wgmma.h"

namespace bandsaw::soft {
namespace {

__attribute__((always_inline)) inline void product(double* d, const float* a, const float* b, uint32_t columns,
                                                   uint32_t depth) {
  for (uint32_t row = 0; row < 16; ++row) {
    double* sums = d + row * kWgmmaColumns;
    for (uint32_t k = 0; k < depth; ++k) {
      const double left = static_cast<double>(a[row * kWgmmaDeepest + k]);
      const float* right = b + k * kWgmmaColumns;
      for (uint32_t n = 0; n < columns; ++n) sums[n] += left * static_cast<double>(right[n]);
    }
  }
}

__attribute__((target("avx2,fma"))) void product_avx2(double* d, const float* a, const float* b, uint32_t columns,
                                                      uint32_t depth) {
  product(d, a, b, columns, depth);
}

void product_plain(double* d, const float* a, const float* b, uint32_t columns, uint32_t depth) {
  product(d, a, b, columns, depth);
}

}  // namespace

void add_products(double* d, const float* a, const float* b, uint32_t columns, uint32_t depth) {
  // A product of two floats is exact in a double, so fused steps give the same.
  static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  (wide ? product_avx2 : product_plain)(d, a, b, columns, depth);
}

}  // namespace bandsaw::soft
