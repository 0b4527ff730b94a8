// mbarrier objects and bulk copies, against what PTX says of each step.
#include <gtest/gtest.h>

#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

const std::string kBegin = R"(.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{
  .shared .align 16 .b8 buffer[1024];
  .shared .align 8 .b64 bar;
  .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
  mov.u32 %r1, %tid.x; mov.u32 %r0, bar;
  ld.param.u64 %rd1, [out]; mad.wide.u32 %rd2, %r1, 8, %rd1; ld.param.u64 %rd3, [in];
)";

std::vector<uint64_t> run(const std::string& body, uint32_t threads, const void* in = nullptr) {
  Kernels k(kBegin + body + "\nret;\n}\n");
  EXPECT_TRUE(k.ok()) << k.log();
  if (!k.ok()) return {};
  auto* out = array<uint64_t>(1024);
  Shape shape;
  shape.block[0] = threads;
  const Outcome outcome = k.launch("k", shape, out, in);
  EXPECT_EQ(outcome.fault, 0u);
  EXPECT_FALSE(outcome.stuck);
  return {out, out + 1024};
}

// One thread goes through phases by hand.
TEST(CodegenMbarrier, CountsArrivalsAndBytes) {
  const auto out = run(R"(
  mbarrier.init.shared::cta.b64 [%r0], 3;
  mbarrier.arrive.shared.b64 %rd4, [%r0];
  mbarrier.pending_count.b64 %r2, %rd4; st.global.u32 [%rd1], %r2;
  mbarrier.test_wait.shared.b64 %p1, [%r0], %rd4; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+8], %r2;
  mbarrier.test_wait.parity.shared.b64 %p1, [%r0], 1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+16], %r2;
  mbarrier.arrive.release.cta.shared.b64 %rd5, [%r0], 2;
  mbarrier.test_wait.shared.b64 %p1, [%r0], %rd4; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+24], %r2;
  mbarrier.test_wait.parity.shared.b64 %p1, [%r0], 0; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+32], %r2;
  mbarrier.arrive_drop.shared.b64 %rd6, [%r0];
  mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 48;
  mbarrier.arrive.shared.b64 _, [%r0];
  mbarrier.try_wait.parity.shared.b64 %p1, [%r0], 1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+40], %r2;
  mbarrier.complete_tx.relaxed.cta.shared.b64 [%r0], 48;
  mbarrier.try_wait.parity.shared.b64 %p1, [%r0], 1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+48], %r2;
  mbarrier.arrive.shared.b64 _, [%r0]; mbarrier.arrive.shared.b64 %rd7, [%r0];
  mbarrier.pending_count.b64 %r2, %rd7; st.global.u32 [%rd1+56], %r2;
  mbarrier.test_wait.parity.shared.b64 %p1, [%r0], 0; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+64], %r2;
  mbarrier.inval.shared.b64 [%r0];
)",
                       1);
  ASSERT_FALSE(out.empty());
  const uint64_t want[] = {3, 0, 1, 1, 1, 0, 1, 1, 1};
  for (size_t i = 0; i < std::size(want); ++i) EXPECT_EQ(out[i], want[i]) << i;
}

// Each lane asks for a parity of its own.
TEST(CodegenMbarrier, ParityByLane) {
  const auto out = run(R"(
  mbarrier.init.shared.b64 [%r0], 5;
  and.b32 %r2, %r1, 1;
  mbarrier.test_wait.parity.shared.b64 %p1, [%r0], %r2; selp.u32 %r3, 1, 0, %p1; cvt.u64.u32 %rd5, %r3; st.global.u64 [%rd2], %rd5;
)",
                       32);
  ASSERT_FALSE(out.empty());
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2) << i;
}

// Warps of a block wait for each other in a loop, three times over.
TEST(CodegenMbarrier, WarpsWait) {
  const auto out = run(R"(
  mov.u32 %r9, buffer; shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r9;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [%r0], 96;
READY:
  bar.sync 0;
  mov.u32 %r4, 0; mov.u32 %r8, 0;
ROUND:
  add.u32 %r5, %r1, %r4; st.shared.u32 [%r3], %r5;
  mbarrier.arrive.shared.b64 %rd4, [%r0];
WAIT:
  mbarrier.try_wait.shared.b64 %p2, [%r0], %rd4;
  @!%p2 bra WAIT;
  sub.u32 %r6, 95, %r1; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r9; ld.shared.u32 %r7, [%r6];
  add.u32 %r8, %r8, %r7;
  bar.sync 0;
  add.u32 %r4, %r4, 100;
  setp.lt.u32 %p3, %r4, 300;
  @%p3 bra ROUND;
  cvt.u64.u32 %rd5, %r8; st.global.u64 [%rd2], %rd5;
)",
                       96);
  ASSERT_FALSE(out.empty());
  for (uint64_t i = 0; i < 96; ++i) EXPECT_EQ(out[i], 3 * (95 - i) + 300) << i;
}

// Bytes come into shared memory, the barrier tells when, and go out again.
TEST(CodegenMbarrier, BulkCopies) {
  auto* in = array<uint64_t>(64);
  for (uint64_t i = 0; i < 64; ++i) in[i] = i * i + 7;
  const auto out = run(R"(
  prefetch.global.L2 [%rd3]; prefetch.global.L2::evict_last [%rd3]; prefetchu.L1 [%rd3];
  mov.u32 %r9, buffer;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [%r0], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd3], 512, [%r0];
READY:
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r0], 0;
  @!%p2 bra WAIT;
  shl.b32 %r3, %r1, 3; add.u32 %r3, %r3, %r9;
  ld.shared.u64 %rd5, [%r3]; add.u64 %rd5, %rd5, 1; st.shared.u64 [%r3], %rd5;
  fence.proxy.async.shared::cta; fence.proxy.tensormap::generic.release.gpu;
  fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128; fence.acquire.sync_restrict::shared::cluster.cluster;
  fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
  bar.sync 0;
  @%p1 bra DONE;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], 512;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
DONE:
)",
                       64, in);
  ASSERT_FALSE(out.empty());
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i * i + 8) << i;
}

// Of each 16 bytes those that a mask names; and all but the first and last ones, of which the barrier hears too.
TEST(CodegenMbarrier, BulkCopiesOfSomeBytes) {
  auto* in = array<uint8_t>(64);
  for (int i = 0; i < 64; ++i) in[i] = static_cast<uint8_t>(i + 1);
  const auto out = run(R"(
  .reg .b16 %rs<3>;
  mov.u32 %r9, buffer; mov.u64 %rd5, -1;
  st.shared.v2.u64 [%r9], {%rd5, %rd5}; st.shared.v2.u64 [%r9+16], {%rd5, %rd5};
  st.shared.v2.u64 [%r9+32], {%rd5, %rd5}; st.shared.v2.u64 [%r9+48], {%rd5, %rd5};
  mbarrier.init.shared.b64 [%r0], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 48;
  mov.u32 %r5, 3; mov.u32 %r6, 5;
  cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r9], [%rd3], 48, %r5, %r6, [%r0];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r0], 0;
  @!%p2 bra WAIT;
  mov.u16 %rs1, 0x8003;
  cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r9], 64, %rs1;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  ld.shared.u64 %rd6, [%r9]; st.global.u64 [%rd1+512], %rd6;
  ld.shared.u64 %rd6, [%r9+40]; st.global.u64 [%rd1+520], %rd6;
)",
                       1, in);
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out[64], 0x0807060504ffffffu);  // the first three as they were
  EXPECT_EQ(out[65], 0xffffffffff2b2a29u);  // and the last five
  EXPECT_EQ(out[0], 0xffffu);
  EXPECT_EQ(out[1], 0x10ull << 56);
  EXPECT_EQ(out[2], 0x1211u);
  EXPECT_EQ(out[3], 0x20ull << 56);
  EXPECT_EQ(out[7], 0xffull << 56);
}

// No block is ever given to another one.
TEST(CodegenMbarrier, LaunchesAreNotCancelled) {
  const auto out = run(R"(
  .reg .b128 %rq<2>;
  mov.u32 %r9, buffer; mov.u64 %rd5, -1;
  st.shared.v2.u64 [%r9], {%rd5, %rd5};
  mbarrier.init.shared.b64 [%r0], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 16;
  clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r9], [%r0];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r0], 0;
  @!%p2 bra WAIT;
  ld.shared.v2.b64 {%rd6, %rd7}, [%r9];
  mov.b128 %rq1, {%rd6, %rd7};
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %rq1;
  selp.u64 %rd8, 1, 2, %p1; st.global.u64 [%rd1], %rd8;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r3, %rq1;
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r4, %r5, %r6, %r7}, %rq1;
  add.u32 %r3, %r3, %r7; cvt.u64.u32 %rd8, %r3; st.global.u64 [%rd1+8], %rd8;
)",
                       1);
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out[0], 2u);
  EXPECT_EQ(out[1], 0u);
}

}  // namespace
}  // namespace bandsaw::soft::test
