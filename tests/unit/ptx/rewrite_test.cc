// What grid slices and persistent kernels are made of, and what is refused.
#include <variant>

#include "ptxas.h"
#include "support.h"
#include "vgpu-sched/ptx/persistent.h"

namespace bandsaw::ptx {
namespace {

Program program_of(const std::string& items) { return Program(module_of(items)); }

SlicedKernel sliced(const std::string& items, const SlicingOptions& options = {}) {
  const SlicingResult result = slice(program_of(items), "k", options);
  if (const auto* made = std::get_if<SlicedKernel>(&result)) return *made;
  ADD_FAILURE() << std::get<Refusal>(result).reason;
  return {};
}

std::string refusal(const std::string& items) {
  const SlicingResult result = slice(program_of(items), "k");
  const auto* refused = std::get_if<Refusal>(&result);
  return refused ? refused->reason : "";
}

std::string not_persistent(const std::string& items) {
  const PersistentResult result = persistent(program_of(items), "k");
  const auto* refused = std::get_if<Refusal>(&result);
  return refused ? refused->reason : "";
}

const std::string kRegisters = "{\n.reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n";
std::string kernel(const std::string& body) {
  return ".visible .entry k(.param .u64 p) " + kRegisters + body + "\n}\n";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

TEST(BlockAt, CountsXFirst) {
  EXPECT_EQ(block_at(0, {3, 4, 5}), (std::array<uint32_t, 3>{0, 0, 0}));
  EXPECT_EQ(block_at(3 * 4 * 2 + 3 + 2, {3, 4, 5}), (std::array<uint32_t, 3>{2, 1, 2}));
  const uint64_t last = uint64_t{2147483647} * 65535 * 65535 - 1;
  EXPECT_EQ(block_at(last, {2147483647, 65535, 65535}), (std::array<uint32_t, 3>{2147483646, 65534, 65534}));
}

TEST(GridSlice, AppendsWhatItNeeds) {
  const SlicedKernel made = sliced(".entry k(.param .u32 a, .param .align 16 .b8 b[20], .param .u8 c) " + kRegisters +
                                   "mov.u32 %r1, %ctaid.x; ret;}");
  EXPECT_EQ(made.first_at, 40u);  // c lies at 36
  EXPECT_EQ(made.grid_at, 52u);
  EXPECT_EQ(made.parameter_bytes, 64u);
  EXPECT_EQ(made.name, "k");
  EXPECT_TRUE(ptxas_takes(made.text, "sm_90"));
}

TEST(GridSlice, DividesOnlyAsFarAsTheKernelReads) {
  EXPECT_FALSE(contains(sliced(kernel("mov.u32 %r1, %nctaid.y; ret;")).text, "div"));
  const std::string x = sliced(kernel("mov.u32 %r1, %ctaid.x; ret;")).text;
  EXPECT_EQ(x.find("div"), x.rfind("div"));
  const std::string z = sliced(kernel("mov.u32 %r1, %ctaid.z; ret;")).text;
  EXPECT_NE(z.find("div"), z.rfind("div"));
  EXPECT_FALSE(contains(sliced(kernel("mov.u32 %r1, %ctaid.x; ret;"), {true}).text, "div"));
}

TEST(GridSlice, KeepsPerformanceDirectives) {
  const std::string text =
      sliced(".entry k() .maxntid 128, 1, 1 .minnctapersm 3 " + kRegisters + "mov.u32 %r1, %ctaid.x; ret;}").text;
  EXPECT_TRUE(contains(text, ".maxntid 128, 1, 1"));
  EXPECT_TRUE(contains(text, ".minnctapersm 3"));
}

TEST(GridSlice, HandsOnWhatCalledFunctionsRead) {
  const std::string functions =
      ".global .u32 v[4];\n.func g() " + kRegisters + "mov.u32 %r1, %ctaid.y; st.global.u32 [v+8], %r1; ret;}\n" +
      ".func (.reg .u32 %a) h(.reg .u32 %b) " + kRegisters + "mov.u32 %a, %nctaid.x; ret;}\n" +
      ".func f(.param .u32 n) " + kRegisters + "call g; call (%r1), h, (%r2); ret;}\n";
  const SlicedKernel made = sliced(functions + kernel("{.param .u32 a; st.param.u32 [a], %r1; call f, (a);} ret;"));
  ASSERT_EQ(made.variables.size(), 1u);
  EXPECT_EQ(made.variables[0].name, "v");
  EXPECT_EQ(made.variables[0].at, 32u);
  EXPECT_FALSE(contains(made.text, ".global .u32 v"));
  EXPECT_TRUE(ptxas_takes(made.text, "sm_90")) << made.text;
}

TEST(GridSlice, ReachesConstantVariablesInGlobalMemory) {
  const SlicedKernel made =
      sliced(".const .u32 c[4];\n" + kernel("ld.const.v2.u32 {%r1, %r2}, [c+8]; mov.u64 %rd1, c;"
                                            "cvta.const.u64 %rd2, %rd1; ld.u32 %r3, [%rd2]; ret;"));
  EXPECT_EQ(made.variables.size(), 1u);
  EXPECT_TRUE(contains(made.text, "ld.global.nc.v2.u32"));
  EXPECT_TRUE(contains(made.text, "cvta.global.u64"));
  EXPECT_TRUE(ptxas_takes(made.text, "sm_90")) << made.text;
}

TEST(GridSlice, CopiesTheCompilersStringsOnly) {
  const std::string print = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n";
  const std::string call =
      "mov.u64 %rd1, $str; cvta.global.u64 %rd2, %rd1; {.param .b64 x; st.param.b64 [x], %rd2;"
      ".param .b64 y; st.param.b64 [y], 0; .param .b32 z; call (z), vprintf, (x, y);} ret;";
  const SlicedKernel made = sliced(print + ".global .align 1 .b8 $str[3] = {104, 105, 0};\n" + kernel(call));
  EXPECT_TRUE(made.variables.empty());
  EXPECT_TRUE(contains(made.text, "$str[3] = {104, 105, 0}"));
  const std::string store = "st.global.u8 [$str], %r1; ret;";
  EXPECT_EQ(sliced(".global .align 1 .b8 $str[3] = {104, 105, 0};\n" + kernel(store)).variables.size(), 1u);
}

TEST(GridSlice, ItsNamesClashWithNone) {
  const SlicedKernel made =
      sliced(".global .u32 bandsaw_x;\n" + kernel(".reg .b32 %bandsaw__y; mov.u32 %bandsaw__y, "
                                                  "%ctaid.y; st.global.u32 [bandsaw_x], %bandsaw__y; ret;"));
  EXPECT_TRUE(contains(made.text, "%bandsaw___y"));
  EXPECT_TRUE(ptxas_takes(made.text, "sm_90")) << made.text;
}

TEST(GridSlice, FollowsAliases) {
  const std::string text = ".visible .func g();\n.visible .func f() " + kRegisters +
                           "mov.u32 %r1, %ctaid.x; ret;}\n.alias g, f;\n" + kernel("call g; ret;");
  EXPECT_TRUE(contains(sliced(text).text, "call f, ("));
}

TEST(GridSlice, LimitOfParametersIsTheVersions) {
  const std::string large = ".target sm_90\n.address_size 64\n.entry k(.param .align 4 .b8 p[4090]) {ret;}";
  EXPECT_TRUE(std::holds_alternative<Refusal>(slice(Program(parse(".version 8.0\n" + large)), "k")));
  EXPECT_TRUE(std::holds_alternative<SlicedKernel>(slice(Program(parse(".version 8.1\n" + large)), "k")));
}

struct Refused {
  const char* what;
  std::string items;
  const char* reason;
};

class Refuses : public testing::TestWithParam<Refused> {};

TEST_P(Refuses, WithAReason) {
  EXPECT_TRUE(contains(refusal(GetParam().items), GetParam().reason)) << refusal(GetParam().items);
  EXPECT_FALSE(not_persistent(GetParam().items).empty());
}

const Refused kRefused[] = {
    {"NoKernel", ".entry other() {ret;}", "no kernel 'k'"},
    {"Cooperative", kernel("mov.u32 %r1, %envreg2; ret;"), "synchronise the whole grid"},
    {"Gridid", kernel("mov.u64 %rd1, %gridid; ret;"), "%gridid"},
    {"ClusterRegister", kernel("mov.u32 %r1, %cluster_ctarank; ret;"), "cluster"},
    {"ClusterBarrier", kernel("barrier.cluster.arrive; barrier.cluster.wait; ret;"), "cluster"},
    {"ClusterDirective", ".entry k() .reqnctapercluster 2, 1, 1 {ret;}", "cluster"},
    {"DependentGrids", kernel("griddepcontrol.wait; ret;"), "griddepcontrol"},
    {"TextureReference",
     ".tex .u32 t;\n.global .texref u;\n" + kernel("tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [u, {%r5}]; ret;"),
     "texture or surface reference 'u'"},
    {"Undefined", ".extern .global .u32 v;\n" + kernel("ld.global.u32 %r1, [v]; ret;"), "'v', which this module"},
    {"UndefinedFunction", ".extern .func f();\n" + kernel("call f; ret;"), "calls 'f', which this module"},
    {"PointerFromMemory", kernel("ld.param.u64 %rd1, [p]; c: .callprototype _ (); call %rd1, c; ret;"), "pointer"},
    {"PointerToReader",
     ".func f() " + kRegisters + "mov.u32 %r1, %ctaid.x; ret;}\n" +
         kernel("mov.u64 %rd1, f; c: .callprototype _ (); call %rd1, c; ret;"),
     "through a pointer, and that reads"},
    {"FunctionHandedOut", ".func f() {ret;}\n" + kernel("mov.u64 %rd1, f; st.global.u64 [%rd2], %rd1; ret;"),
     "hands out the address"},
    {"SpinsOnOneFlag",
     kernel("ld.param.u64 %rd1, [p]; L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;"
            "@%p1 bra L; ret;"),
     "may wait in a loop"},
    {"InACallee", ".func f() " + kRegisters + "mov.u64 %rd1, %gridid; ret;}\n" + kernel("call f; ret;"), "calls 'f'"},
};
INSTANTIATE_TEST_SUITE_P(Kernels, Refuses, testing::ValuesIn(kRefused), [](const auto& p) { return p.param.what; });

// Else the compiler could not load from it as widely as it does in the original.
TEST(Persistent, SharedMemoryKeepsItsAlignment) {
  const PersistentResult result = persistent(program_of(kernel("ret;")), "k");
  ASSERT_TRUE(std::holds_alternative<PersistentKernel>(result));
  EXPECT_EQ(std::get<PersistentKernel>(result).shared_bytes % 128, 0u);
  EXPECT_TRUE(contains(std::get<PersistentKernel>(result).text, ".shared .align 128 .b8 bandsaw_ticket[128];"));
}

TEST(Persistent, TakesAFreeBarrier) {
  const PersistentResult result = persistent(program_of(kernel("bar.sync 0; bar.sync 1, 64; ret;")), "k");
  ASSERT_TRUE(std::holds_alternative<PersistentKernel>(result)) << std::get<Refusal>(result).reason;
  EXPECT_TRUE(contains(std::get<PersistentKernel>(result).text, "barrier.sync 2;"));
  std::string all;
  for (int i = 0; i < 16; ++i) all += "bar.sync " + std::to_string(i) + ";";
  EXPECT_EQ(not_persistent(kernel(all + "ret;")), "uses all of its barriers");
  EXPECT_TRUE(contains(not_persistent(kernel("bar.sync %r1; ret;")), "number of a barrier"));
}

TEST(Persistent, RefusesWhatLosesThreads) {
  const std::string meet = "bar.sync 0; L: ret;";
  EXPECT_FALSE(not_persistent(kernel("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;" + meet)).empty());
  EXPECT_FALSE(not_persistent(kernel("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 exit;" + meet)).empty());
  EXPECT_EQ(not_persistent(kernel("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;" + meet)), "");
  // The predicate is the same for all, but not where it is computed.
  EXPECT_FALSE(not_persistent(kernel("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, 0, 0; @%p1 bra M;"
                                     "setp.eq.u32 %p2, 0, 1; M: @%p2 bra L;" +
                                     meet))
                   .empty());
}

TEST(Persistent, WholeWarpsMayLeave) {
  const std::string shuffle = "shfl.sync.down.b32 %r2, %r3, 1, 31, -1; L: ret;";
  const std::string test = "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, ";
  const PersistentResult whole = persistent(program_of(kernel(test + "31; @%p1 bra L;" + shuffle)), "k");
  ASSERT_TRUE(std::holds_alternative<PersistentKernel>(whole));
  EXPECT_TRUE(std::get<PersistentKernel>(whole).whole_warps);
  EXPECT_FALSE(not_persistent(kernel(test + "30; @%p1 bra L;" + shuffle)).empty());
}

TEST(Dropping, IsRefusedWhereThreadsMeetOrShareAndHaveNoBarrier) {
  const auto refused = [](const std::string& items) {
    const PersistentResult result = persistent(program_of(items), "k", {.flush = Flush::kAlways});
    const auto* refusal = std::get_if<Refusal>(&result);
    return refusal ? refusal->reason : "";
  };
  EXPECT_TRUE(contains(refused(kernel("shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1; ret;")), "threads meet"));
  EXPECT_TRUE(contains(refused(".shared .u32 s;\n" + kernel("st.shared.u32 [s], 1; ret;")), "shared memory"));
  EXPECT_EQ(refused(kernel("ret;")), "");
  const std::string barrier = "bar.sync 0; ret;";
  EXPECT_EQ(refused(".shared .u32 s;\n" + kernel("st.shared.u32 [s], 1; bar.warp.sync -1; " + barrier)), "");
  const std::string left = "may have come to another barrier";
  EXPECT_TRUE(contains(refused(kernel("bar.arrive 1, 64; " + barrier)), left));
  EXPECT_TRUE(contains(refused(kernel("bar.sync 1, 32; " + barrier)), left));
  EXPECT_TRUE(contains(refused(kernel("cp.async.ca.shared.global [%r1], [%rd1], 4; " + barrier)), "copies"));
}

TEST(Dropping, PollsAtPlainBarriers) {
  const auto polls = [](const std::string& body) {
    return std::get<PersistentKernel>(persistent(program_of(kernel(body)), "k", {.flush = Flush::kAlways})).polls;
  };
  EXPECT_EQ(polls("L: bar.sync 0; barrier.sync 1; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 99; @%p1 bra L; ret;"),
            2u);
  EXPECT_EQ(polls("bar.red.or.pred %p1, 0, %p1; ret;"), 0u);
}

TEST(Dropping, PollsWhereBranchesGoBack) {
  const std::string loop = "L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 99; @%p1 bra L; bra M; M: ret;";
  const auto made = [&](Flush flush) {
    return std::get<PersistentKernel>(persistent(program_of(kernel(loop)), "k", {.flush = flush}));
  };
  EXPECT_EQ(made(Flush::kAlways).polls, 1u);
  EXPECT_EQ(made(Flush::kNo).polls, 0u);
  EXPECT_EQ(made(Flush::kNo).redo_at, 0u);
  EXPECT_GT(made(Flush::kUntilIrreversible).redo_mask_at, made(Flush::kUntilIrreversible).redo_at);
}

TEST(Rewrites, CompileForEverySample) {
  for (const char* name : kSamples) {
    const Program program(parse(sample(name)));
    const std::string target = program.module().targets[0];
    for (const std::string_view kernel : program.kernels()) {
      for (const bool one : {false, true}) {
        const SlicingResult result = slice(program, kernel, {one});
        if (const auto* made = std::get_if<SlicedKernel>(&result)) {
          EXPECT_TRUE(ptxas_takes(made->text, target)) << name << " " << kernel << "\n" << made->text;
        }
      }
      const Flush flushes[] = {Flush::kNo, Flush::kAlways, Flush::kUntilIrreversible, Flush::kNo, Flush::kAlways};
      for (size_t i = 0; i < std::size(flushes); ++i) {
        const Flush flush = flushes[i];
        const PersistentResult result = persistent(program, kernel, {.flush = flush, .told_apart = i > 2});
        const auto* made = std::get_if<PersistentKernel>(&result);
        if (!made || (flush != Flush::kNo && made->polls == 0)) continue;
        EXPECT_TRUE(ptxas_takes(made->text, target)) << name << " " << kernel << "\n" << made->text;
      }
    }
  }
}

}  // namespace
}  // namespace bandsaw::ptx
