// Functions that kernels call through pointers or by name: compiled with the kernel, or one by one when they are
// called.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "backend/device/soft/codegen/glance.h"
#include "codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

// Each lane calls table[lane % 4] with its number. `half` has local memory, and calls a function; `keep` has shared
// memory, and waits for the block; `wrong` has another signature.
constexpr const char* kFunctionsText = R"(.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 r) add(.param .b32 a);
.shared .align 4 .b8 module_bytes[40];
.func (.param .b32 r) deep(.param .b32 a)
{
  .local .align 8 .b8 depot[24];
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [a];
  st.local.u32 [depot+16], %r1;
  ld.local.u32 %r2, [depot+16];
  add.u32 %r2, %r2, 1000;
  st.param.b32 [r], %r2;
  ret;
}
.func (.param .b32 r) add(.param .b32 a)
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [a];
  add.u32 %r2, %r1, 7;
  st.param.b32 [r], %r2;
  ret;
}
.func (.param .b32 r) half(.param .b32 a)
{
  .local .align 16 .b8 depot[64];
  .reg .b32 %r<6>;
  ld.param.u32 %r1, [a];
  st.local.u32 [depot+60], %r1;
  { // call of another function
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r1;
  call.uni (out), deep, (in);
  ld.param.b32 %r2, [out];
  }
  ld.local.u32 %r3, [depot+60];
  add.u32 %r4, %r2, %r3;
  st.param.b32 [r], %r4;
  ret;
}
.func (.param .b32 r) keep(.param .b32 a)
{
  .shared .align 8 .b8 kept[256];
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u32 %r1, [a];
  mov.u32 %r2, kept;
  and.b32 %r3, %r1, 31;
  shl.b32 %r3, %r3, 2;
  add.u32 %r2, %r2, %r3;
  st.shared.u32 [%r2], %r1;
  ld.shared.u32 %r4, [%r2];
  mul.lo.u32 %r4, %r4, 3;
  st.param.b32 [r], %r4;
  ret;
}
.func wrong(.param .b64 a)
{
  ret;
}
.global .align 8 .u64 table[5] = {add, half, keep, deep, wrong};
.visible .entry each(.param .u64 to, .param .u32 first)
{
  .shared .align 4 .b8 own[128];
  .reg .b32 %r<12>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r9, [first];
  mov.u32 %r1, %tid.x;
  mov.u32 %r5, own;
  shl.b32 %r6, %r1, 2;
  add.u32 %r5, %r5, %r6;
  st.shared.u32 [%r5], %r1;
  and.b32 %r2, %r1, 3;
  add.u32 %r2, %r2, %r9;
  mul.wide.u32 %rd2, %r2, 8;
  mov.u64 %rd3, table;
  add.s64 %rd4, %rd3, %rd2;
  ld.global.u64 %rd5, [%rd4];
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r1;
  prototype_0: .callprototype (.param .b32 _) _ (.param .b32 _);
  call (out), %rd5, (in), prototype_0;
  ld.param.b32 %r3, [out];
  }
  ld.shared.u32 %r7, [%r5];
  mul.lo.u32 %r7, %r7, 1000000;
  add.u32 %r3, %r3, %r7;
  mul.wide.u32 %rd6, %r1, 4;
  add.s64 %rd7, %rd1, %rd6;
  st.global.u32 [%rd7], %r3;
  ret;
}
)";

class Functions : public ::testing::TestWithParam<bool> {};

TEST_P(Functions, AreCalledThroughPointers) {
  Kernels kernels(kFunctionsText, "", GetParam());
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  auto* const out = static_cast<uint32_t*>(allocate(128));
  for (int round = 0; round < 2; ++round) {
    const Outcome outcome = kernels.launch("each", {}, reinterpret_cast<uint64_t>(out), uint32_t{0});
    ASSERT_EQ(outcome.fault, 0u) << kernels.log();
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t values[] = {i + 7, 2 * i + 1000, 3 * i, i + 1000};
      EXPECT_EQ(out[i], values[i % 4] + 1000000 * i) << i;
    }
  }
}

// Buffers of calls that lanes fill at different times: within one block, in parts, and in the blocks of a branch.
constexpr const char* kBuffersText = R"(.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 r) plus(.param .b32 a)
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [a];
  add.u32 %r2, %r1, 7;
  st.param.b32 [r], %r2;
  ret;
}
.func (.param .b32 r) sum(.param .align 4 .b8 pair[8])
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [pair];
  ld.param.u32 %r2, [pair+4];
  add.u32 %r3, %r1, %r2;
  st.param.b32 [r], %r3;
  ret;
}
.visible .entry parts(.param .u64 to)
{
  .reg .pred %p<4>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, %tid.x;
  and.b32 %r3, %r1, 1;
  setp.ne.u32 %p0, %r3, 0;
  setp.gt.u32 %p1, %r1, 15;
  and.b32 %r4, %r1, 3;
  mov.u32 %r5, 0;
  mov.u32 %r6, 0;
LOOP:
  @%p0 bra ODD;
  {
  .param .align 4 .b8 pair[8];
  .param .b32 out;
  st.param.b8 [pair], %r1;
  st.param.b8 [pair+1], 0;
  st.param.b16 [pair+2], 0;
  @%p1 bra HIGH;
  st.param.b32 [pair+4], %r6;
  bra CALL;
HIGH:
  st.param.b32 [pair+4], 100;
CALL:
  call.uni (out), sum, (pair);
  ld.param.b32 %r2, [out];
  }
  bra NEXT;
ODD:
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r1;
  @%p1 st.param.b32 [in], 50;
  call.uni (out), plus, (in);
  ld.param.b32 %r2, [out];
  }
NEXT:
  add.u32 %r5, %r5, %r2;
  add.u32 %r6, %r6, 1;
  setp.le.u32 %p2, %r6, %r4;
  @%p2 bra LOOP;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r5;
  ret;
}
)";

TEST_P(Functions, GetWhatEachLaneHasPutIntoTheirBuffers) {
  Kernels kernels(kBuffersText, "", GetParam());
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  auto* const out = static_cast<uint32_t*>(allocate(128));
  const Outcome outcome = kernels.launch("parts", {}, reinterpret_cast<uint64_t>(out));
  ASSERT_EQ(outcome.fault, 0u) << kernels.log();
  for (uint32_t i = 0; i < 32; ++i) {
    uint32_t wanted = 0;
    for (uint32_t round = 0; round <= i % 4; ++round)
      wanted += i % 2 ? (i > 15 ? 50 : i) + 7 : i + (i > 15 ? 100 : round);
    EXPECT_EQ(out[i], wanted) << i;
  }
}

TEST_P(Functions, WithAnotherSignatureAreNotCalled) {
  Kernels kernels(kFunctionsText, "", GetParam());
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  auto* const out = static_cast<uint32_t*>(allocate(128));
  const Outcome outcome = kernels.launch("each", {}, reinterpret_cast<uint64_t>(out), uint32_t{1});
  EXPECT_EQ(outcome.fault, static_cast<uint32_t>(Fault::kInvalidPc));
}

TEST_P(Functions, CountForWhatAKernelTakes) {
  Kernels kernels(kFunctionsText, "", GetParam());
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  std::string log;
  const KernelCode* const code = kernels.program().kernel("each", &log);
  ASSERT_TRUE(code) << log;
  EXPECT_GE(code->local_bytes, 64u + 24u);
  // What nobody names takes no room, unless the functions are compiled apart.
  EXPECT_EQ(code->static_shared_bytes, (GetParam() ? 48u : 0u) + 256u + 128u);
  EXPECT_EQ(kernels.program().kernel("half", &log), nullptr) << "it is no kernel";
}

INSTANTIATE_TEST_SUITE_P(, Functions, ::testing::Values(false, true),
                         [](const auto& one) { return one.param ? "OneByOne" : "AtOnce"; });

// `first` and `second` call `steps` and `own`; `steps` calls itself, and `never` where a lane's number is above 100.
constexpr const char* kNamesText = R"(.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 r) never(.param .b32 a)
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [a];
  st.param.b32 [r], %r1;
  ret;
}
.func (.param .b32 r) steps(.param .b32 a)
{
  .local .align 8 .b8 depot[8];
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  ld.param.u32 %r1, [a];
  mov.u32 %r5, 0;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra END;
  setp.gt.u32 %p2, %r1, 100;
  @%p2 bra FAR;
  st.local.u32 [depot], %r1;
  sub.u32 %r2, %r1, 1;
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r2;
  call.uni (out), steps, (in);
  ld.param.b32 %r3, [out];
  }
  ld.local.u32 %r4, [depot];
  add.u32 %r5, %r3, %r4;
  bra END;
FAR:
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r1;
  call.uni (out), never, (in);
  ld.param.b32 %r5, [out];
  }
END:
  st.param.b32 [r], %r5;
  ret;
}
.func (.param .b32 r) own(.param .b32 a)
{
  .shared .align 4 .b8 kept[128];
  .reg .b32 %r<6>;
  ld.param.u32 %r1, [a];
  mov.u32 %r2, kept;
  and.b32 %r3, %r1, 31;
  shl.b32 %r3, %r3, 2;
  add.u32 %r2, %r2, %r3;
  st.shared.u32 [%r2], %r1;
  ld.shared.u32 %r4, [%r2];
  st.param.b32 [r], %r4;
  ret;
}
.visible .entry first(.param .u64 to)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, %tid.x;
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r1;
  call.uni (out), steps, (in);
  ld.param.b32 %r2, [out];
  call.uni (out), own, (in);
  ld.param.b32 %r3, [out];
  }
  mad.lo.u32 %r4, %r3, 1000, %r2;
  mad.wide.u32 %rd2, %r1, 4, %rd1;
  st.global.u32 [%rd2], %r4;
  ret;
}
.visible .entry second(.param .u64 to)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, 7;
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r1;
  call.uni (out), steps, (in);
  ld.param.b32 %r2, [out];
  }
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

// Shared memory lies elsewhere for each kernel: who has some comes with each.
TEST(FunctionsByName, AreCompiledApartOnceWhereTheyAreLong) {
  for (const bool apart : {false, true}) {
    for (const bool large : {false, true}) {
      reset_memory();
      CompileOptions options;
      if (large) options.functions_at_once = 0;
      if (apart) options.function_at_once = 0;
      Kernels kernels(kNamesText, options);
      ASSERT_TRUE(kernels.ok()) << kernels.log();
      auto* const out = array<uint32_t>(32);
      ASSERT_EQ(kernels.launch("first", {}, out).fault, 0u) << kernels.log();
      for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i * 1000 + i * (i + 1) / 2) << i;
      ASSERT_EQ(kernels.launch("second", {}, out).fault, 0u) << kernels.log();
      EXPECT_EQ(out[0], 28u);
      EXPECT_EQ(kernels.started(), apart ? std::vector<std::string>{"steps"} : std::vector<std::string>{});
    }
  }
}

TEST(FunctionsByName, AreKeptApartInTheCache) {
  char folder[] = "/tmp/bandsaw-functions-XXXXXX";
  ASSERT_TRUE(mkdtemp(folder));
  for (int round = 0; round < 2; ++round) {
    reset_memory();
    CompileOptions options;
    options.function_at_once = 0;
    options.cache_directory = folder;
    unsigned generated = 0;
    options.generates = [&generated] { ++generated; };
    Kernels kernels(kNamesText, options);
    ASSERT_TRUE(kernels.ok()) << kernels.log();
    auto* const out = array<uint32_t>(256);
    ASSERT_EQ(kernels.launch("first", {{1, 1, 1}, {128, 1, 1}}, out).fault, 0u) << kernels.log();
    for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i * 1000 + (i > 100 ? i : i * (i + 1) / 2)) << i;
    EXPECT_EQ(kernels.started(), (std::vector<std::string>{"steps", "never"}));
    EXPECT_EQ(generated, round == 0 ? 3u : 0u);
  }
  std::filesystem::remove_all(folder);
}

// Of each kind: `twice` returns in the middle under a guard and at its end without a word, `plain` takes memory too.
TEST(Registers, AreArgumentsAndResults) {
  reset_memory();
  Kernels kernels(R"(.version 8.0
.target sm_90
.address_size 64
.func (.reg .u32 r, .reg .u64 wide) twice(.reg .u32 a, .reg .s16 b, .reg .u64 c)
{
  .reg .pred p; .reg .b32 t;
  cvt.u64.u32 wide, a;
  add.u64 wide, wide, c;
  cvt.s32.s16 t, b;
  add.u32 r, a, t;
  setp.lt.u32 p, a, 16;
  @p ret;
  { .reg .b32 a; mov.b32 a, 1000; add.u32 r, r, a; }
}
.visible .func (.param .align 4 .b8 result[4]) plain(.reg .u64 base, .param .align 4 .b8 params[8])
{
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [params+4];
  cvt.u32.u64 %r2, base;
  add.u32 %r3, %r1, %r2;
  st.param.b32 [result], %r3;
  ret;
}
.global .align 8 .u64 table[1] = {plain};
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<9>; .reg .b64 %a, %d<4>; .reg .s16 %h; .reg .pred %p;
  ld.param.u64 %a, [out]; mov.u32 %r0, %laneid; mad.wide.u32 %a, %r0, 16, %a;
  mov.b16 %h, -3;
  mov.u32 %r1, 7; mov.u64 %d1, 8; setp.ne.u32 %p, %r0, 5;
  @%p call (%r1, %d1), twice, (%r0, %h, 0x100000000);
  { .param .align 4 .b8 in[8]; .param .align 4 .b8 back[4];
    proto: .callprototype (.param .align 4 .b8 _[4]) _ (.reg .u64 base, .param .align 4 .b8 _[8]);
    st.param.b32 [in+4], %r0;
    cvt.u64.u32 %d2, %r1;
    ld.global.u64 %d3, table[0];
    call (back), %d3, (%d2, in), proto;
    ld.param.b32 %r2, [back];
  }
  st.global.u64 [%a], %d1; st.global.u32 [%a+8], %r1; st.global.u32 [%a+12], %r2;
  ret;
}
)");
  ASSERT_TRUE(kernels.ok()) << kernels.log();
  struct Row {
    uint64_t wide;
    uint32_t direct, by_pointer;
  };
  auto* const out = array<Row>(32);
  ASSERT_EQ(kernels.launch("k", {}, out).fault, 0u) << kernels.log();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t direct = i == 5 ? 7 : i - 3 + (i < 16 ? 0 : 1000);
    EXPECT_EQ(out[i].wide, i == 5 ? 8 : i + 0x100000000ull) << i;
    EXPECT_EQ(out[i].direct, direct) << i;
    EXPECT_EQ(out[i].by_pointer, direct + i) << i;
  }
}

TEST(Glance, SeesCallsAndMemory) {
  const Glance seen = glance(R"({
  .local .align 16 .b8 depot[64];
  .reg .b32 %recall;  // callseq 5, 0
  ld.local.u32 %r1, [depot];
  call.uni (retval0), named, (param0, param1);
  call plain;
  call (r), other, (a);
  $call: add.u32 %r1, %r1, 1;
  call.uni
    _Znext,
    (a);
  .extern .shared .align 8 .b8 late[];
})");
  EXPECT_EQ(seen.callees, (std::set<std::string>{"_Znext", "named", "other", "plain"}));
  EXPECT_FALSE(seen.calls_pointers);
  ASSERT_EQ(seen.memory.size(), 2u);
  EXPECT_NE(seen.memory[0].find("depot[64];"), std::string::npos);
  EXPECT_NE(seen.memory[1].find(".extern"), std::string::npos);
  EXPECT_TRUE(glance("{ call (r), %rd5, (a), p; }").calls_pointers);
  EXPECT_TRUE(glance("call").callees.empty());
  EXPECT_TRUE(glance("{ call").callees.empty());
  EXPECT_TRUE(glance("{ call (").callees.empty());
  EXPECT_EQ(glance("{ .local .b8 a").memory.size(), 1u);
}

}  // namespace
}  // namespace bandsaw::soft::test
