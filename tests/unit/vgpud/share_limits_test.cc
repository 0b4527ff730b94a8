#include "backend/vgpud/api/share_limits.h"

#include <gtest/gtest.h>

namespace bandsaw {
namespace {

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

VgpuSpec asking(const std::string& name, uint64_t memory, uint32_t compute = 1, uint32_t copy = 1) {
  VgpuSpec result;
  result.name = name;
  result.memory = memory;
  result.compute = compute;
  result.copy = copy;
  return result;
}

const DeviceCapacity kSixteen{"soft", 16 * kGibibyte};

TEST(Shares, FillTheDeviceButNotMore) {
  const VgpuSpec others[] = {asking("a", 8 * kGibibyte, 60, 10), asking("b", 4 * kGibibyte, 20, 10)};
  EXPECT_TRUE(check_shares(asking("c", 4 * kGibibyte, 20, 80), others, kSixteen).ok());
  EXPECT_EQ(check_shares(asking("c", 4 * kGibibyte + 1), others, kSixteen).code(), ENOSPC);
  EXPECT_EQ(check_shares(asking("c", kGibibyte, 21), others, kSixteen).code(), ENOSPC);
  EXPECT_EQ(check_shares(asking("c", kGibibyte, 1, 81), others, kSixteen).code(), ENOSPC);
}

TEST(Shares, AChangeDoesNotCountTheOldOne) {
  const VgpuSpec others[] = {asking("a", 8 * kGibibyte, 60), asking("b", 8 * kGibibyte, 40)};
  EXPECT_TRUE(check_shares(asking("a", 8 * kGibibyte, 60), others, kSixteen).ok());
  EXPECT_EQ(check_shares(asking("a", 8 * kGibibyte, 61), others, kSixteen).code(), ENOSPC);
}

TEST(Shares, SuspendedOnesLeaveTheirMemoryToOthers) {
  VgpuSpec asleep = asking("a", 12 * kGibibyte, 60);
  asleep.suspended = true;
  asleep.suspended_bytes = 3 * kGibibyte;
  const VgpuSpec others[] = {asleep, asking("b", 8 * kGibibyte, 20)};
  EXPECT_TRUE(check_shares(asking("c", 8 * kGibibyte, 20), others, kSixteen).ok());
  EXPECT_EQ(check_shares(asking("c", 8 * kGibibyte, 21), others, kSixteen).code(), ENOSPC) << "time stays promised";
  VgpuSpec back = asleep;
  back.suspended = false;
  EXPECT_EQ(check_shares(back, others, kSixteen).code(), ENOSPC);
}

TEST(Shares, WhatIsSuspendedCountsAgainstTheHostsMemory) {
  VgpuSpec asleep = asking("a", 12 * kGibibyte);
  asleep.suspended = true;
  asleep.suspended_bytes = 3 * kGibibyte;
  const VgpuSpec others[] = {asleep, asking("b", 8 * kGibibyte)};
  EXPECT_TRUE(check_suspend(others[1], kGibibyte, others, 4 * kGibibyte).ok());
  const Status refused = check_suspend(others[1], kGibibyte + 1, others, 4 * kGibibyte);
  EXPECT_EQ(refused.code(), ENOSPC);
  EXPECT_NE(refused.message().find("1.0 GiB are free"), std::string::npos) << refused.message();
  EXPECT_TRUE(check_suspend(others[1], 0, others, 0).ok()) << "nothing takes no room";
}

TEST(Shares, TellTheFigures) {
  const VgpuSpec others[] = {asking("a", 12 * kGibibyte, 70)};
  EXPECT_NE(check_shares(asking("b", kGibibyte, 40), others, kSixteen).message().find("110 %"), std::string::npos);
  EXPECT_NE(check_shares(asking("b", 8 * kGibibyte), others, kSixteen).message().find("4.0 GiB of 16.0 GiB"),
            std::string::npos);
}

TEST(Shares, RefuseBadValues) {
  EXPECT_EQ(check_shares(asking("B", kGibibyte), {}, kSixteen).code(), EINVAL);
  EXPECT_EQ(check_shares(asking("b", 1), {}, kSixteen).code(), EINVAL);
  VgpuSpec mode = asking("b", kGibibyte);
  mode.direct_mode = "rw";
  EXPECT_EQ(check_shares(mode, {}, kSixteen).code(), EINVAL);
}

TEST(Shares, AReserveFitsUnderTheCapAndBesideTheOthers) {
  VgpuSpec neighbour = asking("a", kGibibyte, 10);
  neighbour.reserve = 70;
  VgpuSpec mine = asking("b", kGibibyte, 10);
  mine.reserve = 30;
  mine.cap = 30;
  EXPECT_TRUE(check_shares(mine, {&neighbour, 1}, kSixteen).ok());
  mine.cap = 29;
  EXPECT_EQ(check_shares(mine, {&neighbour, 1}, kSixteen).code(), EINVAL);
  EXPECT_NE(check_shares(mine, {}, kSixteen).message().find("30 % is above the cap of 29 %"), std::string::npos);
  mine.cap = 100;
  mine.reserve = 31;
  EXPECT_EQ(check_shares(mine, {&neighbour, 1}, kSixteen).code(), ENOSPC);
  neighbour.device = "cuda:0";  // of another GPU
  EXPECT_TRUE(check_shares(mine, {&neighbour, 1}, kSixteen).ok());
}

TEST(Shares, MemoryIsNotTakenFromWhoUsesIt) {
  EXPECT_TRUE(check_memory_in_use(asking("a", kGibibyte), kGibibyte).ok());
  const Status status = check_memory_in_use(asking("a", kGibibyte), kGibibyte + 1);
  EXPECT_EQ(status.code(), EBUSY);
  EXPECT_NE(status.message().find("1073741825 bytes"), std::string::npos) << status.message();
}

TEST(Shares, OldOnesAreLoweredUntilTheyFit) {
  std::vector<VgpuSpec> specs = {asking("a", kGibibyte, 60, 100), asking("b", kGibibyte, 40), asking("c", kGibibyte),
                                 asking("d", kGibibyte)};
  specs[3].device = "cuda:0";
  EXPECT_NE(lower_to_fit(&specs).find("a: compute 60 to 59 %, copy 100 to 98 %"), std::string::npos);
  EXPECT_EQ(specs[1].compute, 40u);
  EXPECT_EQ(specs[2].compute, 1u);
  EXPECT_EQ(lower_to_fit(&specs), "");
}

}  // namespace
}  // namespace bandsaw
