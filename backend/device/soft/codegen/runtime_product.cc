#include "backend/device/soft/codegen/product.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "backend/device/soft/codegen/half.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kBlockRows = 4, kBlockColumns = 8;
using Eight = double __attribute__((vector_size(64)));
using EightFloats = float __attribute__((vector_size(32)));

// By address: how a vector goes through a call depends on what the processor has.
__attribute__((always_inline)) inline void load_eight(const float* from, Eight* to) {
  EightFloats floats;
  std::memcpy(&floats, from, sizeof floats);
  *to = __builtin_convertvector(floats, Eight);
}
__attribute__((always_inline)) inline void load_eight(const double* from, Eight* to) {
  std::memcpy(to, from, sizeof *to);
}

// Built with -ffp-contract=fast: one fused step where the processor has such; `kCalls` is for those that have not.
template <bool kCalls>
__attribute__((always_inline)) inline void add_product(Eight* sum, double left, const Eight* right) {
  if constexpr (kCalls) {
    for (uint32_t n = 0; n < kBlockColumns; ++n) (*sum)[n] = std::fma(left, (*right)[n], (*sum)[n]);
  } else {
    *sum += left * *right;
  }
}

// Four rows at a time, so that what is read of the right matrix is used four times.
template <bool kCalls, class T>
__attribute__((always_inline)) inline void product(double* d, const T* a, const T* b, const ProductShape& s) {
  for (uint32_t row = 0; row < s.rows; row += kBlockRows)
    for (uint32_t column = 0; column < s.columns; column += kBlockColumns) {
      Eight sums[kBlockRows];
      for (uint32_t r = 0; r < kBlockRows; ++r) load_eight(d + (row + r) * s.d_step + column, &sums[r]);
      for (uint32_t k = 0; k < s.depth; ++k) {
        Eight right;
        load_eight(b + k * s.b_step + column, &right);
        for (uint32_t r = 0; r < kBlockRows; ++r)
          add_product<kCalls>(&sums[r], static_cast<double>(a[(row + r) * s.a_step + k]), &right);
      }
      for (uint32_t r = 0; r < kBlockRows; ++r)
        std::memcpy(d + (row + r) * s.d_step + column, &sums[r], sizeof sums[r]);
    }
}

// A product of two floats is exact in a double, so fused steps give the same.
template <class T>
__attribute__((target("avx512f"))) void product_avx512(double* d, const T* a, const T* b, const ProductShape& s) {
  product<false>(d, a, b, s);
}
template <class T>
__attribute__((target("avx2,fma"))) void product_avx2(double* d, const T* a, const T* b, const ProductShape& s) {
  product<false>(d, a, b, s);
}
template <class T>
void product_plain(double* d, const T* a, const T* b, const ProductShape& s) {
  product<std::is_same_v<T, double>>(d, a, b, s);
}

template <class T>
void add_products_of(double* d, const T* a, const T* b, const ProductShape& shape) {
  static const auto best = __builtin_cpu_supports("avx512f")                                 ? product_avx512<T>
                           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? product_avx2<T>
                                                                                             : product_plain<T>;
  best(d, a, b, shape);
}

// One loop of one type each, so that it becomes one of vectors.
template <class T, class F>
__attribute__((always_inline)) inline void convert(const std::byte* from, uint32_t elements, float* out, F&& value) {
  for (uint32_t i = 0; i < elements; ++i) {
    T element;
    std::memcpy(&element, from + i * sizeof element, sizeof element);
    out[i] = value(element);
  }
}

}  // namespace

__attribute__((target_clones("avx512f", "avx2", "default"))) void to_floats(MatrixType type, const std::byte* words,
                                                                            uint32_t elements, float* out) {
  switch (type) {
    case MatrixType::kF16:
      return convert<uint16_t>(words, elements, out, [](uint16_t v) { return from_f16(v); });
    case MatrixType::kBf16:
      return convert<uint16_t>(words, elements, out, [](uint16_t v) { return from_bf16(v); });
    case MatrixType::kTf32:
      return convert<uint32_t>(words, elements, out, [](uint32_t v) { return std::bit_cast<float>(v & ~0x1fffu); });
    case MatrixType::kU8:
      return convert<uint8_t>(words, elements, out, [](uint8_t v) { return static_cast<float>(v); });
    case MatrixType::kS8:
      return convert<int8_t>(words, elements, out, [](int8_t v) { return static_cast<float>(v); });
    default:
      return;
  }
}

void add_products(double* d, const float* a, const float* b, const ProductShape& shape) {
  add_products_of(d, a, b, shape);
}
void add_products(double* d, const double* a, const double* b, const ProductShape& shape) {
  add_products_of(d, a, b, shape);
}

}  // namespace bandsaw::soft
