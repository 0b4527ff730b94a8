// Functions in which lanes wait, put in the place of their calls.
#include <gtest/gtest.h>

#include <string>

#include "backend/device/soft/codegen/inlining.h"
#include "codegen_harness.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft::test {
namespace {

const std::string kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

// `out[lane]` is what `code` leaves in %r1; %r0 is the lane, %p0 true in the lower half.
std::string kernel(const std::string& code) {
  return R"(.visible .entry k(.param .u64 out) {
  .reg .b32 %r<8>; .reg .b64 %o; .reg .pred %p<4>;
  ld.param.u64 %o, [out]; mov.u32 %r0, %laneid; mad.wide.u32 %o, %r0, 4, %o;
  setp.lt.u32 %p0, %r0, 16;
)" + code +
         "  st.global.u32 [%o], %r1;\n  ret;\n}\n";
}

std::string call(const std::string& guard, const std::string& function) {
  return R"({
  .param .b32 in; .param .b32 result;
  st.param.b32 [in], %r0; st.param.b32 [result], 7;
  )" + guard +
         " call (result), " + function + R"(, (in);
  ld.param.b32 %r1, [result];
  }
)";
}

// The parameter: functions of a large module, which are read one by one.
class Inlining : public ::testing::TestWithParam<bool> {
 protected:
  const uint32_t* run(const std::string& text) {
    reset_memory();
    Kernels kernels(kHead + text, "", GetParam());
    auto* const out = array<uint32_t>(32);
    EXPECT_TRUE(kernels.ok()) << kernels.log();
    if (!kernels.ok()) return out;
    const Outcome outcome = kernels.launch("k", {}, reinterpret_cast<uint64_t>(out));
    EXPECT_EQ(outcome.fault, 0u);
    EXPECT_FALSE(outcome.stuck);
    return out;
  }
};

// All calls have the same shared memory.
constexpr const char* kExchange = R"(.func (.param .b32 r) exchange(.param .b32 a) {
  .shared .align 4 .b32 words[32];
  .reg .b32 %r<4>;
  ld.param.u32 %r0, [a]; mov.u32 %r1, words; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2;
  st.volatile.shared.u32 [%r1], %r0;
  bar.warp.sync -1;
  xor.b32 %r2, %r2, 64; mov.u32 %r1, words; add.u32 %r1, %r1, %r2;
  ld.volatile.shared.u32 %r3, [%r1];
  st.param.b32 [r], %r3;
  ret;
}
)";

TEST_P(Inlining, LanesMeetThatCallInDifferentPlaces) {
  const uint32_t* const out = run(kExchange + kernel(R"(  .shared .align 4 .b32 own[32];
  @%p0 bra LOW;
)" + call("", "exchange") + "  add.u32 %r1, %r1, 100;\n  bra END;\nLOW:\n" +
                                                     call("", "exchange") + "END:\n"));
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], (lane ^ 16) + (lane < 16 ? 0 : 100)) << lane;
}

// A function that returns in its middle, has a list of labels, and is called twice; its own call has a guard.
constexpr const char* kChoose = R"(.func (.param .b32 r) inner(.param .b32 a) {
  .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r0, [a];
  bar.warp.sync 0x000f000f;
  add.u32 %r1, %r0, 50;
  st.param.b32 [r], %r1;
}
.func (.param .b32 r) choose(.param .b32 a) {
  .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r0, [a]; and.b32 %r1, %r0, 15;
  bar.warp.sync -1;
  setp.lt.u32 %p0, %r1, 4;
)";
constexpr const char* kChooseEnd = R"(
  add.u32 %r2, %r1, 1000;
  st.param.b32 [r], %r2;
  @%p0 ret;
  and.b32 %r3, %r0, 1;
  brx.idx %r3, TO;
TO: .branchtargets EVEN, ODD;
EVEN:
  st.param.b32 [r], 2;
  ret;
ODD:
  st.param.b32 [r], 3;
  ret;
}
)";

TEST_P(Inlining, AFunctionMayReturnInItsMiddle) {
  const std::string inner =
      "{ .param .b32 in; .param .b32 out; st.param.b32 [in], %r0; st.param.b32 [out], 1;\n"
      "@%p0 call (out), inner, (in); ld.param.b32 %r1, [out]; }\n";
  const std::string text = kChoose + inner + kChooseEnd;
  const uint32_t* const out = run(text + kernel("  @%p0 bra LOW;\n" + call("", "choose") + "  bra END;\nLOW:\n" +
                                                call("", "choose") + "  add.u32 %r1, %r1, 5;\nEND:\n"));
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t want = lane % 16 < 4 ? lane + 1050 : 2 + lane % 2;
    EXPECT_EQ(out[lane], want + (lane < 16 ? 5 : 0)) << lane;
  }
}

TEST_P(Inlining, ACallMayHaveAGuard) {
  const uint32_t* const out = run(kExchange + kernel(call("@%p0", "exchange")));
  for (uint32_t lane = 0; lane < 16; ++lane) EXPECT_EQ(out[lane + 16], 7u) << lane;
}

TEST_P(Inlining, LanesWaitForThoseThatAreElsewhere) {
  const uint32_t* const out = run(R"(.global .align 4 .u32 flag;
.func (.param .b32 r) wait(.param .b32 a) {
  .reg .b32 %r<4>; .reg .pred %p<2>;
AGAIN:
  ld.volatile.global.u32 %r1, [flag];
  setp.eq.u32 %p0, %r1, 0;
  @%p0 bra AGAIN;
  st.param.b32 [r], %r1;
  ret;
}
)" + kernel("  @%p0 bra LOW;\n" + call("", "wait") +
            "  bra END;\nLOW:\n  st.volatile.global.u32 [flag], 9; mov.u32 %r1, 1;\nEND:\n"));
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane < 16 ? 1u : 9u) << lane;
}

INSTANTIATE_TEST_SUITE_P(Modules, Inlining, ::testing::Bool());

TEST(InlinedFunctions, AreThoseInWhichLanesWait) {
  const std::string sync = "  bar.warp.sync -1;\n";
  std::string text = kHead;
  const auto add = [&](const std::string& name, const std::string& body) {
    text += ".func " + name + "()\n{\n  .reg .b32 %r<2>;\n  .reg .pred %p;\n" + body + "  ret;\n}\n";
  };
  text += ".global .u32 flag;\n.func again();\n";
  add("syncs", sync);
  add("calls", "  call syncs;\n");
  add("plain", "  mov.u32 %r1, 1;\n");
  add("spins", "L:\n  ld.acquire.gpu.global.u32 %r1, [flag];\n  @%p bra L;\n");
  add("loads", "  ld.acquire.gpu.global.u32 %r1, [flag];\n");
  add("loops", "L:\n  call loads;\n  @%p bra L;\n");
  add("again", sync + "  call again;\n");
  add("has_own", "  .global .u32 own;\n" + sync);
  std::string most;
  for (size_t i = 0; i < kMostInlined; ++i) most += "  mov.u32 %r1, 1;\n";
  add("long", most + sync);
  add("bandsaw__search", "L:\n  ld.volatile.global.u32 %r1, [flag];\n  @%p bra L;\n");  // a guard's
  text += kernel(sync);
  const ptx::Module module = ptx::parse(text);
  std::string names;
  for (const auto& [name, function] : inlined_functions(module)) names += name + " ";
  EXPECT_EQ(names, "calls loops spins syncs ");
  EXPECT_EQ(inlined_functions(module).at("calls").all, 4u);
}

}  // namespace
}  // namespace bandsaw::soft::test
