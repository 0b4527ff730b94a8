#include "backend/device/soft/timing/machine.h"

#include <algorithm>

namespace bandsaw::soft::timing {

uint32_t CacheShape::sets() const { return std::max(1u, bytes / kLineBytes / std::max(1u, ways)); }

uint32_t Machine::latency_of(Kind kind) const {
  switch (kind) {
    case Kind::kSpecial:
      return special_latency;
    case Kind::kDouble:
      return double_latency;
    case Kind::kMatrix:
      return matrix_latency;
    case Kind::kConstant:
      return constant_latency;
    case Kind::kLoad:
    case Kind::kStore:
    case Kind::kAtomic:
    case Kind::kOtherAccess:
      return hit_latency;
    default:
      return simple_latency;
  }
}

// Table 3.1 says SMs, clock, registers, threads, blocks, caches, MSHRs, partitions, bandwidth and FR-FCFS. What it does
// not say is chosen: 18 cycles of an instruction are Fermi's, two thirds of the latencies beyond L1 too.
Machine gtx480() {
  Machine m;
  m.name = "gtx480";
  m.clock_mhz = 1400;
  m.part = {5, 15};
  m.simple_latency = 18;
  m.special_latency = 22;
  m.special_interval = 8;
  m.double_latency = 24;
  m.double_interval = 16;
  m.matrix_latency = 32;
  m.matrix_interval = 16;
  m.constant_latency = 18;
  m.shared_latency = 26;
  m.hit_latency = 30;
  m.access_queue = 2;
  m.l1i = {2 << 10, 4, false};
  m.l1d = {16 << 10, 4, false};
  m.network_latency = 60;
  m.partitions = 2;
  m.l2 = {128 << 10, 16, false};
  m.l2_latency = 60;
  m.dram_latency = 120;
  m.row_latency = 40;
  m.dram_sector_sixteenths = 24;  // 177.4 GB/s over 6 partitions: 21.1 bytes a cycle
  return m;
}

// NVIDIA's data sheet: 132 SMs, 4.8 TB/s, 50 MB of L2, 228 KiB of shared memory and 28 KiB of L1 beside it. Latencies
// are those of Hopper as published measurements have them; 4 of 132 SMs with 1/33 of the rest are simulated.
Machine h200() {
  Machine m;
  m.name = "h200";
  m.clock_mhz = 1980;
  m.part = {4, 132};
  m.warps = 64;
  m.threads = 2048;
  m.blocks = 32;
  m.registers = 65536;
  m.shared_bytes = 228 << 10;
  m.schedulers = 4;
  m.simple_latency = 4;
  m.special_latency = 17;
  m.special_interval = 8;
  m.double_latency = 8;
  m.double_interval = 2;
  m.matrix_latency = 32;
  m.matrix_interval = 8;
  m.constant_latency = 8;
  m.shared_latency = 23;
  m.hit_latency = 33;
  m.barrier_latency = 22;
  m.access_queue = 8;
  m.instruction_bytes = 16;
  m.instruction_buffer = 3;
  m.fetches = 4;
  m.warm_code = true;
  m.reorders = true;
  m.l1i = {32 << 10, 4, false};
  m.l1i_misses = 16;
  m.l1d = {256 << 10, 16, true};
  m.unified_bytes = 256 << 10;
  m.l1d_misses = 256;
  m.merged_misses = 32;
  m.miss_queue = 16;
  m.network_latency = 75;
  m.network_bytes = 64;
  m.partitions = 3;
  m.l2 = {512 << 10, 16, true};
  m.l2_misses = 192;
  m.l2_latency = 155;
  m.l2_queue = 16;
  m.banks = 32;
  m.row_bytes = 1024;
  m.dram_queue = 64;
  m.dram_latency = 500;
  m.row_latency = 40;
  m.dram_sector_sixteenths = 23;  // 4.5 TB/s / 99, which reads reach: 22.9 bytes a cycle
  return m;
}

bool find_machine(std::string_view name, Machine* machine) {
  for (const Machine& known : {h200(), gtx480()}) {
    if (known.name != name) continue;
    *machine = known;
    return true;
  }
  return false;
}

std::vector<std::string> machine_names() { return {h200().name, gtx480().name}; }

uint32_t resident_blocks(const Machine& machine, uint32_t threads, uint32_t registers, uint32_t shared_bytes) {
  const uint32_t warps = (threads + kMostLanes - 1) / kMostLanes;
  if (warps == 0 || threads > machine.threads) return 0;
  uint32_t found = std::min({machine.blocks, machine.warps / warps, machine.threads / threads});
  if (registers) found = std::min(found, machine.registers / (registers * warps * kMostLanes));
  if (shared_bytes) found = std::min(found, machine.shared_bytes / shared_bytes);
  return found;
}

}  // namespace bandsaw::soft::timing
