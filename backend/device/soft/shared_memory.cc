#include "backend/device/soft/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

UniqueFd make_sealed_file(const char* name, uint64_t bytes) {
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file && bytes <= INT64_MAX && ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) == 0) {
    return file;
  }
  log::error("no shared memory of {} bytes: {}", bytes, std::strerror(errno));
  return {};
}

bool is_sealed_file(int fd, uint64_t bytes) {
  struct stat facts{};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals && ::fstat(fd, &facts) == 0 &&
         static_cast<uint64_t>(facts.st_size) == bytes;
}

CUresult PhysicalMemory::create(const std::shared_ptr<soft::Memory>& table, uint64_t bytes, MemoryRef* memory) {
  return create(table, table->next_physical(), bytes, memory);
}

CUresult PhysicalMemory::again(const std::shared_ptr<soft::Memory>& table, uint64_t key, uint64_t bytes,
                               MemoryRef* memory) {
  if (!table->claim_physical(key)) return CUDA_ERROR_INVALID_VALUE;
  return create(table, key, bytes, memory);
}

CUresult PhysicalMemory::create(const std::shared_ptr<soft::Memory>& table, uint64_t key, uint64_t bytes,
                                MemoryRef* memory) {
  if (bytes == 0 || bytes % kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!table->count(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  UniqueFd file = make_sealed_file("bandsaw-memory", bytes);
  if (!file) {
    table->uncount(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* const made = new PhysicalMemory(std::move(file), bytes, key, table, true);
  memory->reset(made);
  table->enter_physical(key, made->file.get(), bytes);
  return CUDA_SUCCESS;
}

// Another process's plain allocation has whole pages, not whole granules.
CUresult PhysicalMemory::import(const std::shared_ptr<soft::Memory>& table, int fd, uint64_t bytes, MemoryRef* memory) {
  if (bytes == 0 || bytes % kPage != 0 || !is_sealed_file(fd, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!table->count(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) {
    table->uncount(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory->reset(new PhysicalMemory(std::move(own), bytes, 0, table, true));
  return CUDA_SUCCESS;
}

CUresult PhysicalMemory::borrow(const std::shared_ptr<soft::Memory>& table, int fd, uint64_t bytes, MemoryRef* memory) {
  if (bytes == 0 || bytes % kPage != 0 || !is_sealed_file(fd, bytes)) return CUDA_ERROR_INVALID_VALUE;
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->reset(new PhysicalMemory(std::move(own), bytes, 0, table, false));
  return CUDA_SUCCESS;
}

std::optional<uint64_t> SoftReservations::take_range(uint64_t bytes, uint64_t alignment, uint64_t* whole) {
  if (bytes > UINT64_MAX - kGranule) return std::nullopt;
  *whole = (bytes + kGranule - 1) / kGranule * kGranule;
  const uint64_t address = table_->reserve_addresses(*whole, std::max(alignment, kGranule));
  return address ? std::optional(address) : std::nullopt;
}

std::optional<uint64_t> SoftReservations::take_range_again(uint64_t address, uint64_t bytes) {
  if (bytes > UINT64_MAX - kGranule || address % kGranule != 0) return std::nullopt;
  const uint64_t whole = (bytes + kGranule - 1) / kGranule * kGranule;
  return table_->reserve_addresses_at(address, whole) ? std::optional(whole) : std::nullopt;
}

// Nobody may touch it before set_access says so.
CUresult SoftReservations::map_memory(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) {
  const auto& from = static_cast<const PhysicalMemory&>(*memory);
  // Another virtual GPU's plain allocation lies where that one has put it.
  const bool whole = offset == 0 && bytes == from.bytes;
  const uint64_t unit = whole && table_->is_elsewhere(address, bytes) ? kPage : kGranule;
  if ((address | offset) % unit != 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes % kGranule != 0 && !whole) return CUDA_ERROR_INVALID_VALUE;
  void* const at = reinterpret_cast<void*>(address);
  if (::mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, from.file.get(), static_cast<off_t>(offset)) == MAP_FAILED) {
    log::error("mapping {} bytes of memory: {}", bytes, std::strerror(errno));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult SoftReservations::unmap_memory(uint64_t address, uint64_t bytes) {
  if (table_->seal(address, bytes)) return CUDA_SUCCESS;
  log::error("unmapping {} bytes of memory: {}", bytes, std::strerror(errno));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SoftReservations::protect(uint64_t address, uint64_t bytes, uint32_t access) {
  const int bits = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                   : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                : PROT_NONE;
  return ::mprotect(reinterpret_cast<void*>(address), bytes, bits) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace bandsaw::soft

namespace bandsaw {

// Who only has the second cannot map it for writing, nor open it anew as another user: the file is this user's alone.
Result<SegmentDescriptors> make_soft_segment(uint64_t bytes) {
  SegmentDescriptors made{soft::make_sealed_file("bandsaw-segment", bytes), {}};
  if (!made.write) return Status::error(ENOMEM, "the host has no memory of {} bytes", bytes);
  if (::fchmod(made.write.get(), S_IRUSR | S_IWUSR) < 0) return Status::system("cannot set a file's permissions");
  made.read.reset(::open(fmt::format("/proc/self/fd/{}", made.write.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!made.read) return Status::system("cannot open a file in memory again");
  return made;
}

}  // namespace bandsaw
