#include "hypervisor/virtio/guest_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace bandsaw::virtio {

namespace {

bool whole_pages(uint64_t value) { return value % kGuestPage == 0; }

// A file that ends before the range would turn a read into SIGBUS.
Status check_file(int fd, uint64_t offset, uint64_t bytes) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return Status::system("guest RAM descriptor");
  uint64_t end = 0;
  if (!whole_pages(offset) || __builtin_add_overflow(offset, bytes, &end) || !S_ISREG(info.st_mode) ||
      end > static_cast<uint64_t>(info.st_size))
    return Status::error(EINVAL, "guest RAM at offset {:#x}, {:#x} bytes, is not inside its file of {:#x} bytes",
                         offset, bytes, static_cast<uint64_t>(info.st_size));
  return {};
}

}  // namespace

Result<GuestMemory::Range> GuestMemory::add(uint64_t gpa, uint64_t bytes, int fd, uint64_t offset, bool writable) {
  uint64_t last = 0;
  if (bytes == 0 || !whole_pages(gpa) || !whole_pages(bytes) || __builtin_add_overflow(gpa, bytes - 1, &last))
    return Status::error(EINVAL, "guest range {:#x} + {:#x} is not a range of whole pages", gpa, bytes);
  if (ranges_.size() >= kRamRegionsMax) return Status::error(ENOSPC, "more than {} guest ranges", kRamRegionsMax);
  const auto next = std::upper_bound(ranges_.begin(), ranges_.end(), gpa,
                                     [](uint64_t address, const Range& range) { return address < range.gpa; });
  const bool hits_next = next != ranges_.end() && next->gpa <= last;
  const bool hits_previous = next != ranges_.begin() && gpa - std::prev(next)->gpa < std::prev(next)->bytes;
  if (hits_next || hits_previous)
    return Status::error(EEXIST, "guest range {:#x} + {:#x} overlaps another one", gpa, bytes);

  Range range{.id = next_id_, .gpa = gpa, .bytes = bytes, .host = nullptr, .writable = writable};
  if (fd >= 0) {
    if (Status status = check_file(fd, offset, bytes); !status.ok()) return status;
    void* host = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_NORESERVE, fd,
                      static_cast<off_t>(offset));
    if (host == MAP_FAILED) return Status::system("mapping guest range {:#x} + {:#x}", gpa, bytes);
    range.host = static_cast<uint8_t*>(host);
  }
  ++next_id_;
  ranges_.insert(next, range);
  return range;
}

const GuestMemory::Range* GuestMemory::find(uint64_t gpa, uint64_t bytes) const {
  const Range* range = range_at(gpa);
  return range && range->gpa == gpa && range->bytes == bytes ? range : nullptr;
}

Status GuestMemory::remove(uint64_t gpa, uint64_t bytes) {
  const Range* range = find(gpa, bytes);
  if (!range) return Status::error(ENOENT, "no guest range {:#x} + {:#x}", gpa, bytes);
  if (range->host) munmap(range->host, range->bytes);
  ranges_.erase(ranges_.begin() + (range - ranges_.data()));
  return {};
}

void GuestMemory::clear() {
  for (const Range& range : ranges_)
    if (range.host) munmap(range.host, range.bytes);
  ranges_.clear();
}

const GuestMemory::Range* GuestMemory::range_at(uint64_t gpa) const {
  const auto next = std::upper_bound(ranges_.begin(), ranges_.end(), gpa,
                                     [](uint64_t address, const Range& range) { return address < range.gpa; });
  if (next == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(next);
  return gpa - range.gpa < range.bytes ? &range : nullptr;
}

template <typename Body>
bool GuestMemory::each_piece(uint64_t gpa, uint64_t bytes, bool writable, Body&& body) const {
  uint64_t last = 0;
  if (bytes && __builtin_add_overflow(gpa, bytes - 1, &last)) return false;
  while (bytes > 0) {
    const Range* range = range_at(gpa);
    if (!range || !range->host || (writable && !range->writable)) return false;
    const uint64_t inside = gpa - range->gpa;
    const uint64_t count = std::min(bytes, range->bytes - inside);
    body(range->host + inside, count);
    gpa += count;
    bytes -= count;
  }
  return true;
}

bool GuestMemory::contains(uint64_t gpa, uint64_t bytes, bool writable) const {
  return each_piece(gpa, bytes, writable, [](uint8_t*, uint64_t) {});
}

bool GuestMemory::read(uint64_t gpa, std::span<uint8_t> to) const {
  uint8_t* out = to.data();
  return each_piece(gpa, to.size(), false, [&out](const uint8_t* host, uint64_t count) {
    std::memcpy(out, host, count);
    out += count;
  });
}

bool GuestMemory::write(uint64_t gpa, std::span<const uint8_t> from) {
  const uint8_t* in = from.data();
  return each_piece(gpa, from.size(), true, [&in](uint8_t* host, uint64_t count) {
    std::memcpy(host, in, count);
    in += count;
  });
}

// An even address never crosses a page, hence never a range.
bool GuestMemory::load16(uint64_t gpa, uint16_t& value) const {
  if (gpa % 2 != 0) return false;
  return each_piece(gpa, 2, false, [&value](uint8_t* host, uint64_t) {
    value = std::atomic_ref(*reinterpret_cast<uint16_t*>(host)).load(std::memory_order_acquire);
  });
}

bool GuestMemory::store16(uint64_t gpa, uint16_t value) {
  if (gpa % 2 != 0) return false;
  return each_piece(gpa, 2, true, [value](uint8_t* host, uint64_t) {
    std::atomic_ref(*reinterpret_cast<uint16_t*>(host)).store(value, std::memory_order_release);
  });
}

}  // namespace bandsaw::virtio
