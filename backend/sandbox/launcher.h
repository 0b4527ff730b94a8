// The launcher: who starts the processes of a virtual GPU's runners, in a root and namespaces of their own and as a
// user that is not the session's.
//
// It is a process of its own, a child of the session that is forked before that gives up its privileges, because a
// session may do nothing of this any more. It reads small messages of the session's, and nothing that a guest has
// written. What it starts are children of the *session* (CLONE_PARENT), which reaps them; they end with it. It makes
// the root once, and has no privileges on the host from then on where it can have a user namespace: in that there are
// the session's user and the runners' and no others. It ends with the session.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

enum class SandboxMode { kAuto, kRequired, kOff };
// "auto", "required", "off". EINVAL: none of them.
Result<SandboxMode> parse_sandbox_mode(const std::string& text);

// What holds of namespaces and the like, and why the rest does not; words with a space between, and sentences.
struct Measures {
  std::string has;
  std::string lacks;
  void add(const char* name) { has += (has.empty() ? "" : " ") + std::string(name); }
  void miss(const char* name, const std::string& why) {
    lacks += (lacks.empty() ? "" : "; ") + std::string(name) + ": " + why;
  }
};

struct LauncherConfig {
  SandboxMode mode = SandboxMode::kAuto;
  uid_t session_uid = 0, runner_uid = 0;   // users and groups, when started as root; 0: stay
  std::string program{};                   // the runner's
  std::string state{};                     // of compiled code, on disk; with NVIDIA's driver runners write there
  std::string staging{};                   // a folder that is there, and that nobody needs in a root
  std::string mps{};                       // folder of the MPS daemons' folders; empty: none
  bool gpu = false;                        // runners use NVIDIA's driver
  bool peers = false;                      // they may open all GPUs' device files
  bool runners_record = false;             // what kernels do, in `state`, for which they may write there too
  std::vector<std::string> environment{};  // of runners: where libraries are

  bool runners_write() const { return gpu || runners_record; }
  // Runners see no files, processes and ioctls but those that they need.
  bool closes_host() const { return mode != SandboxMode::kOff; }
};

// Which of the program's tasks; all but the first are done in a moment, or wait for orders.
enum class RunnerTask : uint32_t { kServe, kMakeSegment, kSensors, kCheckpointer };

struct Launch {
  RunnerTask task = RunnerTask::kServe;
  std::string argument{};                       // of kMakeSegment and kSensors
  std::string gpu{};                            // whose device files it may open, without peers; empty: all GPUs'
  std::string mps{};                            // the folder of the daemon whose client it becomes; empty: of none
  const std::vector<std::string>& environment;  // NAME=value
};

class Launcher {
 public:
  // Call with one thread, before this process becomes another user. With kRequired an error where runners would lack a
  // namespace, a root or a user of their own.
  static Result<std::unique_ptr<Launcher>> start(const LauncherConfig& config);
  ~Launcher();
  Launcher(const Launcher&) = delete;

  // A child that has stderr, `given` as descriptor `number` (1 or more), and nothing else of this process's. Exit
  // status 126: the program could not be executed; 125: its sandbox could not be made. Returns its pid; the caller
  // reaps it.
  Result<pid_t> launch(const Launch& what, int given, int number);
  // One that it has launched: this process may not, because it is another user's.
  void kill(pid_t pid);
  // By which number the checkpointer knows one that it has launched. ESRCH: it has ended.
  Result<pid_t> number_for_checkpointer(pid_t pid);

  const Measures& measures() const { return measures_; }
  // Readable once it has ended.
  int socket() const { return socket_.get(); }

 private:
  Launcher(UniqueFd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  Result<pid_t> receive_pid();

  UniqueFd socket_;
  pid_t pid_;
  Measures measures_;
};

}  // namespace bandsaw
