// Whole kernels as nvcc compiles them, against the host's answers. The PTX is samples/codegen.ptx.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

std::string sample() {
  std::ifstream file(SAMPLES "/codegen.ptx");
  return {std::istreambuf_iterator<char>(file), {}};
}

Kernels& kernels() {
  static Kernels* k = [] {
    auto* made = new Kernels(sample(), getenv("BANDSAW_TEST_CPU") ? getenv("BANDSAW_TEST_CPU") : "");
    allocate(1);
    return made;
  }();
  if (!k->ok()) ADD_FAILURE() << k->log();
  return *k;
}

#define NEED_KERNELS()    \
  Kernels& k = kernels(); \
  if (!k.ok()) GTEST_SKIP()

Shape line(uint32_t blocks, uint32_t threads) {
  Shape s;
  s.grid[0] = blocks;
  s.block[0] = threads;
  return s;
}

TEST(CodegenKernels, VectorAdd) {
  NEED_KERNELS();
  const int n = 1000;
  float *a = array<float>(n), *b = array<float>(n), *c = array<float>(n + 64);
  for (int i = 0; i < n; ++i) {
    a[i] = i;
    b[i] = 0.5f * i;
  }
  EXPECT_EQ(k.launch("vector_add", line(8, 128), a, b, c, n).fault, 0u);
  for (int i = 0; i < n; ++i) ASSERT_EQ(c[i], 1.5f * i);
  for (int i = n; i < n + 64; ++i) ASSERT_EQ(c[i], 0.0f);
}

void check_matmul(Kernels& k, const char* name, uint32_t tile) {
  const int n = 64;
  float *a = array<float>(n * n), *b = array<float>(n * n), *c = array<float>(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[i] = i % 7 - 3;
    b[i] = i % 5 - 2;
  }
  Shape s;
  s.grid[0] = s.grid[1] = n / tile;
  s.block[0] = s.block[1] = tile;
  Outcome o = k.launch(name, s, a, b, c, n);
  ASSERT_EQ(o.fault, 0u);
  ASSERT_FALSE(o.stuck);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int x = 0; x < n; ++x) sum += a[i * n + x] * b[x * n + j];
      ASSERT_EQ(c[i * n + j], sum) << i << " " << j;
    }
}
TEST(CodegenKernels, Matmul16) {
  NEED_KERNELS();
  check_matmul(k, "matmul16", 16);
}
TEST(CodegenKernels, Matmul32) {
  NEED_KERNELS();
  check_matmul(k, "matmul32", 32);
}

TEST(CodegenKernels, Reduce) {
  NEED_KERNELS();
  const int n = 10000;
  int *in = array<int>(n), *out = array<int>(1), sum = 0;
  for (int i = 0; i < n; ++i) sum += in[i] = i * 3 - 77;
  EXPECT_EQ(k.launch("reduce", line(4, 256), in, out, n).fault, 0u);
  EXPECT_EQ(*out, sum);
}

TEST(CodegenKernels, DivergentLoopAndExit) {
  NEED_KERNELS();
  const int n = 90;
  auto *in = array<unsigned>(n), *out = array<unsigned>(n + 6);
  for (int i = 0; i < n; ++i) in[i] = i + 1;
  in[13] = 0;  // never reaches 1
  EXPECT_EQ(k.launch("collatz", line(3, 32), in, out, n).fault, 0u);
  for (int i = 0; i < n; ++i) {
    unsigned v = in[i], steps = 0;
    while (v != 1 && steps <= 1000) {
      v = v & 1 ? 3 * v + 1 : v / 2;
      ++steps;
    }
    ASSERT_EQ(out[i], v == 1 ? steps : 0xffffffffu) << i;
  }
}

TEST(CodegenKernels, LocksWithinAWarp) {
  NEED_KERNELS();
  for (auto name : {"spin_lock", "spin_lock_plain"}) {
    int *lock = array<int>(1), *counter = array<int>(1);
    Outcome o = k.launch(name, line(2, 64), lock, counter);
    EXPECT_EQ(o.fault, 0u) << name;
    EXPECT_EQ(*counter, 128) << name;
  }
}

TEST(CodegenKernels, LaneWaitsForLane) {
  NEED_KERNELS();
  int *flag = array<int>(1), *out = array<int>(1);
  EXPECT_EQ(k.launch("lane_waits", line(1, 32), flag, out).fault, 0u);
  EXPECT_EQ(*out, 7);
}

TEST(CodegenKernels, GridSync) {
  NEED_KERNELS();
  int *data = array<int>(512), *out = array<int>(8);
  Shape s = line(8, 64);
  s.cooperative = true;
  Outcome o = k.launch("grid_sum", s, data, out);
  EXPECT_EQ(o.fault, 0u);
  EXPECT_FALSE(o.stuck);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], 512 * 513 / 2);
  for (int i = 0; i < 512; ++i) EXPECT_EQ(data[i], 512 * 513 / 2);
}

TEST(CodegenKernels, Recursion) {
  NEED_KERNELS();
  int* out = array<int>(32);
  EXPECT_EQ(k.launch("recursion", line(1, 32), out).fault, 0u);
  int fib[12] = {0, 1};
  for (int i = 2; i < 12; ++i) fib[i] = fib[i - 1] + fib[i - 2];
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], fib[i % 12]) << i;
}

TEST(CodegenKernels, EndlessRecursionFaults) {
  NEED_KERNELS();
  EXPECT_EQ(k.launch("deep", line(1, 32), array<int>(4)).fault, uint32_t(Fault::kStackOverflow));
}

struct Blob {
  int a[10];
  float b;
  double c;
  char d;
  short e;
};
TEST(CodegenKernels, StructsByValue) {
  NEED_KERNELS();
  Blob *p = array<Blob>(32), want[32];
  std::memset(want, 0, sizeof want);
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 10; ++j) p[i].a[j] = i * 100 + j;
    p[i].b = i;
    p[i].c = i * 1.5;
    p[i].d = static_cast<char>(i - 10);
    p[i].e = static_cast<short>(i * 7);
    want[i] = p[i];
    want[i].a[i % 10]++;
    want[i].c *= 2;
    want[i].d = static_cast<char>(want[i].d + 1);
    want[i].e = static_cast<short>(-want[i].e);
  }
  EXPECT_EQ(k.launch("structs", line(1, 32), p).fault, 0u);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(std::memcmp(p[i].a, want[i].a, sizeof p[i].a), 0) << i;
    EXPECT_EQ(p[i].b, want[i].b);
    EXPECT_EQ(p[i].c, want[i].c);
    EXPECT_EQ(p[i].d, want[i].d);
    EXPECT_EQ(p[i].e, want[i].e);
  }
}

TEST(CodegenKernels, FunctionPointers) {
  NEED_KERNELS();
  float* p = array<float>(32);
  for (int i = 0; i < 32; ++i) p[i] = i + 0.5f;
  EXPECT_EQ(k.launch("pointers", line(1, 32), p).fault, 0u);
  for (int i = 0; i < 32; ++i) {
    float x = i + 0.5f;
    EXPECT_EQ(p[i], i % 3 == 0 ? x + 1 : i % 3 == 1 ? x * 2 : -x) << i;
  }
  for (uint64_t wild :
       {uint64_t{0}, uint64_t{0x1234}, reinterpret_cast<uint64_t>(p), kFunctionWindow + 8, kFunctionWindow + 16 * 999})
    EXPECT_EQ(k.launch("wild_pointer", line(1, 32), p, wild).fault, uint32_t(Fault::kInvalidPc)) << wild;
}

TEST(CodegenKernels, PrintfAndAssert) {
  NEED_KERNELS();
  Outcome o = k.launch("says", line(1, 3), 5);
  EXPECT_EQ(o.fault, 0u);
  EXPECT_EQ(o.printed, "number %d\n5;number %d\n6;number %d\n7;");
  o = k.launch("says", line(1, 1), 100);
  EXPECT_EQ(o.fault, uint32_t(Fault::kAssert));
  EXPECT_NE(o.printed.find("n < 100"), std::string::npos);
}

TEST(CodegenKernels, Variables) {
  NEED_KERNELS();
  int* out = array<int>(32);
  EXPECT_EQ(k.launch("variables", line(1, 32), out).fault, 0u);
  const int w[4] = {1, 10, 100, 1000};
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], w[i & 3] + 5);
}

TEST(CodegenKernels, DynamicShared) {
  NEED_KERNELS();
  int* out = array<int>(96);
  Shape s = line(1, 96);
  s.dynamic_shared = 96 * 4;
  EXPECT_EQ(k.launch("dynamic_shared", s, out).fault, 0u);
  for (int i = 0; i < 96; ++i) EXPECT_EQ(out[i], 95 - i + 1000 * (i % 3 + 1));
  s.dynamic_shared = 40;  // too little
  EXPECT_EQ(k.launch("dynamic_shared", s, out).fault, uint32_t(Fault::kIllegalAddress));
}

TEST(CodegenKernels, SharedVariablesAreAlignedWhateverLiesInFrontOfThem) {
  Kernels k(R"(.version 8.6
.target sm_90
.address_size 64
.shared .align 4 .b8 of_all[20];
.func touch() {
  .shared .align 512 .b8 callees[40];
  .reg .u32 %r<3>;
  mov.u32 %r1, callees;
  st.shared.u32 [%r1], 3;
  ret;
}
.visible .entry aligned(.param .u64 out) {
  .shared .align 1024 .b8 own[64];
  .reg .u32 %r<4>;
  .reg .u64 %rd<3>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, own;
  mov.u32 %r2, of_all;
  st.shared.u32 [%r2], 7;
  call touch;
  st.global.u32 [%rd1], %r1;
  st.shared.u32 [%r1+60], 9;
  ld.shared.u32 %r3, [%r2];
  st.global.u32 [%rd1+4], %r3;
  ret;
}
)");
  ASSERT_TRUE(k.ok()) << k.log();
  auto* const out = array<uint32_t>(2);
  EXPECT_EQ(k.launch("aligned", line(1, 1), out).fault, 0u);
  EXPECT_EQ(out[0] % 1024, 0u) << out[0];
  EXPECT_EQ(out[1], 7u);
}

TEST(CodegenKernels, LocalArray) {
  NEED_KERNELS();
  int* out = array<int>(32);
  const int n = 37;
  EXPECT_EQ(k.launch("local_array", line(1, 32), out, n).fault, 0u);
  for (int t = 0; t < 32; ++t) {
    int v[16], s = 0;
    for (int i = 0; i < 16; ++i) v[i] = i * n;
    for (int i = 0; i < n; ++i) v[(i * 7 + t) % 16] += v[(i + t * 3) % 16];
    for (int i = 0; i < 16; ++i) s = static_cast<int>(static_cast<unsigned>(s) * 31 + static_cast<unsigned>(v[i]));
    EXPECT_EQ(out[t], s) << t;
  }
}

TEST(CodegenKernels, Histogram) {
  NEED_KERNELS();
  const int n = 5000;
  auto* in = array<unsigned char>(n);
  auto* out = array<unsigned>(256);
  unsigned want[256] = {};
  for (int i = 0; i < n; ++i) ++want[in[i] = static_cast<unsigned char>(i * i / 3)];
  EXPECT_EQ(k.launch("histogram", line(1, 128), in, out, n).fault, 0u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], want[i]) << i;
}

TEST(CodegenKernels, Maths) {
  NEED_KERNELS();
  const int n = 60;
  float *in = array<float>(n), *out = array<float>(n);
  double *in64 = array<double>(n), *out64 = array<double>(n);
  for (int i = 0; i < n; ++i) in64[i] = in[i] = (i - 30) * 0.37f;
  in[3] = in64[3] = 123456.7f;
  EXPECT_EQ(k.launch("maths", line(1, 64), in, out, n).fault, 0u);
  EXPECT_EQ(k.launch("maths64", line(1, 64), in64, out64, n).fault, 0u);
  for (int i = 0; i < n; ++i) {
    if (i == 3) continue;
    double x = in[i], m = std::fabs(x);
    double want = std::exp(x) + std::sin(x) * std::cos(x) + std::sqrt(m) + std::log(m + 1) + x / 3.7f;
    double want32 = want + std::pow(m, 0.3) + std::fmod(in[i], 1.3f);
    EXPECT_NEAR(out[i], want32, 1e-5 * (1 + std::fabs(want32))) << i;
    double y = in64[i], w = std::exp(y) + std::sin(y) * std::cos(y) + std::sqrt(m) + std::log(m + 1) + y / 3.7;
    EXPECT_NEAR(out64[i], w, 1e-12 * (1 + std::fabs(w))) << i;
  }
}

void expect_halves(Kernels& k) {
  auto *a = array<uint32_t>(32), *b = array<uint32_t>(32), *c = array<uint32_t>(32);
  for (int i = 0; i < 32; ++i) {
    a[i] = 0x3c004000;
    b[i] = 0x40003800;
  }  // {2, 1} and {0.5, 2}, low first
  EXPECT_EQ(k.launch("halves", line(1, 32), a, b, c).fault, 0u);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(c[i], 0x45004300u);  // 2*0.5+2.5 = 3.5, 1*2+3 = 5
}

TEST(CodegenKernels, Halves) {
  NEED_KERNELS();
  expect_halves(k);
}

TEST(CodegenKernels, HalvesWhereTheProcessorDoesNotConvertThem) {
  NEED_KERNELS();
#ifdef __x86_64__
  Kernels least(sample(), "x86-64");
  ASSERT_TRUE(least.ok()) << least.log();
  expect_halves(least);
#endif
}

TEST(CodegenKernels, FloatAtomics) {
  NEED_KERNELS();
  double* d = array<double>(1);
  auto* h = array<uint16_t>(2);
  EXPECT_EQ(k.launch("double_atomic", line(2, 50), d, h).fault, 0u);
  EXPECT_EQ(*d, 50.0);
  EXPECT_EQ(*h, 0x5640);  // 100
}

TEST(CodegenKernels, Votes) {
  NEED_KERNELS();
  auto* out = array<unsigned>(160);
  EXPECT_EQ(k.launch("votes", line(1, 32), out).fault, 0u);
  unsigned ballot = 0;
  for (int i = 0; i < 32; i += 3) ballot |= 1u << i;
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], ballot);
    unsigned match = 0;
    for (int j = 0; j < 32; ++j) match |= (j / 5 == i / 5 ? 1u : 0u) << j;
    EXPECT_EQ(out[32 + i], match);
    EXPECT_EQ(out[64 + i], 496u);
    if (i & 1)
      EXPECT_EQ(out[96 + i], static_cast<unsigned>(((i & 24) | ((i - 2) & 7)) * 10)) << i;
    else
      EXPECT_EQ(out[96 + i], 0x55555555u);
    EXPECT_EQ(out[128 + i], 1u);
  }
}

TEST(CodegenKernels, BarrierReductions) {
  NEED_KERNELS();
  int* out = array<int>(100);
  EXPECT_EQ(k.launch("barrier_counts", line(1, 100), out).fault, 0u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(out[i], 34 * 4 + 2 + 1);
}

TEST(CodegenKernels, EndlessLoopYields) {
  NEED_KERNELS();
  Outcome o = k.launch("endless_loop", line(1, 32), array<int>(1));
  EXPECT_EQ(o.fault, 2u);
  EXPECT_GT(o.yields, 1000u);
}

TEST(CodegenKernels, WildStores) {
  NEED_KERNELS();
  int* p = array<int>(4);
  long outside = static_cast<long>((window_base() + VGPU_WINDOW_BYTES - reinterpret_cast<uint64_t>(p)) / 4);
  EXPECT_EQ(k.launch("wild_store", line(1, 32), p, outside).fault, uint32_t(Fault::kIllegalAddress));
  EXPECT_EQ(k.launch("wild_store", line(1, 32), reinterpret_cast<char*>(p) + 2, 0l).fault,
            uint32_t(Fault::kMisaligned));
  EXPECT_EQ(k.launch("wild_store", line(1, 32), static_cast<int*>(nullptr), 0l).fault,
            uint32_t(Fault::kIllegalAddress));
}

TEST(CodegenKernels, Switch) {
  NEED_KERNELS();
  int *in = array<int>(32), *out = array<int>(32);
  for (int i = 0; i < 32; ++i) in[i] = i % 10;
  EXPECT_EQ(k.launch("switches", line(1, 32), in, out).fault, 0u);
  const int want[10] = {11, 23, 66, 0, 55 + 0 + 1 + 2 + 3, 66, 77, 0, -1, -1};
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], in[i] == 3 ? in[0] : in[i] == 7 ? in[31] - 1 : want[in[i]]) << i;
}

TEST(CodegenKernels, BarriersInSeveralPlaces) {
  NEED_KERNELS();
  int* out = array<int>(64);
  Outcome o = k.launch("split_barriers", line(1, 64), out);
  EXPECT_EQ(o.fault, 0u);
  EXPECT_FALSE(o.stuck);
  auto first = [](int i) { return 63 - i + (i % 2 ? 0 : 1000); };
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], i < 32 ? 2 * first(31 - i) : first(i)) << i;
}

TEST(CodegenKernels, GatherAndScatter) {
  NEED_KERNELS();
  int *in = array<int>(100), *at = array<int>(32), *out = array<int>(32);
  double* wide = array<double>(128);
  for (int i = 0; i < 100; ++i) in[i] = i * i;
  for (int i = 0; i < 64; ++i) wide[64 + i] = i / 4.0;
  for (int i = 0; i < 32; ++i) at[i] = i * 7 % 32;
  EXPECT_EQ(k.launch("gather", line(1, 32), in, at, out, wide).fault, 0u);
  for (int i = 0; i < 32; ++i) {
    bool runs = i % 5 != 2;
    EXPECT_EQ(out[at[i]], runs ? 9 * at[i] * at[i] : 0) << i;
    EXPECT_EQ(wide[at[i]], runs ? at[i] / 4.0 + 1 : 0) << i;
  }
}

}  // namespace
}  // namespace bandsaw::soft::test
