#include "backend/device/cuda/marks.h"

#include <cstring>

namespace bandsaw::cuda {
namespace {

std::atomic<uint32_t>* word_at(std::byte* slot, size_t index) {
  // A kernel of the guest process can write there as well, and deceive itself.
  return reinterpret_cast<std::atomic<uint32_t>*>(slot) + index;
}

}  // namespace

Marks::Marks(DriverRef driver, Pinned* pinned)
    : driver_(std::move(driver)), pinned_(pinned), slot_(pinned->take_slot()) {
  static_assert(kWords * sizeof(std::atomic<uint32_t>) <= Pinned::kSlotBytes);
  if (slot_) std::memset(slot_, 0, kWords * sizeof(uint32_t));
}

Marks::~Marks() {
  if (slot_) pinned_->give_slot(slot_);
}

std::optional<Marks::Mark> Marks::put(CUstream stream) {
  if (!slot_) return std::nullopt;
  const std::atomic<uint32_t>* word = nullptr;
  uint32_t value = 0;
  {
    std::lock_guard lock(lock_);
    const size_t at = next_++ % kWords;
    word = word_at(slot_, at);
    if (word->load(std::memory_order_relaxed) != last_[at]) return std::nullopt;  // it may still be written
    value = ++last_[at];
  }
  const auto address = reinterpret_cast<CUdeviceptr>(word);
  if (driver_->cuStreamWriteValue32(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS) {
    return std::nullopt;  // the word is never used again
  }
  return Mark(word, value);
}

}  // namespace bandsaw::cuda
