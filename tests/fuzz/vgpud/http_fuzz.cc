// Any bytes on control.sock, from somebody who may administer. What must hold: vgpud goes on, what it wrote down can be
// read again, and the shares of a device are never given out twice. Sessions do not run.
#include <event2/event.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "backend/control/paths.h"
#include "backend/vgpud/api/api.h"
#include "memory/base/log.h"
#include "tests/unit/vgpud/fake_arbiter.h"

namespace {

using namespace bandsaw;

constexpr uint64_t kDeviceMemory = uint64_t{16} << 30;
constexpr int kTurns = 200;  // of the event loop, for one input

void check(bool holds) {
  if (!holds) std::abort();
}

struct FreeBase {
  void operator()(event_base* base) const { event_base_free(base); }
};

// As vgpud is, but for sessions and the device.
struct Vgpud {
  explicit Vgpud(const std::string& folder) {
    config.run = folder + "/run";
    config.state = folder + "/state";
    config.devices.front().name = "soft";
    config.devices.front().memory = kDeviceMemory;
    config.session_program = "/nonexistent";  // no process is made: fuzzing is quicker without
    std::filesystem::create_directories(config.run);
    registry.emplace(std::move(Registry::open(config.state).value()));
    const std::shared_ptr<Arbiter> borrowed(std::shared_ptr<void>(), &arbiter);
    gpus.emplace(std::vector<Gpu>{{config.devices.front(), borrowed}});
    sessions = std::make_unique<SessionManager>(base.get(), config, *gpus);
    api = std::make_unique<Api>(config, &*registry, sessions.get(), &*gpus, [] {});
    const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    address.sun_family = AF_UNIX;
    (config.run + "/control.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    check(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    check(::listen(listener.get(), 4) == 0);
    server = std::make_unique<HttpServer>(
        base.get(), UniqueFd(::dup(listener.get())),
        [this](const auto& request, auto answer) { api->handle(request, std::move(answer)); });
  }
  sockaddr_un address{};
  Config config;
  FakeArbiter arbiter;
  std::unique_ptr<event_base, FreeBase> base{event_base_new()};
  std::optional<Registry> registry;
  std::optional<Gpus> gpus;
  std::unique_ptr<SessionManager> sessions;
  std::unique_ptr<Api> api;
  std::unique_ptr<HttpServer> server;
};

// What was given out fits, and is on disk.
void check_state(const Vgpud& vgpud) {
  uint64_t memory = 0, compute = 0;
  for (const VgpuSpec& spec : vgpud.registry->all()) {
    memory += reserved_memory(spec);
    compute += spec.compute;
  }
  check(memory <= kDeviceMemory && compute <= 100);
  const auto again = Registry::open(vgpud.config.state);
  check(again.ok() && again.value().names() == vgpud.registry->names());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log::silence();
  std::signal(SIGPIPE, SIG_IGN);
  static const std::string& folder = *new std::string([] {
    char text[] = "/dev/shm/http-fuzz-XXXXXX";
    check(::mkdtemp(text));
    return std::string(text);
  }());
  std::filesystem::remove_all(folder);
  Vgpud vgpud(folder);
  const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  check(::connect(client.get(), reinterpret_cast<const sockaddr*>(&vgpud.address), sizeof vgpud.address) == 0);
  for (int turn = 0; turn < kTurns; ++turn) {
    if (size > 0) {
      const ssize_t written = ::write(client.get(), data, size);
      if (written > 0) data += written, size -= static_cast<size_t>(written);
      if (size == 0) ::shutdown(client.get(), SHUT_WR);
    }
    event_base_loop(vgpud.base.get(), EVLOOP_NONBLOCK);
    char answer[4096];
    if (::read(client.get(), answer, sizeof answer) == 0) break;
  }
  check_state(vgpud);
  return 0;
}
