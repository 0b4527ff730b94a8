#include "backend/runner/handlers/copies.h"

#include <gtest/gtest.h>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kWindowBase = VGPU_WINDOW_BASE_1;

class ArrayCopyTest : public ::testing::Test {
 protected:
  ArrayCopyTest() {
    copy_.destination.kind = VGPU_MEMORY_ARRAY;
    copy_.destination.address = handle_;
    copy_.destination.x_bytes = 16;
    copy_.destination.y = 2;
    copy_.destination.z = 3;
    copy_.source.kind = VGPU_MEMORY_DEVICE;
    copy_.source.address = kWindowBase + VGPU_WINDOW_DEVICE_OFFSET;
    copy_.source.pitch = 128;
    copy_.source.height = 10;
    copy_.width_bytes = 64;
    copy_.height = 5;
    copy_.depth = 2;
  }

  Reservation window_ = std::move(Reservation::make(VGPU_WINDOW_BYTES, {kWindowBase}).value());
  std::unique_ptr<GuestMemory> memory_ = std::move(GuestMemory::make(&window_).value());
  HandleTable handles_;
  ArrayRef array_ = std::make_shared<Array>();
  uint64_t handle_ = handles_.add_once(HandleKind::kArray, array_);
  vgpu_copy copy_{};
  Copy resolved_;
  CopyHolds holds_;
};

TEST_F(ArrayCopyTest, AnArrayKeepsItsOffsets) {
  ASSERT_EQ(resolve_copy(handles_, *memory_, copy_, &resolved_, &holds_), CUDA_SUCCESS);
  EXPECT_EQ(resolved_.destination.array, array_);
  EXPECT_EQ(resolved_.destination.x_bytes, 16u);
  EXPECT_EQ(resolved_.destination.y, 2u);
  EXPECT_EQ(resolved_.destination.z, 3u);
  EXPECT_FALSE(resolved_.source.array);
  EXPECT_EQ(resolved_.source.address, copy_.source.address);
  const vgpu_copy back = describe_copy(handles_, *memory_, resolved_);
  EXPECT_EQ(back.destination.kind, VGPU_MEMORY_ARRAY);
  EXPECT_EQ(back.destination.address, handle_);
  EXPECT_EQ(back.destination.y, 2u);
}

TEST_F(ArrayCopyTest, OtherHandlesAreNoArrays) {
  const uint64_t mipmap = handles_.add(HandleKind::kMipmap, std::make_shared<Mipmap>());
  for (const uint64_t wrong : {uint64_t{0}, mipmap, handle_ + 1, handle_ + (uint64_t{1} << 32), ~uint64_t{0}}) {
    copy_.destination.address = wrong;
    EXPECT_EQ(resolve_copy(handles_, *memory_, copy_, &resolved_, &holds_), CUDA_ERROR_INVALID_HANDLE);
  }
  handles_.remove(HandleKind::kArray, handle_);
  copy_.destination.address = handle_;
  EXPECT_EQ(resolve_copy(handles_, *memory_, copy_, &resolved_, &holds_), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace bandsaw::runner
