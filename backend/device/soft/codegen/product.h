// The inner loops of matrix products, for the vectors that this processor has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/device/soft/codegen/matrix.h"

namespace bandsaw::soft {

// d[rows][columns] += a[rows][depth] * b[depth][columns]; rows of each lie so many elements apart. There are a multiple
// of 4 rows and of 8 columns.
struct ProductShape {
  uint32_t rows, columns, depth;
  uint32_t d_step, a_step, b_step;
};

// The products are exact; the sums are rounded after each step, by rising depth.
void add_products(double* d, const float* a, const float* b, const ProductShape& shape);
// One fused multiply and add after another, by rising depth.
void add_products(double* d, const double* a, const double* b, const ProductShape& shape);

// Elements of 8, 16 or 32 bits that follow one another.
void to_floats(MatrixType type, const std::byte* words, uint32_t elements, float* out);

}  // namespace bandsaw::soft
