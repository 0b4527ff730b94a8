#include "guest-driver/libcuda/api/pool_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "guest-driver/libcuda/api/host_file.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::libcuda {
namespace {

void* place_of(uint64_t address) { return reinterpret_cast<void*>(address); }

void give_back_address(uint64_t address, uint64_t bytes) {
  Window::close(address, bytes);
  guest_window().give_back(address - guest_window().base(), bytes);
}

}  // namespace

std::unique_ptr<PoolFile> PoolFile::make(int node, uint64_t max_bytes) {
  const uint64_t most = VGPU_WINDOW_DEVICE_OFFSET;  // the addresses that there are; pages come when they are used
  const uint64_t wanted = max_bytes && max_bytes < most ? max_bytes : most;
  const uint64_t bytes = (wanted + kHostGranularity - 1) / kHostGranularity * kHostGranularity;
  const int file = make_host_file(bytes, node);
  return file < 0 ? nullptr : std::unique_ptr<PoolFile>(new PoolFile(file, node, bytes, false));
}

std::unique_ptr<PoolFile> PoolFile::import(int file, int* node) {
  uint64_t bytes = 0;
  if (!is_host_file(file, &bytes, node)) return nullptr;
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  return own < 0 ? nullptr : std::unique_ptr<PoolFile>(new PoolFile(own, *node, bytes, true));
}

PoolFile::PoolFile(int file, int node, uint64_t bytes, bool imported)
    : file_(file), node_(node), bytes_(bytes), imported_(imported), room_(0, bytes) {
  struct stat info{};
  fstat(file, &info);  // cannot fail of a file in memory
  whole_ = {info.st_dev, info.st_ino, 0, bytes};
}

PoolFile::~PoolFile() { close(file_); }

CUresult PoolFile::show(VirtualGpu& gpu, uint64_t offset, uint64_t bytes, uint64_t* base) {
  const uint64_t at = guest_window().take(bytes, kPage);
  if (at == Window::kNone) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t address = guest_window().base() + at;
  void* const mapped =
      mmap(place_of(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(offset));
  CUresult result = mapped == MAP_FAILED ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    prefer_node(address, bytes, node_);
    result = host_blocks().share_file(gpu, {file_, offset, bytes}, mapped, VGPU_REGION_DEVICE_VISIBLE);
  }
  if (result != CUDA_SUCCESS) {
    give_back_address(address, bytes);
    return result;
  }
  *base = address;
  std::lock_guard lock(mutex_);
  shown_[address] = {whole_.device, whole_.inode, offset, bytes};
  return CUDA_SUCCESS;
}

CUresult PoolFile::allocate(VirtualGpu& gpu, uint64_t bytes, uint64_t* base) {
  const auto offset = room_.take(bytes, kPage);
  if (!offset) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = show(gpu, *offset, bytes, base);
  if (result != CUDA_SUCCESS) room_.give_back(*offset, bytes);
  return result;
}

// Another process's word: it is checked.
CUresult PoolFile::map(VirtualGpu& gpu, const FileRange& range, uint64_t* base) {
  const bool here = range.device == whole_.device && range.inode == whole_.inode;
  if (!here || !range.bytes || (range.offset | range.bytes) % kPage || range.bytes > bytes_ ||
      range.offset > bytes_ - range.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return show(gpu, range.offset, range.bytes, base);
}

CUresult PoolFile::release(uint64_t base) {
  FileRange range;
  {
    std::lock_guard lock(mutex_);
    const auto found = shown_.find(base);
    if (found == shown_.end()) return CUDA_ERROR_INVALID_VALUE;
    range = found->second;
    shown_.erase(found);
  }
  const CUresult result = host_blocks().unpin(place_of(base));
  give_back_address(base, range.bytes);
  if (imported_) return result;
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.offset),
            static_cast<off_t>(range.bytes));
  room_.give_back(range.offset, range.bytes);
  return result;
}

std::optional<FileRange> PoolFile::range_of(uint64_t base) {
  std::lock_guard lock(mutex_);
  const auto found = shown_.find(base);
  return found == shown_.end() ? std::nullopt : std::optional(found->second);
}

int PoolFile::share() const { return fcntl(file_, F_DUPFD_CLOEXEC, 0); }

}  // namespace bandsaw::libcuda
