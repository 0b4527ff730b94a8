#include "backend/vgpud/sessions/session_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/control/paths.h"
#include "backend/vgpud/owners.h"

namespace bandsaw {
namespace {

constexpr int kStandardDescriptors = 3;

// Sessions are told numbers: who asks for a name loads what knows names, and waits for it.
std::string group_text(const SocketAccess& access) { return access.group ? std::to_string(*access.group) : "-1"; }

// vgpud's own are written to a pipe that the child has too: a signal for the child would be vgpud's.
void forget_handlers() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action{};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
  }
}

// The child. All signals are blocked.
[[noreturn]] void become_session(const std::vector<std::string>& texts, int log, int ready, int cgroup) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  // The unit grants it to the arbiter; a tenant's threads that go before all others would keep the processors.
  const rlimit none_left{0, 0};
  ::setrlimit(RLIMIT_RTPRIO, &none_left);
  if (cgroup >= 0 && ::write(cgroup, "0", 1) != 1) ::_exit(125);
  ::setsid();  // a terminal's interrupt is for vgpud alone
  forget_handlers();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::close_range(kStandardDescriptors, ~0u, CLOSE_RANGE_CLOEXEC);
  ::fcntl(ready, F_SETFD, 0);
  ::execv(pointers[0], pointers.data());
  ::_exit(126);
}

}  // namespace

uint32_t soft_sms(const Gpu& gpu) { return gpu.device.kind == "soft" ? gpu.device.sms : 0; }

std::vector<std::string> session_arguments(const Config& config, const VgpuSpec& spec, const Gpu& gpu,
                                           const VgpuUsers& users) {
  std::vector<std::string> result = {config.session_program,
                                     "--name",
                                     spec.name,
                                     "--index",
                                     std::to_string(spec.index),
                                     "--memory",
                                     std::to_string(spec.memory),
                                     "--resident",
                                     std::to_string(reserved_memory(spec)),
                                     "--device",
                                     spec.device,
                                     "--gpu",
                                     gpu.device.visible,
                                     "--soft-sms",
                                     std::to_string(soft_sms(gpu)),
                                     "--sharing",
                                     to_text(spec.sharing),
                                     "--guard",
                                     guard_text(spec),
                                     "--slices",
                                     slices_text(config.slices, gpu.device),
                                     "--run",
                                     config.run,
                                     "--state",
                                     config.state + "/vgpus/" + spec.name,
                                     "--runner",
                                     runner_of(config.runner_program, gpu.device.kind),
                                     "--warm",
                                     std::to_string(config.warm_runners),
                                     "--uid",
                                     std::to_string(users.session),
                                     "--gid",
                                     std::to_string(users.session),
                                     "--runner-uid",
                                     std::to_string(users.runners),
                                     "--sandbox",
                                     config.sandbox_mode,
                                     "--peers",
                                     config.sandbox_peers ? "true" : "false",
                                     "--replaceable",
                                     config.save_on_gpus ? "true" : "false",
                                     "--limits",
                                     to_text(effective_limits(config.limits, spec.limits)),
                                     "--owner",
                                     to_text(owner_of(spec)),
                                     "--vm-owner",
                                     to_text(vm_owner_of(spec, config)),
                                     "--direct-mode",
                                     spec.direct_mode.empty() ? config.direct_mode : spec.direct_mode,
                                     "--direct-group",
                                     group_text(direct_access(spec, config)),
                                     "--vm-mode",
                                     config.vm_mode,
                                     "--vm-group",
                                     group_text(vm_access(config))};
  return result;
}

Result<pid_t> start_session(std::vector<std::string> arguments, const UniqueFd& log, const UniqueFd& ready,
                            const UniqueFd& cgroup) {
  arguments.insert(arguments.end(), {"--ready", std::to_string(ready.get())});
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) become_session(arguments, log.get(), ready.get(), cgroup.get());
  const Status failed = pid < 0 ? Status::system("cannot fork a session") : Status();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return failed;
  return pid;
}

}  // namespace bandsaw
