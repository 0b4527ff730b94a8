#include "backend/vgpud/placement.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace bandsaw {
namespace {

constexpr uint64_t kRoomGiB = uint64_t{1} << 30;

PhysicalDevice device_with(const std::string& name, uint64_t memory) {
  PhysicalDevice result;
  result.name = name;
  result.memory = memory;
  return result;
}

VgpuSpec tenant(const std::string& name, uint64_t memory, uint32_t compute, const std::string& on = "") {
  VgpuSpec result;
  result.name = name;
  result.memory = memory;
  result.compute = compute;
  result.device = on;
  return result;
}

class PlacementTest : public ::testing::Test {
 protected:
  // Where one with these shares goes, or the error.
  std::string place_one(uint64_t memory, uint32_t compute) {
    VgpuSpec made = tenant("new", memory, compute);
    const PhysicalDevice* const devices[] = {&first_, &second_};
    status_ = place(devices, others_, placement_, &made);
    return status_.ok() ? made.device : status_.message();
  }
  PhysicalDevice first_ = device_with("soft:0", 8 * kRoomGiB), second_ = device_with("soft:1", 8 * kRoomGiB);
  std::vector<VgpuSpec> others_;
  Placement placement_ = Placement::kSpread;
  Status status_;
};

TEST_F(PlacementTest, TheMostComputeShareThatIsLeftDecides) {
  EXPECT_EQ(place_one(kRoomGiB, 50), "soft:0");  // of equal ones the first
  others_.push_back(tenant("a", kRoomGiB, 50, "soft:0"));
  EXPECT_EQ(place_one(kRoomGiB, 30), "soft:1");
  others_.push_back(tenant("b", kRoomGiB, 60, "soft:1"));
  EXPECT_EQ(place_one(kRoomGiB, 30), "soft:0");
  others_.push_back(tenant("c", kRoomGiB, 10, "soft:0"));  // 60 % on both: then it is memory
  EXPECT_EQ(place_one(kRoomGiB, 30), "soft:1");
}

TEST_F(PlacementTest, OnlyWhereAllOfItFits) {
  others_ = {tenant("a", 7 * kRoomGiB, 1, "soft:0"), tenant("b", kRoomGiB, 90, "soft:1")};
  EXPECT_EQ(place_one(2 * kRoomGiB, 5), "soft:1");
  EXPECT_EQ(place_one(kRoomGiB, 20), "soft:0");
}

TEST_F(PlacementTest, WhatFitsNowhereIsToldWhyForEach) {
  others_ = {tenant("a", 7 * kRoomGiB, 1, "soft:0"), tenant("b", kRoomGiB, 90, "soft:1")};
  EXPECT_EQ(place_one(2 * kRoomGiB, 50),
            "it fits on no device: soft:0: memory 2.0 GiB is above what is free on device 'soft:0': 1.0 GiB of 8.0 "
            "GiB; soft:1: compute shares would sum to 140 %: 50 % asked, 90 % given to others");
  EXPECT_EQ(status_.code(), ENOSPC);
  place_one(1, 5);
  EXPECT_EQ(status_.code(), EINVAL);  // wherever it is
  EXPECT_TRUE(status_.message().starts_with("memory 1 B is below the least")) << status_.message();
}

TEST_F(PlacementTest, PackedOnesLeaveRoomForLargeOnes) {
  placement_ = Placement::kPack;
  EXPECT_EQ(place_one(kRoomGiB, 50), "soft:0");  // of equal ones the first
  others_.push_back(tenant("a", kRoomGiB, 50, "soft:1"));
  EXPECT_EQ(place_one(kRoomGiB, 30), "soft:1");
  EXPECT_EQ(place_one(kRoomGiB, 60), "soft:0");
  EXPECT_FALSE(parse_placement("tight").ok());
}

TEST_F(PlacementTest, ADrainedDeviceTakesNone) {
  first_.drained = true;
  EXPECT_EQ(place_one(kRoomGiB, 5), "soft:1");
  second_.drained = true;
  EXPECT_NE(place_one(kRoomGiB, 5).find("soft:1: it is drained (`vgpuctl undrain soft:1`)"), std::string::npos);
  EXPECT_EQ(status_.code(), ENODEV);
}

TEST_F(PlacementTest, ALostDeviceTakesNone) {
  first_.lost = "it has fallen off the bus";
  EXPECT_EQ(place_one(kRoomGiB, 5), "soft:1");
  second_.lost = "so has it";
  EXPECT_NE(place_one(kRoomGiB, 5).find("soft:1: it is lost: so has it"), std::string::npos);
  EXPECT_EQ(status_.code(), ENODEV);
}

}  // namespace
}  // namespace bandsaw
