#include "backend/device/image/image.h"

#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "backend/device/image/cubin.h"

namespace bandsaw::image {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string sample(const std::string& name) {
  std::ifstream file(std::string(SAMPLES) + "/" + name);
  if (!file) ADD_FAILURE() << "no sample " << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
void put(std::string* text, size_t offset, T value) {
  std::memcpy(text->data() + offset, &value, sizeof(value));
}

// One entry of a fatbin. `flags` say how `payload` is packed already.
std::string entry(uint16_t kind, uint32_t sm, std::string payload, uint64_t flags = 0x11, uint64_t unpacked = 0) {
  std::string text(64, '\0');
  uint32_t packed = payload.size();
  payload.resize((payload.size() + 7) / 8 * 8);
  put<uint16_t>(&text, 0, kind);
  put<uint16_t>(&text, 2, 0x101);
  put<uint32_t>(&text, 4, 64);
  put<uint64_t>(&text, 8, payload.size());
  put<uint32_t>(&text, 16, unpacked ? packed : 0);
  put<uint32_t>(&text, 0x1c, sm);
  put<uint64_t>(&text, 0x28, flags);
  put<uint64_t>(&text, 0x38, unpacked);
  return text + payload;
}

std::string fatbin(const std::string& entries) {
  std::string text(16, '\0');
  put<uint32_t>(&text, 0, 0xBA55ED50);
  put<uint16_t>(&text, 4, 1);
  put<uint16_t>(&text, 6, 16);
  put<uint64_t>(&text, 8, entries.size());
  return text + entries;
}

std::string ptx(uint32_t sm, const std::string& tail = "") {
  return ".version 9.0\n.target sm_" + std::to_string(sm) + "\n.address_size 64\n" + tail + std::string(1, '\0');
}

std::string lz4(const std::string& text) {
  std::string packed(LZ4_compressBound(text.size()), '\0');
  packed.resize(LZ4_compress_default(text.data(), packed.data(), text.size(), packed.size()));
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

struct Found {
  CUresult result;
  PtxChoice choice;
  std::string log;
};
Found find(const std::string& image, uint32_t gpu = 0) {
  Found found;
  found.result = find_ptx(bytes_of(image), &found.choice, &found.log, gpu);
  return found;
}

TEST(Image, TakesPtxTextWithAndWithoutNul) {
  std::string text = ptx(90);
  Found with = find(text + "garbage"), without = find(text.substr(0, text.size() - 1));
  EXPECT_EQ(with.result, CUDA_SUCCESS);
  EXPECT_EQ(with.choice.sm, 90u);
  EXPECT_EQ(with.choice.units, without.choice.units);
  EXPECT_EQ(with.choice.units.at(0).back(), '\n');
}

TEST(Image, LeavesTheDeviceRuntimeOut) {
  const std::string head = ".version 9.0\n.target sm_121\n.address_size 64\n", name = "cudaCGGetIntrinsicHandle()";
  PtxChoice choice;
  std::string log;
  const std::string runtime = head + ".visible .func (.param .b64 r) " + name + " { ret; }";
  ASSERT_EQ(find_ptx(std::as_bytes(std::span(runtime)), &choice, &log), CUDA_SUCCESS);
  EXPECT_TRUE(choice.units.empty());
  EXPECT_EQ(choice.sm, 0u);
  const std::string user = head + ".extern .func (.param .b64 r) " + name + ";\n.visible .entry k() { ret; }";
  ASSERT_EQ(find_ptx(std::as_bytes(std::span(user)), &choice, &log), CUDA_SUCCESS);
  EXPECT_EQ(choice.units.size(), 1u);
}

TEST(Image, ReadsWhatNvccWrites) {
  std::string image = sample("parameters.fatbin");
  std::vector<ImageEntry> entries;
  std::string log;
  ASSERT_EQ(list_image(bytes_of(image), &entries, &log), CUDA_SUCCESS) << log;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].kind, ImageEntry::Kind::kElf);
  EXPECT_EQ(entries[0].sm, 75u);
  EXPECT_EQ(cubin_architecture(entries[0].payload), 75u);
  EXPECT_EQ(entries[1].packing, ImageEntry::Packing::kZstd);
  Found found = find(image);
  ASSERT_EQ(found.result, CUDA_SUCCESS) << found.log;
  EXPECT_EQ(found.choice.sm, 75u);
  EXPECT_NE(found.choice.units.at(0).find(".visible .entry mixed("), std::string::npos);
}

TEST(Image, UnpacksLz4AndZstd) {
  std::string text = ptx(80, "// the same the same the same the same\n");
  for (uint64_t flag : {0x2000, 0x8000}) {
    Found found = find(fatbin(entry(1, 80, flag == 0x2000 ? lz4(text) : zstd(text), flag, text.size())));
    ASSERT_EQ(found.result, CUDA_SUCCESS) << found.log;
    EXPECT_EQ(found.choice.units.at(0), text.substr(0, text.size() - 1));
  }
}

TEST(Image, PrefersTheHighestAndThePortable) {
  const uint64_t kArchitecture = 0x100000, kFamily = 0x200000;
  EXPECT_EQ(find(fatbin(entry(1, 75, ptx(75)) + entry(1, 90, ptx(90)) + entry(1, 80, ptx(80)))).choice.sm, 90u);
  Found found = find(fatbin(entry(1, 90, ptx(90, "a"), kArchitecture) + entry(1, 90, ptx(90, "plain")) +
                            entry(1, 90, ptx(90, "f"), kFamily)));
  ASSERT_EQ(found.choice.units.size(), 1u);
  EXPECT_NE(found.choice.units[0].find("plain"), std::string::npos);
}

TEST(Image, TakesOnlyWhatTheGpuCanRun) {
  const uint64_t kArchitecture = 0x100000, kFamily = 0x200000;
  const std::string plain = entry(1, 80, ptx(80));
  EXPECT_EQ(find(fatbin(plain + entry(1, 120, ptx(120))), 90).choice.sm, 80u);
  EXPECT_EQ(find(fatbin(plain + entry(1, 90, ptx(90), kArchitecture)), 90).choice.sm, 90u);
  EXPECT_EQ(find(fatbin(plain + entry(1, 90, ptx(90), kArchitecture)), 100).choice.sm, 80u);
  EXPECT_EQ(find(fatbin(plain + entry(1, 100, ptx(100), kFamily)), 103).choice.sm, 100u);
  EXPECT_EQ(find(fatbin(plain + entry(1, 100, ptx(100), kFamily)), 120).choice.sm, 80u);
  Found none = find(fatbin(entry(1, 100, ptx(100)) + entry(1, 120, ptx(120))), 90);
  EXPECT_EQ(none.result, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(none.log, "this image holds PTX for sm_100, sm_120 only");
}

TEST(Image, TakesForTheSoftwareDeviceWhatItsNumberAllowsFirst) {
  const std::string early = entry(1, 75, ptx(75)), late = entry(1, 121, ptx(121));
  EXPECT_EQ(find(fatbin(late + early)).choice.sm, 75u);
  EXPECT_EQ(find(fatbin(early + late)).choice.sm, 75u);
  EXPECT_EQ(find(fatbin(late)).choice.sm, 121u);
  EXPECT_EQ(find(fatbin(early + late) + fatbin(late)).choice.units.size(), 2u);
}

TEST(Image, ReturnsEveryUnitOfAProgram) {
  Found one = find(fatbin(entry(1, 75, ptx(75)) + entry(1, 90, ptx(90, "x")) + entry(1, 90, ptx(90, "y"))));
  EXPECT_EQ(one.choice.units.size(), 2u);
  // What -rdc gives: a linked ELF, then the fatbins that it was linked from.
  Found row = find(fatbin(entry(2, 75, "elf")) + fatbin(entry(2, 75, "elf") + entry(1, 75, ptx(75, "x"))) +
                   fatbin(entry(1, 70, ptx(70)) + entry(1, 75, ptx(75, "y"))));
  ASSERT_EQ(row.choice.units.size(), 2u) << row.log;
  EXPECT_NE(row.choice.units[1].find('y'), std::string::npos);
}

TEST(Image, SaysWhenThereIsMachineCodeOnly) {
  Found found = find(fatbin(entry(2, 90, "elf") + entry(2, 75, "elf")));
  EXPECT_EQ(found.result, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(found.log, "this image holds machine code for sm_75, sm_90 only; PTX is needed");
  Found cubin = find(sample("parameters.cubin"));
  EXPECT_EQ(cubin.result, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cubin.log, "this image holds machine code for sm_90 only; PTX is needed");
  EXPECT_EQ(find(fatbin("")).result, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(Image, RefusesGarbage) {
  for (const std::string& image : {std::string(), std::string("text"), std::string(4, '\0'),
                                   std::string("\x7f"
                                               "ELF")})
    EXPECT_EQ(find(image).result, CUDA_ERROR_INVALID_IMAGE);
}

TEST(Image, RefusesSizesThatLie) {
  std::string text = ptx(90), good = fatbin(entry(1, 90, lz4(text), 0x2000, text.size()));
  ASSERT_EQ(find(good).result, CUDA_SUCCESS);
  struct Lie {
    size_t offset;
    uint64_t value;
  };
  for (Lie lie : {Lie{8, ~0ull}, Lie{8, good.size()}, Lie{8, 70}, Lie{16 + 8, ~0ull}, Lie{16 + 8, good.size()},
                  Lie{16 + 0x38, ~0ull}, Lie{16 + 0x38, 1ull << 28}, Lie{16 + 0x38, text.size() - 1},
                  Lie{16 + 0x10, 0xffffffff}}) {
    std::string image = good;
    put<uint64_t>(&image, lie.offset, lie.value);
    EXPECT_EQ(find(image).result, CUDA_ERROR_INVALID_IMAGE) << lie.offset << " " << lie.value;
  }
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(find(good.substr(0, length)).result, CUDA_SUCCESS) << length;
}

TEST(Image, BoundsWhatItUnpacks) {
  std::string zeros(1 << 20, ' ');
  std::string packed = zstd(zeros), bomb;
  for (int i = 0; i < 300; ++i) bomb += entry(1, 90, packed, 0x8000, zeros.size());
  Found found = find(fatbin(bomb));
  EXPECT_EQ(found.result, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_NE(found.log.find("too large"), std::string::npos);
}

TEST(Image, PtxRunsWhereNoOtherCodeDoes) {
  constexpr uint64_t kArchitecture = 0x100000;
  const auto runs = [](const std::string& image, uint32_t gpu) { return runs_its_ptx(bytes_of(image), gpu); };
  EXPECT_TRUE(runs(ptx(80), 90));
  EXPECT_FALSE(runs(ptx(100), 90)) << "the GPU takes no later one";
  const std::string text = entry(1, 90, ptx(90));
  EXPECT_TRUE(runs(fatbin(text), 90));
  EXPECT_TRUE(runs(fatbin(text + entry(2, 90, "elf")), 90)) << "machine code for the same target";
  EXPECT_TRUE(runs(fatbin(text + entry(2, 80, "elf") + entry(2, 100, "elf")), 90)) << "that does not run there";
  EXPECT_FALSE(runs(fatbin(entry(1, 80, ptx(80)) + entry(2, 90, "elf")), 90));
  EXPECT_FALSE(runs(fatbin(entry(1, 80, ptx(80)) + entry(2, 86, "elf")), 89));
  EXPECT_FALSE(runs(fatbin(text + entry(2, 90, "elf", 0x11 | kArchitecture)), 90));
  EXPECT_FALSE(runs(fatbin(text) + fatbin(entry(2, 90, "elf")), 90)) << "another fatbin's";
  EXPECT_FALSE(runs(fatbin(entry(2, 90, "elf")), 90));
  EXPECT_TRUE(runs(fatbin(text + entry(2, 80, "elf")), 0)) << "the software device runs nothing else";
  EXPECT_FALSE(runs("nothing", 90));
}

}  // namespace
}  // namespace bandsaw::image
