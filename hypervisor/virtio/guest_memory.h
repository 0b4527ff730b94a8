// Guest RAM as the hypervisor shares it: guest-physical ranges over mapped descriptors. Ranges come and go at run
// time; every access names a guest-physical address and is checked against what is mapped at that moment.
//
// The guest (and the hypervisor) may change any byte at any time: read once into private memory, then check the copy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::virtio {

inline constexpr uint64_t kGuestPage = 4096;
inline constexpr size_t kRamRegionsMax = 4096;

class GuestMemory {
 public:
  struct Range {
    uint32_t id = 0;
    uint64_t gpa = 0;
    uint64_t bytes = 0;
    uint8_t* host = nullptr;  // null: known, but not shared (a ROM window without a descriptor)
    bool writable = false;
  };

  GuestMemory() = default;
  ~GuestMemory() { clear(); }
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;

  // Maps [offset, offset + bytes) of `fd` at `gpa`; without a descriptor the range is only remembered. The descriptor
  // may be closed afterwards. Errors: EINVAL (not whole pages, past the end of the file), EEXIST (overlap), ENOSPC.
  Result<Range> add(uint64_t gpa, uint64_t bytes, int fd, uint64_t offset, bool writable);
  // Unmaps the range that is exactly [gpa, gpa + bytes). Error: ENOENT.
  Status remove(uint64_t gpa, uint64_t bytes);
  // The range that is exactly [gpa, gpa + bytes), or null. Valid until the next add or remove.
  const Range* find(uint64_t gpa, uint64_t bytes) const;
  void clear();
  const std::vector<Range>& ranges() const { return ranges_; }

  // Is every byte of [gpa, gpa + bytes) mapped (and writable)? Ranges may adjoin.
  bool contains(uint64_t gpa, uint64_t bytes, bool writable) const;
  // Copy out of or into guest RAM, across adjoining ranges. False, with nothing promised about the bytes, when any
  // of them is outside.
  bool read(uint64_t gpa, std::span<uint8_t> to) const;
  bool write(uint64_t gpa, std::span<const uint8_t> from);
  // A little-endian 16-bit word at an even address, as one access (ring indices).
  bool load16(uint64_t gpa, uint16_t& value) const;
  bool store16(uint64_t gpa, uint16_t value);

 private:
  const Range* range_at(uint64_t gpa) const;
  // Calls body(host, count) for each piece; false as soon as one is missing.
  template <typename Body>
  bool each_piece(uint64_t gpa, uint64_t bytes, bool writable, Body&& body) const;

  std::vector<Range> ranges_;  // by gpa, without overlap
  uint32_t next_id_ = 1;
};

}  // namespace bandsaw::virtio
