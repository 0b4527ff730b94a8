#include "backend/device/cuda/pinned.h"

#include <sys/mman.h>

#include <fstream>
#include <string>

#include "memory/base/log.h"

namespace bandsaw::cuda {

bool is_pv_domain(const char* file) {
  std::string type;
  return std::getline(std::ifstream(file), type) && type == "PV";
}

Pinned::~Pinned() {
  suspend();
  if (store_) munmap(store_, kSlots * kSlotBytes);
}

// Called with mutex_ held.
CUresult Pinned::register_range(uint64_t start, Range range) {
  const CUresult result = driver_->cuMemHostRegister(reinterpret_cast<void*>(start), range.bytes, range.flags);
  if (result == CUDA_SUCCESS) ranges_[start] = range;
  return result;
}

CUresult Pinned::add(void* pointer, uint64_t bytes, bool read_only) {
  unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (read_only) flags |= CU_MEMHOSTREGISTER_READ_ONLY;
  std::lock_guard lock(mutex_);
  return register_range(reinterpret_cast<uint64_t>(pointer), {bytes, flags});
}

void Pinned::remove(void* pointer) {
  std::lock_guard lock(mutex_);
  if (ranges_.erase(reinterpret_cast<uint64_t>(pointer)) == 0) return;
  if (const CUresult result = driver_->cuMemHostUnregister(pointer)) {
    log::debug("unregistering {}: {}", pointer, driver_->describe(result));
  }
}

void Pinned::suspend() {
  std::lock_guard lock(mutex_);
  for (const auto& [start, range] : ranges_) driver_->cuMemHostUnregister(reinterpret_cast<void*>(start));
}

CUresult Pinned::resume() {
  std::lock_guard lock(mutex_);
  const auto ranges = std::exchange(ranges_, {});
  CUresult first = CUDA_SUCCESS;
  for (const auto& [start, range] : ranges) {
    const CUresult result = register_range(start, range);
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

bool Pinned::holds(uint64_t pointer, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(pointer);
  if (next == ranges_.begin()) return false;
  const auto& [start, range] = *std::prev(next);
  const uint64_t offset = pointer - start;
  return bytes <= range.bytes && offset <= range.bytes - bytes;
}

// Called with mutex_ held. Memory of our own, so that it outlives any context.
bool Pinned::make_slots() {
  constexpr uint64_t kBytes = kSlots * kSlotBytes;
  void* const store = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (store == MAP_FAILED) return false;
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (register_range(reinterpret_cast<uint64_t>(store), {kBytes, kFlags}) != CUDA_SUCCESS) {
    munmap(store, kBytes);
    return false;
  }
  store_ = store;
  for (size_t i = kSlots; i-- > 0;) slots_.push_back(static_cast<std::byte*>(store) + i * kSlotBytes);
  return true;
}

std::byte* Pinned::take_slot() {
  std::lock_guard lock(mutex_);
  if (!store_ && !make_slots()) return nullptr;
  if (slots_.empty()) return nullptr;
  std::byte* const slot = slots_.back();
  slots_.pop_back();
  return slot;
}

void Pinned::give_slot(std::byte* slot) {
  std::lock_guard lock(mutex_);
  slots_.push_back(slot);
}

}  // namespace bandsaw::cuda
