// PTX from end to end: compiler and runtime together.
#include <sys/mman.h>

#include <cstring>
#include <numeric>

#include "tests/unit/soft/host_fixture.h"

namespace bandsaw::soft {
namespace {

constexpr char kPtx[] = R"(
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 4 .u32 total;
.global .align 8 .u64 where = generic(total);
.global .align 1 .b8 text[10] = {98, 108, 111, 99, 107, 32, 37, 117, 10, 0};

.visible .entry add(.param .u64 a, .param .u64 b, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<4>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n];
  setp.ge.u32 %p1, %r4, %r5;
  @%p1 bra DONE;
  ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];
  mul.wide.u32 %d3, %r4, 4;
  add.u64 %d4, %d1, %d3; add.u64 %d5, %d2, %d3;
  ld.global.f32 %f1, [%d4]; ld.global.f32 %f2, [%d5];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%d4], %f3;
DONE:
  ret;
}

.visible .entry sum(.param .u32 rounds)
{
  .reg .pred %p<3>; .reg .b32 %r<10>; .reg .b64 %d<4>;
  .shared .align 4 .u32 sums[32];
  mov.u32 %r1, %tid.x;
  shr.u32 %r2, %r1, 5;
  mov.u32 %r3, sums; shl.b32 %r4, %r2, 2; add.u32 %r4, %r3, %r4;
  ld.param.u32 %r9, [rounds];
AGAIN:
  setp.lt.u32 %p1, %r1, 32;
  @!%p1 bra CLEARED;
  shl.b32 %r5, %r1, 2; add.u32 %r5, %r3, %r5; mov.u32 %r6, 0; st.shared.u32 [%r5], %r6;
CLEARED:
  bar.sync 0;
  atom.shared.add.u32 %r6, [%r4], 1;
  bar.sync 0;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra NEXT;
  ld.shared.u32 %r7, [sums];
  mov.u64 %d1, total; atom.global.add.u32 %r8, [%d1], %r7;
NEXT:
  bar.sync 0;
  sub.u32 %r9, %r9, 1;
  setp.ne.u32 %p1, %r9, 0;
  @%p1 bra AGAIN;
  ret;
}

.visible .entry say()
{
  .reg .b32 %r<3>; .reg .b64 %d<4>; .reg .pred %p;
  .local .align 8 .b8 arguments[8];
  mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 5;
  @%p ret;
  mov.u32 %r1, %ctaid.x; st.local.u32 [arguments], %r1;
  mov.u64 %d1, text; cvta.global.u64 %d1, %d1;
  mov.u64 %d2, arguments; cvta.local.u64 %d2, %d2;
  { .param .b64 f; .param .b64 a; .param .b32 r;
    st.param.b64 [f], %d1; st.param.b64 [a], %d2;
    call.uni (r), vprintf, (f, a); }
  ret;
}

.visible .entry spin()
{
FOREVER:
  bra FOREVER;
}
)";

class PtxTest : public HostFixture {
 protected:
  PtxTest() {
    std::string log;
    EXPECT_EQ(device->library_load(std::as_bytes(std::span(kPtx)), &library, &log), CUDA_SUCCESS) << log;
  }
  KernelRef kernel(const std::string& name) {
    KernelRef found;
    EXPECT_EQ(device->library_kernel(library, name, &found), CUDA_SUCCESS);
    return found;
  }
  LibraryRef library;
};

TEST_F(PtxTest, VectorAdd) {
  constexpr uint32_t kCount = 100000;
  std::vector<float> a(kCount), b(kCount, 0.5f);
  std::iota(a.begin(), a.end(), 0.f);
  const uint64_t da = alloc(4 * kCount), db = alloc(4 * kCount);
  ASSERT_EQ(copy_in(legacy, da, a.data(), 4 * kCount), CUDA_SUCCESS);
  ASSERT_EQ(copy_in(legacy, db, b.data(), 4 * kCount), CUDA_SUCCESS);
  ASSERT_EQ(launch(legacy, kernel("add"), (kCount + 255) / 256, 256, da, db, kCount), CUDA_SUCCESS);
  ASSERT_EQ(copy_out(legacy, b.data(), da, 4 * kCount), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(b[i], a[i] + 0.5f);
}

TEST_F(PtxTest, BarriersSharedAndGlobals) {
  ASSERT_EQ(launch(legacy, kernel("sum"), 40, 256, 25u), CUDA_SUCCESS);
  uint64_t total = 0, where = 0, bytes = 0;
  ASSERT_EQ(device->library_global(context, library, "total", &total, &bytes), CUDA_SUCCESS);
  ASSERT_EQ(device->library_global(context, library, "where", &where, &bytes), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(total), 40u * 25u * 32u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(where), total);
}

TEST_F(PtxTest, Printf) {
  ASSERT_EQ(launch(legacy, kernel("say"), 1, 32), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(host.printed(), "block 0\n");
}

TEST_F(PtxTest, IllegalAddress) {
  const uint64_t a = alloc(4096);
  ASSERT_EQ(launch(legacy, kernel("add"), 5, 256, a, a, 5u * 256u), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(host.poisonings, 1);
}

TEST_F(PtxTest, EndlessKernelsAreKilled) {
  ASSERT_EQ(launch(legacy, kernel("spin"), 100, 256), CUDA_SUCCESS);
  EXPECT_EQ(device->context_destroy(context), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::soft
