// The left matrix of a sparse product: half of its elements are stored, and metadata says which (PTX ISA 9.7.14.6.1).
#pragma once

#include <cstdint>

#include "backend/device/soft/codegen/matrix.h"
#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

// The lanes that have the metadata: which of the groups that could.
constexpr uint32_t sparse_selectors(MatrixType type, uint32_t depth) {
  switch (type) {
    case MatrixType::kF16:
    case MatrixType::kBf16:
      return depth == 16 ? 4 : 2;
    case MatrixType::kTf32:
      return depth == 8 ? 4 : 2;
    case MatrixType::kU4:
    case MatrixType::kS4:
      return depth == 64 ? 2 : 1;
    default:
      return depth == 32 ? 2 : 1;
  }
}

// What is known of the elements of one row, from the metadata of all lanes: the lowest bits belong to the first ones.
inline uint64_t sparse_row(const uint32_t* metadata, uint32_t selector, MatrixType type, uint32_t depth, uint32_t row) {
  const uint32_t group = row % 8 * 4, upper = row / 8;
  const bool wide = matrix_elements(type) <= 2;  // of 16 and 32 bits: a lane has half a word of two rows
  const uint32_t selectors = sparse_selectors(type, depth), first = group + selector * (4 / selectors);
  if (!wide) {
    uint64_t bits = metadata[first + upper];
    if (selectors == 1) bits |= uint64_t{metadata[first + upper + 2]} << 32;
    return bits;
  }
  uint64_t bits = metadata[first] >> (16 * upper) & 0xffff;
  if (selectors == 2) bits |= uint64_t{metadata[first + 1] >> (16 * upper) & 0xffff} << 16;
  return bits;
}

// Puts the stored elements of 16 rows where they belong. Rows of `packed` hold depth / 2 elements and are `step` apart,
// as are those of `out`.
inline void sparse_expand(const float* packed, float* out, uint32_t step, const uint32_t* metadata, uint32_t selector,
                          MatrixType type, uint32_t depth) {
  // Elements that go together, and of how many they are half.
  const uint32_t together = matrix_elements(type) == 8 ? 2 : 1, group = type == MatrixType::kTf32 ? 2 : 4 * together;
  for (uint32_t row = 0; row < 16; ++row) {
    const uint64_t bits = sparse_row(metadata, selector, type, depth, row);
    float* to = out + row * step;
    for (uint32_t k = 0; k < depth; ++k) to[k] = 0;
    for (uint32_t i = 0; i < depth / 2; ++i) {
      const uint32_t unit = i / together;
      // Of 32 bits: four bits name one of two elements as two of four halves.
      const uint32_t place = type == MatrixType::kTf32 ? static_cast<uint32_t>(bits >> (4 * unit + 1) & 1)
                                                       : static_cast<uint32_t>(bits >> (2 * unit) & 3);
      to[2 * i / group * group + place * together + i % together] = packed[row * step + i];
    }
  }
}

}  // namespace bandsaw::soft
