// Where lanes of a warp go, and what they do when they get there.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
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
uint32_t* run_flow(const std::string& code, Outcome* outcome, const CompileOptions& options) {
  reset_memory();
  Kernels kernels(kFlowHead + code + kFlowEnd, options);
  auto* const out = array<uint32_t>(32);
  if (kernels.ok()) *outcome = kernels.launch("k", {}, reinterpret_cast<uint64_t>(out));
  return out;
}

class Flow : public ::testing::TestWithParam<CompileOptions> {};

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

// Lanes that run an instruction together, each naming those with its own rest by 3.
constexpr const char* kGroups = R"(
  rem.u32 %r2, %r0, 3; match.any.sync.b32 %r3, %r2, -1;
)";
uint32_t group_of(uint32_t lane) {
  uint32_t group = 0;
  for (uint32_t other = 0; other < 32; ++other) group |= uint32_t{other % 3 == lane % 3} << other;
  return group;
}

TEST_P(Flow, LanesNameTheirOwnGroup) {
  const struct {
    const char* code;
    std::function<uint32_t(uint32_t lane, uint32_t group)> want;
  } cases[] = {
      {"redux.sync.add.u32 %r1, %r0, %r3;",
       [](uint32_t, uint32_t group) {
         uint32_t sum = 0;
         for (uint32_t l = 0; l < 32; ++l) sum += group >> l & 1 ? l : 0;
         return sum;
       }},
      {"redux.sync.max.s32 %r1, %r0, %r3;", [](uint32_t, uint32_t group) { return 31u - std::countl_zero(group); }},
      {"redux.sync.min.u32 %r1, %r0, %r3;", [](uint32_t lane, uint32_t) { return lane % 3; }},
      {"setp.gt.u32 %p0, %r0, 9; vote.sync.ballot.b32 %r1, %p0, %r3;",
       [](uint32_t, uint32_t group) { return group & ~0x3ffu; }},
      {"setp.ne.u32 %p0, %r0, 7; vote.sync.all.pred %p1, %p0, %r3; selp.u32 %r1, 1, 0, %p1;",
       [](uint32_t lane, uint32_t) { return uint32_t{lane % 3 != 1}; }},
      {"setp.eq.u32 %p0, %r0, 8; vote.sync.any.pred %p1, %p0, %r3; selp.u32 %r1, 1, 0, %p1;",
       [](uint32_t lane, uint32_t) { return uint32_t{lane % 3 == 2}; }},
      {"setp.eq.u32 %p0, %r2, 1; vote.sync.uni.pred %p1, %p0, %r3; selp.u32 %r1, 1, 0, %p1;",
       [](uint32_t, uint32_t) { return 1u; }},
      {"match.all.sync.b32 %r1|%p0, %r2, %r3;", [](uint32_t, uint32_t group) { return group; }},
      {"and.b32 %r4, %r0, 1; match.any.sync.b32 %r1, %r4, %r3;",
       [](uint32_t lane, uint32_t group) { return group & (lane & 1 ? 0xaaaaaaaau : 0x55555555u); }},
      {"elect.sync %r1|%p0, %r3;", [](uint32_t lane, uint32_t) { return lane % 3; }},
      {"mov.u32 %r1, 0; setp.lt.u32 %p0, %r0, 16; @%p0 redux.sync.max.u32 %r1, %r0, %r3;",
       [](uint32_t lane, uint32_t group) { return lane < 16 ? 31u - std::countl_zero(group & 0xffffu) : 0; }},
  };
  for (const auto& c : cases) {
    Outcome outcome;
    const uint32_t* const out = run_flow(std::string(kGroups) + c.code, &outcome, GetParam());
    ASSERT_EQ(outcome.fault, 0u) << c.code;
    for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], c.want(lane, group_of(lane))) << c.code << lane;
  }
}

// Lanes of two groups come first, and each waits for those of its own that are still elsewhere.
TEST_P(Flow, LanesOfSeveralGroupsWaitForTheirOwn) {
  Outcome outcome;
  const uint32_t* const out = run_flow(std::string(kGroups) + R"(
  mov.u32 %r4, %r0; setp.lt.u32 %p0, %r0, 12;
  @%p0 bra GATHER;
  add.u32 %r4, %r4, 100; setp.lt.u32 %p1, %r0, 20;
  @%p1 bra GATHER;
  add.u32 %r4, %r4, 100;
GATHER:
  redux.sync.max.u32 %r1, %r4, %r3;
)",
                                       &outcome, GetParam());
  ASSERT_EQ(outcome.fault, 0u);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], 231u - std::countl_zero(group_of(lane))) << lane;
}

// Many registers that are written before and read behind many branches; %r1 is what they come to.
std::string many_registers(const std::string& type, uint32_t count, uint32_t group) {
  std::string code = "  .reg .b" + type + " %q<" + std::to_string(count) + ">, %x; mov.u32 %r1, 0;\n";
  code += type == "64" ? "  cvt.u64.u32 %x, %r0;\n" : "  mov.u32 %x, %r0;\n";
  const auto branch = [&](const std::string& label, uint32_t from, const std::string& work) {
    code +=
        "  setp.gt.u32 %p0, %r0, " + std::to_string(from) + ";\n  @%p0 bra " + label + ";\n  " + work + label + ":\n";
  };
  for (uint32_t i = 0; i < count; ++i) {
    const std::string q = "%q" + std::to_string(i), n = std::to_string(i);
    code += "  mad.lo.u" + type + " " + q + ", %x, " + n + ", " + n + ";\n";
    if (i % group == group - 1)
      branch("A" + std::to_string(i), i / group % 32, "add.u" + type + " " + q + ", " + q + ", 1;\n");
  }
  for (uint32_t i = 0; i < count; ++i) {
    const std::string q = "%q" + std::to_string(i);
    code += (type == "64" ? "  cvt.u32.u64 %r2, " : "  mov.u32 %r2, ") + q + ";\n  mad.lo.u32 %r1, %r1, 3, %r2;\n";
    if (i % group == group - 1) branch("B" + std::to_string(i), 8, "xor.b32 %r1, %r1, 5;\n");
  }
  return code;
}

class VeryLargeKernel : public ::testing::TestWithParam<CompileOptions> {};

// Too many for all of LLVM's passes.
TEST_P(VeryLargeKernel, RegistersKeepTheirValues) {
  constexpr uint32_t kRegisters = 1200, kGroup = 30;
  Outcome outcome;
  const uint32_t* const out = run_flow(many_registers("32", kRegisters, kGroup), &outcome, GetParam());
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

// More between a branch and where its lanes meet than LLVM computes with the bits of.
TEST(ManyBlocks, AreGoneThroughByTheLanesThatComeThere) {
  constexpr uint32_t kBranches = 140, kLanesIn = 30;
  Outcome outcome;
  const uint32_t* const out = run_flow("  mov.u32 %r1, 7; setp.ge.u32 %p3, %r0, " + std::to_string(kLanesIn) +
                                           ";\n  @%p3 bra Z;\n" + many_registers("32", kBranches, 1) + "Z:\n",
                                       &outcome, in_pieces(300));
  ASSERT_EQ(outcome.fault, 0u);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < kBranches; ++i) {
      sum = sum * 3 + lane * i + i + (lane <= i % 32 ? 1 : 0);
      if (lane <= 8) sum ^= 5;
    }
    EXPECT_EQ(out[lane], lane < kLanesIn ? sum : 7) << lane;
  }
}

// A block is compiled at once, which takes LLVM more than its length says.
TEST(LongBlock, IsCutIntoPieces) {
  constexpr uint32_t kStores = 500;
  std::string code = "  mov.u32 %r1, 0;\n";
  for (uint32_t i = 0; i < kStores; ++i) code += "  add.u32 %r1, %r1, %r0;\n  st.global.u32 [%o], %r1;\n";
  reset_memory();
  Kernels kernels(kFlowHead + code + kFlowEnd, in_pieces(300));
  ASSERT_TRUE(kernels.ok());
  auto* const out = array<uint32_t>(32);
  EXPECT_EQ(kernels.launch("k", {}, reinterpret_cast<uint64_t>(out)).fault, 0u);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], kStores * lane) << lane;
  EXPECT_GE(kernels.started().size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(AtOnce, VeryLargeKernel, ::testing::Values(CompileOptions()));
INSTANTIATE_TEST_SUITE_P(InPieces, VeryLargeKernel, ::testing::Values(in_pieces(300)));

TEST(TooLargeKernel, IsRefusedWhereAStackHasNoRoomForIt) {
  CompileOptions options;
  options.window_base = window_base();
  std::string log;
  const auto program = compile(kFlowHead + many_registers("64", 18'000, 2000) + kFlowEnd, options, &log);
  ASSERT_NE(program, nullptr) << log;
  const auto loaded = program->load({}, &log);
  ASSERT_NE(loaded, nullptr) << log;
  EXPECT_EQ(loaded->entry("k", &log), nullptr);
  EXPECT_NE(log.find("k: too large to be compiled: registers of a warp take"), std::string::npos) << log;
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

INSTANTIATE_TEST_SUITE_P(WithAllPasses, Flow, ::testing::Values(CompileOptions()));
INSTANTIATE_TEST_SUITE_P(WithNone, Flow, ::testing::Values(CompileOptions{.passes = CompileOptions::Passes::kNone}));
INSTANTIATE_TEST_SUITE_P(InPieces, Flow, ::testing::Values(in_pieces(1), in_pieces(6)));

}  // namespace
}  // namespace bandsaw::soft::test
