// Images as the driver gets them.
#include "backend/device/cuda/load_request.h"

#include <gtest/gtest.h>

#include <cstring>

namespace bandsaw::cuda {
namespace {

// A fatbin's header says how long the header and what follows it are.
std::vector<std::byte> fatbins(uint16_t header_bytes, uint64_t payload_bytes, int count) {
  std::vector<std::byte> image;
  for (int i = 0; i < count; ++i) {
    const uint32_t magic = 0xBA55ED50;
    std::vector<std::byte> one(16 + payload_bytes);
    std::memcpy(one.data(), &magic, sizeof magic);
    std::memcpy(one.data() + 6, &header_bytes, sizeof header_bytes);
    std::memcpy(one.data() + 8, &payload_bytes, sizeof payload_bytes);
    image.insert(image.end(), one.begin(), one.end());
  }
  return image;
}

TEST(LoadRequest, SeveralFatbinsBecomeAWrapper) {
  const LoadRequest one(fatbins(16, 32, 1)), three(fatbins(16, 32, 3));
  uint32_t magic = 0;
  std::memcpy(&magic, one.image(), sizeof magic);
  EXPECT_EQ(magic, 0xBA55ED50u);
  std::memcpy(&magic, three.image(), sizeof magic);
  EXPECT_EQ(magic, 0x466243B1u);
}

TEST(LoadRequest, AHeaderThatIsShorterThanItselfEndsTheList) {
  const LoadRequest request(fatbins(0, 0, 3));
  uint32_t magic = 0;
  std::memcpy(&magic, request.image(), sizeof magic);
  EXPECT_EQ(magic, 0xBA55ED50u);
}

}  // namespace
}  // namespace bandsaw::cuda
