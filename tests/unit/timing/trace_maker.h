// Traces for tests, made by hand: a kernel's instructions, and what its warps do with them.
#pragma once

#include <string>
#include <vector>

#include "backend/device/soft/timing/machine.h"
#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing::test {

inline Instruction simple(std::vector<uint32_t> reads, std::vector<uint32_t> writes) {
  Instruction one;
  one.reads = std::move(reads);
  one.writes = std::move(writes);
  return one;
}

inline Instruction load(std::vector<uint32_t> reads, std::vector<uint32_t> writes) {
  Instruction one = simple(std::move(reads), std::move(writes));
  one.kind = Kind::kLoad;
  one.global_load = true;
  return one;
}

inline Instruction store(std::vector<uint32_t> reads) {
  Instruction one = simple(std::move(reads), {});
  one.kind = Kind::kStore;
  return one;
}

inline Instruction barrier() {
  Instruction one;
  one.kind = Kind::kBarrier;
  return one;
}

inline Instruction branch(int32_t target) {
  Instruction one;
  one.kind = Kind::kBranch;
  one.target = target;
  one.ends_stretch = true;
  return one;
}

// The last instruction ends the stretch.
inline LaunchTrace launch_of(std::vector<Instruction> instructions, uint32_t warps = 1, uint32_t blocks = 1) {
  LaunchTrace launch;
  launch.kernel = "k";
  launch.grid[0] = blocks;
  launch.block[0] = warps * kMostLanes;
  launch.registers = 16;
  launch.code.registers = 16;
  launch.code.instructions = std::move(instructions);
  launch.code.instructions.back().ends_stretch = true;
  return launch;
}

inline uint32_t stretch(uint32_t counter, uint32_t lanes = 32) { return kStretch | lanes << 24 | counter; }
inline uint32_t banks(uint32_t turns) { return kBanks | turns; }

// Whole lines.
inline std::vector<uint32_t> lines(const std::vector<uint64_t>& addresses) {
  std::vector<uint32_t> words{kLines | static_cast<uint32_t>(addresses.size()) << 24};
  for (const uint64_t address : addresses) {
    words.push_back(static_cast<uint32_t>(address) | kAllSectors);
    words.push_back(static_cast<uint32_t>(address >> 32));
  }
  return words;
}

inline void add_warp(LaunchTrace* launch, uint64_t block, uint32_t warp,
                     const std::vector<std::vector<uint32_t>>& parts) {
  WarpTrace made{block, warp, false, {}};
  for (const auto& part : parts) made.words.insert(made.words.end(), part.begin(), part.end());
  launch->warps.push_back(std::move(made));
}

// An SM of one scheduler, whose instructions are there after one cycle, in front of memory without queues to speak of.
inline Machine plain_machine() {
  Machine m;
  m.name = "plain";
  m.schedulers = 1;
  m.simple_latency = 4;
  m.shared_latency = 10;
  m.hit_latency = 5;
  m.access_queue = 4;
  m.instruction_buffer = 8;
  m.l1i = {64 << 10, 4, false};
  m.l1d = {1024, 4, false};
  m.network_latency = 10;
  m.network_bytes = 128;
  m.l2 = {64 << 10, 16, false};
  m.l2_latency = 20;
  m.dram_latency = 100;
  m.row_latency = 0;
  m.dram_sector_sixteenths = 4;
  return m;
}

}  // namespace bandsaw::soft::timing::test
