// All memory of a process off the device, and back. On this device that is other pages of the same kind: what matters
// is that nothing lies behind the addresses meanwhile.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "backend/device/soft/memory_table.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

constexpr int kNewPages = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Pages move without a copy where the system can leave an empty mapping behind: a hole would be anybody's. Null: no
// room.
void* take_pages(void* at, uint64_t bytes) {
  const auto make = [bytes] { return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kNewPages, -1, 0); };
  void* place = make();
  if (place == MAP_FAILED) return nullptr;
  constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  if (::mremap(at, bytes, bytes, kFlags, place) != MAP_FAILED) return place;
  place = make();  // it may have been unmapped
  if (place == MAP_FAILED) return nullptr;
  std::memcpy(place, at, bytes);
  return place;
}

}  // namespace

// Nothing of it moves: it is where programs have mapped it, and nowhere else.
bool Memory::view(uint64_t key, const Physical& physical) {
  void* const pages = ::mmap(nullptr, physical.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, physical.file, 0);
  if (pages == MAP_FAILED) return false;
  away_.push_back({key, physical.bytes, pages, nullptr, true});
  return true;
}

bool Memory::put_back(const Away& away) {
  if (away.physical) return ::munmap(away.pages, away.bytes) == 0;
  void* const at = reinterpret_cast<void*>(away.address);
  if (away.file) {
    return ::mmap(at, away.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, away.file->get(), 0) != MAP_FAILED;
  }
  return ::mremap(away.pages, away.bytes, away.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
}

bool Memory::take_away(const Allocation& allocation) {
  void* const at = reinterpret_cast<void*>(allocation.address);
  Away away{allocation.address, allocation.mapped, nullptr, allocation.file, false};
  if (!away.file && !(away.pages = take_pages(at, away.bytes))) return false;
  if (::mmap(at, away.bytes, PROT_NONE, kNewPages | MAP_FIXED, -1, 0) != MAP_FAILED) {
    away_.push_back(std::move(away));
    return true;
  }
  if (!put_back(away)) log::error("device memory at {:#x} is lost: {}", away.address, std::strerror(errno));
  return false;
}

CUresult Memory::leave() {
  std::lock_guard lock(mutex_);
  if (!away_.empty()) return CUDA_SUCCESS;
  drop_spare_pages();
  while (!apart_.empty()) {
    if (!reach_locked(apart_.begin()->first)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const auto& [address, allocation] : table_) {
    if (allocation.mapped == 0 || take_away(allocation)) continue;
    log::error("{} bytes of device memory cannot leave it: {}", allocation.mapped, std::strerror(errno));
    bring_back();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const auto& [key, physical] : physical_) {
    if (view(key, physical)) continue;
    log::error("{} bytes of memory cannot be reached: {}", physical.bytes, std::strerror(errno));
    bring_back();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

std::vector<AwayMemory> Memory::away() const {
  std::lock_guard lock(mutex_);
  std::vector<AwayMemory> all;
  for (const Away& one : away_) {
    if (one.pages) all.push_back({one.address, {static_cast<std::byte*>(one.pages), one.bytes}});
  }
  return all;
}

CUresult Memory::come_back() {
  std::lock_guard lock(mutex_);
  return bring_back();
}

CUresult Memory::bring_back() {
  for (; !away_.empty(); away_.pop_back()) {
    const Away& one = away_.back();
    if (put_back(one)) continue;
    log::error("device memory at {:#x} cannot return: {}", one.address, std::strerror(errno));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
