#include "backend/runner/channels/driver_calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "backend/runner/channels/watch_call.h"

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
