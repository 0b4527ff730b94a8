// Elements of matrices in registers and shared memory as numbers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/device/soft/codegen/matrix.h"
#include "backend/device/soft/half.h"

namespace bandsaw::soft {

inline float from_e4m3(uint8_t v) {
  const uint32_t exponent = v >> 3 & 15, mantissa = v & 7;
  if ((v & 127) == 127) return NAN;
  const float magnitude = exponent ? std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23 | mantissa << 20)
                                   : static_cast<float>(mantissa) / 512;
  return v & 128 ? -magnitude : magnitude;
}

// Element i of a register.
inline float element(MatrixType t, uint32_t reg, int i) {
  switch (t) {
    case MatrixType::kF16:
      return from_f16(static_cast<uint16_t>(reg >> (16 * i)));
    case MatrixType::kBf16:
      return from_bf16(static_cast<uint16_t>(reg >> (16 * i)));
    case MatrixType::kTf32:
      return std::bit_cast<float>(reg & ~0x1fffu);
    case MatrixType::kU8:
      return static_cast<uint8_t>(reg >> (8 * i));
    case MatrixType::kS8:
      return static_cast<int8_t>(reg >> (8 * i));
    case MatrixType::kE4m3:
      return from_e4m3(static_cast<uint8_t>(reg >> (8 * i)));
    case MatrixType::kE5m2:
      return from_f16(static_cast<uint16_t>((reg >> (8 * i) & 0xff) << 8));
    case MatrixType::kU4:
      return static_cast<float>(reg >> (4 * i) & 15);
    case MatrixType::kS4:
      return static_cast<float>(static_cast<int32_t>(reg << (28 - 4 * i)) >> 28);
    case MatrixType::kB1:
      return static_cast<float>(reg >> i & 1);
    default:
      return 0;
  }
}

// f.template operator()<type>() for a type whose elements are exact as floats: a loop over elements of one type.
template <class F>
inline void with_matrix_type(MatrixType type, F&& f) {
  switch (type) {
    case MatrixType::kF16:
      return f.template operator()<MatrixType::kF16>();
    case MatrixType::kBf16:
      return f.template operator()<MatrixType::kBf16>();
    case MatrixType::kTf32:
      return f.template operator()<MatrixType::kTf32>();
    case MatrixType::kU8:
      return f.template operator()<MatrixType::kU8>();
    case MatrixType::kS8:
      return f.template operator()<MatrixType::kS8>();
    case MatrixType::kE4m3:
      return f.template operator()<MatrixType::kE4m3>();
    case MatrixType::kE5m2:
      return f.template operator()<MatrixType::kE5m2>();
    case MatrixType::kU4:
      return f.template operator()<MatrixType::kU4>();
    case MatrixType::kS4:
      return f.template operator()<MatrixType::kS4>();
    case MatrixType::kB1:
      return f.template operator()<MatrixType::kB1>();
    default:
      return;
  }
}

}  // namespace bandsaw::soft
