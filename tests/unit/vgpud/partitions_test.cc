#include "backend/vgpud/arbiter/partitions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace bandsaw {
namespace {

using nlohmann::json;

const DeviceCapacity kGpu{.name = "cuda:0", .memory = 1, .sms = 132, .sm_step = 8};

VgpuSpec spec(const std::string& name, uint32_t index, uint32_t sms, Sharing sharing = Sharing::kMps) {
  VgpuSpec result;
  result.name = name;
  result.device = kGpu.name;
  result.index = index;
  result.sms = sms;
  result.sharing = sharing;
  return result;
}

TEST(Partitions, AreFromTheFrontInOrderAndTheRestIsForTheOthers) {
  const std::vector<VgpuSpec> all = {spec("b", 3, 16), spec("a", 1, 8), spec("free", 2, 0), spec("late", 9, 24),
                                     spec("apart", 0, 0, Sharing::kTimeSliced)};
  EXPECT_EQ(sm_part(all[1], all, kGpu), (SmPart{8, 0, 1}));
  EXPECT_EQ(sm_part(all[0], all, kGpu), (SmPart{8, 1, 2}));
  EXPECT_EQ(sm_part(all[3], all, kGpu), (SmPart{8, 3, 3}));
  EXPECT_EQ(sm_part(all[2], all, kGpu), (SmPart{8, 6, 0}));
  EXPECT_EQ(sm_part(all[4], all, kGpu), SmPart{}) << "time-sliced ones have contexts of their own";
  EXPECT_EQ(describe_part(sm_part(all[2], all, kGpu), kGpu), (json{{"first", 48}, {"count", 84}, {"own", false}}));
  EXPECT_EQ(describe_part({}, kGpu), json());
  EXPECT_EQ(sms_text({8, 1, 2}, kGpu), "16 of 132 SMs (8 to 23)");
  const std::vector<VgpuSpec> two = {spec("own", 1, 33), spec("others", 2, 0)};
  EXPECT_DOUBLE_EQ(own_part(two[0], two, kGpu), 40.0 / 132);
  EXPECT_EQ(own_part(two[1], two, kGpu), 0);
  EXPECT_EQ(own_part(spec("large", 3, 132), std::vector{spec("large", 3, 132)}, kGpu), 0) << "of a larger GPU";
  const json described = describe_partitions(all, kGpu);
  EXPECT_EQ(described["step"], 8);
  EXPECT_EQ(described["given"][1], (json{{"vgpu", "b"}, {"first", 8}, {"count", 16}}));
}

TEST(Partitions, WhoHasABoundFindsRoom) {
  std::vector<VgpuSpec> all = {spec("short", 0, 0), spec("long", 1, 0), spec("apart", 2, 0, Sharing::kTimeSliced)};
  EXPECT_EQ(sm_thousandths(all[1], all, kGpu), 1000u);
  all[0].latency_us = 50;
  EXPECT_TRUE(takes_from_others(all[0]));
  EXPECT_EQ(sm_thousandths(all[0], all, kGpu), 1000u);
  EXPECT_EQ(sm_thousandths(all[1], all, kGpu), 985u) << "130 of 132";
  EXPECT_EQ(sm_thousandths(all[2], all, kGpu), 1000u);
  EXPECT_EQ(sm_thousandths(all[1], all, {.name = "cuda:0", .sms = 16, .sm_step = 8}), 1000u) << "a MIG instance";
  all[0].sharing = Sharing::kTimeSliced;
  EXPECT_EQ(sm_thousandths(all[1], all, kGpu), 1000u) << "others' time slices keep its bound";
  all[0].sharing = Sharing::kMps;
  all.push_back(spec("own", 3, 8));
  EXPECT_EQ(sm_thousandths(all[1], all, kGpu), 1000u) << "SMs are given out";
}

TEST(Partitions, WithoutAnyEverybodyHasAll) {
  const std::vector<VgpuSpec> all = {spec("a", 0, 0), spec("b", 1, 0)};
  EXPECT_EQ(sm_part(all[0], all, kGpu), SmPart{});
  EXPECT_TRUE(describe_partitions(all, kGpu)["given"].empty());
  const DeviceCapacity soft{.name = "soft", .memory = 1};
  EXPECT_TRUE(describe_partitions(all, soft).is_null());
}

TEST(Partitions, AreRoundedUpAndRefusedWithAReason) {
  std::vector<VgpuSpec> others = {spec("a", 0, 64), spec("elsewhere", 1, 64)};
  others[1].device = "cuda:1";
  VgpuSpec one = spec("b", 2, 9);
  ASSERT_TRUE(fit_sms(others, kGpu, &one).ok());
  EXPECT_EQ(one.sms, 16u);
  one.sms = 56;  // 120 of 128 in groups, and one is left
  EXPECT_TRUE(fit_sms(others, kGpu, &one).ok());
  one.sms = 57;
  const Status full = fit_sms(others, kGpu, &one);
  EXPECT_EQ(full.code(), ENOSPC);
  EXPECT_NE(full.message().find("would sum to 128 of 132: 64 asked, 64 given to others"), std::string::npos)
      << full.message();
  EXPECT_EQ(one.sms, 57u);
  VgpuSpec apart = spec("c", 3, 8, Sharing::kTimeSliced);
  EXPECT_EQ(fit_sms(others, kGpu, &apart).code(), EINVAL);
  EXPECT_EQ(fit_sms(others, {.name = "cuda:0", .memory = 1}, &one).code(), EINVAL);
  VgpuSpec again = spec("a", 0, 120);  // its own former SMs do not count
  EXPECT_TRUE(fit_sms(others, kGpu, &again).ok());
}

TEST(Partitions, WhatDoesNotFitThisDeviceIsNotGiven) {
  const std::vector<VgpuSpec> all = {spec("a", 0, 120), spec("b", 1, 16)};
  EXPECT_EQ(sm_part(all[0], all, kGpu), SmPart{});
}

TEST(SmPart, IsReadBack) {
  for (const auto& [part, text] : std::vector<std::pair<SmPart, std::string>>{
           {{}, ""}, {{8, 0, 1}, "8:0+1"}, {{8, 1, 0}, "8:1+"}, {{2, 13, 40}, "2:13+40"}}) {
    EXPECT_EQ(to_text(part), text);
    const auto read = parse_sm_part(text);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_EQ(read.value(), part);
  }
  for (const char* bad : {"8", "8:", "8:1", "0:1+1", "8:1+0", "8:-1+1", "8:1+1 ", "x:1+1", "8:1+99999999", ":1+1"}) {
    EXPECT_EQ(parse_sm_part(bad).status().code(), EINVAL) << bad;
  }
}

}  // namespace
}  // namespace bandsaw
