// How the emitter tells the matrix helper what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class MatrixType : uint32_t { kF16, kBf16, kTf32, kU8, kS8, kF64, kE4m3, kE5m2, kF32, kS32, kU4, kS4, kB1 };

// Elements in a register of 32 bits; of kF64, in one of 64.
constexpr uint32_t matrix_elements(MatrixType type) {
  switch (type) {
    case MatrixType::kF16:
    case MatrixType::kBf16:
      return 2;
    case MatrixType::kU8:
    case MatrixType::kS8:
    case MatrixType::kE4m3:
    case MatrixType::kE5m2:
      return 4;
    case MatrixType::kU4:
    case MatrixType::kS4:
      return 8;
    case MatrixType::kB1:
      return 32;
    default:
      return 1;
  }
}
constexpr bool is_matrix_integer(MatrixType type) {
  return type == MatrixType::kU8 || type == MatrixType::kS8 || type == MatrixType::kU4 || type == MatrixType::kS4 ||
         type == MatrixType::kB1;
}

// What an integer product does: sums wrap or saturate; of bits, those that differ or are both set are counted.
enum class MatrixSum : uint8_t { kWrap, kSaturate, kXor, kAnd };

struct MatrixForm {
  uint8_t a = 0, b = 0;  // MatrixType
  uint8_t a_registers = 0, b_registers = 0;
  uint8_t half_accumulator = 0, half_result = 0;  // f16 c and d
  MatrixSum sum = MatrixSum::kWrap;
  uint8_t rows = 16;
};
static_assert(sizeof(MatrixForm) == 8);

// mma.m8n8k4 of f16: four products, each by the eight lanes of two quads.
struct QuadForm {
  uint8_t a_by_columns = 0, b_by_rows = 0, half_accumulator = 0, half_result = 0;
};
static_assert(sizeof(QuadForm) == 4);

// A fragment of wmma: PTX leaves open which lane holds which element, so the first words of all lanes hold the first
// words of the matrix, row by row, then the second words the next, from the beginning again where there is room for
// more.
struct WmmaFragment {
  uint8_t type = 0;  // MatrixType
  uint8_t rows = 0, columns = 0, registers = 0;
};
struct WmmaAccess {
  WmmaFragment fragment;
  uint8_t column_major = 0, space = 0;
  uint8_t one_address = 0, one_stride = 0;  // known to be those of all lanes
};
static_assert(sizeof(WmmaAccess) == 8);
struct WmmaProduct {
  WmmaFragment a, b, c, d;
};
static_assert(sizeof(WmmaProduct) == 16);

}  // namespace bandsaw::soft
