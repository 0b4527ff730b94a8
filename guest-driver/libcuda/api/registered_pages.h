// The pages under registered host memory. Registrations begin and end at any byte, so two may have a page in common, as
// neighbours on the heap do: the later one uses what the earlier one has made known there.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {

// Thread-safe. Calls may take round trips to each host side.
class RegisteredPages {
 public:
  static RegisteredPages& get();

  // Makes the pages around [address, address + bytes) known to the host; `flags` are VGPU_REGION_*. `whole`: they are
  // one region there, and no part of it another registration's. CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: another one
  // begins within, or a page that is known is for reading only or belongs to memory of CUDA's own.
  CUresult add(VirtualGpu& gpu, uint64_t address, uint64_t bytes, uint32_t flags, bool* whole);
  // Of what was added. No device uses it any more, nor what shares pages with it.
  CUresult remove(uint64_t address, uint64_t bytes);
  // Whether remove() would take pages from others for a moment.
  bool are_shared(uint64_t address, uint64_t bytes) const;

 private:
  // What the host knows as one region.
  struct Piece {
    VirtualGpu* gpu = nullptr;
    uint64_t end = 0;
    uint32_t flags = 0;
    uint64_t swapped = 0;  // in direct mode: the shared block under the program's pages
  };
  using Pieces = std::map<uint64_t, Piece>;

  RegisteredPages() = default;
  // With mutex_ held, as the following.
  std::vector<Pages> gaps(Pages pages);
  // The runs of these pages that registrations have.
  std::vector<Pages> used(Pages pages) const;
  CUresult make_known(VirtualGpu& gpu, Pages pages, uint32_t flags);
  CUresult forget(Pieces::iterator piece);

  mutable std::mutex mutex_;
  Pieces pieces_;                         // by first address; they do not overlap
  std::map<uint64_t, Pages> registered_;  // by first byte
};

}  // namespace bandsaw::libcuda
