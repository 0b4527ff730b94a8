#include "guest-driver/libcuda/api/image_size.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace bandsaw::libcuda {
namespace {

struct Fatbin {
  uint32_t magic = 0xBA55ED50;
  uint16_t version = 1, header_bytes = 16;
  uint64_t payload_bytes = 8;
  char payload[8] = {};
};

struct Wrapper {
  uint32_t magic = 0x466243b1, version = 1;
  const void* data = nullptr;
  const void* prelinked = nullptr;
};

TEST(ImageSize, FollowsTheWrapper) {
  Fatbin fatbin;
  Wrapper wrapper{.data = &fatbin};
  Image image;
  ASSERT_EQ(find_image(&wrapper, &image), CUDA_SUCCESS);
  EXPECT_EQ(image.data, &fatbin);
  EXPECT_EQ(image.bytes, 24u);
}

TEST(ImageSize, JoinsWhatAProgramWasLinkedFrom) {
  Fatbin linked, first, second;
  first.payload[0] = '1';
  second.payload[0] = '2';
  const void* parts[] = {&first, &second, nullptr};
  Wrapper wrapper{.version = 2, .data = &linked, .prelinked = parts};
  Image image;
  ASSERT_EQ(find_image(&wrapper, &image), CUDA_SUCCESS);
  ASSERT_EQ(image.bytes, 3 * 24u);
  EXPECT_EQ(std::memcmp(static_cast<const char*>(image.data) + 24, &first, 24), 0);
  EXPECT_EQ(std::memcmp(static_cast<const char*>(image.data) + 48, &second, 24), 0);
  wrapper.prelinked = nullptr;
  ASSERT_EQ(find_image(&wrapper, &image), CUDA_SUCCESS);
  EXPECT_EQ(image.bytes, 24u);
  second.magic = 0;
  wrapper.prelinked = parts;
  EXPECT_EQ(find_image(&wrapper, &image), CUDA_ERROR_INVALID_IMAGE);
}

TEST(ImageSize, RefusesSizesThatCannotBe) {
  Image image;
  for (const uint64_t bytes : {uint64_t{1} << 40, ~uint64_t{0} - 16, ~uint64_t{0}}) {
    Fatbin fatbin;
    fatbin.payload_bytes = bytes;
    EXPECT_EQ(find_image(&fatbin, &image), CUDA_ERROR_INVALID_IMAGE);
  }
  Wrapper wrapper{.data = reinterpret_cast<const void*>(0x10)};
  EXPECT_EQ(find_image(&wrapper, &image), CUDA_ERROR_INVALID_IMAGE);
  Elf64_Ehdr elf{};
  std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  ASSERT_EQ(find_image(&elf, &image), CUDA_SUCCESS);
  EXPECT_EQ(image.bytes, sizeof(elf));
  elf.e_shoff = uint64_t{1} << 40;
  EXPECT_EQ(find_image(&elf, &image), CUDA_ERROR_INVALID_IMAGE);
  elf.e_shnum = 3;
  elf.e_shentsize = sizeof(Elf64_Shdr);
  EXPECT_EQ(find_image(&elf, &image), CUDA_ERROR_INVALID_IMAGE);
}

TEST(ImageSize, MeasuresText) {
  const char text[] = "// PTX\n.version 9.0";
  Image image;
  ASSERT_EQ(find_image(text, &image), CUDA_SUCCESS);
  EXPECT_EQ(image.bytes, sizeof(text) - 1);
  EXPECT_EQ(find_image("\x01\x02\x03\x04\x05\x06\x07\x08", &image), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(find_image(nullptr, &image), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace bandsaw::libcuda
