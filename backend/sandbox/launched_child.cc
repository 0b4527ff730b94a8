#include "backend/sandbox/launched_child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "backend/sandbox/capabilities.h"
#include "backend/sandbox/device_files.h"
#include "backend/sandbox/landlock.h"
#include "backend/sandbox/launcher_link.h"
#include "backend/sandbox/root.h"
#include "backend/sandbox/system_calls.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSmallScratch = 1 << 20;
constexpr unsigned long kQuiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;

Status show_gpu(const ChildPlan& plan) {
  const std::string devices = std::string(kAsideFolder) + "/dev";
  for (const std::string& name : files_of_gpu(plan.gpu, plan.config.peers, devices)) {
    const std::string place = "/dev/" + name;
    if (::access(place.c_str(), F_OK) != 0) continue;  // it came after the root was made
    if (Status status = bind(devices + "/" + name, place); !status.ok()) return status;
  }
  return {};
}

// The daemon's sockets and no other daemon's; its memory is in the host's /dev/shm.
Status show_mps(const ChildPlan& plan) {
  const fs::path pipe = plan.mps, folder = pipe.parent_path();
  const std::string key = folder.filename();
  const bool plain = !key.empty() && key.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz") == key.npos;
  if (plan.config.mps.empty() || !plain || folder.parent_path() != plan.config.mps || pipe.filename() != "pipe") {
    return Status::error(EINVAL, "'{}' is no folder of an MPS daemon", plan.mps);
  }
  const std::string aside = fmt::format("{}/mps/{}/pipe", kAsideFolder, key);
  Status status = mount_scratch(plan.config.mps, kQuiet, kSmallScratch, 0755);
  if (!status.ok()) return status;
  std::error_code error;
  fs::create_directories(pipe, error);
  if (error) return Status::error(error.value(), "cannot make {}: {}", plan.mps, error.message());
  status = bind(aside, plan.mps);
  return status.ok() ? bind(std::string(kAsideFolder) + "/shm", "/dev/shm") : status;
}

// NVIDIA's driver library makes device files and changes their modes where the driver's parameters let it, and gives up
// if it cannot. Here nothing can be made, and owners are not what they are on the host. So the parameters say that it
// must not, as in containers.
Status keep_device_files() {
  constexpr std::string_view kMay = "ModifyDeviceFiles: 1", kMustNot = "ModifyDeviceFiles: 0";
  const std::string params = "/proc/driver/nvidia/params", copy = std::string(kAsideFolder) + "/params";
  std::ifstream file(params);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t place = text.find(kMay);
  if (place == text.npos) return {};
  text.replace(place, kMay.size(), kMustNot);
  std::ofstream to(copy);
  to << text;
  to.close();
  if (!to) return Status::error(EIO, "cannot write the driver's parameters");
  ::chmod(copy.c_str(), 0444);
  return bind(copy, params);
}

// Nothing of the host's is left there.
Status empty_aside_folder() {
  Status status = mount_scratch(kAsideFolder, kQuiet, kSmallScratch, 0755);
  if (status.ok()) status = keep_device_files();
  ::chmod(kAsideFolder, 0);
  if (status.ok() && ::mount(nullptr, kAsideFolder, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kQuiet, nullptr) < 0) {
    return Status::system("cannot close {}", kAsideFolder);
  }
  return status;
}

Status finish_root(const ChildPlan& plan) {
  if (!plan.root) return {};
  Status status;
  // The checkpointer looks at runners, which are otherwise out of sight.
  if (plan.own_numbers) status = mount_proc(plan.config.gpu, plan.task == RunnerTask::kCheckpointer);
  // The software device needs none.
  if (!status.ok() && !plan.config.gpu) status = mount_scratch("/proc", MS_RDONLY | kQuiet, kSmallScratch, 0555);
  if (status.ok() && plan.config.gpu) status = show_gpu(plan);
  if (status.ok() && !plan.mps.empty()) status = show_mps(plan);
  if (!status.ok() || !plan.config.gpu) return status;  // else nothing is there
  return empty_aside_folder();
}

Status close_file_system(const ChildPlan& plan) {
  // Under landlock nobody may look into processes that are not below it, as the checkpointer does. No guest talks to
  // it.
  if (plan.task == RunnerTask::kCheckpointer) return {};
  LandlockPaths paths;
  if (plan.root) {
    paths.read = {"/"};
  } else {
    for (const RootEntry& entry : program_entries(plan.config.program, plan.config.environment, plan.config.gpu)) {
      paths.read.push_back(entry.path);
    }
    if (plan.config.gpu) paths.read.emplace_back("/sys");
  }
  paths.use = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
  // Without PID numbers of its own it sees all processes there, as every user of the host does.
  paths.use.emplace_back(plan.own_numbers || plan.config.gpu ? "/proc" : "/proc/self");
  if (plan.config.gpu) {
    for (const std::string& name : files_of_gpu(plan.gpu, plan.config.peers)) paths.use.push_back("/dev/" + name);
    paths.write = {"/tmp", "/dev/shm"};
  }
  if (!plan.mps.empty()) paths.write.push_back(plan.mps);
  if (!plan.config.state.empty()) (plan.config.runners_write() ? paths.write : paths.read).push_back(plan.config.state);
  return enter_landlock(paths).status();
}

Status become_user(uid_t uid) {
  if (uid == 0) return {};
  if (::setgroups(0, nullptr) < 0 || ::setresgid(uid, uid, uid) < 0 || ::setresuid(uid, uid, uid) < 0) {
    return Status::system("cannot become user {}", uid);
  }
  return {};
}

Status give_up(const ChildPlan& plan) {
  Status status = finish_root(plan);
  if (status.ok()) status = become_user(plan.config.runner_uid);
  if (status.ok()) status = drop_capabilities();
  if (status.ok() && plan.config.closes_host()) status = close_file_system(plan);
  if (status.ok()) status = limit_starting_calls();
  return status;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void set_descriptors(int given, int number) {
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (::dup2(given, number) < 0) ::_exit(kNoSandboxExit);
  if (given == number) ::fcntl(number, F_SETFD, 0);
  ::close_range(static_cast<unsigned>(std::max(number, STDERR_FILENO)) + 1, ~0u, CLOSE_RANGE_CLOEXEC);
}

}  // namespace

void try_child(const ChildPlan& plan) {
  const Status status = give_up(plan);
  if (!status.ok()) log::info("{}", status.message());
  ::_exit(std::min(status.code(), 254));
}

void become_runner(const ChildPlan& plan, int given, int number) {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  set_descriptors(given, number);
  // A GPU's driver gives memory the addresses at which it finds room in this process. With the old layout they lie far
  // from where programs have their own memory, so that the guest can tell one from the other.
  // Where another runner is to have the same memory at the same addresses, they are not random either.
  const bool same =
      std::find(plan.environment.begin(), plan.environment.end(), kReplaceableRunner) != plan.environment.end();
  ::personality(ADDR_COMPAT_LAYOUT | (same ? ADDR_NO_RANDOMIZE : 0));
  const rlimit none_left{0, 0};
  ::setrlimit(RLIMIT_CORE, &none_left);  // a core would hold the guest's data
  if (const Status status = give_up(plan); !status.ok()) {
    log::error("a runner's sandbox: {}", status.message());
    ::_exit(kNoSandboxExit);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // after the change of users, which ends it
  std::vector<std::string> variables = plan.environment;
  if (plan.config.closes_host()) variables.emplace_back("BANDSAW_IOCTLS=listed");
  const auto arguments = pointers(plan.arguments), environment = pointers(variables);
  ::execve(plan.config.program.c_str(), arguments.data(), environment.data());
  if (plan.program >= 0) ::execveat(plan.program, "", arguments.data(), environment.data(), AT_EMPTY_PATH);
  ::_exit(kNoProgramExit);
}

}  // namespace bandsaw
