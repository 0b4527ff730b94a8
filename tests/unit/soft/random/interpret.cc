// Executes a random program one lane at a time, by what its forms say.
#include <cstring>

#include "tests/unit/soft/random/program.h"

namespace bandsaw::soft::test {
namespace {

uint64_t& the_register(Lane* lane, const Operand& o) {
  const char kind = register_kind(o.kind);
  return (kind == 'h' ? lane->h : kind == 'r' ? lane->r : kind == 'd' ? lane->d : lane->p)[o.value];
}

uint64_t value(Lane* lane, const Operand& o) { return o.constant ? o.value : the_register(lane, o); }

void write(Lane* lane, const Operand& o, uint64_t v) {
  the_register(lane, o) = low(v, register_bits(register_kind(o.kind)));
}

bool passes(const Item& item, const Lane& lane) { return item.guard < 0 || (lane.p[item.guard] != 0) != item.negated; }

void execute(const Item& item, Lane* lane) {
  uint64_t results[4] = {}, sources[5] = {};
  for (size_t i = 0; i < item.sources.size(); ++i) sources[i] = value(lane, item.sources[i]);
  all_forms()[item.form].evaluate(lane->memory, results, sources);
  for (size_t i = 0; i < item.results.size(); ++i) write(lane, item.results[i], results[i]);
}

void start(const RandomProgram& program, Lane* lane, uint64_t initial) {
  for (unsigned i = 0; i < 4 * kRegisters; ++i) {
    uint64_t word;
    std::memcpy(&word, lane->memory.table + (program.is_uniform(i) ? i % 16 : initial >> i & 15) * 8, 8);
    const char kind = "hrdp"[i / kRegisters];
    write(lane, {kind, false, i % kRegisters}, kind == 'p' ? word & 1 : word);
  }
}

// In the order in which the kernel stores them.
void store(const Lane& lane, std::byte* to) {
  if (!lane.ended) {
    std::memcpy(to, lane.d, 8 * kRegisters);
    for (unsigned i = 0; i < kRegisters; ++i) std::memcpy(to + 8 * kRegisters + 4 * i, &lane.r[i], 4);
    for (unsigned i = 0; i < kRegisters; ++i) std::memcpy(to + 12 * kRegisters + 2 * i, &lane.h[i], 2);
    for (unsigned i = 0; i < kRegisters; ++i) to[14 * kRegisters + i] = static_cast<std::byte>(lane.p[i]);
    std::memcpy(to + 15 * kRegisters, &lane.turns, 4);
    std::memcpy(to + kResultBytes - 2 * kAreaBytes, lane.memory.shared.data(), kAreaBytes);
    std::memcpy(to + kResultBytes - kAreaBytes, lane.memory.local.data(), kAreaBytes);
  }
  std::memcpy(to + kResultBytes - 3 * kAreaBytes, lane.memory.global.data(), kAreaBytes);
}

}  // namespace

void RandomProgram::run(const Segment& segment, Lane* lane) const {
  for (size_t at = 0; at < segment.size() && !lane->ended;) {
    const Item& item = segment[at++];
    if (item.left_out || item.kind == Item::Kind::kCross) continue;
    const bool goes = passes(item, *lane);
    switch (item.kind) {
      case Item::Kind::kForm:
        if (goes) execute(item, lane);
        break;
      case Item::Kind::kBranch:
        if (goes) at = item.targets[0];
        break;
      case Item::Kind::kTable:
        at = item.targets[value(lane, item.sources[0]) & 3];
        break;
      case Item::Kind::kLoop:
        ++lane->turns;
        if (goes && lane->turns < (lane->limit & 7)) at = item.targets[0];
        break;
      case Item::Kind::kEnd:
        lane->ended = goes;
        break;
      case Item::Kind::kCross:
        break;
    }
  }
}

void RandomProgram::run_cross(const Item& item, Lane* warp) const {
  std::array<std::array<uint64_t, 3>, 32> sources{};
  for (unsigned l = 0; l < 32; ++l)
    for (size_t i = 0; i < item.sources.size(); ++i) sources[l][i] = value(&warp[l], item.sources[i]);
  for (unsigned l = 0; l < 32; ++l) write(&warp[l], item.results[0], all_crosses()[item.form].evaluate(l, sources));
}

std::vector<std::byte> RandomProgram::interpret(const std::vector<std::byte>& table,
                                                const std::vector<uint64_t>& initial) const {
  std::vector<std::byte> results(size_t{kResultBytes} * kThreads * kBlocks);
  for (uint32_t first = 0; first < kThreads * kBlocks; first += 32) {
    std::vector<Lane> warp(32);
    for (uint32_t l = 0; l < 32; ++l) {
      Lane& lane = warp[l];
      lane.memory.table = table.data();
      lane.memory.thread = (first + l) % kThreads;
      lane.memory.block = (first + l) / kThreads;
      lane.memory.threads = kThreads;
      lane.memory.blocks = kBlocks;
      lane.limit = static_cast<uint32_t>(initial[first + l]);
      start(*this, &lane, initial[first + l]);
    }
    for (const Segment& segment : segments_) {
      for (const Item& item : segment)
        if (item.kind == Item::Kind::kCross && !item.left_out) run_cross(item, warp.data());
      for (Lane& lane : warp) run(segment, &lane);
    }
    for (uint32_t l = 0; l < 32; ++l) store(warp[l], results.data() + size_t{kResultBytes} * (first + l));
  }
  return results;
}

}  // namespace bandsaw::soft::test
