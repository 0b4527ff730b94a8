// Guarded kernels do what they did before, and leave out what they may not: on the software device's compiler.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <variant>

#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/soft/codegen_harness.h"
#include "vgpu-sched/ptx/guard.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft::test {
namespace {

constexpr size_t kWords = 4096;

// `listed`: all of device memory is in the table of ranges and none of it in the area, so that every access takes the
// slow way.
class Guarded : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    reset_memory();
    table_ = array<std::byte>(ptx::kGuardTableBytes);
    report_ = array<ptx::GuardReport>(1);
    out_ = array<uint32_t>(kWords);
    std::memset(table_, 0, ptx::kGuardTableBytes);
    *report_ = {};
    area_.bits = 32;
    area_.base = window_base() + VGPU_WINDOW_DEVICE_OFFSET + (GetParam() ? uint64_t{1} << 38 : 0);
    area_.slack = uint64_t{1} << 20;
    area_.table = reinterpret_cast<uint64_t>(table_);
    area_.report = reinterpret_cast<uint64_t>(report_);
    if (GetParam()) list();
  }

  void list() {
    const auto begin = reinterpret_cast<uint64_t>(device_memory());
    const ptx::GuardRange ranges[] = {
        {4096, 8192}, {begin, begin + kDeviceBytes}, {begin + kDeviceBytes + 64, begin + kDeviceBytes + 128}};
    constexpr uint32_t kList = 2;
    std::memcpy(table_ + ptx::kGuardListsAt + kList * ptx::kGuardListBytes, ranges, sizeof ranges);
    const uint32_t current = kList << 16 | 3;
    std::memcpy(table_ + offsetof(ptx::GuardTable, current), &current, sizeof current);
  }

  std::string guarded(const std::string& text) const {
    auto made = ptx::guard(ptx::parse(text), area_);
    const auto* refusal = std::get_if<ptx::Refusal>(&made);
    EXPECT_EQ(refusal, nullptr) << refusal->reason;
    return refusal ? "" : std::get<std::string>(made);
  }

  ptx::GuardArea area_;
  std::byte* table_ = nullptr;
  ptx::GuardReport* report_ = nullptr;
  uint32_t* out_ = nullptr;
};

std::string sample() {
  std::ifstream file(SAMPLES "/rewrites.ptx");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_P(Guarded, DoesWhatItDidBefore) {
  Kernels original(sample()), made(guarded(sample()));
  ASSERT_TRUE(original.ok() && made.ok()) << made.log();
  Shape shape;
  shape.grid[0] = 13;
  shape.block[0] = 64;
  shape.dynamic_shared = 256;
  for (const char* kernel : {"indices", "only_x", "shared_turn", "named_barriers", "last_block"}) {
    uint32_t before[kWords];
    std::memset(out_, 0, sizeof before);
    EXPECT_EQ(original.launch(kernel, shape, out_).fault, 0u) << kernel;
    std::memcpy(before, out_, sizeof before);
    std::memset(out_, 0, sizeof before);
    EXPECT_EQ(made.launch(kernel, shape, out_).fault, 0u) << kernel;
    EXPECT_EQ(std::memcmp(before, out_, sizeof before), 0) << kernel;
  }
  EXPECT_EQ(report_->error, 0u);
}

// Pointers that walk, and addresses that are made between loads.
const char* const kWalk = R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n) {
  .reg .b64 %rd<9>; .reg .b32 %r<12>; .reg .pred %p<2>;
  .shared .align 4 .b8 part[256];
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  mul.wide.s32 %rd4, %r1, 4;
  mov.u32 %r3, 0;
again:
  ld.global.u32 %r4, [%rd3];
  mov.u32 %r5, part;
  shl.b32 %r6, %r2, 2;
  add.u32 %r7, %r5, %r6;
  st.shared.u32 [%r7], %r4;
  add.s64 %rd5, %rd3, %rd4;
  add.u32 %r4, %r4, %r3;
  st.global.u32 [%rd5], %r4;
  add.s64 %rd3, %rd5, %rd4;
  ld.shared.u32 %r8, [%r7];
  add.u32 %r8, %r8, 3;
  st.global.u32 [%rd3], %r8;
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p1, %r3, 20;
  @%p1 bra again;
  ret;
}
)";

TEST_P(Guarded, WalksAsBefore) {
  Kernels original(kWalk), made(guarded(kWalk));
  ASSERT_TRUE(original.ok() && made.ok()) << made.log();
  Shape shape;
  shape.block[0] = 64;
  uint32_t before[kWords];
  for (Kernels* kernels : {&original, &made}) {
    for (uint32_t i = 0; i < kWords; ++i) out_[i] = i < 64 ? i * 2654435761u : 0;
    EXPECT_EQ(kernels->launch("k", shape, out_, 80u).fault, 0u);
    if (kernels == &original) std::memcpy(before, out_, sizeof before);
  }
  EXPECT_EQ(std::memcmp(before, out_, sizeof before), 0);
  EXPECT_NE(out_[40 * 80 + 63], 0u);
  EXPECT_EQ(report_->error, 0u);
}

const char* const kWild = R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 at, .param .u64 out) {
  .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [at];
  ld.param.u64 %rd2, [out];
  mov.u32 %r3, %tid.x;
  setp.eq.u32 %p1, %r3, 5;
  mov.u32 %r1, 77;
  @%p1 ld.global.u32 %r1, [%rd1];
  mul.wide.u32 %rd3, %r3, 4;
  add.s64 %rd3, %rd2, %rd3;
  st.global.u32 [%rd3], %r1;
  bar.sync 0;
  ret;
}
)";

TEST_P(Guarded, LeavesOutAndReportsWhatGoesAstray) {
  Kernels made(guarded(kWild));
  ASSERT_TRUE(made.ok()) << made.log();
  const auto end = reinterpret_cast<uint64_t>(device_memory()) + kDeviceBytes;
  for (const uint64_t at :
       {uint64_t{0}, uint64_t{4092}, uint64_t{1} << 63, UINT64_MAX - 3, end + (uint64_t{3} << 40)}) {
    *report_ = {};
    const Outcome outcome = made.launch("k", Shape{}, at, out_);
    EXPECT_EQ(outcome.fault, 0u) << std::hex << at;
    EXPECT_FALSE(outcome.stuck);
    EXPECT_EQ(report_->error, 700u) << std::hex << at;
    EXPECT_EQ(report_->address, at);
    EXPECT_EQ(out_[4], 77u);
    EXPECT_EQ(out_[5], 0u) << "what was not loaded is 0";
    EXPECT_EQ(out_[6], 77u);
  }
  *report_ = {};
  EXPECT_EQ(made.launch("k", Shape{}, reinterpret_cast<uint64_t>(out_) + 1, out_).fault, 0u);
  EXPECT_EQ(report_->error, 716u);
}

TEST_P(Guarded, RangesEndWhereTheTableSays) {
  if (!GetParam()) GTEST_SKIP() << "there are none";
  Kernels made(guarded(kWild));
  const auto end = reinterpret_cast<uint64_t>(device_memory()) + kDeviceBytes;
  for (const uint64_t at : {end, end + 60, end + 128, end - 3}) {
    *report_ = {};
    EXPECT_EQ(made.launch("k", Shape{}, at, out_).fault, 0u);
    EXPECT_NE(report_->error, 0u) << std::hex << at - end;
  }
  *report_ = {};
  EXPECT_EQ(made.launch("k", Shape{}, end - 4, out_).fault, 0u);
  EXPECT_EQ(report_->error, 0u);
}

INSTANTIATE_TEST_SUITE_P(, Guarded, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Listed" : "InTheArea"; });

}  // namespace
}  // namespace bandsaw::soft::test
