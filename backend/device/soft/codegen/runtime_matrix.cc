// Matrix fragments: lane l = 4 * g + t holds row or column g and the elements that t picks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/device/soft/codegen/half.h"
#include "backend/device/soft/codegen/matrix.h"
#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

float from_e4m3(uint8_t v) {
  const int exponent = v >> 3 & 15, mantissa = v & 7;
  if ((v & 127) == 127) return NAN;
  const float magnitude = exponent ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 10)
                                   : std::ldexp(static_cast<float>(mantissa), -9);
  return v & 128 ? -magnitude : magnitude;
}

int elements_of(MatrixType t) { return t <= MatrixType::kBf16 ? 2 : t == MatrixType::kTf32 ? 1 : 4; }

float element(MatrixType t, uint32_t reg, int i) {
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
    default:
      return 0;
  }
}

}  // namespace

extern "C" {
static void bsw_mma(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d, uint64_t word) {
  MatrixForm f = std::bit_cast<MatrixForm>(word);
  float left[16][32], right[32][8];
  int p = elements_of(MatrixType(f.a)), depth = f.b_registers * 4 * p;
  bool integer = MatrixType(f.a) == MatrixType::kU8 || MatrixType(f.a) == MatrixType::kS8;
  for (int l = 0; l < kWarpLanes; ++l) {
    int g = l / 4, t = l % 4;
    for (int r = 0; r < f.a_registers; ++r)
      for (int e = 0; e < p; ++e)
        left[g + 8 * (r & 1)][t * p + e + (r >> 1) * 4 * p] = element(MatrixType(f.a), a[r * 32 + l], e);
    for (int r = 0; r < f.b_registers; ++r)
      for (int e = 0; e < p; ++e) right[t * p + e + r * 4 * p][g] = element(MatrixType(f.b), b[r * 32 + l], e);
  }
  for (int l = 0; l < kWarpLanes; ++l) {
    int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i) {
      int row = g + 8 * (i >> 1), column = t * 2 + (i & 1);
      if (integer) {
        int64_t sum = static_cast<int32_t>(c[i * 32 + l]);
        for (int k = 0; k < depth; ++k)
          sum += static_cast<int64_t>(left[row][k]) * static_cast<int64_t>(right[k][column]);
        if (f.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
        d[i * 32 + l] = static_cast<uint32_t>(sum);
        continue;
      }
      uint16_t half = static_cast<uint16_t>(c[(i >> 1) * 32 + l] >> (16 * (i & 1)));
      double sum = f.half_accumulator ? from_f16(half) : std::bit_cast<float>(c[i * 32 + l]);
      for (int k = 0; k < depth; ++k) sum += static_cast<double>(left[row][k]) * right[k][column];
      if (f.half_result) {
        uint32_t bits = to_f16(sum);
        uint32_t& word_out = d[(i >> 1) * 32 + l];
        word_out = i & 1 ? (word_out & 0xffff) | bits << 16 : bits;
      } else {
        d[i * 32 + l] = std::bit_cast<uint32_t>(static_cast<float>(sum));
      }
    }
  }
}

static void bsw_mma_f64(const double* a, const double* b, const double* c, double* d, uint64_t) {
  for (int l = 0; l < kWarpLanes; ++l)
    for (int i = 0; i < 2; ++i) {
      int row = l / 4, column = l % 4 * 2 + i;
      double sum = c[i * 32 + l];
      for (int k = 0; k < 4; ++k) sum = std::fma(a[row * 4 + k], b[column * 4 + k], sum);
      d[i * 32 + l] = sum;
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
  table->push_back({"bsw_mma_f64", (void*)bsw_mma_f64});
  table->push_back({"bsw_stmatrix", (void*)bsw_stmatrix});
  table->push_back({"bsw_movmatrix", (void*)bsw_movmatrix});
  table->push_back({"bsw_ldmatrix", (void*)bsw_ldmatrix});
}

}  // namespace bandsaw::soft
