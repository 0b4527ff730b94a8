// Products whose left matrix has half of its elements: mma.sp of every type and depth, and wgmma with such a matrix in
// shared memory and in registers, against a plain product.
// nvcc: -arch=compute_90a -code=compute_90a
#include <vector>

#include "check.h"
#include "wgmma.cuh"

namespace {

template <class T>
T* managed(size_t n) {
  T* made = nullptr;
  CHECK(cudaMallocManaged(&made, n * sizeof(T)));
  for (size_t i = 0; i < n; ++i) made[i] = 0;
  return made;
}

const Kind kU4 = {4, false, [](double v) { return uint32_t(v) & 15; }};
const Kind kS4 = {4, true, [](double v) { return uint32_t(int(v)) & 15; }};

// Element `i` of a row of words.
void put(uint32_t* words, const Kind& kind, int i, double value) {
  const int each = 32 / kind.bits;
  words[i / each] |= kind.encode(value) << (i % each * kind.bits);
}

// 16 rows of a sparse matrix: each group keeps half of its elements, which `kept` names in rising order.
struct Sparse {
  int depth, group, together;  // 4 bits: elements in pairs
  int kept(int row, int n) const {
    const int units = group / together / 2, which = n / together / units, rank = n / together % units;
    const int choice = (row * 5 + which * 3) % 6;
    static const int pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
    const int place = units == 1 ? choice % 2 : pairs[choice][rank];
    return which * group + place * together + n % together;
  }
  // Four bits a group of the metadata.
  int bits(int row, int which) const {
    const int at = which * group / 2, first = (kept(row, at) - which * group) / together;
    if (group == 2) return first ? 0b1110 : 0b0100;
    return first | (kept(row, at + together) - which * group) / together << 2;
  }
};

Sparse sparse_of(const Kind& kind, int depth) {
  return {depth, kind.bits == 32 ? 2 : kind.bits == 4 ? 8 : 4, kind.bits == 4 ? 2 : 1};
}

double left_value(const Kind& kind, int row, int n) {
  const int v = (row * 3 + n * 5) % 7;
  return kind.is_signed ? v - 3 : v;
}
double right_value(const Kind& kind, int k, int column) {
  const int v = (k * 2 + column * 3) % 5;
  return kind.is_signed ? v - 2 : v;
}

// Metadata of the lanes of one warp, whose rows begin at `first`; lanes that do not count hold garbage.
void place_metadata(const Kind& kind, const Sparse& sparse, int first, int selector, uint32_t* lanes) {
  const bool halves = kind.bits >= 16;
  const int row_bits = sparse.depth / sparse.group * 4,
            selectors = halves ? (row_bits == 16 ? 4 : 2) : (row_bits == 32 ? 2 : 1);
  for (int l = 0; l < 32; ++l) lanes[l] = 0xeeeeeeee;
  for (int row = 0; row < 16; ++row) {
    uint64_t bits = 0;
    for (int which = 0; which < sparse.depth / sparse.group; ++which)
      bits |= uint64_t(sparse.bits(first + row, which)) << (4 * which);
    const int lane = row % 8 * 4 + selector * (4 / selectors);
    if (halves) {
      for (int part = 0; part < row_bits / 16; ++part) {
        uint32_t& word = lanes[lane + part];
        const int shift = row / 8 * 16;
        word = (word & ~(0xffffu << shift)) | uint32_t(bits >> (16 * part) & 0xffff) << shift;
      }
    } else {
      for (int part = 0; part < row_bits / 32; ++part) lanes[lane + row / 8 + 2 * part] = uint32_t(bits >> (32 * part));
    }
  }
}

template <class Form>
__global__ void multiply(const uint32_t* a, const uint32_t* b, const uint32_t* metadata, uint32_t* d) {
  uint32_t left[4], right[4], sums[4];
  for (int i = 0; i < 4; ++i) {
    left[i] = a[i * 32 + threadIdx.x];
    right[i] = b[i * 32 + threadIdx.x];
    sums[i] = d[i * 32 + threadIdx.x];
  }
  Form::run(sums, left, right, metadata[threadIdx.x]);
  for (int i = 0; i < 4; ++i) d[i * 32 + threadIdx.x] = sums[i];
}

#define D4 "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
#define SPARSE(form_name, left_kind, right_kind, deep, is_float, which, name)                           \
  struct form_name {                                                                                    \
    static constexpr int kDepth = deep, kSelector = which;                                              \
    static constexpr bool kFloat = is_float;                                                            \
    static Kind left() { return left_kind; }                                                            \
    static Kind right() { return right_kind; }                                                          \
    static __device__ void run(uint32_t* d, const uint32_t* a, const uint32_t* b, uint32_t e) { name; } \
  }
#define SHORT(name, selector)                                                                    \
  asm volatile(name " {%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, " selector ";" \
               : D4                                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(e))
#define LONG(name, selector)                                                                                        \
  asm volatile(name " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, " selector ";" \
               : D4                                                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(e))

SPARSE(F16Short, kF16, kF16, 16, true, 3, SHORT("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "3"));
SPARSE(F16Long, kF16, kF16, 32, true, 1, LONG("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "1"));
SPARSE(Bf16Long, kBf16, kBf16, 32, true, 0,
       LONG("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "0"));
SPARSE(Tf32Short, kTf32, kTf32, 8, true, 2, SHORT("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "2"));
SPARSE(Tf32Long, kTf32, kTf32, 16, true, 1, LONG("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "1"));
SPARSE(E4m3Long, kE4m3, kE5m2, 64, true, 0, LONG("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32", "0"));
SPARSE(S8Short, kS8, kU8, 32, false, 1, SHORT("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", "1"));
SPARSE(U8Long, kU8, kU8, 64, false, 0, LONG("mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.u8.u8.s32", "0"));
SPARSE(S4Short, kS4, kS4, 64, false, 1, SHORT("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "1"));
SPARSE(U4Long, kU4, kU4, 128, false, 0, LONG("mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32", "0"));

double number(uint32_t bits, bool is_float) {
  float real;
  std::memcpy(&real, &bits, 4);
  return is_float ? real : int32_t(bits);
}

double want_of(const Kind& left, const Kind& right, const Sparse& sparse, int row, int column, double begin) {
  for (int n = 0; n < sparse.depth / 2; ++n)
    begin += left_value(left, row, n) * right_value(right, sparse.kept(row, n), column);
  return begin;
}

template <class Form>
void check() {
  const Kind left = Form::left(), right = Form::right();
  const Sparse sparse = sparse_of(left, Form::kDepth);
  auto* a = managed<uint32_t>(4 * 32);
  auto* b = managed<uint32_t>(4 * 32);
  auto* metadata = managed<uint32_t>(32);
  auto* d = managed<uint32_t>(4 * 32);
  const int each = 32 / left.bits;
  for (int row = 0; row < 16; ++row)
    for (int n = 0; n < sparse.depth / 2; ++n)
      put(&a[(row / 8 + n / (4 * each) * 2) * 32 + row % 8 * 4 + n / each % 4], left, n % each,
          left_value(left, row, n));
  for (int column = 0; column < 8; ++column)
    for (int k = 0; k < sparse.depth; ++k)
      put(&b[k / (4 * each) * 32 + column * 4 + k / each % 4], right, k % each, right_value(right, k, column));
  place_metadata(left, sparse, 0, Form::kSelector, metadata);
  for (int i = 0; i < 4 * 32; ++i) d[i] = Form::kFloat ? bits_of(float(i)) : uint32_t(i);
  multiply<Form><<<1, 32>>>(a, b, metadata, d);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < 32; ++l)
      EXPECT_EQ(number(d[i * 32 + l], Form::kFloat),
                want_of(left, right, sparse, l / 4 + i / 2 * 8, l % 4 * 2 + i % 2, i * 32 + l));
  for (void* p : {(void*)a, (void*)b, (void*)metadata, (void*)d}) CHECK(cudaFree(p));
}

// Four warps, 64 rows by 8 columns, depth 32 of f16: rows and columns as core matrices without swizzling.
template <bool Registers>
__global__ void group_product(const uint8_t* a, const uint8_t* b, const uint32_t* fragments, const uint32_t* metadata,
                              uint32_t* d) {
  __shared__ __align__(128) uint8_t rows[64 * 32];
  __shared__ __align__(128) uint8_t columns[8 * 64];
  // 16 bytes of a line lie 128 * lines / 8 after those before them.
  for (int i = threadIdx.x; i < 64 * 2; i += 128)
    *reinterpret_cast<uint4*>(rows + i % 2 * 1024 + i / 2 * 16) = *reinterpret_cast<const uint4*>(a + i * 16);
  for (int i = threadIdx.x; i < 8 * 4; i += 128)
    *reinterpret_cast<uint4*>(columns + i % 4 * 128 + i / 4 * 16) = *reinterpret_cast<const uint4*>(b + i * 16);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const auto describe = [](const void* at, uint64_t leading) {
    return (static_cast<uint64_t>(__cvta_generic_to_shared(at)) & 0x3ffff) >> 4 | leading >> 4 << 16 |
           128ull >> 4 << 32;
  };
  uint32_t s[4], f[4];
  for (int i = 0; i < 4; ++i) {
    s[i] = d[i * 128 + threadIdx.x];
    f[i] = fragments[i * 128 + threadIdx.x];
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  if (Registers)
    asm volatile(
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, %9, 1, 1, 1, -1, "
        "0;"
        : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
        : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "l"(describe(columns, 128)), "r"(metadata[threadIdx.x]));
  else
    asm volatile("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, %6, 0, 1, 1, 1, 0, 0;"
                 : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
                 : "l"(describe(rows, 1024)), "l"(describe(columns, 128)), "r"(metadata[threadIdx.x]));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) d[i * 128 + threadIdx.x] = s[i];
}

template <bool Registers>
void check_group() {
  const Sparse sparse = sparse_of(kF16, 32);
  auto* a = managed<uint32_t>(64 * 8);
  auto* b = managed<uint32_t>(8 * 16);
  auto* fragments = managed<uint32_t>(4 * 128);
  auto* metadata = managed<uint32_t>(128);
  auto* d = managed<uint32_t>(4 * 128);
  for (int row = 0; row < 64; ++row)
    for (int n = 0; n < 16; ++n) {
      put(a + row * 8, kF16, n, left_value(kF16, row, n));
      const int lane = row / 16 * 32 + row % 8 * 4 + n / 2 % 4;
      put(&fragments[(row % 16 / 8 + n / 8 * 2) * 128 + lane], kF16, n % 2, left_value(kF16, row, n));
    }
  for (int column = 0; column < 8; ++column)
    for (int k = 0; k < 32; ++k) put(b + column * 16, kF16, k, right_value(kF16, k, column));
  for (int warp = 0; warp < 4; ++warp) place_metadata(kF16, sparse, warp * 16, Registers ? 1 : 0, metadata + warp * 32);
  for (int i = 0; i < 4 * 128; ++i) d[i] = bits_of(float(i));
  group_product<Registers>
      <<<1, 128>>>(reinterpret_cast<uint8_t*>(a), reinterpret_cast<uint8_t*>(b), fragments, metadata, d);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < 128; ++l) {
      const int row = l / 32 * 16 + l % 32 / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2, old = i * 128 + l;
      const double product = want_of(kF16, kF16, sparse, row, column, 0);
      EXPECT_EQ(number(d[i * 128 + l], true), old + (Registers ? -product : product));
    }
  for (void* p : {(void*)a, (void*)b, (void*)fragments, (void*)metadata, (void*)d}) CHECK(cudaFree(p));
}

}  // namespace

int main() {
  check<F16Short>();
  check<F16Long>();
  check<Bf16Long>();
  check<Tf32Short>();
  check<Tf32Long>();
  check<E4m3Long>();
  check<S8Short>();
  check<U8Long>();
  check<S4Short>();
  check<U4Long>();
  check_group<false>();
  check_group<true>();
  return passed();
}
