// What lies behind the L1 caches of all SMs: a network, the partitions of L2, DRAM that serves open rows first.
#pragma once

#include <cstdint>
#include <deque>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/device/soft/timing/cache.h"
#include "backend/device/soft/timing/machine.h"

namespace bandsaw::soft::timing {

struct MemoryRequest {
  enum class Kind : uint8_t { kData, kInstruction, kAtomic, kStore } kind = Kind::kData;
  uint32_t sm = 0;
  uint64_t line = 0;
  uint32_t sectors = 0;
  uint64_t tag = 0;  // the sender's own
};

struct MemoryCounts {
  uint64_t l2_reads = 0, l2_hits = 0, dram_lines = 0, row_hits = 0, dram_sectors = 0;
};

class MemorySystem {
 public:
  // `sharing`: by how many parts of the GPU a line is used (sharing.h).
  explicit MemorySystem(const Machine& machine, double sharing = 1);

  bool accepts(uint32_t sm) const { return queues_[sm].size() < machine_.miss_queue; }
  void send(const MemoryRequest& request) { queues_[request.sm].push_back(request); }
  void step(uint64_t now);
  // Answers that have come to an SM: of everything but stores.
  std::vector<MemoryRequest> take_arrived(uint32_t sm, uint64_t now);
  bool idle() const;
  const MemoryCounts& counts() const { return counts_; }

 private:
  struct Waiting {
    uint64_t at;
    MemoryRequest request;
  };
  struct Answer {
    uint64_t at, number;
    MemoryRequest request;
    bool operator>(const Answer& other) const { return at != other.at ? at > other.at : number > other.number; }
  };
  struct DramRequest {
    uint64_t line;
    uint32_t sectors;
    bool write;
  };
  struct Bank {
    uint64_t row = UINT64_MAX, free_at = 0;
  };
  struct Fill {
    uint64_t at, line;
    uint32_t sectors;
  };
  struct Partition {
    Partition(const Machine& machine, const CacheShape& shape)
        : l2(shape, machine.l2_misses, UINT32_MAX), banks(machine.banks) {}
    std::deque<Waiting> input;
    Cache l2;
    std::unordered_map<uint64_t, MemoryRequest> waiters;
    std::deque<DramRequest> dram;
    std::vector<Bank> banks;
    std::deque<Fill> fills;
    uint64_t bus_free = 0;   // in sixteenths of a cycle
    uint64_t port_free = 0;  // to the SMs
  };

  void step(Partition* partition, uint64_t now);
  bool serve(Partition* partition, const MemoryRequest& request, uint64_t now);
  bool others_have_read(uint64_t line);
  bool store(Partition* partition, uint64_t line, uint32_t sectors);
  void step_dram(Partition* partition, uint64_t now);
  void answer(Partition* partition, const MemoryRequest& request, uint64_t at);
  uint64_t local_line(uint64_t line) const;

  const Machine machine_;
  const double sharing_;
  std::unordered_set<uint64_t> seen_;              // lines that were asked for, where others read some of them first
  std::vector<std::deque<MemoryRequest>> queues_;  // by SM
  std::vector<Partition> partitions_;
  std::vector<std::priority_queue<Answer, std::vector<Answer>, std::greater<>>> answers_;  // by SM
  uint64_t next_ = 0;
  MemoryCounts counts_;
};

}  // namespace bandsaw::soft::timing
