// What the analysis says of kernels whose answers are known.
#include "vgpu-sched/ptx/analysis.h"
#include "support.h"

namespace bandsaw::ptx {
namespace {

Analysis analysis_of(const std::string& body, const std::string& before = "") {
  const std::string registers =
      ".reg .b32 %r<19>; .reg .b64 %rd<19>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .pred %p<9>;\n";
  return analyse(Program(module_of(before + ".entry k(.param .u64 a, .param .u64 b, .param .u32 n) {\n" + registers +
                                   body + "}\n")),
                 "k");
}

const std::string kPointers =
    "ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1; ld.param.u64 %rd3, [b];"
    "cvta.to.global.u64 %rd4, %rd3; ld.param.u32 %r1, [n]; mul.wide.u32 %rd5, %r1, 4;"
    "add.s64 %rd6, %rd2, %rd5; add.s64 %rd7, %rd4, %rd5;\n";

TEST(Analysis, UnknownKernelHasNoName) { EXPECT_EQ(analyse(Program(module_of("")), "k").name, ""); }

TEST(Analysis, IdempotentByPointers) {
  const Analysis apart = analysis_of(kPointers + "ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd7], %r2; ret;");
  EXPECT_EQ(apart.idempotence, Idempotence::kIfDisjoint);
  EXPECT_EQ(apart.reads, std::vector<size_t>{0});
  EXPECT_EQ(apart.writes, std::vector<size_t>{8});
  EXPECT_EQ(analysis_of(kPointers + "ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd6], %r2; ret;").idempotence,
            Idempotence::kNo);
  EXPECT_EQ(analysis_of(kPointers + "ld.global.nc.u32 %r2, [%rd6]; st.global.u32 [%rd6], %r2; ret;").idempotence,
            Idempotence::kYes);
  EXPECT_EQ(analysis_of(kPointers + "st.global.u32 [%rd6], %r2; ret;").idempotence, Idempotence::kYes);
  EXPECT_EQ(analysis_of(kPointers + "ld.global.u64 %rd8, [%rd6]; st.global.u32 [%rd8], %r2; ret;").idempotence,
            Idempotence::kNo);
  EXPECT_EQ(analysis_of(kPointers + "red.global.add.u32 [%rd6], 1; ret;").idempotence, Idempotence::kNo);
  EXPECT_EQ(analysis_of("red.shared.add.u32 [s], 1; ret;", ".shared .u32 s;\n").idempotence, Idempotence::kYes);
}

TEST(Analysis, IdempotentByVariables) {
  const std::string variables = ".global .u32 u; .global .u32 v;\n";
  const Analysis apart = analysis_of("ld.global.u32 %r1, [u]; st.global.u32 [v], %r1; ret;", variables);
  EXPECT_EQ(apart.idempotence, Idempotence::kIfDisjoint);
  EXPECT_EQ(apart.variable_reads, std::vector<std::string>{"u"});
  EXPECT_EQ(apart.variable_writes, std::vector<std::string>{"v"});
  EXPECT_EQ(analysis_of("ld.global.u32 %r1, [u]; st.global.u32 [u], %r1; ret;", variables).idempotence,
            Idempotence::kNo);
}

// A loop around a load; where it loads from and what it compares with is the difference.
std::string loop(const std::string& address, const std::string& bound, const std::string& step = "") {
  return address + "L: ld.relaxed.gpu.global.u32 %r9, [%rd9]; " + step + "setp.ne.u32 %p1, %r9, " + bound +
         "; @%p1 bra L; ret;";
}
const std::string kOwnFlag = kPointers + "mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd8, %r3, 4; add.s64 %rd9, %rd2, %rd8;";

TEST(Analysis, TellsWhetherBlocksMayTalk) {
  EXPECT_EQ(analysis_of(kPointers + "ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd7], %r2; ret;").dependency,
            InterBlockDependency::kNone);
  EXPECT_EQ(analysis_of(kPointers + "red.global.add.u32 [%rd6], 1; ret;").dependency, InterBlockDependency::kNone);
  EXPECT_EQ(analysis_of(kPointers + "membar.gl; atom.global.add.u32 %r2, [%rd6], 1; ret;").dependency,
            InterBlockDependency::kLowerBlocks);
  EXPECT_EQ(analysis_of(loop(kOwnFlag, "1")).dependency, InterBlockDependency::kLowerBlocks);
  EXPECT_EQ(analysis_of(loop(kOwnFlag + "mov.u32 %r4, %nctaid.x;", "%r4")).dependency, InterBlockDependency::kAny);
  EXPECT_EQ(analysis_of(kPointers + "ld.volatile.global.u32 %r2, [%rd6]; ret;").dependency, InterBlockDependency::kAny);
  // A loop with another way out of it is none that waits, as far as can be seen.
  const Analysis bounded =
      analysis_of(kPointers +
                  "mov.u32 %r3, 0; L: ld.volatile.global.u32 %r2, [%rd6]; add.u32 %r3, %r3, 1;"
                  "setp.ne.u32 %p2, %r2, 0; @%p2 bra E; setp.lt.u32 %p1, %r3, 100000; @%p1 bra L; E: ret;");
  EXPECT_EQ(bounded.not_sliceable, "");
  EXPECT_EQ(bounded.dependency, InterBlockDependency::kAny);
}

TEST(Analysis, TellsLookBackFromBarriers) {
  EXPECT_EQ(analysis_of(loop(kOwnFlag, "1")).spin, Spin::kLowerBlocks);
  EXPECT_TRUE(analysis_of(loop(kOwnFlag, "1")).order_dependent);
  EXPECT_EQ(analysis_of(loop(kOwnFlag, "1")).not_sliceable, "");
  EXPECT_EQ(analysis_of(loop(kOwnFlag + "mov.u32 %r4, %nctaid.x;", "%r4")).spin, Spin::kAny);
  EXPECT_EQ(analysis_of(loop(kPointers + "mov.u64 %rd9, %rd2;", "1")).spin, Spin::kAny);
  // It goes on by itself: to the next place, or at most so often.
  EXPECT_EQ(analysis_of(loop(kOwnFlag, "1", "add.s64 %rd9, %rd9, 4;")).spin, Spin::kNone);
  EXPECT_EQ(analysis_of(kOwnFlag + "L: ld.volatile.global.u32 %r9, [%rd9]; add.u32 %r5, %r5, 1;"
                                   "setp.lt.u32 %p1, %r5, 9; @%p1 bra L; ret;")
                .spin,
            Spin::kNone);
  EXPECT_EQ(analysis_of("L: atom.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L; ret;").spin,
            Spin::kNone);
}

TEST(Analysis, OrderDependentByFenceAndAtomic) {
  EXPECT_TRUE(analysis_of("membar.gl; atom.global.add.u32 %r1, [%rd1], 1; ret;").order_dependent);
  EXPECT_FALSE(analysis_of("membar.cta; atom.global.add.u32 %r1, [%rd1], 1; ret;").order_dependent);
  EXPECT_FALSE(analysis_of("membar.gl; atom.shared.add.u32 %r1, [%r2], 1; ret;").order_dependent);
}

TEST(Analysis, WeighsLoops) {
  const Analysis a = analysis_of(
      "fma.rn.f32 %f1, %f1, %f2, %f3; L: add.f64 %fd1, %fd1, %fd2;"
      "M: ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]; setp.eq.u32 %p1, %r1, %r2; @%p1 bra M;"
      "@%p1 bra L; sin.approx.f32 %f1, %f2; bar.sync 0; ret;");
  EXPECT_EQ(a.instruction_mix.float32, 1);
  EXPECT_EQ(a.instruction_mix.float64, 10);
  EXPECT_EQ(a.instruction_mix.load_global, 100);
  EXPECT_EQ(a.instruction_mix.load_global_bytes, 1600);
  EXPECT_EQ(a.instruction_mix.special, 1);
  EXPECT_EQ(a.instruction_mix.barrier, 1);
  EXPECT_EQ(a.instruction_mix.branch, 111);
  EXPECT_EQ(a.instruction_mix.integer, 100);
  EXPECT_EQ(a.instruction_mix.total(), 324);
}

// Of 4-byte accesses, or wider ones, by each thread; what part of them is scattered.
TEST(Analysis, TellsNeighboursFromScatteredAccesses) {
  const auto scattered = [](const std::string& body) {
    return analysis_of(kPointers + body + "ret;").instruction_mix.scattered;
  };
  const std::string index =
      "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;";
  EXPECT_EQ(scattered(index + "mul.wide.s32 %rd8, %r5, 4; add.s64 %rd9, %rd2, %rd8; ld.global.u32 %r6, [%rd9];"), 0);
  EXPECT_EQ(scattered(index + "mul.wide.s32 %rd8, %r5, 16; add.s64 %rd9, %rd2, %rd8; st.global.u32 [%rd9], %r1;"), 0);
  EXPECT_EQ(scattered(index + "mul.wide.s32 %rd8, %r5, 64; add.s64 %rd9, %rd2, %rd8; ld.global.u32 %r6, [%rd9];"), 1);
  EXPECT_EQ(scattered(index + "shl.b32 %r6, %r5, 7; cvt.u64.u32 %rd8, %r6; add.s64 %rd9, %rd2, %rd8;"
                              "ld.global.u32 %r6, [%rd9];"),
            1);
  EXPECT_EQ(scattered("ld.global.u32 %r6, [%rd6];"), 0) << "the same in all";
  EXPECT_EQ(scattered(index + "mul.lo.s32 %r6, %r5, %r1; mul.wide.s32 %rd8, %r6, 4; add.s64 %rd9, %rd2, %rd8;"
                              "ld.global.u32 %r6, [%rd9];"),
            1)
      << "rows of a length that only the launch knows";
  const auto tile = [&](const std::string& shift) {
    return "mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 15; shr.u32 %r4, %r2, " + shift +
           "; mad.lo.s32 %r5, %r4, %r1, %r3; mul.wide.s32 %rd8, %r5, 4; add.s64 %rd9, %rd2, %rd8;"
           "ld.global.f32 %f1, [%rd9];";
  };
  EXPECT_EQ(scattered(tile("4")), 0) << "rows of 64 bytes";
  EXPECT_EQ(scattered(tile("1")), 1);
  EXPECT_EQ(scattered("mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 15; shl.b32 %r4, %r2, 6; and.b32 %r5, %r4, -1024;"
                      "add.s32 %r6, %r5, %r3; mul.wide.s32 %rd8, %r6, 4; add.s64 %rd9, %rd2, %rd8;"
                      "ld.global.f32 %f1, [%rd9];"),
            0)
      << "the same, as compilers write it";
  // A loop over the grid's threads, with the index kept in bounds; then what that gave is itself an index.
  const std::string loop =
      "L: and.b32 %r6, %r5, %r1; mul.wide.u32 %rd8, %r6, 4; add.s64 %rd9, %rd2, %rd8; ld.global.u32 %r7, [%rd9];"
      "add.s32 %r5, %r5, %r3; setp.lt.u32 %p1, %r5, %r1; ";
  EXPECT_EQ(scattered(index + loop + "@%p1 bra L;"), 0);
  EXPECT_EQ(scattered(index + loop +
                      "mul.wide.u32 %rd10, %r7, 4; add.s64 %rd11, %rd4, %rd10;"
                      "ld.global.f32 %f1, [%rd11]; @%p1 bra L;"),
            10);
  // A chain: each load says where the next one goes.
  EXPECT_EQ(scattered("mov.u32 %r2, %tid.x; L: mul.wide.u32 %rd8, %r2, 4; add.s64 %rd9, %rd2, %rd8;"
                      "ld.global.u32 %r2, [%rd9]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;"),
            10);
}

TEST(Analysis, AddsCalledFunctions) {
  const std::string functions =
      ".func f() {.reg .f32 %f<3>; mul.f32 %f1, %f1, %f2; ret;}\n.func g() {call f; call f; ret;}\n";
  EXPECT_EQ(analysis_of("L: call g; @%p1 bra L; ret;", functions).instruction_mix.float32, 20);
}

TEST(Analysis, SaysWhatIsUsed) {
  const Analysis a = analysis_of(".shared .align 4 .b8 own[100]; mov.u32 %r1, dynamic; mov.u32 %r2, %ctaid.y; ret;",
                                 ".extern .shared .align 16 .b8 dynamic[];\n");
  EXPECT_EQ(a.parameter_bytes, 20u);
  EXPECT_EQ(a.static_shared_bytes, 100u);
  EXPECT_TRUE(a.dynamic_shared);
  EXPECT_TRUE(a.reads_block_index_yz);
  EXPECT_FALSE(a.prints);
}

TEST(Analysis, TakesExternSharedMemoryWithASizeForStatic) {
  const Analysis a = analysis_of("mov.u32 %r1, sized; ret;", ".extern .shared .align 8 .b8 sized[512];\n");
  EXPECT_EQ(a.static_shared_bytes, 512u);
  EXPECT_FALSE(a.dynamic_shared);
}

}  // namespace
}  // namespace bandsaw::ptx
