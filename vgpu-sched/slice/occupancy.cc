#include "vgpu-sched/slice/occupancy.h"

#include <algorithm>

namespace bandsaw::slice {
namespace {

// What one block takes of each; wide, so that no product of hostile numbers overflows.
struct Taken {
  std::int64_t threads, warps, registers, shared;
};

Taken taken(const GpuModel& gpu, const BlockNeeds& needs) {
  const std::int64_t unit = std::max(gpu.register_unit, 1);
  const std::int64_t registers = (needs.registers + unit - 1) / unit * unit;
  return {.threads = needs.threads,
          .warps = needs.warps(),
          .registers = registers * needs.warps() * 32,
          .shared = std::int64_t{needs.shared} + gpu.shared_block};
}

std::int64_t times(std::int64_t room, std::int64_t one, std::int64_t limit) { return one > 0 ? room / one : limit; }

}  // namespace

std::string_view describe(Error error) {
  switch (error) {
    case Error::kNone:
      return "no error";
    case Error::kKnownKernel:
      return "a kernel with this id is there already";
    case Error::kUnknownKernel:
      return "no kernel with this id";
    case Error::kUnknownGridSlice:
      return "no such slice in flight";
    case Error::kNoBlocks:
      return "a kernel of no blocks";
    case Error::kBadProfile:
      return "a profile without a time, or a block that fits no SM";
    case Error::kFull:
      return "too many at once";
  }
  return "unknown error";
}

Room room_of(const GpuModel& gpu) {
  return {.threads = gpu.threads,
          .warps = gpu.warps,
          .blocks = gpu.blocks,
          .registers = gpu.registers,
          .shared = gpu.shared};
}

int fit(const GpuModel& gpu, const Room& room, const BlockNeeds& needs) {
  if (needs.threads <= 0 || needs.threads > gpu.threads || needs.registers < 0 || needs.shared < 0) return 0;
  const Taken one = taken(gpu, needs);
  const std::int64_t limit = room.blocks;
  const std::int64_t count =
      std::min({limit, times(room.threads, one.threads, limit), times(room.warps, one.warps, limit),
                times(room.registers, one.registers, limit), times(room.shared, one.shared, limit)});
  return static_cast<int>(std::max<std::int64_t>(count, 0));
}

Room beside(const GpuModel& gpu, const Room& room, const BlockNeeds& needs, int count) {
  const Taken one = taken(gpu, needs);
  Room left = room;
  left.threads -= static_cast<int>(one.threads * count);
  left.warps -= static_cast<int>(one.warps * count);
  left.blocks -= count;
  left.registers -= static_cast<int>(one.registers * count);
  left.shared -= static_cast<int>(one.shared * count);
  return left;
}

int resident_blocks(const GpuModel& gpu, const BlockNeeds& needs) { return fit(gpu, room_of(gpu), needs); }

int padding(const GpuModel& gpu, const BlockNeeds& needs, int count) {
  if (count <= 0 || resident_blocks(gpu, needs) <= count) return 0;
  const int least = gpu.shared / (count + 1) + 1;  // with one more such block, the SM would be too small
  return std::max(least - gpu.shared_block - needs.shared, 0);
}

double footprint(const GpuModel& gpu, const BlockNeeds& needs, int count) {
  const Taken one = taken(gpu, needs);
  const auto part = [count](std::int64_t of, int all) {
    return all > 0 ? static_cast<double>(of) * count / static_cast<double>(all) : 0.0;
  };
  const double most = std::max({part(one.threads, gpu.threads), part(one.warps, gpu.warps), part(1, gpu.blocks),
                                part(one.registers, gpu.registers), part(one.shared, gpu.shared)});
  return std::clamp(most, 0.0, 1.0);
}

}  // namespace bandsaw::slice
