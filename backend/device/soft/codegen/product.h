// The inner loops of matrix products, for the vectors that this processor has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/device/soft/codegen/matrix.h"

namespace bandsaw::soft {

// d[rows][columns] = c + a[rows][depth] * b[depth][columns]; rows of each lie so many elements apart, those of c as
// those of d. There are a multiple of 8 rows and of 8 columns.
struct ProductShape {
  uint32_t rows, columns, depth;
  uint32_t d_step, a_step, b_step;
  bool operator==(const ProductShape&) const = default;
};

// d is c. The products are exact; the sums are rounded after each step, by rising depth.
void add_products(double* d, const float* a, const float* b, const ProductShape& shape);
// One fused multiply and add after another, by rising depth; c may be d.
void add_products(double* d, const double* a, const double* b, const ProductShape& shape);
void fuse_products(const double* c, double* d, const double* a, const double* b, const ProductShape& shape);

// As the first one, of doubles whose products are exact. c may be d. Floats are rounded once, at the end.
void sum_products(const float* c, float* d, const double* a, const double* b, const ProductShape& shape);
void sum_products(const double* c, double* d, const double* a, const double* b, const ProductShape& shape);

// Elements that follow one another, of any type but those packed in words of more than four.
void to_doubles(MatrixType type, const std::byte* words, uint32_t elements, double* out);
// To f16, f32, f64, or integers of 32 bits, which wrap.
void from_doubles(MatrixType type, const double* numbers, uint32_t elements, std::byte* out);

}  // namespace bandsaw::soft
