#include "guest-driver/libcuda/core/visible_devices.h"

#include <gtest/gtest.h>

namespace bandsaw::libcuda {
namespace {

std::vector<int> seen(std::string_view list) {
  static const DeviceUuid devices[] = {{0xab, 0xcd}, {0xab, 0xce}, {0x12}};
  return visible_devices(list, devices);
}
using List = std::vector<int>;

TEST(VisibleDevices, NumbersInTheirOrder) {
  EXPECT_EQ(seen("0"), (List{0}));
  EXPECT_EQ(seen("2,0"), (List{2, 0}));
  EXPECT_EQ(seen(" 1 , 0"), (List{1, 0}));
}

TEST(VisibleDevices, UuidsByTheirBeginning) {
  EXPECT_EQ(seen("GPU-12"), (List{2}));
  EXPECT_EQ(seen("GPU-abce0000-0000-0000-0000-000000000000,0"), (List{1, 0}));
  EXPECT_EQ(seen("GPU-ab"), List{});  // two have it
  EXPECT_EQ(seen("GPU-"), List{});
  EXPECT_EQ(seen("GPU-abce0000-0000-0000-0000-0000000000001"), List{});
}

TEST(VisibleDevices, TheFirstUnknownOneEndsTheList) {
  EXPECT_EQ(seen(""), List{});
  EXPECT_EQ(seen("-1"), List{});
  EXPECT_EQ(seen("1,-1,0"), (List{1}));
  EXPECT_EQ(seen("1,3,0"), (List{1}));
  EXPECT_EQ(seen("0x1"), List{});
  EXPECT_EQ(seen("MIG-12"), List{});
  EXPECT_EQ(seen("1,,0"), (List{1}));
}

TEST(VisibleDevices, NoneIfOneIsNamedTwice) {
  EXPECT_EQ(seen("0,0"), List{});
  EXPECT_EQ(seen("2,GPU-12"), List{});
}

}  // namespace
}  // namespace bandsaw::libcuda
