// How the emitter tells the helper of wgmma.mma_async what to do.
#pragma once

#include <cstdint>

#include "backend/device/soft/codegen/matrix.h"

namespace bandsaw::soft {

enum class WgmmaResult : uint8_t { kF32, kF16, kS32 };

// wgmma.mma_async of 64 rows: one warp makes 16 of them.
struct WgmmaForm {
  uint8_t a = 0, b = 0;  // MatrixType
  uint8_t columns8 = 0;  // columns / 8
  WgmmaResult result = WgmmaResult::kF32;
  MatrixSum sum = MatrixSum::kWrap;
  uint8_t a_in_registers : 1 = 0, a_by_columns : 1 = 0, b_by_rows : 1 = 0;
  uint8_t negate_a : 1 = 0, negate_b : 1 = 0;
  uint8_t sparse : 1 = 0;
  uint8_t selector = 0;  // of a sparse one: which lanes have the metadata
  uint8_t unused = 0;
};
static_assert(sizeof(WgmmaForm) == 8);

// Bytes of a row of the left matrix, and of a column of the right one unless the left is sparse: then twice as many.
inline constexpr uint32_t kWgmmaRowBytes = 32;
inline constexpr uint32_t kWgmmaColumns = 256;  // at most
inline constexpr uint32_t kWgmmaDeepest = 256;  // of bits

}  // namespace bandsaw::soft
