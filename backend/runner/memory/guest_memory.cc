#include "backend/runner/memory/guest_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kPage = 4096;
// Room for all that a guest process may have pinned at once.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BANDSAW_LITTLE_ADDRESS_SPACE
#endif
#endif
#ifdef BANDSAW_LITTLE_ADDRESS_SPACE
constexpr uint64_t kAliasBytes = 1ull << 36;
#else
constexpr uint64_t kAliasBytes = 1ull << 42;
#endif
// Linux allows a process 65,530 mappings; the rest is for the runner itself.
constexpr uint32_t kPiecesMax = 60000;

std::atomic<uint64_t> next_generation{1};

// What one thread last saw of visible_, so that kernels need no lock.
struct VisibleCache {
  uint64_t generation = 0;
  std::shared_ptr<const void> snapshot;
};
thread_local VisibleCache visible_cache;

// gntdev says EINVAL of grants that have ended and where Xen maps no more. The guest is told what it is told where it
// has no grants left, so that it copies in pieces.
Status not_mapped(bool granted, uint64_t bytes) {
  if (!granted || errno != EINVAL) return Status::system("mapping {:#x} bytes of guest memory", bytes);
  return Status::error(ENOSPC,
                       "{:#x} bytes are not mapped: the domain has ended their grants, or dom0 has mapped all that "
                       "gnttab_max_maptrack_frames of Xen's command line lets it",
                       bytes);
}

}  // namespace

Region::~Region() {
  if (host_ != nullptr) memory_->unmap(this);
  if (gone_) gone_();
}

GuestMemory::GuestMemory(const Reservation* window, Reservation alias)
    : window_(window),
      alias_(std::move(alias)),
      alias_ranges_(alias_.base(), alias_.bytes()),
      visible_(std::make_shared<Snapshot>()),
      visible_generation_(next_generation.fetch_add(1)) {}

GuestMemory::~GuestMemory() { by_id_.clear(); }  // regions use the rest when they go

Result<std::unique_ptr<GuestMemory>> GuestMemory::make(const Reservation* window) {
  auto alias = Reservation::make(kAliasBytes);
  if (!alias.ok()) return alias.status();
  return std::unique_ptr<GuestMemory>(new GuestMemory(window, std::move(alias.value())));
}

Status GuestMemory::add_ram(uint32_t id, UniqueFd fd, uint64_t bytes, uint64_t offset) {
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return Status::system("RAM {}", id);
  uint64_t end = 0;
  const uint64_t size = (static_cast<uint64_t>(info.st_size) + kPage - 1) / kPage * kPage;  // a last page is whole
  // A device's size is its own affair: what it does not have, it does not map.
  const bool fits = !__builtin_add_overflow(offset, bytes, &end) && (S_ISCHR(info.st_mode) || end <= size);
  if (!fits || offset % kPage != 0) {
    return Status::error(EINVAL, "RAM {}: {} bytes at {:#x} are not all in its descriptor of {} bytes", id, bytes,
                         offset, info.st_size);
  }
  std::unique_lock lock(mutex_);
  if (rams_.count(id) != 0) return Status::error(EEXIST, "RAM {} is there already", id);
  rams_.emplace(id, Ram{std::move(fd), bytes, offset, S_ISCHR(info.st_mode)});
  return {};
}

Status GuestMemory::drop_ram(uint32_t id) {
  std::unique_lock lock(mutex_);
  if (rams_.erase(id) == 0) return Status::error(ENOENT, "no RAM {}", id);
  return {};
}

// Called with mutex_ held (shared).
Status GuestMemory::check_segments(std::span<const RunnerSegment> segments, uint64_t va, uint64_t* bytes) const {
  if (segments.empty() || segments.size() > VGPU_SEGMENTS_MAX) {
    return Status::error(EINVAL, "{} segments; 1 to {} are possible", segments.size(), VGPU_SEGMENTS_MAX);
  }
  *bytes = 0;
  for (const RunnerSegment& segment : segments) {
    const auto ram = rams_.find(segment.ram);
    if (ram == rams_.end()) return Status::error(EFAULT, "a segment names RAM {}, which is not there", segment.ram);
    if (segment.bytes == 0 || segment.bytes % kPage != 0 || segment.offset % kPage != 0) {
      return Status::error(EINVAL, "segment {:#x}+{:#x} is not whole pages", segment.offset, segment.bytes);
    }
    if (segment.bytes > ram->second.bytes || segment.offset > ram->second.bytes - segment.bytes) {
      return Status::error(EFAULT, "segment {:#x}+{:#x} lies outside RAM {}", segment.offset, segment.bytes,
                           segment.ram);
    }
    if (__builtin_add_overflow(*bytes, segment.bytes, bytes)) return Status::error(EINVAL, "segments overflow");
  }
  uint64_t end = 0;
  if (va % kPage != 0 || *bytes > kAliasBytes || __builtin_add_overflow(va, *bytes, &end)) {
    return Status::error(EINVAL, "{:#x} bytes at {:#x} are no page range", *bytes, va);
  }
  return {};
}

// Whether the range may get the guest's pages though nobody keeps it free. Not where this process would put memory of
// its own, which the guest's would be in the way of or next to: null, its stack, and what mmap gives out (from a third
// of the address space on, see become_runner).
bool is_for_programs(uint64_t begin, uint64_t bytes) {
  constexpr uint64_t kAddresses = 1ull << 47, kLowest = 1ull << 16, kOwnBytes = 1ull << 40, kStackRoom = 1ull << 30;
  constexpr uint64_t kOwn = kAddresses / 3;
  const auto stack = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  const auto meets = [&](uint64_t first, uint64_t end) { return begin < end && begin + bytes > first; };
  return begin >= kLowest && begin + bytes <= kAddresses && !meets(kOwn & ~(kPage - 1), kOwn + kOwnBytes) &&
         !meets(stack - kStackRoom, stack + kStackRoom);
}

// At its own address, though nobody keeps that free in this process: the session starts runners of such devices with an
// address space in which programs' addresses are.
Status GuestMemory::place_outside(Region* region) {
  if (!is_for_programs(region->va_, region->bytes_)) {
    return Status::error(EINVAL, "{:#x}+{:#x} is where the runner has its own memory", region->va_, region->bytes_);
  }
  void* const wanted = reinterpret_cast<void*>(region->va_);
  void* const at =
      mmap(wanted, region->bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at != wanted) {
    if (at != MAP_FAILED) munmap(at, region->bytes_);
    return Status::error(EEXIST, "{:#x}+{:#x} is in use in the runner itself", region->va_, region->bytes_);
  }
  region->alias_ = false;
  region->outside_ = true;
  region->host_ = static_cast<std::byte*>(at);
  return {};
}

// Chooses where the region is mapped; no page of it is touched yet.
Status GuestMemory::place(Region* region) {
  const bool touches_window =
      region->va_ < window_->base() + window_->bytes() && region->va_ + region->bytes_ > window_->base();
  if (region->device_visible_ && !touches_window && pins_.load() && pins_.load()->same_addresses()) {
    return place_outside(region);
  }
  if (!region->device_visible_ || !touches_window) {
    const auto range = alias_ranges_.take(region->bytes_);
    if (!range) return Status::error(ENOMEM, "no address space for {:#x} bytes", region->bytes_);
    region->host_ = reinterpret_cast<std::byte*>(*range);
    return {};
  }
  if (region->va_ < window_->base() || region->va_ + region->bytes_ > window_->base() + VGPU_WINDOW_DEVICE_OFFSET) {
    return Status::error(EINVAL, "{:#x}+{:#x} leaves the guest's half of the window", region->va_, region->bytes_);
  }
  std::lock_guard lock(window_mutex_);
  const auto next = in_window_.upper_bound(region->va_ + region->bytes_ - 1);
  if (next != in_window_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second > region->va_) {
      return Status::error(EEXIST, "{:#x}+{:#x} overlaps a region of the window", region->va_, region->bytes_);
    }
  }
  in_window_[region->va_] = region->bytes_;
  region->alias_ = false;
  region->host_ = reinterpret_cast<std::byte*>(region->va_);
  return {};
}

// Called with mutex_ held (shared). On failure the caller drops the region, which cleans up.
Status GuestMemory::map_segments(Region* region, std::span<const RunnerSegment> segments) {
  const int protection = region->read_only_ ? PROT_READ : PROT_READ | PROT_WRITE;
  uint64_t at = reinterpret_cast<uint64_t>(region->host_);
  for (size_t i = 0; i < segments.size();) {
    const RunnerSegment& first = segments[i];
    uint64_t bytes = 0;
    for (; i < segments.size() && segments[i].ram == first.ram && segments[i].offset == first.offset + bytes; ++i) {
      bytes += segments[i].bytes;
    }
    if (pieces_.fetch_add(1, std::memory_order_relaxed) >= kPiecesMax) {
      pieces_.fetch_sub(1, std::memory_order_relaxed);
      return Status::error(ENOSPC, "more than {} scattered pieces of guest memory are mapped", kPiecesMax);
    }
    ++region->pieces_;
    const Ram& ram = rams_.at(first.ram);
    region->granted_ = region->granted_ || ram.granted;
    void* mapped = mmap(reinterpret_cast<void*>(at), bytes, protection, MAP_SHARED | MAP_FIXED, ram.fd.get(),
                        static_cast<off_t>(ram.offset + first.offset));
    if (mapped == MAP_FAILED) {
      const Status status = not_mapped(ram.granted, bytes);
      // Where the reservation was, Linux may have left a gap, in which other memory of this process lies by now.
      const uint64_t rest = reinterpret_cast<uint64_t>(region->host_) + region->bytes_ - at;
      if (!Reservation::fill_gap(at, bytes)) region->lost_ = rest;
      return status;
    }
    at += bytes;
  }
  return {};
}

Result<RegionRef> GuestMemory::map(uint64_t va, uint32_t flags, std::span<const RunnerSegment> segments) {
  RegionRef region(new Region);
  region->memory_ = this;
  region->va_ = va;
  region->read_only_ = (flags & VGPU_REGION_READ_ONLY) != 0;
  region->device_visible_ = (flags & VGPU_REGION_DEVICE_VISIBLE) != 0;
  std::shared_lock lock(mutex_);
  if (Status status = check_segments(segments, va, &region->bytes_); !status.ok()) return status;
  if (Status status = place(region.get()); !status.ok()) return status;
  if (Status status = map_segments(region.get(), segments); !status.ok()) return status;
  return region;
}

void GuestMemory::unmap(Region* region) {
  const uint64_t at = reinterpret_cast<uint64_t>(region->host_);
  if (region->watched_ && watch_) watch_(region->va_, region->bytes_, false);
  if (Device* const device = pins_.load(); device && region->pinned_) device->host_unpin(region->host_);
  const uint64_t ours = region->bytes_ - region->lost_;
  if (ours > 0 && region->outside_) {
    munmap(region->host_, ours);
  } else if (ours > 0) {
    (region->alias_ ? alias_ : *window_).seal(at, ours);
  }
  pieces_.fetch_sub(region->pieces_, std::memory_order_relaxed);
  if (region->lost_ > 0) return;  // nobody gets that range again
  if (region->alias_) {
    alias_ranges_.give_back(at, region->bytes_);
  } else if (!region->outside_) {
    std::lock_guard lock(window_mutex_);
    in_window_.erase(at);
  }
}

// Kernels reach a device-visible region, so the device must take it; others are copied from and to in any case.
Status GuestMemory::pin(Region* region) {
  Device* const device = pins_.load();
  if (!device) return {};
  if (region->granted_ && !device->registers_grants()) {
    if (!region->device_visible_) return {};  // copied through memory that is registered
    return Status::error(ENOMEM,
                         "a GPU in a PV dom0 does not reach a domain's pages; a PVH dom0 has mapped host memory");
  }
  const CUresult result = device->host_pin(region->host_, region->bytes_, region->read_only_);
  region->pinned_ = result == CUDA_SUCCESS;
  if (region->pinned_) return {};
  auto why = Status::error(ENOMEM, "{:#x} bytes at {:#x} cannot be registered with the device: error {}",
                           region->bytes_, region->va_, static_cast<int>(result));
  if (region->device_visible_) return why;
  log::warn("{}; they are copied in pieces", why.message());
  return {};
}

Status GuestMemory::add_region(uint32_t id, uint64_t va, uint32_t flags, std::span<const RunnerSegment> segments) {
  auto mapped = map(va, flags, segments);
  if (!mapped.ok()) return mapped.status();
  RegionRef region = std::move(mapped.value());
  if (Status status = pin(region.get()); !status.ok()) return status;
  region->watched_ = region->device_visible_ && !region->read_only_ && watch_;  // a write would fault
  if (region->watched_) watch_(va, region->bytes_, true);
  std::unique_lock lock(mutex_);
  if (!by_id_.emplace(id, region).second) return Status::error(EEXIST, "region {} is there already", id);
  by_va_.emplace(va, region.get());
  by_pointer_.emplace(reinterpret_cast<uint64_t>(region->host_), region.get());
  longest_ = std::max(longest_, region->bytes_);
  if (region->device_visible_ && region->alias_) publish_visible();
  return {};
}

Status GuestMemory::drop_region(uint32_t id, std::function<void()> gone) {
  RegionRef region;  // released after the lock: unmapping and `gone` need not hold it up
  std::unique_lock lock(mutex_);
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return Status::error(ENOENT, "no region {}", id);
  region = std::move(it->second);
  by_id_.erase(it);
  auto [first, last] = by_va_.equal_range(region->va_);
  by_va_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == region.get(); }));
  by_pointer_.erase(reinterpret_cast<uint64_t>(region->host_));
  region->gone_ = std::move(gone);
  if (region->device_visible_ && region->alias_) publish_visible();
  lock.unlock();
  return {};
}

GuestSpan GuestMemory::find(uint64_t va, uint64_t bytes, Access access, bool device_visible) const {
  std::shared_lock lock(mutex_);
  // Regions may overlap (two threads' pins share a page), so the nearest start below need not be the one.
  for (auto it = by_va_.upper_bound(va); it != by_va_.begin();) {
    Region* region = (--it)->second;
    if (va - region->va_ >= longest_) break;
    if (!region->holds(va, bytes) || (access == Access::kWrite && region->read_only_)) continue;
    if (device_visible && !region->device_visible_) continue;
    return {region->shared_from_this(), region->at(va)};
  }
  return {};
}

GuestSpan GuestMemory::find_pointer(uint64_t pointer, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  auto it = by_pointer_.upper_bound(pointer);
  if (it == by_pointer_.begin()) return {};
  Region* region = (--it)->second;
  const uint64_t offset = pointer - it->first;
  if (bytes > region->bytes_ || offset > region->bytes_ - bytes) return {};
  return {region->shared_from_this(), region->host_ + offset};
}

// Called with mutex_ held (unique).
void GuestMemory::publish_visible() {
  auto snapshot = std::make_shared<Snapshot>();
  for (const auto& [va, region] : by_va_) {
    if (region->device_visible_ && region->alias_) snapshot->regions.push_back({va, region->bytes_, region->host_});
  }
  visible_ = std::move(snapshot);
  visible_generation_.store(next_generation.fetch_add(1), std::memory_order_release);
}

void* GuestMemory::visible_host(uint64_t va, uint64_t bytes) const {
  VisibleCache& cache = visible_cache;
  if (cache.generation != visible_generation_.load(std::memory_order_acquire)) {
    std::shared_lock lock(mutex_);
    cache.generation = visible_generation_.load(std::memory_order_relaxed);
    cache.snapshot = visible_;
  }
  const auto& regions = static_cast<const Snapshot*>(cache.snapshot.get())->regions;
  auto it = std::upper_bound(regions.begin(), regions.end(), va,
                             [](uint64_t address, const Visible& region) { return address < region.va; });
  while (it != regions.begin()) {
    const Visible& region = *--it;
    if (bytes <= region.bytes && va - region.va <= region.bytes - bytes) return region.host + (va - region.va);
  }
  return nullptr;
}

}  // namespace bandsaw::runner
