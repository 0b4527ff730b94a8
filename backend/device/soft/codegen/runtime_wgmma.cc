// wgmma.mma_async: matrices that lie in shared memory as descriptors say (PTX ISA 9.7.15.5).
#include "backend/device/soft/codegen/wgmma.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/device/soft/codegen/matrix_element.h"
#include "backend/device/soft/codegen/product.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/sparse.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kSwizzled = 16;  // bytes that swizzling keeps together

struct WgmmaDescriptor {
  uint32_t start, leading, stride;  // bytes
  uint32_t first_row;               // of the swizzle pattern, in 128 bytes
  uint32_t width;                   // chunks in a row of the pattern: 1 without swizzling, 2, 4 or 8

  static WgmmaDescriptor of(uint64_t bits) {
    constexpr uint32_t kWidths[] = {1, 8, 4, 2};
    const auto field = [&](int at) { return static_cast<uint32_t>(bits >> at & 0x3fff) << 4; };
    return {field(0), field(16), field(32), static_cast<uint32_t>(bits >> 49 & 7), kWidths[bits >> 62]};
  }
  uint32_t swizzled(uint32_t address) const {
    const uint32_t row = ((address >> 7) - first_row) & (width - 1);
    return address ^ row << 4;
  }
  // Chunk `chunk` along the contiguous side, line `line` along the other one. Where the depth is contiguous, lines are
  // rows of the left matrix or columns of the right one.
  uint32_t at(uint32_t chunk, uint32_t line, bool depth_contiguous) const {
    const bool swapped = width == 1 && !depth_contiguous;
    const uint32_t by_chunk = swapped ? stride : leading, by_line = swapped ? leading : stride;
    const uint32_t offset =
        chunk / width * by_chunk + chunk % width * kSwizzled + line / 8 * by_line + line % 8 * width * kSwizzled;
    return swizzled(start + offset);
  }
};

// One matrix in shared memory. Reads lines [first, first + lines) of `depth` elements into out[line * line_step +
// k * k_step].
struct WgmmaSource {
  WarpState* warp;
  WgmmaDescriptor where;
  MatrixType type;
  bool depth_contiguous;
  float sign;

  const std::byte* chunk(uint32_t address) const {
    if (address > warp->shared_bytes || warp->shared_bytes - address < kSwizzled)
      bandsaw_fault(warp, static_cast<uint32_t>(Fault::kIllegalAddress), kSharedWindow + address);
    return warp->shared + address;
  }
  // The elements of a chunk to out[i * step].
  template <MatrixType kType>
  void put_chunk(uint32_t address, float* out, uint32_t step) const {
    constexpr uint32_t kInWord = matrix_elements(kType), kCount = kSwizzled / 4 * kInWord;
    uint32_t words[kSwizzled / 4];
    float numbers[kCount];
    std::memcpy(words, chunk(address), kSwizzled);
    for (uint32_t i = 0; i < kCount; ++i)
      numbers[i] = element(kType, words[i / kInWord], static_cast<int>(i % kInWord));
    for (uint32_t i = 0; i < kCount; ++i) out[i * step] = numbers[i] * sign;
  }
  void read(uint32_t first, uint32_t lines, uint32_t depth, float* out, uint32_t line_step, uint32_t k_step) const {
    with_matrix_type(type, [&]<MatrixType kType>() {
      constexpr uint32_t kInChunk = kSwizzled / 4 * matrix_elements(kType);
      if (depth_contiguous) {
        for (uint32_t line = 0; line < lines; ++line)
          for (uint32_t c = 0; c < depth / kInChunk; ++c)
            put_chunk<kType>(where.at(c, first + line, true), out + line * line_step + c * kInChunk * k_step, k_step);
        return;
      }
      for (uint32_t k = 0; k < depth; ++k)
        for (uint32_t c = 0; c < lines / kInChunk; ++c)
          put_chunk<kType>(where.at(first / kInChunk + c, k, false), out + c * kInChunk * line_step + k * k_step,
                           line_step);
    });
  }
};

// A worker runs one warp at a time, and nothing here gives its core away.
struct WgmmaFactors {
  alignas(64) float a[16 * kWgmmaDeepest];
  float packed[16 * kWgmmaDeepest];  // of a sparse one
  alignas(64) float b[kWgmmaDeepest * kWgmmaColumns];
  alignas(64) double d[16 * kWgmmaColumns];
};
thread_local WgmmaFactors g_factors;

void wgmma_left(const uint32_t* a, const WgmmaForm& f, float* out) {
  const uint32_t in_word = matrix_elements(MatrixType(f.a));
  const float sign = f.negate_a ? -1.0f : 1.0f;
  for (uint32_t l = 0; l < kWarpLanes; ++l)
    for (uint32_t r = 0; r < 4; ++r)
      for (uint32_t e = 0; e < in_word; ++e) {
        const uint32_t row = l / 4 + 8 * (r & 1), k = l % 4 * in_word + (r >> 1) * 4 * in_word + e;
        out[row * kWgmmaDeepest + k] = element(MatrixType(f.a), a[r * kWarpLanes + l], static_cast<int>(e)) * sign;
      }
}

// Element i of lane l lies in row l / 4 + 8 * (i / 2 % 2) and column 8 * (i / 4) + 2 * (l % 4) + i % 2.
template <class F>
void each_wgmma_result(uint32_t columns, F&& f) {
  for (uint32_t eight = 0; eight < columns / 8; ++eight)
    for (uint32_t row = 0; row < 16; ++row)
      for (uint32_t column = 0; column < 8; ++column)
        f(eight * 4 + row / 8 * 2 + column % 2, row % 8 * 4 + column / 2, row * kWgmmaColumns + eight * 8 + column);
}

uint32_t wgmma_integer(double sum, uint32_t old, MatrixSum kind) {
  const int64_t all = static_cast<int64_t>(sum) + static_cast<int32_t>(old);
  if (kind == MatrixSum::kSaturate) return static_cast<uint32_t>(std::clamp<int64_t>(all, INT32_MIN, INT32_MAX));
  return static_cast<uint32_t>(static_cast<uint64_t>(all));
}

}  // namespace

extern "C" {
// `a`: four registers of a fragment, or null where a_descriptor says where the matrix lies. `d`: registers, old and
// new.
static void bsw_wgmma(WarpState* warp, uint32_t mask, const uint32_t* a, uint64_t a_descriptor, uint64_t b_descriptor,
                      uint32_t* d, uint64_t word, uint32_t adds, const uint32_t* metadata) {
  if (!mask) return;
  const auto f = std::bit_cast<WgmmaForm>(word);
  const uint32_t columns = f.columns8 * 8u, stored = kWgmmaRowBytes / 4 * matrix_elements(MatrixType(f.a));
  const uint32_t depth = f.sparse ? 2 * stored : stored;
  WgmmaFactors& t = g_factors;
  if (f.a_in_registers) {
    wgmma_left(a, f, t.a);
  } else {
    const WgmmaSource left = {warp, WgmmaDescriptor::of(a_descriptor), MatrixType(f.a), !f.a_by_columns,
                              f.negate_a ? -1.0f : 1.0f};
    left.read(warp->warp_id % 4 * 16, 16, stored, t.a, kWgmmaDeepest, 1);
  }
  if (f.sparse) {
    std::memcpy(t.packed, t.a, sizeof t.packed);
    sparse_expand(t.packed, t.a, kWgmmaDeepest, metadata, f.selector, MatrixType(f.a), depth);
  }
  const WgmmaSource right = {warp, WgmmaDescriptor::of(b_descriptor), MatrixType(f.b), !f.b_by_rows,
                             f.negate_b ? -1.0f : 1.0f};
  right.read(0, columns, depth, t.b, 1, kWgmmaColumns);
  const auto half = [&](uint32_t i, uint32_t l) {
    return static_cast<uint16_t>(d[(i >> 1) * kWarpLanes + l] >> (16 * (i & 1)));
  };
  if (!adds || f.result == WgmmaResult::kS32) {
    for (uint32_t row = 0; row < 16; ++row) std::fill_n(t.d + row * kWgmmaColumns, columns, 0.0);
  } else if (f.result == WgmmaResult::kF16) {
    each_wgmma_result(columns, [&](uint32_t i, uint32_t l, uint32_t at) { t.d[at] = from_f16(half(i, l)); });
  } else {
    each_wgmma_result(
        columns, [&](uint32_t i, uint32_t l, uint32_t at) { t.d[at] = std::bit_cast<float>(d[i * kWarpLanes + l]); });
  }
  add_products(t.d, t.a, t.b, {16, columns, depth, kWgmmaColumns, kWgmmaDeepest, kWgmmaColumns});
  if (f.result == WgmmaResult::kF32) {
    return each_wgmma_result(columns, [&](uint32_t i, uint32_t l, uint32_t at) {
      d[i * kWarpLanes + l] = std::bit_cast<uint32_t>(static_cast<float>(t.d[at]));
    });
  }
  each_wgmma_result(columns, [&](uint32_t i, uint32_t l, uint32_t at) {
    if (f.result == WgmmaResult::kF16) {
      uint32_t& out = d[(i >> 1) * kWarpLanes + l];
      const uint32_t bits = to_f16(t.d[at]);
      out = i & 1 ? (out & 0xffff) | bits << 16 : (out & 0xffff0000) | bits;
      return;
    }
    uint32_t& out = d[i * kWarpLanes + l];
    out = wgmma_integer(t.d[at], adds ? out : 0, f.sum);
  });
}

// Of the four warps that multiply together none goes on before all are here: behind a fence it may read what each of
// them stored, and behind a wait overwrite what another one read.
static void bsw_wgmma_meet(WarpState* warp, uint32_t mask) {
  if (mask) bandsaw_warpgroup(warp);
}
}

void add_wgmma_symbols(SymbolTable* table) {
  table->push_back({"bsw_wgmma", (void*)bsw_wgmma});
  table->push_back({"bsw_wgmma_meet", (void*)bsw_wgmma_meet});
}

}  // namespace bandsaw::soft
