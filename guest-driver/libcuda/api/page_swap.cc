// Registered host memory in direct mode. The runner cannot reach a program's private pages, so their content moves
// into shared memory, which is then mapped over them: the program keeps its addresses, and the host is told of them.
//
// Works for private mappings that can be read and written (heap, bss, data, anonymous); refuses others, because a
// shared or file mapping would be cut off from those who share it. The pages at both ends are taken whole. Other
// threads may write there meanwhile: they wait (core/write_stop.h). Where that cannot be had, such a page is copied
// last and replaced at once, which leaves a gap of a few microseconds in which a neighbour's write can be lost.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#include "guest-driver/libcuda/api/host_memory.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/core/write_stop.h"

namespace bandsaw::libcuda {
namespace {

// Whether every mapping that the range touches is private, readable and writable, and there is no hole. Source:
// proc(5).
bool all_private(const Pages& pages) {
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
  if (!maps) return false;
  uint64_t covered = pages.begin;
  char line[512];
  while (covered < pages.end && std::fgets(line, sizeof(line), maps.get())) {
    uint64_t begin = 0, end = 0;
    char mode[5] = {};
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, mode) != 3 || end <= covered) continue;
    if (begin > covered || std::strncmp(mode, "rw", 2) != 0 || mode[3] != 'p') return false;
    covered = end;
  }
  return covered >= pages.end;
}

bool on_this_stack(const Pages& pages) {
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  constexpr uint64_t kFrames = 16 * kPage;  // what this call and its callees may use
  return here + kPage > pages.begin && here - kFrames < pages.end;
}

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Maps [from, from + bytes) over the program's pages: the same shared pages again, or (move) the pages themselves.
bool replace(const Pages& pages, uint64_t from, bool move) {
  const size_t old_bytes = move ? pages.bytes() : 0;  // 0: a second mapping of shared pages, mremap(2)
  return mremap(pointer(from), old_bytes, pages.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, pointer(pages.begin)) !=
         MAP_FAILED;
}

// Copies and replaces the middle first, then the pages at the ends, each at once.
bool exchange(const Pages& pages, uint64_t from, bool move) {
  const WriteStop stop(pages.begin, pages.bytes());
  Pages middle = pages;
  if (pages.bytes() > 2 * kPage) middle = {pages.begin + kPage, pages.end - kPage};
  std::memcpy(pointer(from + (middle.begin - pages.begin)), pointer(middle.begin), middle.bytes());
  if (!replace(middle, from + (middle.begin - pages.begin), move)) return false;
  for (const uint64_t edge : {pages.begin, pages.end - kPage}) {
    if (edge >= middle.begin && edge < middle.end) continue;
    std::memcpy(pointer(from + (edge - pages.begin)), pointer(edge), kPage);
    if (!replace({edge, edge + kPage}, from + (edge - pages.begin), move)) return false;
  }
  return true;
}

// Private pages with the same content, and the block back to the arena.
CUresult give_back(SharedMemory& memory, const Pages& pages, uint64_t block) {
  void* const fresh = mmap(nullptr, pages.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!exchange(pages, reinterpret_cast<uint64_t>(fresh), true)) return CUDA_ERROR_OUT_OF_MEMORY;
  return memory.release(pointer(block));
}

}  // namespace

CUresult swap_in_shared(VirtualGpu& gpu, uint64_t address, uint64_t bytes, uint32_t flags, uint64_t* shared) {
  const Pages pages = pages_around(address, bytes);
  if (!all_private(pages)) return CUDA_ERROR_INVALID_VALUE;
  if (on_this_stack(pages)) return CUDA_ERROR_NOT_SUPPORTED;
  SharedBlock block;
  SharedMemory& memory = *gpu.memory;
  CUresult result = memory.allocate(pages.bytes(), 0, &block);
  if (result != CUDA_SUCCESS) return result;
  *shared = reinterpret_cast<uint64_t>(block.address);
  // If the exchange fails half-way, some of the program's pages are shared ones. The block then stays until the process
  // ends.
  if (!exchange(pages, *shared, false)) return CUDA_ERROR_OUT_OF_MEMORY;
  result = host_blocks().share_at(gpu, block, pointer(pages.begin), flags);
  if (result != CUDA_SUCCESS) static_cast<void>(give_back(memory, pages, *shared));
  return result;
}

CUresult swap_out_shared(uint64_t address, uint64_t bytes, uint64_t block) {
  const Pages pages = pages_around(address, bytes);
  if (on_this_stack(pages)) return CUDA_ERROR_NOT_SUPPORTED;
  SharedMemory* memory = nullptr;
  const CUresult result = host_blocks().unpin(pointer(pages.begin), &memory);
  return result != CUDA_SUCCESS ? result : give_back(*memory, pages, block);
}

}  // namespace bandsaw::libcuda
