#include "backend/device/cuda/pinned.h"

#include "memory/base/log.h"

namespace bandsaw::cuda {

CUresult Pinned::add(void* pointer, uint64_t bytes, bool read_only) {
  unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (read_only) flags |= CU_MEMHOSTREGISTER_READ_ONLY;
  const CUresult result = driver_->cuMemHostRegister(pointer, bytes, flags);
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(mutex_);
  ranges_[reinterpret_cast<uint64_t>(pointer)] = bytes;
  return CUDA_SUCCESS;
}

void Pinned::remove(void* pointer) {
  {
    std::lock_guard lock(mutex_);
    if (ranges_.erase(reinterpret_cast<uint64_t>(pointer)) == 0) return;
  }
  if (const CUresult result = driver_->cuMemHostUnregister(pointer)) {
    spdlog::debug("unregistering {}: {}", pointer, driver_->describe(result));
  }
}

bool Pinned::holds(uint64_t pointer, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(pointer);
  if (next == ranges_.begin()) return false;
  const auto& [start, length] = *std::prev(next);
  const uint64_t offset = pointer - start;
  return bytes <= length && offset <= length - bytes;
}

std::byte* Pinned::take_slot() {
  std::lock_guard lock(mutex_);
  if (!have_slots_) {
    void* store = nullptr;
    if (driver_->cuMemHostAlloc(&store, kSlots * kSlotBytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) return nullptr;
    for (size_t i = 0; i < kSlots; ++i) slots_.push_back(static_cast<std::byte*>(store) + i * kSlotBytes);
    have_slots_ = true;
  }
  if (slots_.empty()) return nullptr;
  std::byte* const slot = slots_.back();  // the last one used is the one that caches still hold
  slots_.pop_back();
  return slot;
}

void Pinned::give_slot(std::byte* slot) {
  std::lock_guard lock(mutex_);
  slots_.push_back(slot);
}

}  // namespace bandsaw::cuda
