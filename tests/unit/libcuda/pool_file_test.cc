#include "guest-driver/libcuda/api/pool_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest-driver/libcuda/core/numa.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kBytes = 4 << 20, kOnePage = 4096;

TEST(PoolFile, ADescriptorOfAnotherFileIsNoPool) {
  int node = 0;
  EXPECT_FALSE(PoolFile::import(-1, &node));
  const int other = memfd_create("bandsaw-host-memory:0", MFD_CLOEXEC);
  EXPECT_FALSE(PoolFile::import(other, &node)) << "it can be cut off";
  close(other);
}

TEST(PoolFile, WhatAnotherProcessSaysIsChecked) {
  const auto own = PoolFile::make(kAnyNode, kBytes);
  ASSERT_TRUE(own);
  EXPECT_FALSE(own->imported());
  EXPECT_FALSE(own->range_of(0x1000));
  const int descriptor = own->share();
  struct stat info{};
  ASSERT_EQ(fstat(descriptor, &info), 0);
  int node = 0;
  const auto other = PoolFile::import(descriptor, &node);
  close(descriptor);
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->imported());
  EXPECT_EQ(node, kAnyNode);

  VirtualGpu gpu;
  uint64_t base = 0;
  const FileRange good{info.st_dev, info.st_ino, kOnePage, kOnePage};
  for (const FileRange& bad : {FileRange{good.device, good.inode + 1, 0, kOnePage},
                               {good.device + 1, good.inode, 0, kOnePage},
                               {good.device, good.inode, 0, 0},
                               {good.device, good.inode, 1, kOnePage},
                               {good.device, good.inode, 0, kOnePage + 1},
                               {good.device, good.inode, kOnePage, kBytes},
                               {good.device, good.inode, ~0ull - kOnePage + 1, kOnePage},
                               {good.device, good.inode, kOnePage, ~0ull - kOnePage + 1}}) {
    EXPECT_EQ(other->map(gpu, bad, &base), CUDA_ERROR_INVALID_VALUE) << bad.offset << " " << bad.bytes;
  }
}

}  // namespace
}  // namespace bandsaw::libcuda
