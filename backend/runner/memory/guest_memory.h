// The guest process's pages as this process sees them: RAM descriptors, the regions mapped from them, and the way
// from a guest address to a pointer.
//
// A region in the window that kernels may use is mapped at its own address, so that one pointer is right on both
// sides; so is one outside of it, if the device's kernels need that. Every other region and every ring is mapped into
// an alias range of the runner's choosing. Only pages that the session announced are ever mapped.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

#include "backend/control/runner_link.h"
#include "backend/device/device.h"
#include "backend/runner/memory/address_range.h"
#include "memory/base/range_allocator.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

class GuestMemory;

// Pages mapped in one piece. Whoever holds a RegionRef may touch them; the last holder unmaps them. Must not outlive
// its GuestMemory.
class Region : public std::enable_shared_from_this<Region> {
 public:
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  uint64_t va() const { return va_; }
  uint64_t bytes() const { return bytes_; }
  bool read_only() const { return read_only_; }
  bool device_visible() const { return device_visible_; }
  std::byte* host() const { return host_; }
  bool holds(uint64_t address, uint64_t length) const {
    return address >= va_ && length <= bytes_ && address - va_ <= bytes_ - length;
  }
  std::byte* at(uint64_t address) const { return host_ + (address - va_); }

 private:
  friend class GuestMemory;
  Region() = default;

  GuestMemory* memory_ = nullptr;
  uint64_t va_ = 0, bytes_ = 0;
  bool read_only_ = false, device_visible_ = false, alias_ = true;
  bool outside_ = false;  // at its own address, which lies outside the window
  bool pinned_ = false;   // the device knows of it
  bool watched_ = false;  // the watch was told
  bool granted_ = false;  // some of it is a Xen domain's
  std::byte* host_ = nullptr;
  uint64_t lost_ = 0;           // bytes at its end where a mapping failed and something else may lie
  uint32_t pieces_ = 0;         // of address space, for the limit
  std::function<void()> gone_;  // called after the pages are unmapped
};

using RegionRef = std::shared_ptr<Region>;

// A checked piece of guest memory: the pointer is good while `region` is held.
struct GuestSpan {
  RegionRef region;
  std::byte* data = nullptr;
  explicit operator bool() const { return region != nullptr; }
};

enum class Access { kRead, kWrite };

// Thread-safe.
class GuestMemory {
 public:
  // `window` must outlive this.
  static Result<std::unique_ptr<GuestMemory>> make(const Reservation* window);
  ~GuestMemory();

  // Who is told of regions from now on; it must outlive them, or be taken back (with null) before it goes.
  void set_pins(Device* device) { pins_.store(device); }
  // Told of addresses that kernels may reach, once they are mapped and before they are unmapped. Set while there are no
  // regions; called by any thread.
  using Watch = std::function<void(uint64_t va, uint64_t bytes, bool there)>;
  void set_watch(Watch watch) { watch_ = std::move(watch); }

  Status add_ram(uint32_t id, UniqueFd fd, uint64_t bytes, uint64_t offset);
  Status drop_ram(uint32_t id);

  // Maps segments in the alias range without entering them into the table: rings.
  Result<RegionRef> map(uint64_t va, uint32_t flags, std::span<const RunnerSegment> segments);
  Status add_region(uint32_t id, uint64_t va, uint32_t flags, std::span<const RunnerSegment> segments);
  // No look-up finds it any more; `gone` is called, from any thread, once nothing uses it and it is unmapped.
  Status drop_region(uint32_t id, std::function<void()> gone);

  // The region that holds all of [va, va + bytes); none: not there, only partly there, or read-only for a write.
  GuestSpan find(uint64_t va, uint64_t bytes, Access access, bool device_visible = false) const;
  // The same for a pointer that find gave out earlier; an end of a graph's copy is remembered as one.
  GuestSpan find_pointer(uint64_t pointer, uint64_t bytes) const;
  // A device-visible region outside the window. For kernels: reads no shared cache line that changes, unless the
  // regions have changed since this thread's last call.
  void* visible_host(uint64_t va, uint64_t bytes) const;

  const Reservation& window() const { return *window_; }

 private:
  struct Ram {
    UniqueFd fd;
    uint64_t bytes = 0, offset = 0;
    bool granted = false;  // pages of a Xen domain's: the descriptor is gntdev's
  };
  struct Visible {
    uint64_t va, bytes;
    std::byte* host;
  };
  struct Snapshot {
    std::vector<Visible> regions;
  };
  friend class Region;

  GuestMemory(const Reservation* window, Reservation alias);
  Status check_segments(std::span<const RunnerSegment> segments, uint64_t va, uint64_t* bytes) const;
  Status map_segments(Region* region, std::span<const RunnerSegment> segments);
  Status place(Region* region);
  Status place_outside(Region* region);
  Status pin(Region* region);
  void unmap(Region* region);
  void publish_visible();

  const Reservation* const window_;
  const Reservation alias_;
  RangeAllocator alias_ranges_;
  std::atomic<uint32_t> pieces_{0};
  std::atomic<Device*> pins_{nullptr};
  Watch watch_;

  mutable std::shared_mutex mutex_;
  std::map<uint32_t, Ram> rams_;            // guarded by mutex_
  std::map<uint32_t, RegionRef> by_id_;     // guarded by mutex_
  std::multimap<uint64_t, Region*> by_va_;  // guarded by mutex_
  std::map<uint64_t, Region*> by_pointer_;  // guarded by mutex_
  uint64_t longest_ = 0;                    // guarded by mutex_: of any region so far
  std::map<uint64_t, uint64_t> in_window_;  // guarded by window_mutex_: mapped at own address
  std::mutex window_mutex_;
  std::shared_ptr<const Snapshot> visible_;   // guarded by mutex_
  std::atomic<uint64_t> visible_generation_;  // of visible_; unique in the process
};

}  // namespace bandsaw::runner
