#include "backend/runner/libcuda_calls.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "backend/runner/channels/watch_call.h"
#include "backend/runner/populated_map.h"

namespace bandsaw::runner {
namespace {

constinit ChannelGroupTable table;
constinit std::atomic<ChannelGroupReporter*> reporter{nullptr};

int to_kernel(int descriptor, unsigned long request, void* argument) {
  return static_cast<int>(::syscall(SYS_ioctl, descriptor, request, argument));
}

void tell() {
  const int kept = errno;
  if (ChannelGroupReporter* const told = reporter) told->report();
  errno = kept;
}

}  // namespace

const ChannelGroupTable& watched_channel_groups() { return table; }
void watch_channel_groups(ChannelGroupReporter* told) { reporter = told; }

}  // namespace bandsaw::runner

extern "C" __attribute__((visibility("default"))) int ioctl(int descriptor, unsigned long request, ...) noexcept {
  using namespace bandsaw::runner;
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return watch_call(&table, descriptor, request, argument, to_kernel, tell);
}

// Sanitizers have their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

void* map(void* where, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (bandsaw::runner::is_large_populated_map(where, bytes, protection, flags, file))
    return bandsaw::runner::map_populated(bytes, protection, flags);
  const long made = ::syscall(SYS_mmap, where, bytes, protection, flags, file, offset);
  return made == -1 ? MAP_FAILED : reinterpret_cast<void*>(made);
}

}  // namespace

// libc's header gives `mmap` the symbol of `mmap64`, so that the two need other names here.
#define BANDSAW_OWN_MAP(name, symbol)                                                                            \
  extern "C" __attribute__((visibility("default"))) void* name(void*, size_t, int, int, int,                     \
                                                               off_t) noexcept asm(symbol);                      \
  extern "C" void* name(void* where, size_t bytes, int protection, int flags, int file, off_t offset) noexcept { \
    return map(where, bytes, protection, flags, file, offset);                                                   \
  }
BANDSAW_OWN_MAP(own_mmap, "mmap")
BANDSAW_OWN_MAP(own_mmap64, "mmap64")
#endif
