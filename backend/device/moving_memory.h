// Memory of a device that lies in the host's for a while, at the same addresses: chunks, or all of a process's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/device/away_memory.h"
#include "memory/swap/book.h"

namespace bandsaw {

// Part of a Device: its rules hold here.
class MovingMemory {
 public:
  virtual ~MovingMemory() = default;

  // No work is on the device, and none comes. The first error ends it (OUT_OF_MEMORY: no room); the rest stays.
  virtual CUresult chunks_move(const swap::Moves&) { return CUDA_ERROR_NOT_SUPPORTED; }
  // Those of these that have left with Moves::apart can be reached at their addresses from now on, in host memory. Also
  // beside work on the device. The first error ends it.
  virtual CUresult chunks_reach(const std::vector<uint64_t>&) { return CUDA_ERROR_NOT_SUPPORTED; }
  // So many bytes of chunks of so many bytes each may have to leave the device at once: where host memory for them
  // takes long to make, it is made meanwhile, as much as the book lets it keep. Returns at once.
  virtual void chunks_prepare(uint64_t /*chunk_bytes*/, uint64_t /*bytes*/) {}
  // All of this process's memory leaves the device for host memory, and returns to the same addresses. No work is on
  // the device, and no other method is called in between. OUT_OF_MEMORY: no room there; it is where it was.
  virtual CUresult memory_leave() { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult memory_return() { return CUDA_ERROR_NOT_SUPPORTED; }
  // Where it lies meanwhile, in this process: valid until it returns. Whoever asks may read it, let its pages go
  // (MADV_DONTNEED), and write it again before it returns. Nothing: it cannot be reached there.
  virtual std::optional<std::vector<AwayMemory>> memory_away() { return std::nullopt; }
};

}  // namespace bandsaw
