// Matrix products of warpgroups: every type, both places of the left matrix, every swizzling, both orders of 16-bit
// matrices, several widths, signs and the two accumulators, against a plain product.
// nvcc: -arch=compute_90a -code=compute_90a
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <type_traits>
#include <vector>

#include "check.h"
#include "wgmma.cuh"

namespace {

constexpr int kRows = 64;

// A matrix of `lines` by `bytes` in shared memory as one wgmma reads it, and the fields of its descriptor.
struct Placed {
  int swizzle;  // bytes: 16 (none), 32, 64 or 128
  bool turned;  // the depth is not the contiguous side
  int lines;    // rows of a, columns of b
};

// Where the 16 bytes of chunk `chunk` of line `line` lie, in words of the PTX ISA: along the contiguous side, across
// it.
__host__ __device__ int chunk_at(const Placed& p, int chunk, int line) {
  const int width = p.swizzle / 16, pattern = 8 * p.swizzle;
  const int chunks = p.turned ? p.lines / 8 : 2;  // of 16-bit elements where it is turned
  const int groups = (chunks + width - 1) / width;
  // Patterns that follow one another along the contiguous side lie next to each other.
  const int offset = (line / 8 * groups + chunk / width) * pattern + line % 8 * p.swizzle + chunk % width * 16;
  return offset ^ ((offset >> 7 & (width - 1)) << 4);
}

uint64_t descriptor_fields(const Placed& p) {
  const int width = p.swizzle / 16, pattern = 8 * p.swizzle;
  const int chunks = p.turned ? p.lines / 8 : 2, groups = (chunks + width - 1) / width;
  uint64_t leading = pattern, stride = uint64_t(pattern) * groups;
  if (p.turned && width == 1) std::swap(leading, stride);
  const uint64_t mode = width == 8 ? 1 : width == 4 ? 2 : width == 2 ? 3 : 0;
  return (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62;
}

template <class Form>
__global__ void product(const uint8_t* a, const uint8_t* b, const uint32_t* fragments, uint32_t* d, Placed left,
                        Placed right, uint64_t left_fields, uint64_t right_fields, int adds) {
  __shared__ __align__(1024) uint8_t rows[64 * 128];
  __shared__ __align__(1024) uint8_t columns[256 * 128];
  const auto place = [](uint8_t* to, const uint8_t* from, const Placed& p, int bytes) {
    const int chunks = bytes / 16, lines = p.turned ? 16 : p.lines;
    for (int i = threadIdx.x; i < chunks * lines; i += blockDim.x)
      *reinterpret_cast<uint4*>(to + chunk_at(p, i % chunks, i / chunks)) =
          *reinterpret_cast<const uint4*>(from + i * 16);
  };
  place(rows, a, left, left.turned ? kRows * 2 : 32);
  place(columns, b, right, right.turned ? right.lines * 2 : 32);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const auto describe = [](const uint8_t* at, uint64_t fields) {
    return fields | (static_cast<uint64_t>(__cvta_generic_to_shared(at)) & 0x3ffff) >> 4;
  };
  uint32_t sums[Form::kResults], own[4];
  for (int i = 0; i < Form::kResults; ++i) sums[i] = d[i * 128 + threadIdx.x];
  for (int i = 0; i < 4; ++i) own[i] = fragments[i * 128 + threadIdx.x];
  Form::multiply(sums, own, describe(rows, left_fields), describe(columns, right_fields), adds);
  for (int i = 0; i < Form::kResults; ++i) d[i * 128 + threadIdx.x] = sums[i];
}

template <class T>
T* managed(size_t n) {
  T* made = nullptr;
  CHECK(cudaMallocManaged(&made, n * sizeof(T)));
  return made;
}

// Small whole numbers and halves that every type holds; sums are exact.
double left_value(const Kind& kind, int row, int k) {
  if (kind.bits == 1) return (row * 7 + k * 3) % 5 < 2;
  const int v = (row * 3 + k * 5) % 7;
  return kind.is_signed ? v - 3 : v;
}
double right_value(const Kind& kind, int k, int column) {
  if (kind.bits == 1) return (column * 5 + k * 11) % 3 == 0;
  const int v = (k * 2 + column * 3) % 5;
  return kind.is_signed ? v - 2 : v;
}

// Element `i` of a line of bytes.
void put(uint8_t* line, const Kind& kind, int i, double value) {
  if (kind.bits == 1) {
    line[i / 8] |= uint8_t(int(value) << i % 8);
  } else {
    const uint32_t word = kind.encode(value);
    std::memcpy(line + i * kind.bits / 8, &word, kind.bits / 8);
  }
}

template <class Form>
void check_product(int left_swizzle, int right_swizzle, int adds) {
  constexpr int N = Form::kColumns;
  const Kind left_kind = Form::left(), right_kind = Form::right();
  const int depth = 256 / left_kind.bits;
  const Placed left = {left_swizzle, Form::kLeftTurned, kRows}, right = {right_swizzle, Form::kRightTurned, N};
  auto* a = managed<uint8_t>(kRows * 32);
  auto* b = managed<uint8_t>(N * 32);
  auto* fragments = managed<uint32_t>(4 * 128);
  auto* d = managed<uint32_t>(Form::kResults * 128);
  std::memset(a, 0, kRows * 32);
  std::memset(b, 0, N * 32);
  std::memset(fragments, 0, 4 * 128 * 4);
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < depth; ++k) {
      const double v = left_value(left_kind, row, k);
      left.turned ? put(a + k * kRows * 2, left_kind, row, v) : put(a + row * 32, left_kind, k, v);
      const int in_word = 32 / left_kind.bits, column = k % (4 * in_word);
      const int lane = row / 16 * 32 + row % 8 * 4 + column / in_word, r = row % 16 / 8 + k / (4 * in_word) * 2;
      put(reinterpret_cast<uint8_t*>(&fragments[r * 128 + lane]), left_kind, column % in_word, v);
    }
  for (int column = 0; column < N; ++column)
    for (int k = 0; k < depth; ++k) {
      const double v = right_value(right_kind, k, column);
      right.turned ? put(b + k * N * 2, right_kind, column, v) : put(b + column * 32, right_kind, k, v);
    }
  const auto before = [](int row, int column) { return double((row * 5 + column) % 11 - 5); };
  const auto place_of = [](int row, int column, int* i, int* lane) {
    *lane = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    *i = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
  };
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < N; ++column) {
      int i, lane;
      place_of(row, column, &i, &lane);
      Form::store(d, i, lane, before(row, column));
    }
  product<Form><<<1, 128>>>(a, b, fragments, d, left, right, descriptor_fields(left), descriptor_fields(right), adds);
  CHECK(cudaDeviceSynchronize());
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < N; ++column) {
      double want = adds ? before(row, column) : 0;
      for (int k = 0; k < depth; ++k)
        want += Form::kSign * left_value(left_kind, row, k) * right_value(right_kind, k, column);
      int i, lane;
      place_of(row, column, &i, &lane);
      EXPECT_EQ(Form::load(d, i, lane), want);
    }
  for (void* p : {(void*)a, (void*)b, (void*)fragments, (void*)d}) CHECK(cudaFree(p));
}

template <class Form>
void check_swizzles() {
  for (const int right : {16, 32, 64, 128}) {
    if (Form::kRightTurned && Form::kColumns * 2 < right) continue;
    for (const int left : {16, 32, 64, 128}) {
      if (Form::kLeftInRegisters && left != 16) continue;
      check_product<Form>(left, right, left != right);
    }
  }
}

}  // namespace

int main() {
  check_swizzles<F16>();
  check_swizzles<F16Turned>();
  check_swizzles<F16Registers>();
  check_swizzles<F16Halves>();
  check_swizzles<Bf16>();
  check_swizzles<Tf32>();
  check_swizzles<E4m3>();
  check_swizzles<E5m2Registers>();
  check_swizzles<S8>();
  check_swizzles<U8Registers>();
  check_swizzles<Bits>();
  return passed();
}
