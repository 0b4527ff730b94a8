#include "backend/device/soft/timing/memory_system.h"

#include <algorithm>
#include <bit>

#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {
namespace {

constexpr uint64_t kInterleave = 256;  // bytes that follow one another in a partition
constexpr uint64_t kSixteenths = 16;

// What is used by several parts takes its room in L2 once for all of them.
CacheShape l2_of(const Machine& machine, double sharing) {
  CacheShape shape = machine.l2;
  shape.bytes = static_cast<uint32_t>(std::min<double>(shape.bytes * sharing, UINT32_MAX));
  return shape;
}

}  // namespace

MemorySystem::MemorySystem(const Machine& machine, double sharing)
    : machine_(machine),
      sharing_(sharing),
      queues_(machine.part.sms),
      partitions_(machine.partitions, Partition(machine, l2_of(machine, sharing))),
      answers_(machine.part.sms) {}

// A line's address among those of its partition.
uint64_t MemorySystem::local_line(uint64_t line) const {
  return line / kInterleave / machine_.partitions * kInterleave + line % kInterleave;
}

void MemorySystem::step(uint64_t now) {
  for (auto& queue : queues_) {
    if (queue.empty()) continue;
    Partition& to = partitions_[queue.front().line / kInterleave % machine_.partitions];
    if (to.input.size() >= machine_.l2_queue + machine_.network_latency) continue;
    to.input.push_back({now + machine_.network_latency, queue.front()});
    queue.pop_front();
  }
  for (Partition& partition : partitions_) step(&partition, now);
}

void MemorySystem::step(Partition* partition, uint64_t now) {
  while (!partition->fills.empty() && partition->fills.front().at <= now) {
    for (const uint64_t waiter : partition->l2.fill(partition->fills.front().line, partition->fills.front().sectors)) {
      const auto found = partition->waiters.find(waiter);
      answer(partition, found->second, now);
      partition->waiters.erase(found);
    }
    partition->fills.pop_front();
  }
  step_dram(partition, now);
  if (partition->input.empty() || partition->input.front().at > now) return;
  if (serve(partition, partition->input.front().request, now)) partition->input.pop_front();
}

// Room in the queue for what a miss reads and what it displaces.
bool MemorySystem::serve(Partition* partition, const MemoryRequest& request, uint64_t now) {
  if (partition->dram.size() + 2 > machine_.dram_queue) return false;
  const uint64_t line = local_line(request.line);
  if (request.kind == MemoryRequest::Kind::kStore) return store(partition, line, request.sectors);
  uint64_t evicted = 0;
  if (request.kind == MemoryRequest::Kind::kData && others_have_read(request.line)) {
    partition->l2.bring(line, &evicted);
    if (evicted) partition->dram.push_back({evicted, kAllSectors, true});
  }
  const Access access = partition->l2.read(line, request.sectors, next_, &evicted);
  if (access == Access::kRefused) return false;
  ++counts_.l2_reads;
  if (access == Access::kHit) {
    ++counts_.l2_hits;
    answer(partition, request, now + machine_.l2_latency);
    return true;
  }
  partition->waiters[next_++] = request;
  if (evicted) partition->dram.push_back({evicted, kAllSectors, true});
  if (access == Access::kMiss) partition->dram.push_back({line, partition->l2.wanted(), false});
  return true;
}

// Of the lines that several parts use, each part is the first one with its part of them.
bool MemorySystem::others_have_read(uint64_t line) {
  if (sharing_ <= 1 || !seen_.insert(line).second) return false;
  const uint64_t mixed = (line / kLineBytes * 0x9e3779b97f4a7c15) >> 32;
  return static_cast<double>(mixed % 4096) * sharing_ >= 4096;
}

bool MemorySystem::store(Partition* partition, uint64_t line, uint32_t sectors) {
  uint64_t evicted = 0;
  if (!partition->l2.write(line, sectors, &evicted)) return false;
  if (evicted) partition->dram.push_back({evicted, kAllSectors, true});
  return true;
}

// First ready, first come first served: the oldest whose row is open, or else the oldest whose bank is free.
void MemorySystem::step_dram(Partition* partition, uint64_t now) {
  if (partition->dram.empty() || partition->bus_free > (now + machine_.row_latency) * kSixteenths) return;
  const auto row_of = [&](const DramRequest& one) { return one.line / machine_.row_bytes; };
  const auto bank_of = [&](const DramRequest& one) -> Bank& {
    const uint64_t row = row_of(one);
    return partition->banks[(row ^ row / machine_.banks) % machine_.banks];
  };
  auto chosen = partition->dram.end();
  for (auto one = partition->dram.begin(); one != partition->dram.end(); ++one) {
    const Bank& bank = bank_of(*one);
    if (bank.free_at > now) continue;
    if (bank.row == row_of(*one)) {
      chosen = one;
      break;
    }
    if (chosen == partition->dram.end()) chosen = one;
  }
  if (chosen == partition->dram.end()) return;
  Bank& bank = bank_of(*chosen);
  const bool open = bank.row == row_of(*chosen);
  const uint64_t earliest = now + (open ? 0 : machine_.row_latency);
  const uint64_t start = std::max(earliest * kSixteenths, partition->bus_free);
  const auto sectors = static_cast<uint64_t>(std::popcount(chosen->sectors));
  partition->bus_free = start + sectors * machine_.dram_sector_sixteenths;
  const uint64_t end = (partition->bus_free + kSixteenths - 1) / kSixteenths;
  bank.row = row_of(*chosen);
  bank.free_at = open ? now + 1 : earliest;
  ++counts_.dram_lines;
  counts_.row_hits += open;
  counts_.dram_sectors += sectors;
  if (!chosen->write) partition->fills.push_back({end + machine_.dram_latency, chosen->line, chosen->sectors});
  partition->dram.erase(chosen);
}

void MemorySystem::answer(Partition* partition, const MemoryRequest& request, uint64_t at) {
  const auto bytes = static_cast<uint64_t>(std::popcount(request.sectors)) * kSectorBytes;
  const uint64_t start = std::max(at, partition->port_free);
  partition->port_free = start + (bytes + machine_.network_bytes - 1) / machine_.network_bytes;
  answers_[request.sm].push({partition->port_free + machine_.network_latency, next_++, request});
}

std::vector<MemoryRequest> MemorySystem::take_arrived(uint32_t sm, uint64_t now) {
  std::vector<MemoryRequest> arrived;
  auto& answers = answers_[sm];
  while (!answers.empty() && answers.top().at <= now) {
    arrived.push_back(answers.top().request);
    answers.pop();
  }
  return arrived;
}

bool MemorySystem::idle() const {
  const auto empty = [](const auto& one) { return one.empty(); };
  return std::all_of(queues_.begin(), queues_.end(), empty) && std::all_of(answers_.begin(), answers_.end(), empty) &&
         std::all_of(partitions_.begin(), partitions_.end(),
                     [](const Partition& one) { return one.input.empty() && one.dram.empty() && one.fills.empty(); });
}

}  // namespace bandsaw::soft::timing
