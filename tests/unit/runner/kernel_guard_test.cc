// What a guarded process's table says while ranges come and go, and which images are refused.
#include "backend/runner/guard/kernel_guard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/runner/memory/address_range.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/runner/fake_device.h"

namespace bandsaw::runner {
namespace {

class GuardingDevice : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  Result<GuardPlace> guard(uint64_t memory) override {
    asked = memory;
    return GuardPlace{.area = {.base = uint64_t{1} << 40, .bits = 33, .slack = 1 << 20, .table = 1 << 12, .report = 1},
                      .report = &report};
  }
  Status guard_write(uint64_t at, std::span<const std::byte> bytes) override {
    std::memcpy(table.data() + at, bytes.data(), bytes.size());
    return {};
  }
  // As kernels read them.
  std::vector<std::pair<uint64_t, uint64_t>> ranges() const {
    ptx::GuardTable head;
    std::memcpy(&head, table.data(), sizeof head);
    std::vector<std::pair<uint64_t, uint64_t>> list;
    for (uint32_t i = 0; i < (head.current & 0xffff); ++i) {
      ptx::GuardRange range;
      const uint64_t list_at = ptx::kGuardListsAt + (head.current >> 16) * ptx::kGuardListBytes;
      std::memcpy(&range, table.data() + list_at + i * sizeof range, sizeof range);
      list.emplace_back(range.begin, range.end);
    }
    return list;
  }

  std::vector<std::byte> table = std::vector<std::byte>(ptx::kGuardTableBytes);
  ptx::GuardReport report;
  uint64_t asked = 0;
};

class KernelGuardTest : public ::testing::Test {
 protected:
  std::unique_ptr<KernelGuard> make(std::string_view words) {
    GuardSettings settings = read_guard_settings(words).value();
    settings.any_gpu = true;
    return std::move(KernelGuard::make(&device_, settings, 8 << 20).value());
  }
  CUresult load(KernelGuard& guard, std::string_view text) {
    image_.resize(text.size());
    std::memcpy(image_.data(), text.data(), text.size());
    log_.clear();
    return guard.rewrite(&image_, &log_);
  }
  std::string image() const { return {reinterpret_cast<const char*>(image_.data()), image_.size()}; }

  Reservation window_ = std::move(Reservation::make(VGPU_WINDOW_BYTES).value());
  GuardingDevice device_{window_.base() + VGPU_WINDOW_DEVICE_OFFSET, nullptr};
  std::vector<std::byte> image_;
  std::string log_;
};

using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

TEST_F(KernelGuardTest, RangesAreSortedAndDoNotTouch) {
  const auto guard = make("guard");
  EXPECT_EQ(device_.asked, uint64_t{8 << 20});
  guard->allow(0x9000, 0x1000);
  guard->allow(0x1000, 0x1000);
  guard->allow(0x2000, 0x1000);
  guard->allow(0x1800, 0x1000);
  EXPECT_EQ(device_.ranges(), (Ranges{{0x1000, 0x3000}, {0x9000, 0xa000}}));
  guard->allow(0x9000, 0x1000);  // two regions of the same pages
  guard->forbid(0x9000, 0x1000);
  EXPECT_EQ(device_.ranges(), (Ranges{{0x1000, 0x3000}, {0x9000, 0xa000}}));
  guard->forbid(0x9000, 0x1000);
  guard->forbid(0x2000, 0x1000);
  guard->forbid(0x2000, 0x800);  // never allowed
  EXPECT_EQ(device_.ranges(), (Ranges{{0x1000, 0x2800}}));
}

TEST_F(KernelGuardTest, VariablesGoWithTheirCode) {
  const auto guard = make("guard");
  const Module one, two;
  guard->allow_variable(&one, 0x5000, 64);
  guard->allow_variable(&one, 0x5000, 64);
  guard->allow_variable(&two, 0x6000, 8);
  EXPECT_EQ(device_.ranges(), (Ranges{{0x5000, 0x5040}, {0x6000, 0x6008}}));
  guard->forget(&one);
  EXPECT_EQ(device_.ranges(), (Ranges{{0x6000, 0x6008}}));
}

TEST_F(KernelGuardTest, MoreRangesThanThereIsRoomForAreLeftOut) {
  const auto guard = make("guard");
  for (uint64_t i = 0; i < ptx::kGuardRangesMost + 3; ++i) guard->allow(0x10000 + 0x2000 * i, 0x1000);
  EXPECT_EQ(device_.ranges().size(), ptx::kGuardRangesMost);
}

TEST_F(KernelGuardTest, SaysWhatKernelsReport) {
  const auto guard = make("guard");
  EXPECT_EQ(guard->error(), CUDA_SUCCESS);
  device_.report = {.error = 700, .address = 0x42};
  EXPECT_EQ(guard->error(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(guard->wrong_address(), 0x42u);
}

const char* const kText =
    ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n.reg .b64 %rd<2>; .reg .b32 "
    "%r;\n"
    ".shared .u32 s;\nld.param.u64 %rd1, [p]; ld.global.u32 %r, [%rd1]; st.shared.u32 [s], %r; ret;\n}\n";

TEST_F(KernelGuardTest, DoesWhatTheWordsSay) {
  for (const auto& [words, guards, clears] : {std::tuple{"guard", true, false}, std::tuple{"clear-shared", false, true},
                                              std::tuple{"clear-shared,guard", true, true}}) {
    const auto guard = make(words);
    ASSERT_EQ(load(*guard, kText), CUDA_SUCCESS) << log_;
    EXPECT_EQ(image().find("_reach") != std::string::npos, guards) << words;
    EXPECT_EQ(image().find("bar.sync 0") != std::string::npos, clears) << words;
  }
  EXPECT_EQ(read_guard_settings("guard,off").status().code(), EINVAL);
}

TEST_F(KernelGuardTest, RefusesWhatItCannotRead) {
  const auto guard = make("guard");
  EXPECT_NE(load(*guard, "neither this nor that"), CUDA_SUCCESS);
  EXPECT_EQ(load(*guard, ".version 9.0\n.target sm_90\n.address_size 64\n.extern .func f();\n"),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_NE(log_.find("cannot be guarded"), std::string::npos) << log_;
}

}  // namespace
}  // namespace bandsaw::runner
