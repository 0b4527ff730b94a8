// Matrix fragments: lane l = 4 * g + t holds row or column g and the elements that t picks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/device/soft/codegen/matrix.h"
#include "backend/device/soft/codegen/matrix_element.h"
#include "backend/device/soft/codegen/product.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/sparse.h"
#include "backend/device/soft/half.h"

namespace bandsaw::soft {
namespace {

constexpr int kDeepest = 256;  // m16n8k256 of bits

constexpr int kRight = 8;  // columns of the right matrix

struct Factors {
  float left[16][kDeepest];
  alignas(64) float right[kDeepest][kRight];
};

void unpack_left(const uint32_t* a, const MatrixForm& f, Factors* out) {
  with_matrix_type(MatrixType(f.a), [&]<MatrixType kType>() {
    constexpr int p = static_cast<int>(matrix_elements(kType));
    for (int r = 0; r < f.a_registers; ++r)
      for (int l = 0; l < kWarpLanes; ++l) {
        const int g = l / 4, t = l % 4;
        const int row = f.rows == 8 ? g : g + 8 * (r & 1), column = t * p + (f.rows == 8 ? r : r >> 1) * 4 * p;
        for (int e = 0; e < p; ++e) out->left[row][column + e] = element(kType, a[r * 32 + l], e);
      }
  });
}

void unpack_right(const uint32_t* b, const MatrixForm& f, Factors* out) {
  with_matrix_type(MatrixType(f.b), [&]<MatrixType kType>() {
    constexpr int p = static_cast<int>(matrix_elements(kType));
    for (int r = 0; r < f.b_registers; ++r)
      for (int l = 0; l < kWarpLanes; ++l)
        for (int e = 0; e < p; ++e) out->right[l % 4 * p + e + r * 4 * p][l / 4] = element(kType, b[r * 32 + l], e);
  });
}

int depth_of(const MatrixForm& f) { return f.b_registers * 4 * static_cast<int>(matrix_elements(MatrixType(f.a))); }

// Which bits differ, or are both set.
void count_bits(const Factors& factors, const MatrixForm& f, double (*sums)[kRight]) {
  for (int row = 0; row < f.rows; ++row)
    for (int k = 0; k < depth_of(f); ++k)
      for (int column = 0; column < kRight; ++column) {
        const bool a = factors.left[row][k] != 0, b = factors.right[k][column] != 0;
        sums[row][column] += f.sum == MatrixSum::kXor ? a != b : a && b;
      }
}

// f(i, lane, row, column) for each element of a result.
template <class F>
void each_result(const MatrixForm& f, F&& visit) {
  for (int i = 0; i < f.rows / 4; ++i)
    for (int l = 0; l < kWarpLanes; ++l) visit(i, l, l / 4 + 8 * (i >> 1), l % 4 * 2 + (i & 1));
}

// Sums of integers are exact.
uint32_t integer_of(double sum, MatrixSum kind) {
  if (kind == MatrixSum::kSaturate) sum = std::clamp<double>(sum, INT32_MIN, INT32_MAX);
  return static_cast<uint32_t>(static_cast<int64_t>(sum));
}

void multiply(const Factors& factors, const MatrixForm& f, const uint32_t* c, uint32_t* d) {
  alignas(64) double sums[16][kRight];
  const bool integer = is_matrix_integer(MatrixType(f.a));
  each_result(f, [&](int i, int l, int row, int column) {
    const auto half = static_cast<uint16_t>(c[(i >> 1) * 32 + l] >> (16 * (i & 1)));
    const uint32_t word = c[i * 32 + l];
    sums[row][column] = f.half_accumulator ? from_f16(half)
                        : integer          ? static_cast<double>(static_cast<int32_t>(word))
                                           : std::bit_cast<float>(word);
  });
  const auto depth = static_cast<uint32_t>(depth_of(f));
  if (f.sum == MatrixSum::kXor || f.sum == MatrixSum::kAnd)
    count_bits(factors, f, sums);
  else
    add_products(sums[0], factors.left[0], factors.right[0], {f.rows, kRight, depth, kRight, kDeepest, kRight});
  each_result(f, [&](int i, int l, int row, int column) {
    const double sum = sums[row][column];
    if (f.half_result) {
      const uint32_t bits = to_f16(sum);
      uint32_t& out = d[(i >> 1) * 32 + l];
      out = i & 1 ? (out & 0xffff) | bits << 16 : bits;
    } else {
      d[i * 32 + l] = integer ? integer_of(sum, f.sum) : std::bit_cast<uint32_t>(static_cast<float>(sum));
    }
  });
}

}  // namespace

extern "C" {
static void bsw_mma(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d, uint64_t word) {
  const auto f = std::bit_cast<MatrixForm>(word);
  Factors factors;
  unpack_left(a, f, &factors);
  unpack_right(b, f, &factors);
  multiply(factors, f, c, d);
}

// The left matrix has half of the depth, and `metadata` of the lanes that the selector names says which elements.
static void bsw_mma_sparse(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d, uint64_t word,
                           const uint32_t* metadata, uint32_t selector) {
  const auto f = std::bit_cast<MatrixForm>(word);
  Factors packed, factors;
  unpack_left(a, f, &packed);
  unpack_right(b, f, &factors);
  sparse_expand(packed.left[0], factors.left[0], kDeepest, metadata, selector, MatrixType(f.a), depth_of(f));
  multiply(factors, f, c, d);
}

// Registers r of a: rows of r's lowest bit, columns of the others. One fused multiply and add after another.
static void bsw_mma_f64(const double* a, const double* b, const double* c, double* d, uint64_t word) {
  const auto f = std::bit_cast<MatrixForm>(word);
  constexpr int kMostDepth = 16;
  const int halves = f.rows / 8, depth = f.b_registers * 4;
  alignas(64) double left[16][kMostDepth], right[kMostDepth][kRight], sums[16][kRight];
  for (int l = 0; l < kWarpLanes; ++l) {
    for (int r = 0; r < f.a_registers; ++r) left[l / 4 + 8 * (r % halves)][r / halves * 4 + l % 4] = a[r * 32 + l];
    for (int r = 0; r < f.b_registers; ++r) right[r * 4 + l % 4][l / 4] = b[r * 32 + l];
  }
  each_result(f, [&](int i, int l, int row, int column) { sums[row][column] = c[i * 32 + l]; });
  add_products(sums[0], left[0], right[0], {f.rows, kRight, static_cast<uint32_t>(depth), kRight, kMostDepth, kRight});
  each_result(f, [&](int i, int l, int row, int column) { d[i * 32 + l] = sums[row][column]; });
}

// Lanes 4q to 4q + 3 and 16 more make product q; the upper ones have rows and columns 4 to 7.
static void bsw_mma_quads(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d, uint32_t word) {
  const auto f = std::bit_cast<QuadForm>(word);
  const auto half = [](const uint32_t* from, int l, int i) {
    return from_f16(static_cast<uint16_t>(from[(i >> 1) * 32 + l] >> (16 * (i & 1))));
  };
  for (int q = 0; q < 4; ++q) {
    float left[8][4], right[4][8];
    const auto lane = [q](int j) { return q * 4 + j % 4 + (j >= 4 ? 16 : 0); };
    for (int j = 0; j < 8; ++j)
      for (int i = 0; i < 4; ++i) {
        const int l = lane(j), upper = j >= 4 ? 4 : 0;
        (f.a_by_columns ? left[i + upper][j % 4] : left[j][i]) = half(a, l, i);
        (f.b_by_rows ? right[j % 4][i + upper] : right[i][j]) = half(b, l, i);
      }
    // Of f16 a lane has a row; of f32 four columns of two rows.
    const auto each_result = [&](bool halves, auto visit) {
      for (int j = 0; j < 8; ++j)
        for (int i = 0; i < 8; ++i) {
          const int l = lane(j), row = halves ? j : (l & 1) + (i & 2) + (j >= 4 ? 4 : 0);
          visit(l, i, row, halves ? i : (i & 4) + (l & 2) + (i & 1));
        }
    };
    double sums[8][8];
    each_result(f.half_accumulator, [&](int l, int i, int row, int column) {
      sums[row][column] = f.half_accumulator ? half(c, l, i) : std::bit_cast<float>(c[i * 32 + l]);
    });
    each_result(f.half_result, [&](int l, int i, int row, int column) {
      double sum = sums[row][column];
      for (int k = 0; k < 4; ++k) sum += static_cast<double>(left[row][k]) * right[k][column];
      if (!f.half_result) {
        d[i * 32 + l] = std::bit_cast<uint32_t>(static_cast<float>(sum));
        return;
      }
      uint32_t& out = d[(i >> 1) * 32 + l];
      const uint32_t bits = to_f16(sum);
      out = i & 1 ? (out & 0xffff) | bits << 16 : bits;
    });
  }
}

static void bsw_ldmatrix(WarpState* warp, uint32_t mask, const uint64_t* addresses, uint32_t* out, uint32_t matrices,
                         uint32_t transpose, uint32_t space) {
  for (uint32_t m = 0; m < matrices; ++m) {
    uint16_t rows[8][8] = {};
    for (uint32_t r = 0; r < 8; ++r)
      if (mask >> (m * 8 + r) & 1) read_bytes(warp, m * 8 + r, addresses[m * 8 + r], rows[r], 16, AccessSpace(space));
    for (uint32_t l = 0; l < 32; ++l) {
      uint32_t g = l / 4, t = l % 4 * 2;
      uint32_t low = transpose ? rows[t][g] : rows[g][t], high = transpose ? rows[t + 1][g] : rows[g][t + 1];
      out[m * 32 + l] = high << 16 | low;
    }
  }
}

static void bsw_stmatrix(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint32_t* in,
                         uint32_t matrices, uint32_t transpose, uint32_t space) {
  for (uint32_t m = 0; m < matrices; ++m) {
    uint16_t rows[8][8];
    for (uint32_t l = 0; l < 32; ++l) {
      const uint32_t g = l / 4, t = l % 4 * 2;
      for (uint32_t e = 0; e < 2; ++e) {
        const auto value = static_cast<uint16_t>(in[m * 32 + l] >> (16 * e));
        (transpose ? rows[t + e][g] : rows[g][t + e]) = value;
      }
    }
    for (uint32_t r = 0; r < 8; ++r)
      if (mask >> (m * 8 + r) & 1) write_bytes(warp, m * 8 + r, addresses[m * 8 + r], rows[r], 16, AccessSpace(space));
  }
}

static void bsw_movmatrix(const uint32_t* in, uint32_t* out) {
  for (uint32_t l = 0; l < 32; ++l) {
    const uint32_t g = l / 4, t = l % 4 * 2;  // row and first column here; there column and first row
    const auto at = [&](uint32_t row) { return in[row * 4 + g / 2] >> (16 * (g & 1)) & 0xffff; };
    out[l] = at(t) | at(t + 1) << 16;
  }
}
}

void add_matrix_symbols(SymbolTable* table) {
  table->push_back({"bsw_mma", (void*)bsw_mma});
  table->push_back({"bsw_mma_sparse", (void*)bsw_mma_sparse});
  table->push_back({"bsw_mma_f64", (void*)bsw_mma_f64});
  table->push_back({"bsw_mma_quads", (void*)bsw_mma_quads});
  table->push_back({"bsw_stmatrix", (void*)bsw_stmatrix});
  table->push_back({"bsw_movmatrix", (void*)bsw_movmatrix});
  table->push_back({"bsw_ldmatrix", (void*)bsw_ldmatrix});
}

}  // namespace bandsaw::soft
