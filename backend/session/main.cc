// bandsaw-session: serves one virtual GPU. vgpud starts it when the virtual GPU is created (or when vgpud itself
// starts) and it lives until the virtual GPU is destroyed; vgpud may come and go meanwhile.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "backend/control/paths.h"
#include "backend/session/session.h"
#include "memory/base/log.h"
#include "memory/base/unique_fd.h"

namespace {

void tell_ready(int descriptor) {
  const bandsaw::UniqueFd ready(descriptor);
  if (ready && ::write(ready.get(), "1", 1) < 0) bandsaw::log::debug("nobody waits for this session");
}

}  // namespace

int main(int argc, char** argv) {
  bandsaw::SessionConfig config;
  config.run = bandsaw::run_directory();
  std::string direct_mode = "0660", vm_mode = "0660", sharing = "time-sliced", limits, owner = "anybody",
              vm_owner = "anybody", sandbox = "auto";
  int ready = -1;
  int64_t direct_group = -1, vm_group = -1;
  CLI::App app("Serves one virtual GPU; started by vgpud.", "bandsaw-session");
  app.add_option("--name", config.name, "the virtual GPU's name")->required();
  app.add_option("--index", config.index, "its number on this host: gives its PCI bus id");
  app.add_option("--memory", config.memory, "its memory share in bytes")->required();
  app.add_option("--resident", config.resident, "bytes of it that may lie on the device; others lie in host memory");
  app.add_option("--device", config.sharing_config.device, "the device it is cut from: soft, soft:INDEX, cuda:INDEX");
  app.add_option("--gpu", config.sharing_config.gpu, "UUID of the GPU or MIG instance, as nvidia-smi -L lists it");
  app.add_option("--soft-sms", config.sharing_config.soft_sms,
                 "SMs of a software device; 0: as many as suit the cores");
  app.add_option("--sharing", sharing, "time-sliced or mps; vgpud may say otherwise later");
  app.add_option("--guard", config.sharing_config.guard,
                 "what its kernels are kept from: guard,clear-shared and so on");
  app.add_option("--slices", config.slices, "how runners cut kernels: enabled=1 threshold_us=4000 and so on");
  app.add_option("--run", config.run, "folder of the sockets");
  app.add_option("--state", config.state, "folder of its own on disk, for caches");
  app.add_option("--runner", config.runner, "path of the runner; empty: beside this program");
  app.add_option("--warm", config.warm, "runners kept ready ahead")->check(CLI::Range(0, 64));
  app.add_option("--ready", ready, "descriptor that is written to, and closed, once vgpud can reach the session");
  app.add_option("--uid", config.sandbox.uid, "user to become when started as root");
  app.add_option("--gid", config.sandbox.gid, "group to become when started as root");
  app.add_option("--runner-uid", config.sandbox.runner_uid, "user and group of its runners when started as root");
  app.add_option("--sandbox", sandbox,
                 "auto, required or off: whether namespaces and roots that the host forbids are passed over");
  app.add_option("--peers", config.sandbox.peers, "whether runners may open all GPUs' device files");
  app.add_option("--replaceable", config.sharing_config.replaceable,
                 "whether runners on a GPU may be followed by others, as after `vgpuctl save --all`");
  app.add_option("--limits", limits, "what its programs may hold: contexts=1024 streams=65536 and so on");
  app.add_option("--owner", owner, "whose direct.sock is: anybody, user:NUMBER, group:NUMBER, nobody");
  app.add_option("--vm-owner", vm_owner, "whose vfio.sock is");
  app.add_option("--direct-mode", direct_mode, "permissions of direct.sock, octal");
  app.add_option("--direct-group", direct_group, "number of the group of direct.sock; -1: the session's own");
  app.add_option("--vm-mode", vm_mode, "permissions of vfio.sock, octal");
  app.add_option("--vm-group", vm_group, "number of the group of vfio.sock; as above");
  CLI11_PARSE(app, argc, argv);
  config.direct_access.mode = static_cast<unsigned>(std::strtoul(direct_mode.c_str(), nullptr, 8)) & 0777;
  config.vm_access.mode = static_cast<unsigned>(std::strtoul(vm_mode.c_str(), nullptr, 8)) & 0777;
  if (direct_group >= 0) config.direct_access.group = static_cast<gid_t>(direct_group);
  if (vm_group >= 0) config.vm_access.group = static_cast<gid_t>(vm_group);

  bandsaw::start_log(("session " + config.name).c_str());
  if (!bandsaw::valid_name(config.name)) {
    bandsaw::log::error("'{}' is not a name: {}", config.name, bandsaw::kNameRule);
    return 2;
  }
  if (const auto parsed = bandsaw::parse_sharing(sharing); parsed.ok()) {
    config.sharing_config.sharing = parsed.value();
  } else {
    bandsaw::log::error("{}", parsed.status().message());
    return 2;
  }
  if (const auto mode = bandsaw::parse_sandbox_mode(sandbox); mode.ok()) {
    config.sandbox.mode = mode.value();
  } else {
    bandsaw::log::error("--sandbox: {}", mode.status().message());
    return 2;
  }
  for (const auto& [text, field] : {std::pair{&owner, &config.owner}, std::pair{&vm_owner, &config.vm_owner}}) {
    const auto parsed = bandsaw::parse_owner(*text);
    if (!parsed.ok()) {
      bandsaw::log::error("{}", parsed.status().message());
      return 2;
    }
    *field = parsed.value();
  }
  if (const auto status = bandsaw::read_limits(limits, &config.limits); !status.ok()) {
    bandsaw::log::error("{}", status.message());
    return 2;
  }
  if (config.runner.empty()) {
    const std::string& device = config.sharing_config.device;
    config.runner = bandsaw::runner_of(bandsaw::find_runner(), device.substr(0, device.find(':')));
  }
  if (config.runner.empty()) {
    bandsaw::log::error("bandsaw-runner is not beside this program; set BANDSAW_LIBEXEC or --runner");
    return 1;
  }
  auto session = bandsaw::Session::open(config);
  if (!session.ok()) {
    bandsaw::log::error("{}", session.status().message());
    return session.status().code() == ENOTSUP ? bandsaw::kNoSandboxStatus : 1;
  }
  tell_ready(ready);
  session.value()->run();
  return 0;
}
