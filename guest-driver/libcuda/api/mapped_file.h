// The file behind a shared mapping of the program, for transports that cannot pin its pages.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/core/host_blocks.h"

namespace bandsaw::libcuda {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // The file that the whole pages around [address, address + bytes) show, opened for reading and, if `write`, writing.
  // CUDA_ERROR_NOT_FOUND: they are private pages. CUDA_ERROR_INVALID_VALUE: a hole, several files, a file that cannot
  // be opened, or no right to write.
  CUresult find(uint64_t address, uint64_t bytes, bool write);
  // After find() has succeeded; valid while this lives.
  const FilePages& pages() const { return pages_; }

 private:
  FilePages pages_;
};

}  // namespace bandsaw::libcuda
