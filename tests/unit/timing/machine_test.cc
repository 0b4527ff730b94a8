// What machines differ in beside their numbers.
#include <gtest/gtest.h>

#include "backend/device/soft/timing/cache.h"
#include "backend/device/soft/timing/simulate.h"
#include "tests/unit/timing/trace_maker.h"

namespace bandsaw::soft::timing {
namespace {

using namespace test;

uint64_t cycles_on(const LaunchTrace& launch, const Machine& machine) { return simulate(launch, machine, {}).cycles; }

LaunchTrace independent(uint32_t instructions, uint32_t warps) {
  LaunchTrace launch = launch_of(std::vector<Instruction>(instructions, simple({}, {})), warps);
  for (uint32_t warp = 0; warp < warps; ++warp) add_warp(&launch, 0, warp, {{stretch(0)}});
  return launch;
}

TEST(Machine, WarmCodeIsThereFromTheBeginning) {
  Machine machine = plain_machine();
  machine.warm_code = true;
  EXPECT_EQ(cycles_on(independent(1, 1), machine), 2u);
  EXPECT_EQ(simulate(independent(1, 1), machine, {}).memory.l2_reads, 0u);
}

TEST(Machine, EachSchedulerMayFetchForItself) {
  Machine machine = plain_machine();
  machine.warm_code = true;
  machine.schedulers = 4;
  const LaunchTrace launch = independent(400, 8);
  const uint64_t one = cycles_on(launch, machine);
  machine.fetches = 4;
  EXPECT_GT(one, 1600u) << "two instructions a cycle";
  EXPECT_LT(cycles_on(launch, machine), 900u) << "four are issued";
}

TEST(Machine, ABarrierHoldsWarpsForAWhile) {
  Machine machine = plain_machine();
  machine.warm_code = true;
  LaunchTrace launch = launch_of({barrier(), simple({}, {})}, 2);
  for (uint32_t warp = 0; warp < 2; ++warp) add_warp(&launch, 0, warp, {{stretch(0)}});
  const uint64_t at_once = cycles_on(launch, machine);
  machine.barrier_latency = 20;
  EXPECT_EQ(cycles_on(launch, machine), at_once + 19) << "the next cycle is the first";
}

TEST(Machine, L1HasWhatSharedMemoryLeaves) {
  Machine machine = plain_machine();
  machine.shared_bytes = 48 << 10;
  machine.l1d = {64 << 10, 4, false};
  machine.unified_bytes = 64 << 10;
  // Twice through 32 KiB.
  std::vector<std::vector<uint32_t>> parts{{stretch(0)}};
  std::vector<Instruction> code;
  for (uint64_t i = 0; i < 512; ++i) {
    code.push_back(load({}, {2}));
    parts.push_back(lines({i % 256 * kLineBytes}));
  }
  LaunchTrace launch = launch_of(code);
  add_warp(&launch, 0, 0, parts);
  machine.blocks = 1;
  EXPECT_EQ(simulate(launch, machine, {}).accesses.l1_hits, 256u);
  launch.shared_bytes = 48 << 10;
  EXPECT_EQ(simulate(launch, machine, {}).accesses.l1_hits, 0u);
}

TEST(Cache, OtherSectorsOfALineOnItsWayAreOneMoreRequest) {
  Cache cache({1024, 4, true}, 1, 8);
  uint64_t evicted = 0;
  EXPECT_EQ(cache.read(0, 1, 10, &evicted), Access::kMiss);
  EXPECT_EQ(cache.wanted(), 1u);
  EXPECT_EQ(cache.read(0, 1, 11, &evicted), Access::kMerged);
  EXPECT_EQ(cache.read(0, 3, 12, &evicted), Access::kMiss) << "though there is one MSHR";
  EXPECT_EQ(cache.wanted(), 2u);
  EXPECT_EQ(cache.read(128, 1, 13, &evicted), Access::kRefused);
  EXPECT_EQ(cache.fill(0, 1), (std::vector<uint64_t>{10, 11}));
  EXPECT_EQ(cache.on_their_way(), 1u);
  EXPECT_EQ(cache.fill(0, 2), (std::vector<uint64_t>{12}));
  EXPECT_EQ(cache.on_their_way(), 0u);
  EXPECT_EQ(cache.read(0, 3, 14, &evicted), Access::kHit);
}

TEST(Cache, AWholeLineComesAtOnceWhereItHasNoSectors) {
  Cache cache({1024, 4, false}, 1, 8);
  uint64_t evicted = 0;
  EXPECT_EQ(cache.read(0, 1, 10, &evicted), Access::kMiss);
  EXPECT_EQ(cache.wanted(), kAllSectors);
  EXPECT_EQ(cache.read(0, 8, 11, &evicted), Access::kMerged);
  EXPECT_EQ(cache.fill(0, kAllSectors), (std::vector<uint64_t>{10, 11}));
}

}  // namespace
}  // namespace bandsaw::soft::timing
