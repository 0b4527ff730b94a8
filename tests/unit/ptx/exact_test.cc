// Sliced and persistent variants do to memory what the original does, bit by bit: on the software device's compiler.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "tests/unit/soft/codegen_harness.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/persistent.h"

namespace bandsaw::soft::test {
namespace {

using Grid = std::array<uint32_t, 3>;
constexpr size_t kOutWords = 8192;

struct Case {
  const char* kernel;
  uint32_t threads = 64, dynamic_shared = 0;
  uint32_t second = UINT32_MAX;  // a u32 parameter after the pointer; UINT32_MAX: none
  bool parameters = true, input = false, persistent = true;
};

const Case kCases[] = {
    {"indices"},
    {"only_x"},
    {"oldest_reads"},
    {.kernel = "calls", .threads = 32},
    {.kernel = "no_parameters", .parameters = false},
    {.kernel = "shared_turn", .dynamic_shared = 256},
    {.kernel = "blocks_leave", .second = 9},
    {.kernel = "threads_leave", .second = 700},
    {.kernel = "leaves_before_barrier", .second = 40, .persistent = false},
    {"named_barriers"},
    {"last_block"},
    {"look_back"},
    {"first_warp_adds"},
    {.kernel = "copies_ahead", .input = true},
};

const Grid kGrids[] = {{1, 1, 1}, {13, 1, 1}, {5, 3, 1}, {3, 2, 3}, {1, 7, 2}};

uint64_t blocks_of(const Grid& grid) { return uint64_t{grid[0]} * grid[1] * grid[2]; }

std::string sample() {
  std::ifstream file(SAMPLES "/rewrites.ptx");
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(std::vector<std::byte>* block, size_t at, uint64_t value, size_t bytes) {
  if (block->size() < at + bytes) block->resize(at + bytes);
  std::memcpy(block->data() + at, &value, bytes);
}

class Exact : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    reset_memory();
    program_ = std::make_unique<ptx::Program>(ptx::parse(sample()));
    original_ = std::make_unique<Kernels>(sample());
    ASSERT_TRUE(original_->ok()) << original_->log();
    in_ = array<uint32_t>(128);
    out_ = array<uint32_t>(kOutWords);
    stop_ = array<uint32_t>(1);
    counter_ = array<uint32_t>(1);
    counts_ = array<ptx::CountsOfBlocks>(1);
    sm_counters_ = array<uint32_t>(ptx::kSmCounters);
    limit_ = array<uint32_t>(1);
    places_ = array<uint64_t>(ptx::kBlockPlacesBytes / sizeof(uint64_t));
    for (uint32_t i = 0; i < 128; ++i) in_[i] = i * i;
  }

  // The original's parameters.
  std::vector<std::byte> parameters() const {
    std::vector<std::byte> block;
    if (!GetParam().parameters) return block;
    if (GetParam().input) put(&block, 0, reinterpret_cast<uint64_t>(in_), 8);
    put(&block, block.size(), reinterpret_cast<uint64_t>(out_), 8);
    if (GetParam().second != UINT32_MAX) put(&block, block.size(), GetParam().second, 4);
    return block;
  }

  Shape shape(const Grid& grid) const {
    Shape s;
    std::copy(grid.begin(), grid.end(), s.grid);
    s.block[0] = GetParam().threads;
    s.dynamic_shared = GetParam().dynamic_shared;
    return s;
  }

  // Everything that a kernel can change, from a clean start.
  void clean() {
    std::memset(out_, 0, kOutWords * 4);
    std::memset(reinterpret_cast<void*>(original_->address("results")), 0, 4096 * 4);
    *reinterpret_cast<uint32_t*>(original_->address("counter")) = 0;
    *stop_ = *counter_ = 0;
  }
  std::vector<uint32_t> state() const {
    std::vector<uint32_t> all(out_, out_ + kOutWords);
    const auto* results = reinterpret_cast<const uint32_t*>(original_->address("results"));
    all.insert(all.end(), results, results + 4096);
    all.push_back(*reinterpret_cast<const uint32_t*>(original_->address("counter")));
    return all;
  }
  std::vector<uint32_t> expected(const Grid& grid) {
    clean();
    const Outcome outcome = original_->run(GetParam().kernel, shape(grid), parameters());
    EXPECT_EQ(outcome.fault, 0u);
    EXPECT_FALSE(outcome.stuck);
    return state();
  }

  template <class Made>
  void finish(std::vector<std::byte>* block, const Made& made, const Grid& grid) const {
    for (size_t i = 0; i < 3; ++i) put(block, made.grid_at + 4 * i, grid[i], 4);
    for (const ptx::BorrowedVariable& v : made.variables) put(block, v.at, original_->address(v.name), 8);
    ASSERT_EQ(block->size(), made.parameter_bytes);
  }

  void check_grid_slices(const ptx::SlicingOptions& options) {
    const auto result = ptx::slice(*program_, GetParam().kernel, options);
    ASSERT_TRUE(std::holds_alternative<ptx::SlicedKernel>(result)) << std::get<ptx::Refusal>(result).reason;
    const auto& sliced = std::get<ptx::SlicedKernel>(result);
    Kernels kernels(sliced.text);
    ASSERT_TRUE(kernels.ok()) << kernels.log() << sliced.text;
    for (const Grid& grid : kGrids) {
      if (options.one_dimensional && (grid[1] > 1 || grid[2] > 1)) continue;
      const std::vector<uint32_t> wanted = expected(grid);
      ptx::CountsOfBlocks counted;
      for (const uint64_t size : {1, 2, 5, 100}) {
        clean();
        *counts_ = {};
        for (uint64_t first = 0; first < blocks_of(grid); first += size) {
          std::vector<std::byte> block = parameters();
          const auto at = ptx::block_at(first, grid);
          for (size_t i = 0; i < 3; ++i) put(&block, sliced.first_at + 4 * i, at[i], 4);
          if (options.counts) put(&block, sliced.counts_at, reinterpret_cast<uint64_t>(counts_), 8);
          finish(&block, sliced, grid);
          const auto n = static_cast<uint32_t>(std::min(size, blocks_of(grid) - first));
          const Outcome outcome = kernels.run(sliced.name, shape({n, 1, 1}), block);
          ASSERT_EQ(outcome.fault, 0u);
          ASSERT_FALSE(outcome.stuck);
        }
        ASSERT_EQ(state(), wanted) << size << " blocks a slice, grid " << testing::PrintToString(grid);
        if (!options.counts) continue;
        EXPECT_GE(counts_->instructions, blocks_of(grid) * GetParam().threads);
        EXPECT_LE(counts_->accesses, counts_->instructions);
        if (size == 1) counted = *counts_;
        // Who waits for other blocks waits longer, the more there are beside it.
        if (std::string_view(GetParam().kernel) == "look_back") continue;
        EXPECT_EQ(std::memcmp(&counted, counts_, sizeof counted), 0) << size;
      }
    }
  }

  void launch_persistent(Kernels* kernels, const ptx::PersistentKernel& made, const Grid& grid, uint32_t resident,
                         const uint32_t* stop) {
    std::vector<std::byte> block = parameters();
    put(&block, made.counter_at, reinterpret_cast<uint64_t>(counter_), 8);
    put(&block, made.stop_at, reinterpret_cast<uint64_t>(stop), 8);
    put(&block, made.blocks_at, blocks_of(grid), 4);
    if (made.limit_at != 0) {
      put(&block, made.sm_counters_at, reinterpret_cast<uint64_t>(sm_counters_), 8);
      put(&block, made.limit_at, reinterpret_cast<uint64_t>(limit_), 8);
    }
    if (made.places_at != 0) {
      put(&block, made.places_at, reinterpret_cast<uint64_t>(places_), 8);
      put(&block, made.first_place_at, kFirstPlace, 4);
    }
    finish(&block, made, grid);
    Shape launched = shape({resident, 1, 1});
    launched.cooperative = made.limit_at != 0;  // those that are limited run beside each other
    const Outcome outcome = kernels->run(made.name, launched, block);
    ASSERT_EQ(outcome.fault, 0u);
    ASSERT_FALSE(outcome.stuck);
  }

  ptx::CountsOfBlocks* counts_ = nullptr;
  uint32_t *in_ = nullptr, *out_ = nullptr, *stop_ = nullptr, *counter_ = nullptr;
  static constexpr uint32_t kFirstPlace = ptx::kBlockPlaces - 2;  // those behind wrap

  uint32_t *sm_counters_ = nullptr, *limit_ = nullptr;
  uint64_t* places_ = nullptr;
  std::unique_ptr<ptx::Program> program_;
  std::unique_ptr<Kernels> original_;
};

TEST_P(Exact, GridSlices) { check_grid_slices({}); }

TEST_P(Exact, GridSlicesOfOneDimension) { check_grid_slices({.one_dimensional = true}); }

TEST_P(Exact, CountedGridSlices) { check_grid_slices({.counts = true}); }

TEST_P(Exact, PersistentBlocks) {
  const auto result = ptx::persistent(*program_, GetParam().kernel);
  ASSERT_EQ(std::holds_alternative<ptx::PersistentKernel>(result), GetParam().persistent);
  if (!GetParam().persistent) return;
  const auto& made = std::get<ptx::PersistentKernel>(result);
  Kernels kernels(made.text);
  ASSERT_TRUE(kernels.ok()) << kernels.log() << made.text;
  for (const Grid& grid : kGrids) {
    const std::vector<uint32_t> wanted = expected(grid);
    for (const uint32_t resident : {1u, 3u}) {
      clean();
      launch_persistent(&kernels, made, grid, resident, stop_);
      ASSERT_EQ(state(), wanted) << resident << " persistent blocks, grid " << testing::PrintToString(grid);
      EXPECT_EQ(*counter_, blocks_of(grid) + resident);

      // Told to stop before it began; then by the counter itself, once a block was claimed; then it goes on to the end.
      clean();
      *stop_ = 1;
      launch_persistent(&kernels, made, grid, resident, stop_);
      EXPECT_EQ(*counter_, 0u);
      launch_persistent(&kernels, made, grid, resident, counter_);
      EXPECT_EQ(*counter_, 1u);
      *stop_ = 0;
      launch_persistent(&kernels, made, grid, resident, stop_);
      ASSERT_EQ(state(), wanted) << "stopped and gone on, grid " << testing::PrintToString(grid);
    }
  }
}

// All of them lie on one SM here. Each that stays claims once in vain, which tells how many stayed.
TEST_P(Exact, LimitedPersistentBlocks) {
  constexpr uint32_t kResident = 5;
  const auto result = ptx::persistent(*program_, GetParam().kernel, {.limited = true});
  ASSERT_EQ(std::holds_alternative<ptx::PersistentKernel>(result), GetParam().persistent);
  if (!GetParam().persistent) return;
  const auto& made = std::get<ptx::PersistentKernel>(result);
  Kernels kernels(made.text);
  ASSERT_TRUE(kernels.ok()) << kernels.log() << made.text;
  std::memset(sm_counters_, 0, ptx::kSmCounters * 4);
  for (const Grid& grid : kGrids) {
    const std::vector<uint32_t> wanted = expected(grid);
    for (const uint32_t limit : {1u, 3u, 100u}) {
      // None may stay; then only so many, with the same counters.
      clean();
      *limit_ = 0;
      launch_persistent(&kernels, made, grid, kResident, stop_);
      EXPECT_EQ(*counter_, 0u);
      *limit_ = limit;
      launch_persistent(&kernels, made, grid, kResident, stop_);
      ASSERT_EQ(state(), wanted) << "at most " << limit << ", grid " << testing::PrintToString(grid);
      // Where a block is one warp, it ends before the next one begins, which then finds none there.
      const uint32_t claimed_in_vain = GetParam().threads > 32 ? std::min(limit, kResident) : kResident;
      EXPECT_EQ(*counter_, blocks_of(grid) + claimed_in_vain);
      EXPECT_EQ(*sm_counters_, 0u);

      // Told to stop, and gone on.
      clean();
      launch_persistent(&kernels, made, grid, kResident, counter_);
      EXPECT_EQ(*counter_, 1u);
      EXPECT_EQ(*sm_counters_, 0u);
      launch_persistent(&kernels, made, grid, kResident, stop_);
      ASSERT_EQ(state(), wanted);
    }
  }
}

// Blocks whose own stop words say so claim nothing; the others do all.
TEST_P(Exact, PersistentBlocksToldApart) {
  constexpr uint32_t kResident = 4;
  const auto result = ptx::persistent(*program_, GetParam().kernel, {.told_apart = true});
  ASSERT_EQ(std::holds_alternative<ptx::PersistentKernel>(result), GetParam().persistent);
  if (!GetParam().persistent) return;
  const auto& made = std::get<ptx::PersistentKernel>(result);
  Kernels kernels(made.text);
  ASSERT_TRUE(kernels.ok()) << kernels.log() << made.text;
  auto* const stops = reinterpret_cast<uint32_t*>(reinterpret_cast<std::byte*>(places_) + ptx::kBlockStopsAt);
  for (const Grid& grid : kGrids) {
    const std::vector<uint32_t> wanted = expected(grid);
    clean();
    std::memset(places_, 0, ptx::kBlockStopsAt);
    std::memset(stops, 0, ptx::kBlockPlaces * sizeof *stops);
    for (uint32_t i = 0; i < kResident; ++i) stops[(kFirstPlace + i) % ptx::kBlockPlaces] = ptx::kStopClaiming;
    launch_persistent(&kernels, made, grid, kResident, stop_);
    EXPECT_EQ(*counter_, 0u);
    stops[1] = 0;  // the last one's
    launch_persistent(&kernels, made, grid, kResident, stop_);
    ASSERT_EQ(state(), wanted) << "grid " << testing::PrintToString(grid);
    EXPECT_EQ(*counter_, blocks_of(grid) + 1);
    for (uint32_t i = 0; i < kResident; ++i)
      EXPECT_EQ(places_[(kFirstPlace + i) % ptx::kBlockPlaces], ptx::kNoBlock) << "all have left";
    EXPECT_EQ(places_[2], 0u) << "nobody's";
  }
}

TEST(PersistentBlocksToldApart, AreNotLimited) {
  const ptx::Program program(ptx::parse(sample()));
  const auto made = ptx::persistent(program, "indices", {.limited = true, .told_apart = true});
  EXPECT_TRUE(std::holds_alternative<ptx::Refusal>(made));
}

TEST(LimitedPersistentBlock, DropsNothing) {
  const ptx::Program program(ptx::parse(sample()));
  const auto made = ptx::persistent(program, "indices", {.flush = ptx::Flush::kAlways, .limited = true});
  EXPECT_TRUE(std::holds_alternative<ptx::Refusal>(made));
}

// A loop of five rounds, in which every second thread loads 16 bytes, and threads that leave early.
const char* const kRounds = R"(
.version 8.0
.target sm_80
.address_size 64
.func add(.param .u64 at) {
  .reg .b64 %a;
  .reg .b32 %v;
  ld.param.u64 %a, [at];
  atom.global.add.u32 %v, [%a], 1;
  ret;
}
.visible .entry rounds(.param .u64 to) {
  .reg .b64 %a;
  .reg .b32 %t, %i, %odd, %v<4>;
  .reg .pred %p, %q;
  mov.u32 %t, %tid.x;
  ld.param.u64 %a, [to];
  setp.ge.u32 %p, %t, 48;
  @%p exit;
  and.b32 %odd, %t, 1;
  setp.eq.u32 %q, %odd, 1;
  mov.u32 %i, 0;
again:
  @%q bra past;
  { ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%a+16]; }
past:
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, 5;
  @%p bra again;
  { .param .u64 at; st.param.u64 [at], %a; call add, (at); }
})";

TEST(CountedGridSlice, CountsWhatEachThreadDoes) {
  reset_memory();
  const ptx::Program program(ptx::parse(kRounds));
  const auto made = ptx::slice(program, "rounds", {.one_dimensional = true, .counts = true});
  ASSERT_TRUE(std::holds_alternative<ptx::SlicedKernel>(made)) << std::get<ptx::Refusal>(made).reason;
  const auto& sliced = std::get<ptx::SlicedKernel>(made);
  Kernels kernels(sliced.text);
  ASSERT_TRUE(kernels.ok()) << kernels.log() << sliced.text;
  auto* const to = array<uint32_t>(8);
  auto* const counts = array<ptx::CountsOfBlocks>(1);
  *to = 0;
  *counts = {};
  std::vector<std::byte> block;
  put(&block, 0, reinterpret_cast<uint64_t>(to), 8);
  put(&block, sliced.counts_at, reinterpret_cast<uint64_t>(counts), 8);
  block.resize(sliced.parameter_bytes);
  Shape shape;
  shape.grid[0] = 3;
  shape.block[0] = 64;
  EXPECT_EQ(kernels.run("rounds", shape, block).fault, 0u);
  EXPECT_EQ(*to, 3u * 48);
  // Four instructions, three more before the loop, four a round and one more where it loads, two at the call, and three
  // of what is called.
  EXPECT_EQ(counts->instructions, 3u * (64 * 4 + 48 * (3 + 5 * 4 + 2 + 3) + 24 * 5));
  EXPECT_EQ(counts->accesses, 3u * (24 * 5 + 48));
  EXPECT_EQ(counts->bytes, 3u * 24 * 5 * 16);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Exact, testing::ValuesIn(kCases), [](const auto& p) { return p.param.kernel; });

}  // namespace
}  // namespace bandsaw::soft::test
