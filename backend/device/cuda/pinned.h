// Host memory that the GPU reaches: regions of the guest process, registered with the driver where they are mapped, and
// a small store of the device's own for bytes that travel inside replies.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Whether this kernel is a paravirtualised domain of Xen's, by what the file says. Its page numbers are not the
// machine's: NVIDIA's driver registers pages whose numbers follow one another as one piece, Linux gives it a copy of
// the piece where the machine's numbers do not, and the GPU would read and write that copy.
bool is_pv_domain(const char* file = "/sys/hypervisor/guest_type");

// Thread-safe. The device's context must be current.
class Pinned {
 public:
  static constexpr uint64_t kSlotBytes = VGPU_INLINE_BYTES_MAX;
  static constexpr size_t kSlots = 256;

  explicit Pinned(DriverRef driver) : driver_(std::move(driver)) {}
  ~Pinned();

  CUresult add(void* pointer, uint64_t bytes, bool read_only);
  void remove(void* pointer);
  // Around a reset of the context that holds the registrations.
  void suspend();
  CUresult resume();
  // All of [pointer, pointer + bytes) is registered.
  bool holds(uint64_t pointer, uint64_t bytes) const;

  // A slot of kSlotBytes; nullptr: all are in use.
  std::byte* take_slot();
  void give_slot(std::byte* slot);

 private:
  struct Range {
    uint64_t bytes;
    unsigned flags;
  };
  CUresult register_range(uint64_t start, Range range);
  bool make_slots();

  const DriverRef driver_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Range> ranges_;  // guarded by mutex_: by start
  std::vector<std::byte*> slots_;     // guarded by mutex_: the free ones, the one used last at the end
  void* store_ = nullptr;             // guarded by mutex_: all slots
};

}  // namespace bandsaw::cuda
