// The memory of a pool of host memory that other processes may have: all of it lies in one file in memory
// (host_file.h), whose descriptor is the pool's shareable handle. What is told of an allocation is where it lies there.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "memory/base/range_allocator.h"

namespace bandsaw::libcuda {

// Names the file to all processes, and pages in it.
struct FileRange {
  uint64_t device = 0, inode = 0;
  uint64_t offset = 0, bytes = 0;
};

// Thread-safe.
class PoolFile {
 public:
  // `max_bytes`: 0 for as much as there is. nullptr: no room.
  static std::unique_ptr<PoolFile> make(int node, uint64_t max_bytes);
  // Another process's, of which nothing can be allocated here. nullptr: it is no such file. It stays the caller's.
  static std::unique_ptr<PoolFile> import(int file, int* node);
  ~PoolFile();

  bool imported() const { return imported_; }
  // Whole pages, zeroed, which devices see.
  CUresult allocate(VirtualGpu& gpu, uint64_t bytes, uint64_t* base);
  // What another process has allocated. CUDA_ERROR_INVALID_VALUE: not of this file.
  CUresult map(VirtualGpu& gpu, const FileRange& range, uint64_t* base);
  // Of either; nobody's work uses it.
  CUresult release(uint64_t base);

  // Where an allocation lies.
  std::optional<FileRange> range_of(uint64_t base);
  // Another descriptor of the file, the caller's; -1: there are no more.
  int share() const;

 private:
  PoolFile(int file, int node, uint64_t bytes, bool imported);
  CUresult show(VirtualGpu& gpu, uint64_t offset, uint64_t bytes, uint64_t* base);

  const int file_, node_;
  const uint64_t bytes_;
  const bool imported_;
  FileRange whole_;
  RangeAllocator room_;
  std::mutex mutex_;
  std::map<uint64_t, FileRange> shown_;  // by address; guarded by mutex_
};

}  // namespace bandsaw::libcuda
