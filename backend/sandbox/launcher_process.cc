#include "backend/sandbox/launcher_process.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "backend/control/packet.h"
#include "backend/sandbox/capabilities.h"
#include "backend/sandbox/device_files.h"
#include "backend/sandbox/landlock.h"
#include "backend/sandbox/launched_child.h"
#include "backend/sandbox/launcher_link.h"
#include "backend/sandbox/root.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

namespace fs = std::filesystem;

constexpr int kSocket = 3, kFirstFree = 10;
constexpr size_t kFixedTexts = 3;

class LauncherProcess {
 public:
  explicit LauncherProcess(LauncherConfig config) : config_(std::move(config)) {
    // By its own name: what a link points to may lie elsewhere, and is not in the root by itself.
    std::error_code error;
    const fs::path whole = fs::canonical(config_.program, error);
    if (!error) config_.program = whole;
    program_.reset(::open(config_.program.c_str(), O_PATH | O_CLOEXEC));
    if (config_.session_uid == 0) config_.runner_uid = 0;
    if (config_.runner_uid == 0) config_.runner_uid = config_.session_uid;
  }

  void run() {
    const Status status = isolate();
    LauncherReply reply{status.code(), 0};
    std::vector<std::string_view> texts{measures_.has, measures_.lacks};
    if (!status.ok()) texts = {status.message()};
    const std::string packet = to_packet(std::as_bytes(std::span(&reply, 1)), texts).substr(0, kLauncherReplyMax);
    if (!send_packet(kSocket, std::as_bytes(std::span(packet)), {}, {}).ok() || !status.ok()) return;
    while (serve()) continue;
  }

 private:
  Status isolate();
  bool enter_user_namespace(bool maps_of_session);
  Status become_session_user();
  void make_namespaces(bool early);
  RootPlan plan_root() const;
  void make_root(bool early);
  void leave_host();
  Status share_numbers();
  void check_numbers();
  bool serve();
  void kill(pid_t pid);
  LauncherReply number(pid_t pid) const;
  LauncherReply launch(const LauncherRequest& request, std::vector<std::string> texts, int given);
  pid_t fork_child(bool own_numbers, bool for_session, int* pidfd) const;
  ChildPlan child_plan(bool own_numbers) const;
  // Ended ones go.
  void forget_ended();

  LauncherConfig config_;
  UniqueFd program_;
  Measures measures_;
  bool root_ = false, own_numbers_ = false, in_user_namespace_ = false;
  bool shares_numbers_ = false;  // its children are in one PID namespace, and it in another
  std::map<pid_t, UniqueFd> children_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kLauncherRequestMax);
};

// As root its parent writes who is in it; else it has the one user that it is.
bool LauncherProcess::enter_user_namespace(bool maps_of_session) {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWUSER) < 0) {
    measures_.miss("user", std::strerror(errno));
    return false;
  }
  in_user_namespace_ = true;
  Status status;
  if (maps_of_session) {
    char answer = kWantsMaps;
    std::vector<UniqueFd> fds;
    status = send_packet(kSocket, std::as_bytes(std::span(&answer, 1)), {}, {});
    const auto length = receive_packet(kSocket, std::as_writable_bytes(std::span(&answer, 1)), &fds);
    if (status.ok() && (!length.ok() || answer != 1)) status = Status::error(EPERM, "its users could not be set");
  } else {
    const auto put = [&status](const char* file, const std::string& text) {
      const UniqueFd to(::open(file, O_WRONLY | O_CLOEXEC));
      if (status.ok() && (!to || ::write(to.get(), text.data(), text.size()) < 0)) status = Status::system("{}", file);
    };
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", fmt::format("{0} {0} 1", uid));
    put("/proc/self/gid_map", fmt::format("{0} {0} 1", gid));
  }
  if (status.ok()) {
    measures_.add("user");
  } else {
    measures_.miss("user", status.message());
  }
  return status.ok();
}

Status LauncherProcess::become_session_user() {
  const uid_t uid = config_.session_uid;
  if (uid != 0 && (::setgroups(0, nullptr) < 0 || ::setresgid(uid, uid, uid) < 0 || ::setresuid(uid, uid, uid) < 0)) {
    return Status::system("cannot become user {}", uid);
  }
  return {};
}

RootPlan LauncherProcess::plan_root() const {
  using Access = RootEntry::Access;
  const std::string aside = kAsideFolder;
  RootPlan plan{.entries = program_entries(config_.program, config_.environment, config_.gpu),
                .staging = config_.staging};
  // A new /proc is allowed where one can be seen whole; the children's covers it.
  plan.entries.push_back({"/proc", Access::kWhole});
  const auto devices = common_devices();
  plan.entries.insert(plan.entries.end(), devices.begin(), devices.end());
  // Of a software device the session writes there.
  const Access access = config_.runners_write() ? Access::kWrite : Access::kRead;
  if (!config_.state.empty()) plan.entries.push_back({.path = config_.state, .access = access, .needed = true});
  plan.folders = {aside};
  if (!config_.gpu) return plan;
  plan.entries.push_back({"/sys"});
  plan.entries.push_back({"/dev", Access::kDevice, aside + "/dev"});
  plan.scratch = {"/tmp", "/dev/shm"};
  for (const std::string& name : nvidia_files()) plan.files.push_back("/dev/" + name);
  if (config_.mps.empty()) return plan;
  plan.entries.push_back({config_.mps, Access::kWrite, aside + "/mps"});
  plan.entries.push_back({"/dev/shm", Access::kWrite, aside + "/shm"});
  plan.folders.push_back(config_.mps);
  return plan;
}

void LauncherProcess::make_namespaces(bool early) {
  for (const auto& [flag, name] : {std::pair{CLONE_NEWNET, "net"}, std::pair{CLONE_NEWIPC, "ipc"}}) {
    if (::unshare(flag) == 0) {
      measures_.add(name);
    } else {
      measures_.miss(name, std::strerror(errno));
    }
  }
  if (::unshare(CLONE_NEWNS) < 0) return measures_.miss("root", std::strerror(errno));
  make_root(early);
}

void LauncherProcess::make_root(bool early) {
  // In a user namespace the files of a root belong to somebody who is in it.
  if (early) {
    if (const Status status = become_session_user(); !status.ok()) return measures_.miss("root", status.message());
  }
  const Status status = enter_root(plan_root());
  if (!status.ok()) return measures_.miss("root", status.message());
  root_ = true;
  measures_.add("root");
}

// Where something covers parts of the host's /proc, as in containers and under systemd, no user namespace may mount its
// own; and NVIDIA's driver library needs one.
bool may_mount_proc_in_user_namespace() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0) ::_exit(1);
    const pid_t first = ::fork();
    if (first == 0) ::_exit(mount_proc(true, false).ok() ? 0 : 1);
    int status = 1;
    if (first > 0) ::waitpid(first, &status, 0);
    ::_exit(status == 0 ? 0 : 1);
  }
  int status = 1;
  return pid > 0 && ::waitpid(pid, &status, 0) == pid && status == 0;
}

// What it goes on with where it can have no user namespace.
void keep_few_capabilities() {
  constexpr int kKept[] = {CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_KILL, CAP_SYS_ADMIN};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  for (const int capability : kKept) {
    if (!has_capability(capability)) continue;
    data[capability / 32].effective |= 1u << (capability % 32);
    data[capability / 32].permitted |= 1u << (capability % 32);
  }
  if (::syscall(SYS_capset, &header, data) < 0) log::error("the launcher's capabilities: {}", std::strerror(errno));
}

// From now on it has privileges over its own namespaces alone, if the host lets it have one of users.
void LauncherProcess::leave_host() {
  if (in_user_namespace_ || config_.session_uid == 0) return;
  if (!root_) return keep_few_capabilities();
  if (config_.gpu && !may_mount_proc_in_user_namespace()) {
    measures_.miss("user", "in one, runners could have no /proc with the driver's files here");
    return keep_few_capabilities();
  }
  if (!enter_user_namespace(true)) return in_user_namespace_ ? void() : keep_few_capabilities();
  if (::unshare(CLONE_NEWNS) < 0 || !become_session_user().ok())
    log::error("the launcher's mounts: {}", std::strerror(errno));
}

// The first process of a PID namespace, which ends when this one does: takes in those whose parents have ended.
[[noreturn]] void be_first() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "bandsaw-first");
  ::signal(SIGCHLD, SIG_IGN);
  ::close_range(0, ~0u, 0);
  (void)drop_capabilities();
  for (;;) ::pause();
}

// By their numbers NVIDIA's driver library tells processes that share an event from each other. So runners of a
// software device have each a PID namespace of their own, and those of a GPU one for all of the virtual GPU.
Status LauncherProcess::share_numbers() {
  if (!config_.gpu || !root_ || ::unshare(CLONE_NEWPID) < 0) return {};
  const pid_t first = ::fork();
  if (first == 0) be_first();
  if (first < 0) return Status::system("cannot begin a PID namespace");
  shares_numbers_ = true;
  return {};
}

// Whether children can have numbers of their own: one tries, as far as the program.
void LauncherProcess::check_numbers() {
  if (!root_) return measures_.miss("pid", "it needs a root");
  std::string why = "a child with PID numbers of its own cannot be made";
  int status = 0;
  for (const bool own : {true, false}) {
    const pid_t pid = fork_child(own, false, nullptr);
    if (pid == 0) try_child(child_plan(own));
    const bool ended = pid > 0 && ::waitpid(pid, &status, 0) == pid;
    if (ended && status == 0) {
      own_numbers_ = own;
      return own ? measures_.add("pid") : measures_.miss("pid", why);
    }
    if (ended && WIFEXITED(status)) why = std::strerror(WEXITSTATUS(status));
  }
  measures_.miss("pid", why);
}

Status LauncherProcess::isolate() {
  if (config_.session_uid != 0 && config_.runner_uid != config_.session_uid) {
    measures_.add("users");
  } else if (config_.session_uid != 0) {
    measures_.miss("users", "'session.first_runner_uid' is 0");
  } else {
    measures_.miss("users", "vgpud does not run as root, or 'session.first_uid' is 0");
  }
  if (config_.mode == SandboxMode::kOff) {
    leave_host();
    empty_bounding_set();
  } else {
    const bool early = !has_capability(CAP_SYS_ADMIN);
    if (!early || enter_user_namespace(::geteuid() == 0 && config_.session_uid != 0)) {
      make_namespaces(early);
    } else {
      for (const char* name : {"net", "ipc", "root"}) measures_.miss(name, "without CAP_SYS_ADMIN it needs that");
    }
    leave_host();
    if (Status status = share_numbers(); !status.ok()) return status;
    empty_bounding_set();  // the children's too; what it has itself it keeps
    check_numbers();
    if (has_landlock()) {
      measures_.add("landlock");
    } else {
      measures_.miss("landlock", "not in this kernel");
    }
  }
  ::prctl(PR_SET_DUMPABLE, 0);
  if (config_.mode != SandboxMode::kRequired) return {};
  for (const std::string_view needed : {"users", "net", "ipc", "root", "pid"}) {
    if ((" " + measures_.has + " ").find(fmt::format(" {} ", needed)) != std::string::npos) continue;
    return Status::error(ENOTSUP, "'sandbox.mode' is \"required\", and this host lacks some of it: {}",
                         measures_.lacks);
  }
  return {};
}

ChildPlan LauncherProcess::child_plan(bool own_numbers) const {
  return {.config = config_, .root = root_, .own_numbers = own_numbers, .program = program_.get()};
}

// Of the session's, or of this process to be waited for here.
pid_t LauncherProcess::fork_child(bool own_numbers, bool for_session, int* pidfd) const {
  unsigned long flags = for_session ? CLONE_PARENT | CLONE_PIDFD : 0;
  if (root_) flags |= CLONE_NEWNS;
  if (own_numbers && !shares_numbers_) flags |= CLONE_NEWPID;
  return static_cast<pid_t>(::syscall(SYS_clone, flags | SIGCHLD, nullptr, pidfd, nullptr, nullptr));
}

void LauncherProcess::forget_ended() {
  std::erase_if(children_, [](const auto& child) {
    return ::syscall(SYS_pidfd_send_signal, child.second.get(), 0, nullptr, 0) < 0 && errno == ESRCH;
  });
}

void LauncherProcess::kill(pid_t pid) {
  const auto found = children_.find(pid);
  if (found != children_.end()) ::syscall(SYS_pidfd_send_signal, found->second.get(), SIGKILL, nullptr, 0);
}

// As the children see it.
LauncherReply LauncherProcess::number(pid_t pid) const {
  if (!children_.contains(pid)) return {ESRCH, 0};
  if (!shares_numbers_) return {0, pid};
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    const size_t last = line.find_last_of(" \t");
    return {0, static_cast<int32_t>(std::strtol(line.c_str() + last, nullptr, 10))};
  }
  return {ESRCH, 0};
}

LauncherReply LauncherProcess::launch(const LauncherRequest& request, std::vector<std::string> texts, int given) {
  ChildPlan plan = child_plan(own_numbers_);
  plan.task = static_cast<RunnerTask>(request.task);
  plan.gpu = std::move(texts[1]);
  plan.mps = std::move(texts[2]);
  plan.environment.assign(std::make_move_iterator(texts.begin() + kFixedTexts), std::make_move_iterator(texts.end()));
  plan.arguments = {"bandsaw-runner"};
  switch (plan.task) {
    case RunnerTask::kServe:
      break;
    case RunnerTask::kMakeSegment:
      plan.arguments.insert(plan.arguments.end(), {"--make-segment", texts[0]});
      break;
    case RunnerTask::kSensors:
      plan.arguments.insert(plan.arguments.end(), {"--sensors", texts[0]});
      break;
    case RunnerTask::kCheckpointer:  // is to see the runners
      plan.arguments.emplace_back("--checkpointer");
      plan.own_numbers = plan.own_numbers && shares_numbers_;
      break;
    default:
      return {EINVAL, 0};
  }
  int pidfd = -1;
  const pid_t pid = fork_child(plan.own_numbers, true, &pidfd);
  if (pid == 0) become_runner(plan, given, static_cast<int>(request.number));
  if (pid < 0) return {errno, 0};
  forget_ended();
  children_[pid].reset(pidfd);
  return {0, pid};
}

// False: nobody asks any more.
bool LauncherProcess::serve() {
  std::vector<UniqueFd> fds;
  const auto length = receive_packet(kSocket, buffer_, &fds);
  if (!length.ok()) return length.status().code() == EINTR || length.status().code() == EMSGSIZE;
  if (length.value() == 0) return false;
  LauncherRequest request;
  if (length.value() < sizeof request) return true;
  std::memcpy(&request, buffer_.data(), sizeof request);
  if (request.kind == LauncherRequest::kKill) {
    kill(request.pid);
    return true;
  }
  if (request.kind == LauncherRequest::kNumber) {
    const LauncherReply reply = number(request.pid);
    return send_packet(kSocket, std::as_bytes(std::span(&reply, 1)), {}, {}).ok();
  }
  auto texts =
      texts_of({reinterpret_cast<const char*>(buffer_.data()) + sizeof request, length.value() - sizeof request});
  LauncherReply reply{EINVAL, 0};
  const bool understood = request.kind == LauncherRequest::kLaunch && fds.size() == 1 && texts.size() >= kFixedTexts &&
                          request.number > 0 && request.number < kFirstFree;
  if (understood) reply = launch(request, std::move(texts), fds[0].get());
  return send_packet(kSocket, std::as_bytes(std::span(&reply, 1)), {}, {}).ok();
}

}  // namespace

void run_launcher(const LauncherConfig& config, int socket) {
  ::prctl(PR_SET_NAME, "bandsaw-launch");
  if (socket != kSocket && ::dup3(socket, kSocket, O_CLOEXEC) < 0) ::_exit(1);
  ::close_range(kSocket + 1, ~0u, 0);
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGINT, SIG_IGN);
  LauncherProcess(config).run();
  ::_exit(0);
}

}  // namespace bandsaw
