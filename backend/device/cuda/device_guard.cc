// Where guarded kernels may go.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "backend/device/cuda/cuda_device.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::cuda {
namespace {

constexpr uint32_t kLeastBits = 33, kMostBits = 37;
constexpr uint64_t kAreaAt = 1ull << 38;  // in the part: a multiple of the largest area
constexpr uint64_t kSlack = 32ull << 30;

}  // namespace

Result<GuardPlace> CudaDevice::guard(uint64_t memory) {
  if (enter() != CUDA_SUCCESS || !heap_->empty()) {
    return Status::error(EBUSY, "device memory is in use: kernels cannot be guarded");
  }
  GuardPlace place;
  const auto wanted = static_cast<uint32_t>(std::bit_width(std::max<uint64_t>(memory, 1) * 2 - 1));
  place.area.bits = std::clamp(wanted, kLeastBits, kMostBits);
  place.area.base = config_.window_base + VGPU_WINDOW_DEVICE_OFFSET + part_ * VGPU_WINDOW_PART_BYTES + kAreaAt;
  place.area.slack = kSlack;
  reservations_ = nullptr;
  heap_ = nullptr;  // which gives the addresses back
  if (Status status = reserve_part(part_, &place.area); !status.ok()) return status;
  guard_slot_ = pinned_->take_slot();
  if (!guard_slot_ || heap_->allocate(own_context(), ptx::kGuardTableBytes, &place.area.table) != CUDA_SUCCESS) {
    return Status::error(ENOMEM, "no memory for what guarded kernels report");
  }
  std::memset(guard_slot_, 0, sizeof(ptx::GuardReport));
  place.area.report = reinterpret_cast<uint64_t>(guard_slot_);
  place.report = reinterpret_cast<const volatile ptx::GuardReport*>(guard_slot_);
  guard_table_ = place.area.table;
  const std::vector<std::byte> zeros(ptx::kGuardTableBytes);
  if (Status status = guard_write(0, zeros); !status.ok()) return status;
  guarded_ = true;
  // What is mapped elsewhere, or not any more, must not be reached by a kernel that runs.
  heap_->set_before_changes([this] {
    if (enter() == CUDA_SUCCESS) streams_->settle(own_context());
  });
  return place;
}

// Beside whatever runs and is captured.
Status CudaDevice::guard_write(uint64_t at, std::span<const std::byte> bytes) {
  if (at > ptx::kGuardTableBytes || bytes.size() > ptx::kGuardTableBytes - at) {
    return Status::error(EINVAL, "{} bytes at {} are not in the guard's table", bytes.size(), at);
  }
  if (bytes.empty()) return {};
  CUresult result = enter();
  if (result != CUDA_SUCCESS) return Status::error(ENODEV, "the guard's table: {}", driver_->describe(result));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_->cuThreadExchangeStreamCaptureMode(&mode);
  CUstream stream = nullptr;
  result = driver_->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
  if (result == CUDA_SUCCESS) {
    result = driver_->cuMemcpyHtoDAsync(guard_table_ + at, bytes.data(), bytes.size(), stream);
    const CUresult ended = driver_->cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) result = ended;
    driver_->cuStreamDestroy(stream);
  }
  driver_->cuThreadExchangeStreamCaptureMode(&mode);
  if (result != CUDA_SUCCESS) return Status::error(EIO, "the guard's table: {}", driver_->describe(result));
  return {};
}

}  // namespace bandsaw::cuda
