// Memory that libcuda has made where it is mapped.
#include "backend/runner/populated_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace bandsaw::runner {
namespace {

constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, kBoth = PROT_READ | PROT_WRITE;
constexpr size_t kMiB = 1u << 20;

TEST(PopulatedMap, OnlyLargeOnesOfTheProgramsOwn) {
  EXPECT_TRUE(is_large_populated_map(nullptr, 283 * kMiB, kBoth, kFlags, -1));
  EXPECT_TRUE(is_large_populated_map(nullptr, 283 * kMiB, kBoth, kFlags | MAP_NORESERVE, -1));
  EXPECT_FALSE(is_large_populated_map(nullptr, kMiB, kBoth, kFlags, -1));
  EXPECT_FALSE(is_large_populated_map(nullptr, 283 * kMiB, kBoth, kFlags & ~MAP_POPULATE, -1));
  EXPECT_FALSE(is_large_populated_map(nullptr, 283 * kMiB, kBoth, kFlags | MAP_LOCKED, -1));
  EXPECT_FALSE(is_large_populated_map(nullptr, 283 * kMiB, PROT_READ, kFlags, -1));
  EXPECT_FALSE(is_large_populated_map(nullptr, 283 * kMiB, kBoth, MAP_SHARED | MAP_POPULATE, 3));
  EXPECT_FALSE(is_large_populated_map(&errno, 283 * kMiB, kBoth, kFlags | MAP_FIXED, -1));
}

TEST(PopulatedMap, AllPagesAreThere) {
  const size_t bytes = 67 * kMiB + 3 * 4096 + 5;
  errno = EBADF;
  void* const made = map_populated(bytes, kBoth, kFlags);
  ASSERT_NE(made, MAP_FAILED);
  EXPECT_EQ(errno, EBADF);
  std::vector<unsigned char> there((bytes + 4095) / 4096);
  ASSERT_EQ(mincore(made, bytes, there.data()), 0);
  EXPECT_EQ(std::count_if(there.begin(), there.end(), [](unsigned char page) { return (page & 1) == 0; }), 0);
  const auto* const begin = static_cast<const unsigned char*>(made);
  EXPECT_EQ(std::count(begin, begin + bytes, 0), static_cast<long>(bytes));
  EXPECT_EQ(munmap(made, bytes), 0);
}

TEST(PopulatedMap, WhatCannotBeMappedSaysWhy) {
  EXPECT_EQ(map_populated(size_t{1} << 50, kBoth, kFlags), MAP_FAILED);
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace bandsaw::runner
