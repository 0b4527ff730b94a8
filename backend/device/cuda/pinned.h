// Host memory that the GPU reaches: regions of the guest process, registered with the driver where they are mapped, and
// a small store of the device's own for bytes that travel inside replies.
#pragma once

#include <deque>
#include <map>
#include <mutex>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe. The device's context must be current.
class Pinned {
 public:
  static constexpr uint64_t kSlotBytes = VGPU_INLINE_BYTES_MAX;
  static constexpr size_t kSlots = 256;

  explicit Pinned(DriverRef driver) : driver_(std::move(driver)) {}

  CUresult add(void* pointer, uint64_t bytes, bool read_only);
  void remove(void* pointer);
  // All of [pointer, pointer + bytes) is registered.
  bool holds(uint64_t pointer, uint64_t bytes) const;

  // A slot of kSlotBytes; nullptr: all are in use.
  std::byte* take_slot();
  void give_slot(std::byte* slot);

 private:
  const DriverRef driver_;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> ranges_;  // guarded by mutex_: start -> length
  std::deque<std::byte*> slots_;         // guarded by mutex_: the free ones
  bool have_slots_ = false;              // guarded by mutex_
};

}  // namespace bandsaw::cuda
