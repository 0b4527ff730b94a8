// Where guarded kernels may go.
#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kLeastBits = 32, kMostBits = 37;
constexpr uint64_t kAreaAt = 1ull << 38;  // in the part: a multiple of the largest area
constexpr uint64_t kSlack = 16ull << 30;

}  // namespace

Result<GuardPlace> SoftDevice::guard(uint64_t memory) {
  GuardPlace place;
  const auto wanted = static_cast<uint32_t>(std::bit_width(std::max<uint64_t>(memory, 1) * 2 - 1));
  place.area.bits = std::clamp(wanted, kLeastBits, kMostBits);
  place.area.base = memory_->part() + kAreaAt;
  place.area.slack = kSlack;
  if (!memory_->use_area(place.area.base, place.area.bits, place.area.slack)) {
    return Status::error(EBUSY, "device memory is in use, or the host has no room: kernels cannot be guarded");
  }
  if (memory_->allocate(ptx::kGuardTableBytes, Use::kPrivate, this, &place.area.table) != CUDA_SUCCESS ||
      memory_->allocate(sizeof(ptx::GuardReport), Use::kPrivate, this, &place.area.report) != CUDA_SUCCESS) {
    return Status::error(ENOMEM, "no device memory for what guarded kernels report");
  }
  place.report = reinterpret_cast<const volatile ptx::GuardReport*>(place.area.report);
  guard_table_ = place.area.table;
  return place;
}

Status SoftDevice::guard_write(uint64_t at, std::span<const std::byte> bytes) {
  if (at > ptx::kGuardTableBytes || bytes.size() > ptx::kGuardTableBytes - at) {
    return Status::error(EINVAL, "{} bytes at {} are not in the guard's table", bytes.size(), at);
  }
  std::memcpy(reinterpret_cast<std::byte*>(guard_table_) + at, bytes.data(), bytes.size());
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return {};
}

}  // namespace bandsaw::soft
