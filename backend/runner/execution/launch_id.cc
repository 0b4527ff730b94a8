#include "backend/runner/execution/launch_id.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kGraph = ~uint64_t{0}, kGridSlice = kGraph - 1;  // no launch has so much shared memory

// As splitmix64 mixes.
uint64_t mix(uint64_t hash, uint64_t word) {
  uint64_t value = std::rotl(hash, 17) + word + 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

LaunchId identify(const vgpu_launch& launch, std::span<const std::byte> parameters, uint64_t context, uint64_t stream,
                  const AddressSpan& window) {
  uint64_t shape = mix(launch.function, launch.shared_bytes);
  for (int i = 0; i < 3; ++i) {
    shape = mix(shape, uint64_t{launch.grid[i]} << 32 | launch.block[i]);
    shape = mix(shape, launch.cluster[i]);
  }
  uint64_t exact = mix(shape, parameters.size());
  for (size_t at = 0; at < parameters.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, parameters.data() + at, std::min(sizeof word, parameters.size() - at));
    if (word - window.base >= window.bytes) exact = mix(exact, word);
  }
  return {shape, exact, mix(context, stream)};
}

LaunchId identify_graph(uint64_t graph, uint64_t changes, uint64_t context, uint64_t stream) {
  const uint64_t shape = mix(graph, kGraph);
  return {shape, mix(shape, changes), mix(context, stream)};
}

LaunchId identify_grid_slice(uint64_t launch, uint64_t blocks) {
  const uint64_t shape = mix(mix(launch, kGridSlice), blocks);
  return {shape, shape, 0};
}

LaunchId identify(BulkKind kind, uint64_t bytes, uint64_t context, uint64_t stream) {
  const uint64_t shape = mix(static_cast<uint64_t>(kind), bytes);
  return {shape, shape, mix(context, stream)};
}

}  // namespace bandsaw::runner
