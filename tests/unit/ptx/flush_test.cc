// Persistent blocks that are told to drop what they run do to memory what the original does: on the software device's
// compiler. They are told by the kernel itself, at a block and a round of its loop that the test chooses, or by another
// thread at any time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/ptx/ptxas.h"
#include "tests/unit/soft/codegen_harness.h"
#include "vgpu-sched/ptx/idempotence.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/persistent.h"

namespace bandsaw::soft::test {
namespace {

constexpr uint32_t kBlocks = 9, kThreads = 64, kPlaces = 16, kNever = 99;
// Between two looks at how far a kernel is: a small part of what a block takes.
constexpr std::chrono::microseconds kLook{50};
// So often a thread tries that may come too late each time, where it gets no processor.
constexpr uint32_t kMany = 100;

// The threads' number in the grid is %n. END is what each does with its sum.
const char* const kBegin = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 to, .param .u64 from, .param .u64 signal, .param .u32 at_block, .param .u32 at_round,
                      .param .u32 rounds) {
  .reg .b64 %to, %from, %signal, %at, %mine, %next;
  .reg .b32 %t, %b, %n, %i, %last, %v, %sum, %block, %round;
  .reg .pred %p, %q;
  ld.param.u64 %to, [to];
  ld.param.u64 %from, [from];
  ld.param.u64 %signal, [signal];
  ld.param.u32 %block, [at_block];
  ld.param.u32 %round, [at_round];
  ld.param.u32 %last, [rounds];
  mov.u32 %t, %tid.x;
  mov.u32 %b, %ctaid.x;
  mad.lo.u32 %n, %b, 64, %t;
  mov.u32 %i, 0;
  mov.u32 %sum, %n;
)";
const char* const kAdd = R"(
  add.u32 %v, %n, %i;
  and.b32 %v, %v, 127;
  mul.wide.u32 %at, %v, 4;
  add.u64 %at, %at, %from;
  ld.global.u32 %v, [%at];
  mad.lo.u32 %sum, %sum, 3, %v;
)";
const char* const kTell = R"(
  setp.ne.u32 %p, %b, %block;
  @%p bra past;
  setp.ne.u32 %p, %i, %round;
  @%p bra past;
  SIGNAL
past:
)";
const char* const kGoRound = R"(
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %last;
  @%p bra again;
  mul.wide.u32 %at, %n, 4;
  add.u64 %at, %at, %to;
  END
)";

// Threads go round `rounds` times and up to 49 more; some leave at once.
const std::string kSums = std::string(kBegin) + R"(
  setp.ge.u32 %p, %t, 50;
  @%p exit;
  add.u32 %last, %last, %t;
again:
)" + kAdd + kTell + kGoRound +
                          "exit; }";

// Each round all threads hand their sums on to the next one through shared memory.
const std::string kRing = std::string(kBegin) + R"(
  .shared .align 4 .b8 all[256];
  mov.u64 %at, all;
  mul.wide.u32 %mine, %t, 4;
  add.u64 %mine, %mine, %at;
  add.u32 %v, %t, 1;
  and.b32 %v, %v, 63;
  mul.wide.u32 %next, %v, 4;
  add.u64 %next, %next, %at;
again:
)" + kAdd + R"(
  st.shared.u32 [%mine], %sum;
  bar.sync 0;
  ld.shared.u32 %v, [%next];
  add.u32 %sum, %sum, %v;
)" + kTell + "barrier.sync 3;" +
                          kGoRound + "bar.sync 0; exit; }";

// After its store or atomic operation each thread goes round again.
const std::string kGoesOn = R"(
  mov.u32 %i, 0;
more:
  mad.lo.u32 %v, %v, 5, %i;
  setp.ne.u32 %p, %b, %block;
  @%p bra on;
  add.u32 %sum, %i, 1000;
  setp.ne.u32 %p, %sum, %round;
  @%p bra on;
  SIGNAL
on:
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, 60;
  @%p bra more;
)";
const std::string kMeetsOn = R"(
  mov.u32 %i, 0;
more:
  bar.sync 0;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, 20;
  @%p bra more;
)";

std::string with(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

// Of kernels that are marked by their stores the kernel itself cannot tell, as that is a store.
std::string text_of(const std::string& kernel, const std::string& end, ptx::Flush flush) {
  const bool tells = flush == ptx::Flush::kAlways;
  const std::string ended = with(with(kernel, "END", end), "GOES ON", kGoesOn);
  return with(with(ended, "MEETS ON", kMeetsOn), "SIGNAL",
              tells ? "st.global.u32 [%signal], 2;" : "add.u32 %v, %v, 0;");
}

struct Case {
  const char* name;
  const std::string* kernel;
  const char* end;
  ptx::Flush flush;
  // So many that another thread comes in time.
  uint32_t many_rounds() const { return kernel == &kRing ? 400 : 5000; }
};

struct Pair;

class Dropped : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    reset_memory();
    from_ = array<uint32_t>(128);
    to_ = array<uint32_t>(kBlocks * kThreads);
    stop_ = array<uint32_t>(1);
    nobody_ = array<uint32_t>(1);
    counter_ = array<uint32_t>(1);
    redo_ = array<uint32_t>(2 + kPlaces);
    places_ = array<uint64_t>(ptx::kBlockPlacesBytes / sizeof(uint64_t));
    for (uint32_t i = 0; i < 128; ++i) from_[i] = i * i + 7;
  }

  void clean() {
    for (uint32_t i = 0; i < kBlocks * kThreads; ++i) to_[i] = i;
    std::memset(redo_, 0, (2 + kPlaces) * 4);
    *counter_ = *stop_ = 0;
  }
  std::vector<uint32_t> state() const { return {to_, to_ + kBlocks * kThreads}; }

  std::vector<std::byte> parameters(const uint32_t* signal, uint32_t block, uint32_t round,
                                    uint32_t rounds = 40) const {
    std::vector<std::byte> packed(36);
    const uint64_t pointers[] = {reinterpret_cast<uint64_t>(to_), reinterpret_cast<uint64_t>(from_),
                                 reinterpret_cast<uint64_t>(signal)};
    std::memcpy(packed.data(), pointers, sizeof pointers);
    std::memcpy(packed.data() + 24, &block, 4);
    std::memcpy(packed.data() + 28, &round, 4);
    std::memcpy(packed.data() + 32, &rounds, 4);
    return packed;
  }

  std::vector<uint32_t> expected(Kernels* original, uint32_t rounds);

  // One launch, as a runner makes it: nobody is told any more.
  void launch(Pair* pair, std::vector<std::byte> packed, uint32_t resident);

  uint32_t *from_ = nullptr, *to_ = nullptr, *stop_ = nullptr, *nobody_ = nullptr, *counter_ = nullptr;
  uint32_t* redo_ = nullptr;
  uint64_t* places_ = nullptr;
};

// The original and the kernel made of it.
struct Pair {
  explicit Pair(const Case& of, bool told_apart = false)
      : text(text_of(*of.kernel, of.end, of.flush)), program(ptx::parse(text)), original(text) {
    auto result = ptx::persistent(program, "sums", {.flush = of.flush, .told_apart = told_apart});
    if (auto* refusal = std::get_if<ptx::Refusal>(&result)) {
      ADD_FAILURE() << refusal->reason;
      return;
    }
    made = std::get<ptx::PersistentKernel>(std::move(result));
    EXPECT_TRUE(ptx::ptxas_takes(made.text, "sm_90")) << made.text;
    kernels = std::make_unique<Kernels>(made.text);
  }
  bool ok() const { return original.ok() && kernels && kernels->ok(); }
  const std::string text;
  const ptx::Program program;
  Kernels original;
  ptx::PersistentKernel made;
  std::unique_ptr<Kernels> kernels;
};

void Dropped::launch(Pair* pair, std::vector<std::byte> packed, uint32_t resident) {
  const ptx::PersistentKernel& made = pair->made;
  *stop_ = 0;
  packed.resize(made.parameter_bytes);
  const auto put = [&](size_t at, const auto& value) { std::memcpy(packed.data() + at, &value, sizeof value); };
  const uint32_t grid[] = {kBlocks, 1, 1};
  put(made.counter_at, reinterpret_cast<uint64_t>(counter_));
  put(made.stop_at, reinterpret_cast<uint64_t>(stop_));
  put(made.blocks_at, kBlocks);
  put(made.grid_at, grid);
  put(made.redo_at, reinterpret_cast<uint64_t>(redo_));
  const uint32_t end = redo_[1];
  put(made.redo_end_at, end);
  put(made.redo_mask_at, kPlaces - 1);
  if (made.places_at != 0) put(made.places_at, reinterpret_cast<uint64_t>(places_));
  Shape shape;
  shape.grid[0] = resident;
  shape.block[0] = kThreads;
  const Outcome outcome = pair->kernels->run(made.name, shape, packed);
  ASSERT_EQ(outcome.fault, 0u);
  ASSERT_FALSE(outcome.stuck);
  if (static_cast<int32_t>(redo_[0] - end) > 0) redo_[0] = end;
}

std::vector<uint32_t> Dropped::expected(Kernels* original, uint32_t rounds) {
  clean();
  Shape shape;
  shape.grid[0] = kBlocks;
  shape.block[0] = kThreads;
  EXPECT_EQ(original->run("sums", shape, parameters(nobody_, kNever, 0, rounds)).fault, 0u);
  return state();
}

TEST_P(Dropped, AtAnyRoundAndRunAgain) {
  if (GetParam().flush != ptx::Flush::kAlways) GTEST_SKIP() << "its own store would keep it";
  Pair pair(GetParam());
  ASSERT_TRUE(pair.ok());
  EXPECT_GT(pair.made.polls, 0u);
  const std::vector<uint32_t> wanted = expected(&pair.original, 40);
  uint32_t dropped = 0;
  for (const uint32_t resident : {1u, 4u}) {
    for (const uint32_t block : {0u, 3u, kBlocks - 1}) {
      for (const uint32_t round : {0u, 5u, 33u, 70u, 1030u}) {
        clean();
        launch(&pair, parameters(stop_, block, round), resident);
        dropped += redo_[1];
        EXPECT_LE(redo_[1] - redo_[0], resident);
        // Stopped again while blocks of the list are claimed, then gone on to the end.
        launch(&pair, parameters(stop_, block, round), resident);
        launch(&pair, parameters(nobody_, kNever, 0), resident);
        EXPECT_EQ(redo_[0], redo_[1]);
        EXPECT_GE(*counter_, kBlocks);
        ASSERT_EQ(state(), wanted) << "block " << block << ", round " << round << ", " << resident << " resident";
      }
    }
  }
  EXPECT_GT(dropped, 0u);
}

TEST_P(Dropped, ByAnotherThreadAndRunAgain) {
  Pair pair(GetParam());
  ASSERT_TRUE(pair.ok());
  const std::vector<uint32_t> wanted = expected(&pair.original, GetParam().many_rounds());
  uint32_t dropped = 0;
  for (uint32_t i = 0; i < kBlocks - 1 || (dropped == 0 && i < kMany); ++i) {
    const uint32_t when = 1 + i % (kBlocks - 1);
    clean();
    std::thread other([&] {
      while (std::atomic_ref(*counter_).load() < when) std::this_thread::sleep_for(kLook);
      std::atomic_ref(*stop_).store(ptx::kStopAndDrop);
    });
    launch(&pair, parameters(nobody_, kNever, 0, GetParam().many_rounds()), 2);
    other.join();
    dropped += redo_[1];
    launch(&pair, parameters(nobody_, kNever, 0, GetParam().many_rounds()), 2);
    EXPECT_EQ(redo_[0], redo_[1]);
    ASSERT_EQ(state(), wanted) << "told at block " << when;
  }
  EXPECT_GT(dropped, 0u);
}

// By the stop word of its place: the one drops its block and leaves, the other goes on to the grid's end. Its stamp
// says that it runs, and then that it does not.
TEST_P(Dropped, OneOfTwoAndRunAgain) {
  Pair pair(GetParam(), true);
  ASSERT_TRUE(pair.ok());
  const std::vector<uint32_t> wanted = expected(&pair.original, GetParam().many_rounds());
  auto* const stops = reinterpret_cast<uint32_t*>(reinterpret_cast<std::byte*>(places_) + ptx::kBlockStopsAt);
  uint32_t dropped = 0;
  for (uint32_t i = 0; i < kBlocks - 3 || (dropped == 0 && i < kMany); ++i) {
    const uint32_t when = 1 + i % (kBlocks - 3);
    clean();
    stops[0] = stops[1] = 0;
    places_[0] = places_[1] = ptx::kNoBlock;
    std::atomic<bool> over = false;  // a thread that gets no processor may come too late
    std::thread other([&] {
      while (!over && (std::atomic_ref(*counter_).load() < when || std::atomic_ref(places_[0]).load() == ptx::kNoBlock))
        std::this_thread::sleep_for(kLook);
      std::atomic_ref(stops[0]).store(ptx::kStopAndDrop);
    });
    launch(&pair, parameters(nobody_, kNever, 0, GetParam().many_rounds()), 2);
    over = true;
    other.join();
    EXPECT_EQ(places_[0], ptx::kNoBlock);
    EXPECT_EQ(places_[1], ptx::kNoBlock);
    EXPECT_LE(redo_[1], 1u) << "one block was told";
    dropped += redo_[1];
    stops[0] = 0;
    launch(&pair, parameters(nobody_, kNever, 0, GetParam().many_rounds()), 2);
    EXPECT_EQ(redo_[0], redo_[1]);
    ASSERT_EQ(state(), wanted) << "told at block " << when;
  }
  EXPECT_GT(dropped, 0u);
}

const Case kCases[] = {
    {"Strict", &kSums, "st.global.u32 [%at], %sum;", ptx::Flush::kAlways},
    {"StoresAndGoesOn", &kSums, "st.global.u32 [%at], %sum; GOES ON", ptx::Flush::kAlways},
    {"InPlace", &kSums, "ld.global.u32 %v, [%at]; add.u32 %sum, %sum, %v; st.global.u32 [%at], %sum; GOES ON",
     ptx::Flush::kUntilIrreversible},
    {"Atomic", &kSums, "red.global.add.u32 [%at], %sum; GOES ON", ptx::Flush::kUntilIrreversible},
    {"Barriers", &kRing, "st.global.u32 [%at], %sum;", ptx::Flush::kAlways},
    {"BarriersAfterStores", &kRing, "st.global.u32 [%at], %sum; MEETS ON", ptx::Flush::kAlways},
    {"BarriersInPlace", &kRing, "ld.global.u32 %v, [%at]; add.u32 %sum, %sum, %v; st.global.u32 [%at], %sum; MEETS ON",
     ptx::Flush::kUntilIrreversible},
    {"BarriersAtomic", &kRing, "red.global.add.u32 [%at], %sum; MEETS ON", ptx::Flush::kUntilIrreversible},
};

INSTANTIATE_TEST_SUITE_P(Kernels, Dropped, testing::ValuesIn(kCases), [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace bandsaw::soft::test
