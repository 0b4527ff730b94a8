// How the emitter tells the matrix helper what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class MatrixType : uint32_t { kF16, kBf16, kTf32, kU8, kS8, kF64, kE4m3, kE5m2, kF32, kS32 };

struct MatrixForm {
  uint8_t a = 0, b = 0;  // MatrixType
  uint8_t a_registers = 0, b_registers = 0;
  uint8_t half_accumulator = 0, half_result = 0;  // f16 c and d
  uint8_t saturate = 0;
  uint8_t rows = 16;
};
static_assert(sizeof(MatrixForm) == 8);

// A fragment of wmma: PTX leaves open which lane holds which element, so the lanes hold the matrix row by row, from the
// beginning again where they have room for more.
struct WmmaFragment {
  uint8_t type = 0;  // MatrixType
  uint8_t rows = 0, columns = 0, registers = 0;
};
struct WmmaAccess {
  WmmaFragment fragment;
  uint8_t column_major = 0, space = 0;
  uint16_t unused = 0;
};
static_assert(sizeof(WmmaAccess) == 8);
struct WmmaProduct {
  WmmaFragment a, b, c, d;
};
static_assert(sizeof(WmmaProduct) == 16);

}  // namespace bandsaw::soft
