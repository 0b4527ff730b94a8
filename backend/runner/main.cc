// bandsaw-runner: one guest process's calls, executed on one device.
//
// A session starts runners ahead of need, with a socket as descriptor kRunnerSocket. A runner gives up what it does
// not need, makes its device, says that it is ready, and waits to be told whom it serves. It is the fault domain and
// the memory-protection domain of its guest process: it ends when that process does, when the session does, or when
// something in it breaks, and takes nobody else along.

#include <unistd.h>

#include <cstdlib>

#include "backend/runner/jail.h"
#include "backend/runner/service.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// What the session hands down in the environment.
DeviceConfig read_environment() {
  DeviceConfig config;
  config.name = "Bandsaw software device";
  // The account, which comes with the assignment, holds the virtual GPU's share; this only bounds it.
  config.memory_share = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  if (const char* cache = std::getenv("BANDSAW_CACHE")) config.cache_directory = cache;
  if (const char* threads = std::getenv("BANDSAW_THREADS")) config.threads = std::atoi(threads);
  return config;
}

Status serve(DeviceConfig config) {
  auto window = Reservation::make(VGPU_WINDOW_BYTES, {VGPU_WINDOW_BASE_0, VGPU_WINDOW_BASE_1, VGPU_WINDOW_BASE_2});
  if (!window.ok()) return window.status();
  config.window_base = window.value().base();
  auto process = Process::make(&window.value(), [&](DeviceHost* host) { return make_soft_device(config, host); });
  if (!process.ok()) return process.status();
  if (Status status = limit_system_calls(); !status.ok()) SPDLOG_WARN("{}; going on without", status.message());
  Service service{UniqueFd(kRunnerSocket), process.value().get()};
  Status status = service.run();
  process.value()->account().release_all();
  if (!status.ok()) SPDLOG_ERROR("{}", status.message());
  // Not the destructors: a kernel that loops for ever, or a call that waits, would keep them. The kernel of the host
  // takes threads and memory back at once.
  _exit(status.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
}

}  // namespace
}  // namespace bandsaw::runner

int main() {
  using namespace bandsaw;
  start_log("bandsaw-runner");
  Status status = runner::enter_jail(kRunnerSocket);
  if (status.ok()) {
    runner::catch_faults();
    status = runner::serve(runner::read_environment());
  }
  SPDLOG_ERROR("{}", status.message());
  return EXIT_FAILURE;
}
