#include "backend/sandbox/session_sandbox.h"

#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "backend/sandbox/capabilities.h"
#include "backend/sandbox/landlock.h"
#include "backend/sandbox/root.h"
#include "backend/sandbox/system_calls.h"

namespace bandsaw {
namespace {

constexpr const char* kTimeZone = "/etc/localtime";  // for its log

Status become(const SandboxConfig& config) {
  if (::setgroups(0, nullptr) < 0 || ::setresgid(config.gid, config.gid, config.gid) < 0 ||
      ::setresuid(config.uid, config.uid, config.uid) < 0) {
    return Status::system("cannot become user {} group {}", config.uid, config.gid);
  }
  return {};
}

RootPlan root_of_session(const SandboxConfig& config) {
  RootPlan plan{.staging = config.staging};
  for (const std::string& folder : config.folders) plan.entries.push_back({folder});
  plan.entries.push_back({kTimeZone});
  plan.entries.push_back({"/dev/null", RootEntry::Access::kDevice});
  return plan;
}

void isolate(const SandboxConfig& config, Measures* measures) {
  if (::geteuid() != 0) {
    for (const char* name : {"net", "ipc", "root"}) measures->miss(name, "vgpud does not run as root");
    return;
  }
  for (const auto& [flag, name] : {std::pair{CLONE_NEWNET, "net"}, std::pair{CLONE_NEWIPC, "ipc"}}) {
    if (::unshare(flag) == 0) {
      measures->add(name);
    } else {
      measures->miss(name, std::strerror(errno));
    }
  }
  if (::unshare(CLONE_NEWNS) < 0) return measures->miss("root", std::strerror(errno));
  if (const Status status = enter_root(root_of_session(config)); !status.ok()) {
    return measures->miss("root", status.message());
  }
  measures->add("root");
}

Status close_file_system(const SandboxConfig& config, Measures* measures) {
  LandlockPaths paths{.read = config.folders, .write = {}, .use = {"/dev/null"}, .write_in = config.own_folder};
  paths.read.emplace_back(kTimeZone);
  const auto closed = enter_landlock(paths);
  if (!closed.ok()) return closed.status();
  if (closed.value()) {
    measures->add("landlock");
  } else {
    measures->miss("landlock", "not in this kernel");
  }
  return {};
}

}  // namespace

Result<Measures> enter_sandbox(const SandboxConfig& config) {
  Measures measures;
  ::tzset();
  const bool become_another = ::geteuid() == 0 && config.uid != 0;
  if (config.mode != SandboxMode::kOff) isolate(config, &measures);
  if (config.mode == SandboxMode::kRequired && !measures.lacks.empty()) {
    return Status::error(ENOTSUP, "'sandbox.mode' is \"required\", and this host lacks some of it: {}", measures.lacks);
  }
  if (become_another) {
    empty_bounding_set();
    if (Status status = become(config); !status.ok()) return status;
    if (Status status = drop_capabilities(); !status.ok()) return status;
  }
  ::prctl(PR_SET_DUMPABLE, 0);  // no runner may look into it
  if (config.mode != SandboxMode::kOff) {
    if (Status status = close_file_system(config, &measures); !status.ok()) return status;
  }
  if (Status status = limit_session_calls(); !status.ok()) return status;
  return measures;
}

}  // namespace bandsaw
