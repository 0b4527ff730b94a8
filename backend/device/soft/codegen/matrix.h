// How the emitter tells the matrix helper what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class MatrixType : uint32_t { kF16, kBf16, kTf32, kU8, kS8, kF64 };

struct MatrixForm {
  uint8_t a = 0, b = 0;  // MatrixType
  uint8_t a_registers = 0, b_registers = 0;
  uint8_t half_accumulator = 0, half_result = 0;  // f16 c and d
  uint8_t saturate = 0;
  uint8_t rows = 16;
};
static_assert(sizeof(MatrixForm) == 8);

}  // namespace bandsaw::soft
