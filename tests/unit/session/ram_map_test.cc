#include "backend/session/ram_map.h"

#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

constexpr uint64_t kPage = 4096;

TEST(RamMap, TranslatesInsideAndAcrossRegions) {
  RamMap map;
  ASSERT_TRUE(map.add(make_ram(5, 0, 16 * kPage)).ok());
  ASSERT_TRUE(map.add(make_ram(9, 16 * kPage, 16 * kPage, 3 * kPage)).ok());
  const vgpu_segment across[] = {{15 * kPage, 2 * kPage}};
  const auto result = map.translate(across, true);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result.value().segments.size(), 2u);
  EXPECT_EQ(result.value().segments[0].ram, 5u);
  EXPECT_EQ(result.value().segments[0].offset, 15 * kPage);
  EXPECT_EQ(result.value().segments[1].ram, 9u);
  EXPECT_EQ(result.value().segments[1].offset, 0u);
  EXPECT_EQ(result.value().rams, (std::vector<uint32_t>{5, 9}));
}

TEST(RamMap, MergesNeighbours) {
  RamMap map;
  ASSERT_TRUE(map.add(make_ram(1, 0, 16 * kPage)).ok());
  const vgpu_segment segments[] = {{0, kPage}, {kPage, kPage}, {4 * kPage, kPage}, {2 * kPage, kPage}};
  EXPECT_EQ(map.translate(segments, true).value().segments.size(), 3u);
}

TEST(RamMap, RefusesHolesAndEdges) {
  RamMap map;
  ASSERT_TRUE(map.add(make_ram(1, 4 * kPage, 4 * kPage)).ok());
  ASSERT_TRUE(map.add(make_ram(2, 10 * kPage, kPage)).ok());
  for (const vgpu_segment bad : {vgpu_segment{3 * kPage, kPage}, vgpu_segment{3 * kPage, 2 * kPage},
                                 vgpu_segment{8 * kPage, kPage}, vgpu_segment{7 * kPage, 4 * kPage},
                                 vgpu_segment{11 * kPage, kPage}, vgpu_segment{~uint64_t{0} - 8191, kPage}}) {
    EXPECT_EQ(map.translate({&bad, 1}, true).status().code(), EFAULT) << bad.address;
  }
  const vgpu_segment last{7 * kPage, kPage};
  EXPECT_TRUE(map.translate({&last, 1}, true).ok());
}

TEST(RamMap, TheTopOfTheAddressSpace) {
  RamMap map;
  EXPECT_EQ(map.add(make_ram(1, ~uint64_t{0} - 4095, 2 * kPage)).code(), EINVAL);
  EXPECT_EQ(map.add(make_ram(1, ~uint64_t{0} - 4095, kPage)).code(), EINVAL);  // its end does not fit in 64 bits
  ASSERT_TRUE(map.add(make_ram(1, ~uint64_t{0} - 8191, kPage)).ok());
  const vgpu_segment beyond{~uint64_t{0} - 8191, 2 * kPage - 4096 + kPage - 4096};
  EXPECT_TRUE(map.translate({&beyond, 1}, true).ok());
}

TEST(RamMap, ReadOnlyMemoryIsNotWritten) {
  RamMap map;
  ASSERT_TRUE(map.add(make_ram(1, 0, kPage, 0, false)).ok());
  const vgpu_segment segment{0, kPage};
  EXPECT_EQ(map.translate({&segment, 1}, true).status().code(), EACCES);
  EXPECT_TRUE(map.translate({&segment, 1}, false).ok());
}

TEST(RamMap, RefusesOverlapsAndShortFiles) {
  RamMap map;
  ASSERT_TRUE(map.add(make_ram(1, 4 * kPage, 4 * kPage)).ok());
  EXPECT_EQ(map.add(make_ram(1, 20 * kPage, kPage)).code(), EEXIST);
  EXPECT_EQ(map.add(make_ram(2, 7 * kPage, kPage)).code(), EEXIST);
  EXPECT_EQ(map.add(make_ram(2, 0, 5 * kPage)).code(), EEXIST);
  EXPECT_EQ(map.add(make_ram(2, 0, 100)).code(), EINVAL);
  EXPECT_EQ(map.add(make_ram(2, 0, 0)).code(), EINVAL);
  Ram long_one = make_ram(3, 0, kPage);
  long_one.bytes = 2 * kPage;
  EXPECT_EQ(map.add(std::move(long_one)).code(), EINVAL);
  EXPECT_TRUE(map.add(make_ram(2, 8 * kPage, kPage)).ok());
  EXPECT_TRUE(map.remove(1));
  EXPECT_FALSE(map.remove(1));
}

}  // namespace
}  // namespace bandsaw
