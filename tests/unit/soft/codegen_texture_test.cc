// Textures and surfaces: the arithmetic of address modes and filters, the table of handles, and the instructions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "backend/device/soft/codegen/sample.h"
#include "backend/device/soft/texture.h"
#include "tests/unit/soft/codegen_harness.h"

namespace bandsaw::soft::test {
namespace {

constexpr auto kWrap = AddressMode::kWrap, kClamp = AddressMode::kClamp, kMirror = AddressMode::kMirror,
               kBorder = AddressMode::kBorder;

TEST(AxisTexels, PointTakesTheTexelThatTheCoordinateLiesIn) {
  struct {
    AddressMode mode;
    bool normalized;
    float at;
    int32_t texel;
  } cases[] = {
      {kClamp, false, 0, 0},        {kClamp, false, 2.99f, 2},   {kClamp, false, -0.01f, 0},
      {kClamp, false, 8, 7},        {kClamp, false, 1e30f, 7},   {kClamp, false, -1e30f, 0},
      {kBorder, false, 7.99f, 7},   {kBorder, false, 8, -1},     {kBorder, false, -0.01f, -1},
      {kWrap, false, 9, 7},         {kMirror, false, -3, 0},     {kClamp, true, 0.5f, 4},
      {kClamp, true, 1, 7},         {kWrap, true, 1, 0},         {kWrap, true, 1.25f, 2},
      {kWrap, true, -0.0625f, 7},   {kWrap, true, -3.5f, 4},     {kMirror, true, 1.0625f, 7},
      {kMirror, true, -0.0625f, 0}, {kMirror, true, 1.9375f, 0}, {kMirror, true, 2.25f, 2},
      {kMirror, true, 0.25f, 2},    {kMirror, true, 1.25f, 5},   {kMirror, true, 1, 7},
      {kBorder, true, 1, -1},       {kBorder, true, 0.9375f, 7}, {kClamp, true, std::nanf(""), 0},
      {kWrap, true, INFINITY, 0},   {kMirror, true, 3e38f, 0},   {kBorder, true, -INFINITY, -1},
  };
  for (const auto& c : cases) {
    const AxisTexels found = axis_texels(c.mode, c.normalized, false, c.at, 8);
    EXPECT_EQ(found.first, c.texel) << c.at << " " << uint32_t(c.mode);
    EXPECT_EQ(found.steps, 0);
  }
}

TEST(AxisTexels, LinearWeighsInSteps) {
  struct {
    AddressMode mode;
    bool normalized;
    float at;
    int32_t first, second, steps;
  } cases[] = {
      {kClamp, false, 2.5f, 2, 3, 0},
      {kClamp, false, 3, 2, 3, 128},
      {kClamp, false, 2.5f + 1 / 512.0f, 2, 3, 1},  // half a step rounds up
      {kClamp, false, 2.5f + 1 / 513.0f, 2, 3, 0},
      {kClamp, false, 3.5f - 1 / 1024.0f, 3, 4, 0},  // to the next texel
      {kClamp, false, 0.25f, 0, 0, 0},               // one texel
      {kClamp, false, 7.75f, 7, 7, 0},
      {kBorder, false, 0.25f, -1, 0, 192},
      {kBorder, false, 7.75f, 7, -1, 64},
      {kBorder, false, 100, -1, -1, 128},
      {kWrap, true, 0, 7, 0, 128},
      {kWrap, true, 1.0f / 32, 7, 0, 192},
      {kMirror, true, 0, 0, 0, 128},
      {kMirror, true, 1, 7, 7, 128},
  };
  for (const auto& c : cases) {
    const AxisTexels found = axis_texels(c.mode, c.normalized, true, c.at, 8);
    EXPECT_EQ(found.first, c.first) << c.at;
    EXPECT_EQ(found.second, c.second) << c.at;
    EXPECT_EQ(found.steps, c.steps) << c.at;
  }
}

// Both sets of 256ths are what an H200's sums of known texels show.
TEST(CornerSteps, AreRoundedProductsThatSumUpToOne) {
  using Steps = std::array<uint32_t, 8>;
  EXPECT_EQ(corner_steps(1, 256, {77, 0, 0}), (Steps{179, 77}));
  EXPECT_EQ(corner_steps(2, 256, {4, 132, 0}), (Steps{122, 2, 130, 2}));
  EXPECT_EQ(corner_steps(3, 256, {4, 132, 4}), (Steps{120, 2, 128, 2, 2, 0, 2, 0}));
  for (uint32_t x = 0; x < 256; ++x)
    for (uint32_t y = 0; y < 256; ++y) {
      uint32_t sum = 0;
      for (const uint32_t step : corner_steps(3, 256, {x, y, (x * 7 + y * 13) % 256})) {
        ASSERT_LE(step, 256u);
        sum += step;
      }
      ASSERT_EQ(sum, 256u) << x << " " << y;
    }
}

TEST(FacePoint, FollowsTheGuidesTable) {
  struct {
    std::array<float, 3> direction;
    uint32_t face;
    float s, t;
  } cases[] = {
      {{2, 1, -1}, 0, 0.75f, 0.25f},  {{-2, 1, -1}, 1, 0.25f, 0.25f}, {{1, 2, -1}, 2, 0.75f, 0.25f},
      {{1, -2, -1}, 3, 0.75f, 0.75f}, {{1, -1, 2}, 4, 0.75f, 0.75f},  {{1, -1, -2}, 5, 0.25f, 0.75f},
  };
  for (const auto& c : cases) {
    const FacePoint found = face_point(c.direction);
    EXPECT_EQ(found.face, c.face);
    EXPECT_EQ(found.s, c.s) << c.face;
    EXPECT_EQ(found.t, c.t) << c.face;
    const FacePoint back = face_point(direction_of(found));
    EXPECT_EQ(back.face, c.face);
    EXPECT_EQ(back.s, c.s);
    EXPECT_EQ(back.t, c.t);
  }
}

TextureState plane_state(void* texels, uint32_t width, uint32_t height, TexelKind kind = TexelKind::kFloat,
                         uint32_t channel_bytes = 4) {
  TextureState state;
  state.kind = kind;
  state.channel_bytes = channel_bytes;
  TextureLevel& level = state.levels[0];
  level.base = reinterpret_cast<uint64_t>(texels);
  level.width = width;
  level.height = height;
  level.pitch = uint64_t{width} * channel_bytes;
  level.plane = level.pitch * height;
  return state;
}

// Coordinates of all lanes: between texels, on their edges, far away, and no numbers.
std::vector<uint32_t> lane_coordinates(std::mt19937* random, bool normalized) {
  std::vector<uint32_t> words(4 * 32);
  for (uint32_t& word : words) {
    const float near = static_cast<float>((*random)() % 4096) / 1024.0f - 1.5f;
    word = std::bit_cast<uint32_t>(normalized ? near : near * 8);
  }
  const float odd[] = {INFINITY, -INFINITY, std::nanf(""), 1e30f, -0.0f, 1, 16777216, 0.5f};
  for (size_t i = 0; i < std::size(odd); ++i) words[3 + 13 * i] = std::bit_cast<uint32_t>(odd[i]);
  return words;
}

void check_lanes(const TextureState& state, Geometry geometry, const std::vector<uint32_t>& words) {
  WarpState warp{};
  const Sampler sampler(&warp, state);
  const FetchForm form{geometry, LevelMode::kBase};
  const uint32_t mask = 0xfffeffff, layered = is_layered(geometry);
  std::array<uint32_t, 4 * 32> out{};
  ASSERT_TRUE(sampler.fetch_all(form, mask, words.data(), out.data()));
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    Coordinates at;
    at.layer = layered ? words[lane] : 0;
    for (uint32_t i = 0; i < dimensions(geometry); ++i)
      at.at[i] = std::bit_cast<float>(words[32 * (i + layered) + lane]);
    const Words wanted = sampler.fetch(form, at, {});
    for (uint32_t i = 0; i < 4; ++i)
      ASSERT_EQ(out[32 * i + lane], wanted[i]) << uint32_t(geometry) << " " << lane << " " << i;
  }
}

TEST(Sampler, AllLanesGetWhatALaneByItselfGets) {
  std::mt19937 random(5);
  std::vector<uint32_t> texels(8 * 8 * 8 * 4);
  for (uint32_t& word : texels) word = std::bit_cast<uint32_t>(static_cast<float>(random() % 1000) - 500);
  texels[9] = std::bit_cast<uint32_t>(std::nanf(""));
  const struct {
    TexelKind kind;
    uint32_t bytes, channels, normalized_values;
  } kinds[] = {{TexelKind::kFloat, 4, 1, 0},
               {TexelKind::kFloat, 4, 4, 0},
               {TexelKind::kUnsigned, 1, 4, 1},
               {TexelKind::kSigned, 1, 2, 1},
               {TexelKind::kUnsigned, 4, 2, 0}};
  for (const auto& k : kinds)
    for (const auto mode : {kWrap, kClamp, kMirror, kBorder})
      for (const uint32_t bits : {0u, 1u, 2u, 3u})
        for (const auto geometry : {Geometry::k1d, Geometry::k2d, Geometry::k3d, Geometry::kLayered2d}) {
          TextureState state = plane_state(texels.data(), 8, 8, k.kind, k.bytes);
          state.channels = k.channels;
          state.levels[0].pitch *= k.channels;
          state.levels[0].plane *= k.channels;
          state.levels[0].depth = 8;
          state.normalized_values = k.normalized_values;
          state.address = {mode, mode, mode};
          state.border = {7, 8, 9, 10};
          state.normalized_coordinates = bits & 1;
          state.filter_linear = bits >> 1;
          check_lanes(state, geometry, lane_coordinates(&random, bits & 1));
        }
}

TEST(TextureTable, HandlesAreNeverGivenOutTwice) {
  TextureTable table;
  TextureState state = plane_state(nullptr, 5, 6), found;
  const uint64_t first = table.add(state);
  ASSERT_NE(first, 0u);
  ASSERT_TRUE(table.read(first, &found));
  EXPECT_EQ(found.levels[0].height, 6u);
  table.remove(first);
  const uint64_t second = table.add(state);
  EXPECT_NE(first, second);
  for (const uint64_t bad : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, second + 1, second ^ (uint64_t{3} << 32),
                             second ^ (uint64_t{4} << 32)}) {
    EXPECT_FALSE(table.read(bad, &found)) << bad;
  }
  for (uint32_t i = 2; i < TextureTable::kChunk; ++i) EXPECT_NE(table.add(state), 0u);
  EXPECT_EQ(table.growth(), 0u);
  EXPECT_NE(table.add(state), 0u);  // in the first one's place
  EXPECT_NE(table.growth(), 0u);
  EXPECT_NE(table.add(state), 0u);
  EXPECT_EQ(table.growth(), 0u);
}

// Programs launch with textures that they have destroyed.
TEST(TextureTable, AHandleIsReadUntilItsPlaceIsNeeded) {
  TextureTable table;
  TextureState found;
  const uint64_t first = table.add(plane_state(nullptr, 5, 6)), second = table.add(plane_state(nullptr, 7, 8));
  table.remove(first);
  table.remove(first);  // which changes nothing
  table.remove(second);
  ASSERT_TRUE(table.read(first, &found));
  EXPECT_EQ(found.levels[0].height, 6u);
  const TextureState other = plane_state(nullptr, 9, 9);
  for (uint32_t i = 2; i < TextureTable::kChunk; ++i) table.add(other);
  EXPECT_TRUE(table.read(first, &found));
  EXPECT_NE(table.add(other), first);  // in its place
  EXPECT_FALSE(table.read(first, &found));
  EXPECT_TRUE(table.read(second, &found));
  EXPECT_EQ(table.growth(), 0u);
  table.add(other);
  EXPECT_FALSE(table.read(second, &found));
  EXPECT_NE(table.growth(), 0u);
}

TEST(TextureTable, GivesAHandleThatAnotherTableHasGiven) {
  TextureTable first, second;
  const TextureState state = plane_state(nullptr, 5, 6);
  TextureState found;
  uint64_t handle = 0;
  for (uint32_t i = 0; i < TextureTable::kChunk + 2; ++i) handle = first.add(state);
  first.remove(handle);
  handle = first.add(state);
  EXPECT_GT(second.growth(handle), second.growth());
  EXPECT_EQ(second.add_at(handle, state), handle);
  EXPECT_TRUE(second.read(handle, &found));
  EXPECT_EQ(second.growth(handle), 0u);
  EXPECT_EQ(second.add_at(handle, state), 0u) << "it is in use";
  EXPECT_NE(second.add(state), handle);
  for (const uint64_t bad : {uint64_t{0}, uint64_t{1}, uint64_t{2} << 32 | 1, ~uint64_t{0}}) {
    EXPECT_EQ(second.add_at(bad, state), 0u) << bad;
  }
}

// Readers see all of a state or nothing of it.
TEST(TextureTable, NeverGivesHalfOfAState) {
  TextureTable table;
  std::atomic<uint64_t> handle{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint32_t i = 1; i <= 20000; ++i) {
      TextureState state = plane_state(nullptr, i, i);
      state.channels = i;
      const uint64_t made = table.add(state);
      handle = made;
      table.remove(made);
    }
    stop = true;
  });
  while (!stop) {
    TextureState state;
    if (!table.read(handle, &state)) continue;
    EXPECT_EQ(state.levels[0].width, state.levels[0].height);
    EXPECT_EQ(state.levels[0].width, state.channels);
  }
  writer.join();
}

const std::string kTextureHead = R"(.version 8.6
.target sm_90
.address_size 64
)";

// A kernel of one warp: `body` with the handle in %rd1, the lane in %r1 and where its result of 16 bytes goes in %rd2.
std::string texture_kernel(const std::string& body) {
  return kTextureHead + R"(.visible .entry k(.param .u64 handle, .param .u64 out)
{
  .reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .b16 %rs<9>; .reg .f32 %f<20>; .reg .pred %p<4>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  cvt.rn.f32.u32 %f1, %r1;
  mul.wide.u32 %rd3, %r1, 16;
  add.s64 %rd2, %rd2, %rd3;
)" + body +
         "\n  st.global.v4.b32 [%rd2], {%r4, %r5, %r6, %r7};\n  ret;\n}\n";
}

struct Result {
  Outcome outcome;
  const std::array<uint32_t, 4>* words;
};

Result run_texture(const std::string& body, const TextureTable* table, uint64_t handle) {
  Kernels k(texture_kernel(body));
  EXPECT_TRUE(k.ok()) << k.log();
  auto* out = array<std::array<uint32_t, 4>>(32);
  Shape shape;
  shape.textures = table;
  Outcome outcome = k.launch("k", shape, handle, reinterpret_cast<uint64_t>(out));
  return {std::move(outcome), out};
}

const std::string kFloats = "mov.b32 %r4, %f4; mov.b32 %r5, %f5; mov.b32 %r6, %f6; mov.b32 %r7, %f7;";

class TextureCode : public ::testing::Test {
 protected:
  TextureCode() {
    reset_memory();
    texels = array<float>(64);
    for (int i = 0; i < 64; ++i) texels[i] = static_cast<float>(i);
  }
  float* texels;
  TextureTable table;
};

TEST_F(TextureCode, FetchesByPointAndByInteger) {
  const uint64_t handle = table.add(plane_state(texels, 8, 8));
  auto result = run_texture(
      "add.f32 %f2, %f1, 0f3F000000; mov.f32 %f3, 0f40200000;"
      "tex.2d.v4.f32.f32 {%f4,%f5,%f6,%f7}, [%rd1, {%f2,%f3}];" +
          kFloats,
      &table, handle);
  ASSERT_EQ(result.outcome.fault, 0u);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(result.words[i][0], std::bit_cast<uint32_t>(16.0f + static_cast<float>(std::min(i, 7u))));
    EXPECT_EQ(result.words[i][1], 0u);
    EXPECT_EQ(result.words[i][3], 0u);
  }
  result = run_texture(
      "mov.u32 %r2, 3; tex.2d.v4.f32.s32 {%f4,%f5,%f6,%f7}|%p1, [%rd1, {%r1,%r2}];"
      "selp.b32 %r5, 7, 8, %p1; mov.b32 %r4, %f4;",
      &table, handle);
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(result.words[i][0], std::bit_cast<uint32_t>(24.0f + static_cast<float>(i)));
    EXPECT_EQ(result.words[i][1], 7u);
  }
}

TEST_F(TextureCode, IntegersHaveALevelThatIsOne) {
  TextureState state = plane_state(texels, 4, 4);
  state.levels[1] = plane_state(texels + 16, 2, 2).levels[0];
  state.level_count = 2;
  state.level_most = 1;
  const uint64_t handle = table.add(state);
  // Lane i asks for level i - 1 of texel (1, 0).
  const auto result = run_texture(
      "add.s32 %r1, %r1, -1; mov.u32 %r2, 1; mov.u32 %r3, 0;"
      "tex.level.2d.v4.f32.s32 {%f4,%f5,%f6,%f7}, [%rd1, {%r2,%r3}], %r1;" +
          kFloats,
      &table, handle);
  ASSERT_EQ(result.outcome.fault, 0u);
  const float wanted[] = {1, 1, 17, 17};
  for (size_t i = 0; i < std::size(wanted); ++i) {
    EXPECT_EQ(result.words[i][0], std::bit_cast<uint32_t>(wanted[i])) << i;
  }
}

TEST_F(TextureCode, GathersAndAsks) {
  TextureState state = plane_state(texels, 8, 8);
  state.address[0] = AddressMode::kBorder;
  const uint64_t handle = table.add(state);
  auto result = run_texture(
      "mov.f32 %f2, 0f40000000; mov.f32 %f3, 0f40400000;"
      "tld4.r.2d.v4.f32.f32 {%f4,%f5,%f6,%f7}, [%rd1, {%f2,%f3}];" +
          kFloats,
      &table, handle);
  const float wanted[] = {25, 26, 18, 17};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::bit_cast<float>(result.words[5][i]), wanted[i]);
  result = run_texture(
      "txq.width.b32 %r4, [%rd1]; txq.addr_mode_0.b32 %r5, [%rd1]; txq.channel_data_type.b32 %r6, [%rd1];"
      "txq.num_mipmap_levels.b32 %r7, [%rd1];",
      &table, handle);
  EXPECT_EQ(result.words[0], (std::array<uint32_t, 4>{8, 3, 0x10DE, 1}));
}

TEST_F(TextureCode, BadHandlesEndTheLaunch) {
  TextureState state = plane_state(texels, 8, 8);
  const uint64_t texture = table.add(state);
  state.surface = 1;
  const uint64_t surface = table.add(state), gone = table.add(state);
  table.remove(gone);
  for (uint32_t i = 2; i < TextureTable::kChunk; ++i) table.add(state);  // in its place, too
  const std::string fetch = "tex.1d.v4.u32.s32 {%r4,%r5,%r6,%r7}, [%rd1, {%r1}];";
  const std::string load = "suld.b.1d.b32.zero {%r4}, [%rd1, {%r1}];";
  for (const uint64_t bad : {uint64_t{0}, uint64_t{5}, ~uint64_t{0}, gone, surface}) {
    EXPECT_EQ(run_texture(fetch, &table, bad).outcome.fault, uint32_t(Fault::kIllegalAddress)) << bad;
  }
  for (const uint64_t bad : {uint64_t{0}, texture, gone}) {
    EXPECT_EQ(run_texture(load, &table, bad).outcome.fault, uint32_t(Fault::kIllegalAddress)) << bad;
    EXPECT_EQ(run_texture("suq.width.b32 %r4, [%rd1];", &table, bad).outcome.fault, uint32_t(Fault::kIllegalAddress));
  }
  EXPECT_EQ(run_texture(fetch, nullptr, texture).outcome.fault, uint32_t(Fault::kIllegalAddress));
}

TEST_F(TextureCode, SurfacesKeepToTheirBytes) {
  TextureState state = plane_state(texels, 8, 8, TexelKind::kUnsigned);
  state.surface = 1;
  const uint64_t handle = table.add(state);
  auto* words = reinterpret_cast<uint32_t*>(texels);
  for (uint32_t i = 0; i < 64; ++i) words[i] = i;
  const std::string at = "shl.b32 %r2, %r1, 2; sub.s32 %r2, %r2, 8; mov.u32 %r3, 1;";  // two lanes before the row
  auto result = run_texture(
      at + "suld.b.2d.b32.zero %r4, [%rd1, {%r2,%r3}]; suld.b.2d.b32.clamp {%r5}, [%rd1, {%r2,%r3}];", &table, handle);
  ASSERT_EQ(result.outcome.fault, 0u);
  for (uint32_t i = 0; i < 32; ++i) {
    const bool inside = i >= 2 && i < 10;
    EXPECT_EQ(result.words[i][0], inside ? 8 + i - 2 : 0) << i;
    EXPECT_EQ(result.words[i][1], 8 + (inside ? i - 2 : i < 2 ? 0 : 7)) << i;
  }
  EXPECT_EQ(run_texture(at + "suld.b.2d.b32.trap %r4, [%rd1, {%r2,%r3}];", &table, handle).outcome.fault,
            uint32_t(Fault::kIllegalAddress));
  EXPECT_EQ(run_texture("mov.u32 %r2, 2; suld.b.1d.b32.trap %r4, [%rd1, {%r2}];", &table, handle).outcome.fault,
            uint32_t(Fault::kMisaligned));
  result = run_texture(at + "add.s32 %r8, %r1, 100; sust.b.2d.b32.zero [%rd1, {%r2,%r3}], {%r8};", &table, handle);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(words[i], i >= 8 && i < 16 ? 100 + i - 8 + 2 : i);
  run_texture(
      "mov.u32 %r2, 0; sured.b.add.1d.u32.trap [%rd1, {%r2}], %r1; mov.u32 %r2, 4;"
      "sured.b.max.1d.s32.trap [%rd1, {%r2}], {%r1};",
      &table, handle);
  EXPECT_EQ(words[0], 31u * 32 / 2);
  EXPECT_EQ(words[1], 31u);
}

}  // namespace
}  // namespace bandsaw::soft::test
