#include "backend/control/vgpu_identity.h"

#include <gtest/gtest.h>

#include <set>

namespace bandsaw {
namespace {

TEST(VgpuIdentity, IsTheSameOnEveryStart) {
  EXPECT_EQ(make_vgpu_identity("host", "web0", 3), make_vgpu_identity("host", "web0", 3));
  EXPECT_EQ(pci_bus_text(make_vgpu_identity("host", "web0", 3)), "b500:04:00.0");
}

TEST(VgpuIdentity, IsAnothersOnAnotherHostAndUnderAnotherName) {
  std::set<std::string> seen;
  for (const char* host : {"a", "b", ""}) {
    for (const char* name : {"web0", "web1", "a", "b"}) seen.insert(uuid_text(make_vgpu_identity(host, name, 0)));
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST(VgpuIdentity, NoTwoNumbersShareABusId) {
  std::set<std::string> seen;
  for (uint32_t index = 0; index < 1000; ++index) seen.insert(pci_bus_text(make_vgpu_identity("h", "n", index)));
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(VgpuIdentity, TravelsAsText) {
  const VgpuIdentity made = make_vgpu_identity(host_id(), "web0", 300);
  const auto parsed = parse_vgpu_identity(to_text(made));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value(), made);
  EXPECT_EQ(parse_vgpu_identity("").value(), VgpuIdentity());
  for (const char* bad :
       {"web0", "web0 0123 b500 1", "web0 00000000000000000000000000000000 b500",
        "web0 00000000000000000000000000000000 b500 100", "web0 0000000000000000000000000000000g b500 1",
        "web0 00000000000000000000000000000000 b500 1 x"}) {
    EXPECT_FALSE(parse_vgpu_identity(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace bandsaw
