#include "backend/device/soft/heap.h"

#include <algorithm>

#include "backend/device/given.h"

namespace bandsaw::soft {
namespace {

// In front of each allocation. nvcc writes the number of elements there for `new T[n]` where T has an operator new of
// its own, and allocates nothing for it.
constexpr uint64_t kHeader = 16;

}  // namespace

uint64_t Heap::allocate(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > limit_) return 0;
  if (!space_) {
    if (memory_->allocate(limit_, Use::kHeap, owner_, &base_)) return 0;
    space_.emplace(base_, limit_);
  }
  bytes = kHeader + ((bytes + 15) & ~uint64_t{15});
  const uint64_t header = space_->take(bytes, 16);
  if (!header) return 0;
  live_.emplace(header, bytes);
  return header + kHeader;
}

HeapAgain Heap::state() {
  std::lock_guard lock(mutex_);
  if (!space_) return {};
  HeapAgain state{base_, limit_, {}};
  for (const auto& [address, bytes] : live_) {
    state.live.push_back(address);
    state.live.push_back(bytes);
  }
  return state;
}

CUresult Heap::make_again(const HeapAgain& state) {
  std::lock_guard lock(mutex_);
  if (space_ || state.bytes != limit_ || state.live.size() % 2 != 0) return CUDA_ERROR_INVALID_VALUE;
  Given given({state.base}, nullptr);
  const Given::Scope scope(&given);
  if (const CUresult refused = memory_->allocate(limit_, Use::kHeap, owner_, &base_)) return refused;
  space_.emplace(base_, limit_);
  for (size_t i = 0; i < state.live.size(); i += 2) {
    const uint64_t address = state.live[i], bytes = state.live[i + 1];
    const bool good = bytes != 0 && bytes <= limit_ && (address | bytes) % 16 == 0 && space_->take_at(address, bytes);
    if (!good) return CUDA_ERROR_INVALID_VALUE;
    live_.emplace(address, bytes);
  }
  return CUDA_SUCCESS;
}

bool Heap::release(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = live_.find(address - kHeader);
  if (found == live_.end()) return false;
  space_->give_back(found->first, found->second);
  live_.erase(found);
  return true;
}

bool Heap::set_limit(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (space_) return false;
  limit_ = std::max<uint64_t>(bytes, 4096);
  return true;
}

}  // namespace bandsaw::soft
