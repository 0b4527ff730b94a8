// What guarding makes of accesses, where it looks, and what it refuses.
#include <regex>
#include <variant>

#include "ptxas.h"
#include "support.h"
#include "vgpu-sched/ptx/clear.h"
#include "vgpu-sched/ptx/guard.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::ptx {
namespace {

constexpr GuardArea kArea{
    .base = 0x20c000000000, .bits = 36, .slack = uint64_t{32} << 30, .table = 0x20c000000000, .report = 0x200000001000};

const std::string kGuardRegisters = "{\n.reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n";
std::string guard_kernel(const std::string& body) {
  return ".visible .entry k(.param .u64 p, .param .u32 n) " + kGuardRegisters + body + "\n}\n";
}

std::string guarded(const std::string& items) {
  const auto made = guard(module_of(items), kArea);
  if (const auto* refusal = std::get_if<Refusal>(&made)) return "refused: it " + refusal->reason;
  return std::get<std::string>(made);
}

// The checks that branch away, before the helpers: how many, and the registers of 64 bits that they look at.
size_t branches(const std::string& text) {
  static const std::regex branch("@%bandsaw_p bra bandsaw_slow");
  return static_cast<size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), branch), {}));
}
bool looks_at(const std::string& text, const std::string& name) {
  return text.find("{%bandsaw_lo, %bandsaw_hi}, " + name + ";") != text.npos;
}

TEST(Guard, LooksOnceAtAllAddressesOfAStretch) {
  const std::string text = guarded(guard_kernel(
      "ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4]; add.u32 %r1, %r1, %r2;"
      "st.global.u32 [%rd1+8], %r1; ret;"));
  EXPECT_EQ(branches(text), 1u) << text;
  EXPECT_TRUE(looks_at(text, "%rd1"));
  EXPECT_TRUE(ptxas_takes(text, "sm_90")) << text;
}

TEST(Guard, APointerStandsForWhatIsNearIt) {
  const std::string text = guarded(guard_kernel(
      "ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x; mul.wide.s32 %rd3, %r1, 4;"
      "add.s64 %rd4, %rd2, %rd3; ld.global.u32 %r2, [%rd4]; ret;"));
  EXPECT_TRUE(looks_at(text, "%rd1"));
  EXPECT_FALSE(looks_at(text, "%rd4"));
  const std::string far = guarded(
      guard_kernel("ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 16; add.s64 %rd4, %rd1, %rd3;"
                   "ld.global.u32 %r2, [%rd4]; ret;"));
  EXPECT_TRUE(looks_at(far, "%rd4")) << "64 GiB are more than the slack";
  const std::string odd = guarded(
      guard_kernel("ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.s32 %rd3, %r1, 2; add.s64 %rd4, %rd1, %rd3;"
                   "ld.global.u32 %r2, [%rd4]; ret;"));
  EXPECT_TRUE(looks_at(odd, "%rd4")) << "it need not be aligned";
}

// Loops look at a bit that was set where their pointer was made.
TEST(Guard, LooksOutsideOfALoopAtWhatTheLoopDoesNotChange) {
  const std::string text = guarded(guard_kernel(
      "ld.param.u64 %rd1, [p]; mov.u32 %r1, 0;\nagain: mul.wide.s32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3;"
      "ld.global.u32 %r2, [%rd4]; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra again; ret;"));
  const size_t loop = text.find("\nagain:"), branch = text.find("bra bandsaw_slow"),
               look = text.find("%bandsaw_hi}, %rd1;");
  EXPECT_LT(look, loop);
  EXPECT_LT(loop, branch);
  EXPECT_TRUE(ptxas_takes(text, "sm_90")) << text;
}

// What a loop adds to its pointers is less than the slack, so they are looked at once in each round.
TEST(Guard, LooksOnceInEachRoundAtAPointerThatWalks) {
  const std::string text = guarded(guard_kernel(
      "ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mul.wide.s32 %rd3, %r1, 4;\nagain: ld.global.u32 %r2, [%rd1];"
      "add.s64 %rd4, %rd1, %rd3; ld.global.u32 %r3, [%rd4]; add.s64 %rd5, %rd4, %rd3; st.global.u32 [%rd5], %r3;"
      "add.s64 %rd1, %rd5, 16; add.u32 %r1, %r1, -1; setp.ne.u32 %p1, %r1, 0; @%p1 bra again; ret;"));
  EXPECT_EQ(branches(text), 1u) << text;
  EXPECT_TRUE(looks_at(text, "%rd1"));
  EXPECT_FALSE(looks_at(text, "%rd4") || looks_at(text, "%rd5"));
  EXPECT_TRUE(ptxas_takes(text, "sm_90")) << text;
}

// Four lines of up to 8 GiB each and the access itself are more than the slack, though each line is not.
TEST(Guard, LooksAtAnAddressItselfWhereItsPointerMayBeFar) {
  const std::string text = guarded(guard_kernel(
      "ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mul.wide.s32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;"
      "add.s64 %rd4, %rd3, %rd2; add.s64 %rd5, %rd4, %rd2; add.s64 %rd6, %rd5, %rd2; ld.global.u32 %r2, [%rd3];"
      "ld.global.u32 %r3, [%rd6]; ret;"));
  EXPECT_EQ(branches(text), 1u) << text;
  EXPECT_TRUE(looks_at(text, "%rd1") && looks_at(text, "%rd6")) << text;
  EXPECT_EQ(text.find("add.s64 %bandsaw_a, %rd1"), text.npos) << "nothing is added before the look";
}

// An address that a stretch makes of what is known in front of it is made there, so that no load waits for another.
TEST(Guard, MakesAddressesInFrontOfAStretch) {
  const auto two = [](const std::string& between) {
    return guarded(".shared .u32 s[64];\n" + guard_kernel("ld.param.u64 %rd1, [p]; ld.global.u32 %r2, [%rd1]; " +
                                                          between + " st.shared.u32 [%r4], %r2; ret;"));
  };
  const std::string early = two("mov.u32 %r3, s; mov.u32 %r5, %tid.x; mad.lo.u32 %r4, %r5, 4, %r3;");
  EXPECT_EQ(branches(early), 1u) << early;
  EXPECT_LT(early.find("mad.lo"), early.find("bra bandsaw_slow"));
  EXPECT_LT(early.find("bra bandsaw_slow"), early.find("ld.global.u32 %r2"));
  EXPECT_TRUE(ptxas_takes(early, "sm_90")) << early;
  for (const char* late : {
           "shl.b32 %r4, %r2, 2;",                                              // of what was loaded
           "add.u32 %r6, %r4, 1; mov.u32 %r4, %tid.x;",                         // what it was before is read
           "mov.u32 %r4, 0; mov.u32 %r4, %r2;",                                 // it is written again
           "mov.u32 %r4, %clock;",                                              // not the same earlier
           "setp.eq.u32 %p1, %r1, 0; @%p1 mov.u32 %r4, 4;",                     // on a condition
           "add.u32 %r4, %r4, 4;",                                              // of itself
           "ld.shared.u32 %r4, [s];", "mov.u32 %r5, %r2; add.u32 %r4, %r5, 4;"  // of what is made late
       }) {
    const std::string text = two(late);
    EXPECT_EQ(branches(text), 2u) << late << text;
  }
}

TEST(Guard, BelievesNoRegisterThatMayNotHaveBeenWritten) {
  // %rd4 is made of %rd1 before that has its value.
  const std::string before = guarded(
      guard_kernel("mov.u32 %r1, %tid.x; mul.wide.s32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; ld.param.u64 %rd1, [p];"
                   "ld.global.u32 %r2, [%rd4]; ret;"));
  EXPECT_TRUE(looks_at(before, "%rd4")) << before;
  // What is added comes only on one way.
  const std::string maybe =
      guarded(guard_kernel("ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; @%p1 bra on; "
                           "mul.wide.s32 %rd3, %r1, 4;\n"
                           "on: add.s64 %rd4, %rd1, %rd3; ld.global.u32 %r2, [%rd4]; ret;"));
  EXPECT_TRUE(looks_at(maybe, "%rd4")) << maybe;
  // The pointer changes in the loop, and the address was made in the round before.
  const std::string stale = guarded(guard_kernel(
      "mov.u32 %r1, 0;\nagain: ld.param.u64 %rd1, [p]; ld.global.u32 %r2, [%rd4]; mul.wide.s32 %rd3, %r2, 4;"
      "add.s64 %rd4, %rd1, %rd3; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra again; ret;"));
  EXPECT_TRUE(looks_at(stale, "%rd4")) << stale;
  // On a condition only.
  const std::string guard = guarded(
      guard_kernel("ld.param.u64 %rd1, [p]; setp.eq.u64 %p1, %rd1, 0; mov.u64 %rd4, 4096; @%p1 add.s64 %rd4, %rd1, 4;"
                   "ld.global.u32 %r2, [%rd4]; ret;"));
  EXPECT_TRUE(looks_at(guard, "%rd4")) << guard;
}

// Each is made of the one before, twice.
TEST(Guard, LongDerivationsTakeNoLongTime) {
  std::string body = ".reg .b64 %q<301>; mov.u32 %r1, %tid.x; cvt.u64.u32 %q0, %r1; ld.param.u64 %rd1, [p];";
  for (int i = 0; i < 300; ++i) {
    const std::string from = "%q" + std::to_string(i), to = "%q" + std::to_string(i + 1);
    body += "add.s64 " + to + ", " + from + ", " + from + ";";
  }
  const std::string text = guarded(guard_kernel(body + "add.s64 %rd2, %rd1, %q300; ld.global.u8 %r2, [%rd2]; ret;"));
  EXPECT_TRUE(looks_at(text, "%rd2"));
}

TEST(Guard, AnInnerNameDoesNotStandForAnOuterOne) {
  const std::string text = guarded(
      guard_kernel("ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.s32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3;"
                   "{ .reg .b64 %rd<3>; mov.u64 %rd1, 0; ld.global.u32 %r2, [%rd4]; } ret;"));
  EXPECT_TRUE(looks_at(text, "%rd4")) << text;
}

TEST(Guard, KnowsWhatLiesInsideOfVariables) {
  const std::string text =
      guarded(".global .u32 v[4];\n.shared .u32 s[4];\n" +
              guard_kernel("ld.global.u32 %r1, [v+12]; st.shared.u32 [s+4], %r1; mov.u64 %rd1, v;"
                           "cvta.global.u64 %rd2, %rd1; add.u64 %rd3, %rd2, 8; st.u32 [%rd3], %r1; ret;"));
  EXPECT_EQ(branches(text), 0u) << text;
  EXPECT_EQ(branches(guarded(".global .u32 v[4];\n" + guard_kernel("mov.u64 %rd1, v; add.u64 %rd3, %rd1, 16;"
                                                                   "st.global.u32 [%rd3], %r1; ret;"))),
            1u);
  // An offset in shared memory is no generic address.
  EXPECT_EQ(branches(guarded(".shared .u32 s[4];\n" + guard_kernel("mov.u64 %rd1, s; st.u32 [%rd1], %r1; ret;"))), 1u);
}

TEST(Guard, StretchesEndWhereThreadsMeet) {
  const std::string text = guarded(
      guard_kernel("ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; bar.sync 0; st.global.u32 [%rd1], %r1; ret;"));
  EXPECT_EQ(branches(text), 2u) << text;
}

TEST(Guard, FaultsOfTheirOwnBecomeReports) {
  const std::string text = guarded(
      ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n" +
      guard_kernel("setp.eq.u32 %p1, %r1, 0; @%p1 trap; { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d;"
                   ".param .b64 e; call __assertfail, (a, b, c, d, e); } ret;"));
  EXPECT_EQ(text.find("trap"), text.npos);
  EXPECT_EQ(text.find("call __assertfail"), text.npos);
  EXPECT_TRUE(ptxas_takes(text, "sm_90")) << text;
}

TEST(Guard, CallsThroughPointersGoToKnownFunctions) {
  const std::string text = guarded(".func f() { ret; }\n" +
                                   guard_kernel("mov.u64 %rd1, f; proto: .callprototype _ (); call %rd1, proto; ret;"));
  EXPECT_NE(text.find("bandsaw_target"), text.npos) << text;
  EXPECT_TRUE(ptxas_takes(text, "sm_90")) << text;
}

TEST(Guard, RefusesWhatItCannotKeepIn) {
  EXPECT_NE(guarded(guard_kernel("cp.async.bulk.prefetch.L2.global [%rd1], 16; ret;")).find("copies in bulk"),
            std::string::npos);
  EXPECT_NE(guarded(guard_kernel("st.shared::cluster.u32 [%r1], %r2; ret;")).find("other blocks'"), std::string::npos);
  EXPECT_NE(guarded(guard_kernel("brkpt; ret;")).find("breakpoint"), std::string::npos);
  EXPECT_NE(guarded(".extern .func f();\n" + guard_kernel("call f; ret;")).find("defined elsewhere"),
            std::string::npos);
  EXPECT_NE(guarded(guard_kernel("ld.global.u32 %r1, [4096]; ret;")).find("fixed address"), std::string::npos);
  EXPECT_NE(guarded(".global .u32 v;\n" + guard_kernel("ld.global.u32 %r1, [v+4]; ret;")).find("beyond its end"),
            std::string::npos);
  EXPECT_NE(guarded(".shared .u32 v;\n" + guard_kernel("st.u32 [v], %r1; ret;")).find("what it is not"),
            std::string::npos);
  EXPECT_NE(guarded(guard_kernel("newinstruction.global.u32 %r1, [%rd1]; ret;")).find("unknown reach"),
            std::string::npos);
}

TEST(Guard, PtxasTakesSamplesAndTheirGridSlices) {
  for (const char* name : {"memory", "debug", "lines", "rewrites"}) {
    const auto made = guard(parse(sample(name)), kArea);
    const auto* text = std::get_if<std::string>(&made);
    ASSERT_TRUE(text) << name << std::get<Refusal>(made).reason;
    EXPECT_TRUE(ptxas_takes(*text, "sm_90a")) << name;
    const Program program(parse(*text));
    for (const std::string_view k : program.kernels()) {
      const SlicingResult sliced = slice(program, k);
      const auto* kernel_made = std::get_if<SlicedKernel>(&sliced);
      EXPECT_TRUE(!kernel_made || ptxas_takes(kernel_made->text, "sm_90a")) << name << k;
    }
  }
}

std::string cleared(const std::string& items) {
  const auto made = clear_shared(module_of(items));
  const auto* module = std::get_if<Module>(&made);
  return module ? print(*module) : "refused: it " + std::get<Refusal>(made).reason;
}

TEST(Clear, OnlyWhereThereIsSharedMemory) {
  EXPECT_EQ(cleared(guard_kernel("ret;")).find("bar.sync"), std::string::npos);
  const std::string text =
      cleared(".shared .u32 s[4];\n.extern .shared .align 16 .b8 d[];\n.func f() " + kGuardRegisters +
              "st.shared.u32 [d], %r1; @%p1 exit; ret; }\n" + guard_kernel("@%p1 ret; call f; exit;"));
  EXPECT_NE(text.find("bar.sync 0"), std::string::npos) << text;
  EXPECT_TRUE(ptxas_takes(text, "sm_90")) << text;
}

// Each way out counts, also on a condition.
TEST(Clear, CountsWhoLeaves) {
  const std::string text =
      cleared(".shared .u32 s;\n" + guard_kernel("st.shared.u32 [s], %r1; @%p1 exit; { @!%p2 ret; } ret;"));
  size_t calls = 0;
  for (size_t at = text.find("call bandsaw_leave"); at != text.npos; at = text.find("call bandsaw_leave", at + 1))
    ++calls;
  EXPECT_EQ(calls, 4u) << text;
  EXPECT_TRUE(ptxas_takes(text, "sm_90")) << text;
}

TEST(Clear, OlderTargetsBeginAtTheirFirstVariable) {
  const std::string head = ".version 7.0\n.target sm_75\n.address_size 64\n";
  const std::string own = ".shared .u32 s;\n.entry k() " + kGuardRegisters +
                          ".shared .u32 t; st.shared.u32 [s], %r1;"
                          "st.shared.u32 [t], %r1; ret; }\n";
  const auto made = clear_shared(parse(head + own));
  ASSERT_TRUE(std::holds_alternative<Module>(made));
  const std::string text = print(std::get<Module>(made));
  EXPECT_EQ(text.find("aggr_smem_size"), std::string::npos);
  EXPECT_TRUE(ptxas_takes(text, "sm_75")) << text;
  const auto refused = clear_shared(parse(head + ".func f() { .shared .u32 s; ret; }\n.entry k() { call f; ret; }\n"));
  EXPECT_TRUE(std::holds_alternative<Refusal>(refused));
}

}  // namespace
}  // namespace bandsaw::ptx
