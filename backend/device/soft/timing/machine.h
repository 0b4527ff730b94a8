// The GPUs that the model knows. A part of the SMs is simulated, with its part of the L2 cache and of the DRAM.
// Times are cycles of an SM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {

struct CacheShape {
  uint32_t bytes = 0, ways = 1;
  bool sectored = false;  // a miss brings the sectors that were asked for, and not the whole line
  uint32_t sets() const;
};

struct Machine {
  std::string name;
  uint32_t clock_mhz = 0;
  Part part;  // that is simulated
  // An SM.
  uint32_t warps = 48, threads = 1536, blocks = 8, registers = 32768, shared_bytes = 48 << 10;
  uint32_t schedulers = 2;
  uint32_t simple_latency = 1, special_latency = 1, double_latency = 1, matrix_latency = 1, constant_latency = 1;
  uint32_t special_interval = 1, double_interval = 1, matrix_interval = 1;  // cycles between issues to one unit
  uint32_t shared_latency = 1, hit_latency = 1;                             // of shared memory; of L1
  uint32_t barrier_latency = 0;                                             // until those that waited go on
  uint32_t access_queue = 1;  // instructions that wait at the load/store unit
  // Instructions.
  uint32_t instruction_bytes = 8, instruction_buffer = 2;  // bytes; instructions of a warp that are fetched ahead
  uint32_t fetches = 1;                                    // warps a cycle, of different schedulers
  bool reorders = false;                                   // its compiler moves loads forward (reorder.h)
  bool warm_code = false;  // instructions always hit: launches follow launches, and the caches hold their code
  CacheShape l1i;
  uint32_t l1i_misses = 8;  // that can be on their way: MSHRs
  // Data.
  CacheShape l1d;
  uint32_t unified_bytes = 0;  // L1 has what the blocks' shared memory leaves of them; 0: it is as large as l1d says
  uint32_t l1d_misses = 32, merged_misses = 8;  // MSHRs; accesses that wait for one
  uint32_t miss_queue = 8;                      // requests that leave an SM
  // Between SMs and L2, one way.
  uint32_t network_latency = 0, network_bytes = 32;  // bytes a cycle and memory partition to the SMs
  // A memory partition.
  uint32_t partitions = 1;  // simulated
  CacheShape l2;            // of one
  uint32_t l2_misses = 32, l2_latency = 0, l2_queue = 8;
  uint32_t banks = 8, row_bytes = 2048, dram_queue = 32;
  uint32_t dram_latency = 0, row_latency = 0;  // a read's; more when its row must be opened
  uint32_t dram_sector_sixteenths = 16;        // of a cycle, for which a sector takes the data bus

  // Until what reads its result may begin. Of accesses: if they hit in L1.
  uint32_t latency_of(Kind kind) const;
};

// The GTX 480 of Park's table 3.1.
Machine gtx480();
Machine h200();
// By name; false: there is none.
bool find_machine(std::string_view name, Machine* machine);
std::vector<std::string> machine_names();

// How many blocks of this shape an SM has at once; 0: not one fits.
uint32_t resident_blocks(const Machine& machine, uint32_t threads, uint32_t registers, uint32_t shared_bytes);

}  // namespace bandsaw::soft::timing
