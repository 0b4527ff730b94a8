// Memory of a shared segment, with a driver of our own.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {
namespace {

struct SegmentDriver {
  CUresult create = CUDA_SUCCESS, exported = CUDA_SUCCESS;
  CUmemAllocationProp prop{};
  uint64_t bytes = 0;
  int living = 0;
} segments;

class SegmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    segments = {};
    driver_.cuDeviceGet = [](CUdevice* device, int index) {
      *device = index + 40;
      return index < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    };
    driver_.cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                             unsigned long long) {
      if (segments.create != CUDA_SUCCESS) return segments.create;
      *handle = 7;
      segments.bytes = bytes;
      segments.prop = *prop;
      ++segments.living;
      return CUDA_SUCCESS;
    };
    driver_.cuMemExportToShareableHandle = [](void* fd, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long) {
      EXPECT_EQ(handle, 7u);
      EXPECT_EQ(type, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      if (segments.exported == CUDA_SUCCESS) *static_cast<int*>(fd) = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      return segments.exported;
    };
    driver_.cuMemRelease = [](CUmemGenericAllocationHandle) { return --segments.living, CUDA_SUCCESS; };
    driver_.cuGetErrorName = [](CUresult, const char** name) { return *name = "NAME", CUDA_SUCCESS; };
    driver_.cuGetErrorString = [](CUresult, const char** text) { return *text = "text", CUDA_SUCCESS; };
  }
  Driver driver_;
};

TEST_F(SegmentTest, ItsDescriptorHoldsIt) {
  const auto made = make_segment(driver_, 4 << 20, 1);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(made.value().write);
  EXPECT_FALSE(made.value().read) << "the driver knows no descriptor for reading alone";
  EXPECT_EQ(segments.bytes, 4u << 20);
  EXPECT_EQ(segments.prop.location.id, 41);
  EXPECT_EQ(segments.prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(segments.living, 0) << "the process that makes it keeps no handle";
}

TEST_F(SegmentTest, WhatTheDriverRefusesLeavesNothing) {
  segments.create = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(make_segment(driver_, 4 << 20, 0).status().code(), ENOMEM);
  segments.create = CUDA_SUCCESS;
  segments.exported = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(make_segment(driver_, 4 << 20, 0).status().code(), EIO);
  EXPECT_EQ(segments.living, 0);
  EXPECT_EQ(make_segment(driver_, 4 << 20, 2).status().code(), ENODEV);
}

}  // namespace
}  // namespace bandsaw::cuda
