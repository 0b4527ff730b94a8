// Where lanes of a warp go, and what they do when they get there.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

const std::string kFlowHead = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<8>; .reg .b64 %o; .reg .pred %p<4>;
  ld.param.u64 %o, [out]; mov.u32 %r0, %laneid; mad.wide.u32 %o, %r0, 4, %o;
)";
const std::string kFlowEnd = "  st.global.u32 [%o], %r1;\n  ret;\n}\n";

// What each lane stores.
uint32_t* run_flow(const std::string& code, Outcome* outcome, CompileOptions::Passes passes) {
  reset_memory();
  Kernels kernels(kFlowHead + code + kFlowEnd, "", false, passes);
  auto* const out = array<uint32_t>(32);
  if (kernels.ok()) *outcome = kernels.launch("k", {}, reinterpret_cast<uint64_t>(out));
  return out;
}

class Flow : public ::testing::TestWithParam<CompileOptions::Passes> {};

TEST_P(Flow, AGuardMayBeAnOperandToo) {
  Outcome outcome;
  const uint32_t* const out = run_flow(R"(
  setp.gt.u32 %p0, %r0, 7; mov.u32 %r1, 5;
  @%p0 set.le.or.u32.f32 %r1, 0f3f800000, 0f40000000, %p0;
)",
                                       &outcome, GetParam());
  ASSERT_EQ(outcome.fault, 0u);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane > 7 ? 0xffffffff : 5) << lane;
}

TEST_P(Flow, LanesGatherBehindABranchThatSomeTake) {
  Outcome outcome;
  const uint32_t* const out = run_flow(R"(
  setp.lt.u32 %p0, %r0, 12; setp.ne.u32 %p1, %r0, 20; mov.u32 %r1, 0;
  @%p0 bra SOME;
  bra ALL;
SOME:
  mov.u32 %r1, 100;
ALL:
  vote.sync.ballot.b32 %r2, %p1, -1;
  add.u32 %r1, %r1, %r2;
)",
                                       &outcome, GetParam());
  ASSERT_EQ(outcome.fault, 0u);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], ~(1u << 20) + (lane < 12 ? 100 : 0)) << lane;
}

// More than the stack has room for, and too many for all of LLVM's passes.
TEST(VeryLargeKernel, RegistersKeepTheirValues) {
  constexpr uint32_t kRegisters = 3400, kGroup = 100;
  std::string code = "  .reg .b32 %q<3400>;\n  mov.u32 %r1, 0;\n";
  const auto branch = [&](const std::string& label, uint32_t from, const std::string& work) {
    code +=
        "  setp.gt.u32 %p0, %r0, " + std::to_string(from) + ";\n  @%p0 bra " + label + ";\n  " + work + label + ":\n";
  };
  const auto group = [](uint32_t i) { return std::to_string(i / kGroup); };
  for (uint32_t i = 0; i < kRegisters; ++i) {
    const std::string q = "%q" + std::to_string(i), n = std::to_string(i);
    code += "  mad.lo.u32 " + q + ", %r0, " + n + ", " + n + ";\n";
    if (i % kGroup == kGroup - 1) branch("A" + group(i), i / kGroup % 32, "add.u32 " + q + ", " + q + ", 1;\n");
  }
  for (uint32_t i = 0; i < kRegisters; ++i) {
    code += "  mad.lo.u32 %r1, %r1, 3, %q" + std::to_string(i) + ";\n";
    if (i % kGroup == kGroup - 1) branch("B" + group(i), 8, "xor.b32 %r1, %r1, 5;\n");
  }
  Outcome outcome;
  const uint32_t* const out = run_flow(code, &outcome, CompileOptions::Passes::kBySize);
  ASSERT_EQ(outcome.fault, 0u);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < kRegisters; ++i) {
      const bool last = i % kGroup == kGroup - 1;
      sum = sum * 3 + lane * i + i + (last && lane <= i / kGroup % 32 ? 1 : 0);
      if (last && lane <= 8) sum ^= 5;
    }
    EXPECT_EQ(out[lane], sum) << lane;
  }
}

TEST_P(Flow, NoAddressIsOneOfAMulticastObject) {
  const std::string before = "setp.gt.u32 %p0, %r0, ", access = R"(; mov.u32 %r1, 7;
  @%p0 multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%o];
  @%p0 multimem.st.global.b32 [%o], %r1;
  @%p0 multimem.red.relaxed.sys.global.add.u32 [%o], %r1;
)";
  Outcome outcome;
  const uint32_t* const out = run_flow(before + "31" + access, &outcome, GetParam());
  EXPECT_EQ(outcome.fault, 0u);
  EXPECT_EQ(out[31], 7u);
  run_flow(before + "30" + access, &outcome, GetParam());
  EXPECT_EQ(outcome.fault, static_cast<uint32_t>(Fault::kIllegalAddress));
}

INSTANTIATE_TEST_SUITE_P(WithAllPasses, Flow, ::testing::Values(CompileOptions::Passes::kBySize));
INSTANTIATE_TEST_SUITE_P(WithNone, Flow, ::testing::Values(CompileOptions::Passes::kNone));

}  // namespace
}  // namespace bandsaw::soft::test
