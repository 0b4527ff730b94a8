// What the software device records of kernels for the timing model.
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backend/device/soft/timing/simulate.h"
#include "tests/unit/soft/host_fixture.h"

namespace bandsaw::soft {
namespace {

using namespace timing;

constexpr char kRecordedPtx[] = R"(
.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) twice(.param .b32 v)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [v];
  add.u32 %r2, %r1, %r1;
  st.param.u32 [r], %r2;
  ret;
}
.visible .entry walk(.param .u64 a)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<8>;
  .shared .align 4 .b8 s[4096];
  ld.param.u64 %d1, [a];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.u32 %r2, [%d3];
  mul.wide.u32 %d4, %r1, 256;
  add.u64 %d5, %d1, %d4;
  ld.global.u32 %r3, [%d5];
  shl.b32 %r4, %r1, 7;
  mov.u32 %r5, s;
  add.u32 %r4, %r4, %r5;
  st.shared.u32 [%r4], %r2;
  setp.lt.u32 %p1, %r1, 8;
  @%p1 bra LOW;
  st.global.u32 [%d3], %r3;
LOW:
  bar.sync 0;
  ret;
}
.visible .entry caller(.param .u64 a)
{
  .reg .b32 %r<4>; .reg .b64 %d<4>;
  .param .b32 v; .param .b32 r;
  ld.param.u64 %d1, [a];
  mov.u32 %r1, 7;
  st.param.u32 [v], %r1;
  call (r), twice, (v);
  ld.param.u32 %r2, [r];
  st.global.u32 [%d1], %r2;
  ret;
}
.visible .entry forever()
{
AGAIN:
  bra AGAIN;
}
)";

class RecordTest : public HostFixture {
 protected:
  RecordTest() : HostFixture(config()) {
    std::string log;
    EXPECT_EQ(device->library_load(std::as_bytes(std::span(kRecordedPtx)), &library, &log), CUDA_SUCCESS) << log;
  }
  ~RecordTest() override { std::filesystem::remove_all(folder()); }

  static const std::string& folder() {
    static const std::string made = [] {
      std::string name = std::filesystem::temp_directory_path() / "record-XXXXXX";
      return std::string(::mkdtemp(name.data()));
    }();
    return made;
  }
  static DeviceConfig config() {
    std::filesystem::create_directories(folder());
    DeviceConfig wanted;
    wanted.cache_directory = folder();
    wanted.recorded_launches = 1;
    return wanted;
  }
  KernelRef kernel(const std::string& name) {
    KernelRef found;
    EXPECT_EQ(device->library_kernel(library, name, &found), CUDA_SUCCESS);
    return found;
  }
  static std::vector<std::string> files() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder() + "/timing")) found.push_back(entry.path());
    return found;
  }
  // The only one that there is.
  static LaunchTrace trace() {
    EXPECT_EQ(files().size(), 1u);
    std::ifstream file(files().at(0), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::string error;
    auto read = decode(bytes, &error);
    EXPECT_TRUE(read) << error;
    return read.value_or(LaunchTrace{});
  }
  LibraryRef library;
};

TEST_F(RecordTest, StretchesLinesAndBanks) {
  const uint64_t a = alloc(32 * 256);
  ASSERT_EQ(launch(legacy, kernel("walk"), 2, 32, a), CUDA_SUCCESS);
  ASSERT_EQ(launch(legacy, kernel("walk"), 2, 32, a), CUDA_SUCCESS);  // not the first one
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  const LaunchTrace read = trace();
  EXPECT_EQ(read.kernel, "walk");
  EXPECT_EQ(read.grid[0], 2u);
  EXPECT_EQ(read.block[0], 32u);
  EXPECT_EQ(read.shared_bytes, 4096u);
  EXPECT_FALSE(read.cut);
  const auto& code = read.code.instructions;
  ASSERT_EQ(code.size(), 17u);
  EXPECT_EQ(code[0].kind, Kind::kConstant);
  EXPECT_TRUE(code[4].kind == Kind::kLoad && code[4].global_load);
  EXPECT_TRUE(code[11].kind == Kind::kStore && !code[11].global_load);
  EXPECT_EQ(code[13].target, 15);
  EXPECT_EQ(code[15].kind, Kind::kBarrier);
  EXPECT_EQ(code[7].writes.size(), 1u);
  EXPECT_EQ(code[14].reads, (std::vector<uint32_t>{code[4].reads[0], code[7].writes[0]}));

  std::vector<uint32_t> words{kStretch | 32u << 24, kLines | 1u << 24};
  const auto add_line = [&](uint64_t line, uint32_t sectors) {
    words.push_back(static_cast<uint32_t>(line) | sectors);
    words.push_back(static_cast<uint32_t>(line >> 32));
  };
  add_line(a, 15);
  words.push_back(kLines | 32u << 24);
  for (uint64_t lane = 0; lane < 32; ++lane) add_line(a + 256 * lane, 1);
  words.push_back(kBanks | 32);
  words.push_back(kStretch | 24u << 24 | 14);
  words.push_back(kLines | 1u << 24);
  add_line(a, 14);  // the first eight lanes do not store
  words.push_back(kStretch | 32u << 24 | 15);
  ASSERT_EQ(read.warps.size(), 2u);
  EXPECT_EQ(read.warps[0].words, words);
  EXPECT_EQ(read.warps[1].words, words);
  EXPECT_EQ(simulate(read, h200(), {}).sm.instructions, 2 * 17u);
}

TEST_F(RecordTest, FunctionsThatKernelsCallAreInTheTrace) {
  const uint64_t a = alloc(256);
  ASSERT_EQ(launch(legacy, kernel("caller"), 1, 1, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(a), 14u);
  const LaunchTrace read = trace();
  ASSERT_EQ(read.code.instructions.size(), 7u + 4u);
  ASSERT_EQ(read.warps.size(), 1u);
  const auto& words = read.warps[0].words;
  ASSERT_EQ(words.size(), 3u + 3u);
  EXPECT_EQ(words[0], kStretch | 1u << 24 | 0);
  EXPECT_EQ(words[1], kStretch | 1u << 24 | 7);
  EXPECT_EQ(words[2], kStretch | 1u << 24 | 4);
}

TEST_F(RecordTest, LargeGridsAreRecordedInPart) {
  const uint64_t a = alloc(32 * 256);
  ASSERT_EQ(launch(legacy, kernel("walk"), 40000, 32, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  const LaunchTrace read = trace();
  EXPECT_EQ(read.blocks(), 40000u);
  ASSERT_EQ(read.warps.size(), 1024u);
  EXPECT_EQ(read.warps[4].block, 132u);  // those of four of the 132 SMs
  EXPECT_EQ(read.warps.back().block, 132 * 255 + 3u);
}

// Its warps are full at some time, and written then.
TEST_F(RecordTest, KernelsThatNeverEndHaveATraceToo) {
  ASSERT_EQ(launch(legacy, kernel("forever"), 64 * 33, 512), CUDA_SUCCESS);
  for (int i = 0; i < 200 && (files().empty() || std::filesystem::file_size(files()[0]) < 65536); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(device->context_destroy(context), CUDA_SUCCESS);
  const LaunchTrace read = trace();
  EXPECT_TRUE(read.cut);
  ASSERT_FALSE(read.warps.empty());
  EXPECT_LE(read.warps[0].words.size(), (64u << 20) / sizeof(uint32_t) / 1024);
  EXPECT_TRUE(simulate(read, h200(), {}, 1000).cut);
}

}  // namespace
}  // namespace bandsaw::soft
