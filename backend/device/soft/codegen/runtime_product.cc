#include "backend/device/soft/codegen/product.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "backend/device/soft/half.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kBlockColumns = 8;
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
__attribute__((always_inline)) inline void store_eight(const Eight* from, float* to) {
  const auto floats = __builtin_convertvector(*from, EightFloats);
  std::memcpy(to, &floats, sizeof floats);
}
__attribute__((always_inline)) inline void store_eight(const Eight* from, double* to) {
  std::memcpy(to, from, sizeof *from);
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

// Several rows at a time, so that what is read of the right matrix is used as often, and no sum waits for its last
// step.
template <bool kCalls, uint32_t kRows, class Sum, class T>
__attribute__((always_inline)) inline void product(const Sum* c, Sum* d, const T* a, const T* b,
                                                   const ProductShape& s) {
  for (uint32_t row = 0; row < s.rows; row += kRows)
    for (uint32_t column = 0; column < s.columns; column += kBlockColumns) {
      Eight sums[kRows];
      for (uint32_t r = 0; r < kRows; ++r) load_eight(c + (row + r) * s.d_step + column, &sums[r]);
      for (uint32_t k = 0; k < s.depth; ++k) {
        Eight right;
        load_eight(b + k * s.b_step + column, &right);
        for (uint32_t r = 0; r < kRows; ++r)
          add_product<kCalls>(&sums[r], static_cast<double>(a[(row + r) * s.a_step + k]), &right);
      }
      for (uint32_t r = 0; r < kRows; ++r) store_eight(&sums[r], d + (row + r) * s.d_step + column);
    }
}

// The shapes of wmma that are used most: what is known of them when this is compiled need not be computed at each call.
constexpr ProductShape kUsual[] = {{8, 8, 4, 8, 4, 8}, {16, 16, 8, 16, 8, 16}, {16, 16, 16, 16, 16, 16}};

template <uint32_t kRows, class Sum, class T, size_t kAt = 0>
__attribute__((always_inline)) inline void product_of_shape(const Sum* c, Sum* d, const T* a, const T* b,
                                                            const ProductShape& s) {
  if constexpr (kAt < std::size(kUsual) && std::is_same_v<T, double>) {
    if (s == kUsual[kAt]) return product<false, kRows>(c, d, a, b, kUsual[kAt]);
    return product_of_shape<kRows, Sum, T, kAt + 1>(c, d, a, b, s);
  }
  product<false, kRows>(c, d, a, b, s);
}

// Exact products are the same in fused steps.
template <class Sum, class T>
__attribute__((target("avx512f"))) void product_avx512(const Sum* c, Sum* d, const T* a, const T* b,
                                                       const ProductShape& s) {
  product_of_shape<8>(c, d, a, b, s);
}
template <class Sum, class T>
__attribute__((target("avx2,fma"))) void product_avx2(const Sum* c, Sum* d, const T* a, const T* b,
                                                      const ProductShape& s) {
  product<false, 4>(c, d, a, b, s);
}
template <class Sum, class T, bool kExact>
void product_plain(const Sum* c, Sum* d, const T* a, const T* b, const ProductShape& s) {
  product<!kExact, 4>(c, d, a, b, s);
}

template <bool kExact, class Sum, class T>
void product_of(const Sum* c, Sum* d, const T* a, const T* b, const ProductShape& shape) {
  static const auto best = __builtin_cpu_supports("avx512f") ? product_avx512<Sum, T>
                           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                               ? product_avx2<Sum, T>
                               : product_plain<Sum, T, kExact>;
  best(c, d, a, b, shape);
}

// One loop of one type each, so that it becomes one of vectors.
template <class T, class F>
__attribute__((always_inline)) inline void convert(const std::byte* from, uint32_t elements, double* out, F&& value) {
  for (uint32_t i = 0; i < elements; ++i) {
    T element;
    std::memcpy(&element, from + i * sizeof element, sizeof element);
    out[i] = value(element);
  }
}
template <class F>
__attribute__((always_inline)) inline void convert_back(const double* from, uint32_t elements, std::byte* out,
                                                        F&& value) {
  for (uint32_t i = 0; i < elements; ++i) {
    const auto element = value(from[i]);
    std::memcpy(out + i * sizeof element, &element, sizeof element);
  }
}

__attribute__((always_inline)) inline void numbers_of(MatrixType type, const std::byte* words, uint32_t elements,
                                                      double* out) {
  switch (type) {
    case MatrixType::kF16:
      return convert<uint16_t>(words, elements, out, [](uint16_t v) { return from_f16(v); });
    case MatrixType::kBf16:
      return convert<uint16_t>(words, elements, out, [](uint16_t v) { return from_bf16(v); });
    case MatrixType::kTf32:
      return convert<uint32_t>(words, elements, out, [](uint32_t v) { return std::bit_cast<float>(v & ~0x1fffu); });
    case MatrixType::kU8:
      return convert<uint8_t>(words, elements, out, [](uint8_t v) { return v; });
    case MatrixType::kS8:
      return convert<int8_t>(words, elements, out, [](int8_t v) { return v; });
    case MatrixType::kF32:
      return convert<float>(words, elements, out, [](float v) { return v; });
    case MatrixType::kS32:
      return convert<int32_t>(words, elements, out, [](int32_t v) { return v; });
    case MatrixType::kF64:
      return convert<double>(words, elements, out, [](double v) { return v; });
    default:
      return;
  }
}

__attribute__((always_inline)) inline void elements_of(MatrixType type, const double* numbers, uint32_t elements,
                                                       std::byte* out) {
  switch (type) {
    case MatrixType::kF16:
      return convert_back(numbers, elements, out, [](double v) { return to_f16(v); });
    case MatrixType::kF32:
      return convert_back(numbers, elements, out, [](double v) { return static_cast<float>(v); });
    case MatrixType::kS32:
      return convert_back(numbers, elements, out,
                          [](double v) { return static_cast<uint32_t>(static_cast<int64_t>(v)); });
    case MatrixType::kF64:
      return convert_back(numbers, elements, out, [](double v) { return v; });
    default:
      return;
  }
}

__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"))) void numbers_avx512(MatrixType type,
                                                                                  const std::byte* words,
                                                                                  uint32_t elements, double* out) {
  numbers_of(type, words, elements, out);
}
__attribute__((target("avx2"))) void numbers_avx2(MatrixType type, const std::byte* words, uint32_t elements,
                                                  double* out) {
  numbers_of(type, words, elements, out);
}
void numbers_plain(MatrixType type, const std::byte* words, uint32_t elements, double* out) {
  numbers_of(type, words, elements, out);
}
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"))) void elements_avx512(MatrixType type,
                                                                                   const double* numbers,
                                                                                   uint32_t elements, std::byte* out) {
  elements_of(type, numbers, elements, out);
}
void elements_plain(MatrixType type, const double* numbers, uint32_t elements, std::byte* out) {
  elements_of(type, numbers, elements, out);
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}

}  // namespace

void to_doubles(MatrixType type, const std::byte* words, uint32_t elements, double* out) {
  static const auto best = has_avx512()                     ? numbers_avx512
                           : __builtin_cpu_supports("avx2") ? numbers_avx2
                                                            : numbers_plain;
  best(type, words, elements, out);
}

void from_doubles(MatrixType type, const double* numbers, uint32_t elements, std::byte* out) {
  static const auto best = has_avx512() ? elements_avx512 : elements_plain;
  best(type, numbers, elements, out);
}

void add_products(double* d, const float* a, const float* b, const ProductShape& shape) {
  product_of<true>(d, d, a, b, shape);
}
void add_products(double* d, const double* a, const double* b, const ProductShape& shape) {
  fuse_products(d, d, a, b, shape);
}
void fuse_products(const double* c, double* d, const double* a, const double* b, const ProductShape& shape) {
  product_of<false>(c, d, a, b, shape);
}
void sum_products(const float* c, float* d, const double* a, const double* b, const ProductShape& shape) {
  product_of<true>(c, d, a, b, shape);
}
void sum_products(const double* c, double* d, const double* a, const double* b, const ProductShape& shape) {
  product_of<true>(c, d, a, b, shape);
}

}  // namespace bandsaw::soft
