#include "backend/runner/populated_map.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace bandsaw::runner {
namespace {

constexpr size_t kLargePage = 2u << 20;
// Less takes as long as the threads that would make it take to begin.
constexpr size_t kLargeMap = 32u << 20, kLeastOfThread = 16u << 20;
constexpr size_t kThreadsMost = 16;

void make(std::byte* begin, std::byte* end) { ::madvise(begin, static_cast<size_t>(end - begin), MADV_POPULATE_WRITE); }

void make_all(std::byte* begin, std::byte* end) {
  const auto bytes = static_cast<size_t>(end - begin);
  const size_t cores = std::max(std::thread::hardware_concurrency(), 1u);
  const size_t part = std::max(kLeastOfThread, bytes / std::min(cores, kThreadsMost));
  std::vector<std::jthread> threads;
  try {
    while (static_cast<size_t>(end - begin) > part + kLeastOfThread) {
      const auto middle = reinterpret_cast<uintptr_t>(begin + part) & ~(kLargePage - 1);
      threads.emplace_back(make, begin, reinterpret_cast<std::byte*>(middle));
      begin = reinterpret_cast<std::byte*>(middle);
    }
  } catch (const std::exception&) {  // no more threads: this one makes the rest
  }
  make(begin, end);
}

}  // namespace

bool is_large_populated_map(const void* where, size_t bytes, int protection, int flags, int file) {
  constexpr int kLike = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  return !where && bytes >= kLargeMap && (protection & PROT_WRITE) && (flags & ~MAP_NORESERVE) == kLike && file == -1;
}

void* map_populated(size_t bytes, int protection, int flags) noexcept {
  const long made = ::syscall(SYS_mmap, nullptr, bytes, protection, flags & ~MAP_POPULATE, -1, 0);
  if (made == -1) return MAP_FAILED;
  const int kept = errno;
  auto* const begin = reinterpret_cast<std::byte*>(made);
  ::madvise(begin, bytes, MADV_HUGEPAGE);
  make_all(begin, begin + (bytes + 4095) / 4096 * 4096);
  errno = kept;
  return begin;
}

}  // namespace bandsaw::runner
