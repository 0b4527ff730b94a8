#include "backend/vgpud/sessions/log_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "backend/control/log_writer_link.h"

namespace bandsaw {
namespace {

constexpr int kAside = 64;  // above every number that the program gets

class SpawnActions {
 public:
  SpawnActions() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  SpawnActions(const SpawnActions&) = delete;
  ~SpawnActions() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  posix_spawn_file_actions_t* actions() { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// The first process of the program, which ends at once, when the one that stays is there.
Status spawn_writer(const std::string& program, int pipe, int log, int old) {
  // Aside first: one may have the number that another shall get.
  const UniqueFd from[] = {UniqueFd(::fcntl(pipe, F_DUPFD_CLOEXEC, kAside)),
                           UniqueFd(::fcntl(log, F_DUPFD_CLOEXEC, kAside)),
                           UniqueFd(::fcntl(old, F_DUPFD_CLOEXEC, kAside))};
  const int to[] = {kLogWriterPipe, kLogWriterLog, kLogWriterOldLog};
  SpawnActions spawn;
  ::posix_spawn_file_actions_addopen(spawn.actions(), STDOUT_FILENO, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_adddup2(spawn.actions(), STDOUT_FILENO, STDERR_FILENO);
  for (size_t i = 0; i < std::size(from); ++i) {
    if (!from[i]) return Status::system("descriptors for the writer of a log");
    ::posix_spawn_file_actions_adddup2(spawn.actions(), from[i].get(), to[i]);
  }
  ::posix_spawn_file_actions_addclosefrom_np(spawn.actions(), *std::max_element(std::begin(to), std::end(to)) + 1);
  char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>(kLogWriterDetach), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), spawn.actions(), spawn.attributes(), arguments, environ);
  if (error != 0) return Status::error(error, "cannot start {}: {}", program, ::strerror(error));
  int how = 0;
  while (::waitpid(pid, &how, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return {};
  return Status::error(EIO, "{}, which writes the log of a session, does not start", program);
}

}  // namespace

Result<UniqueFd> start_log_writer(const std::string& program, const std::string& path) {
  constexpr int kFlags = O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  UniqueFd log(::open(path.c_str(), O_RDWR | O_APPEND | kFlags, 0640));
  if (!log) return Status::system("cannot open {}", path);
  if (program.empty()) return log;
  const UniqueFd old(::open((path + ".1").c_str(), O_WRONLY | kFlags, 0640));
  if (!old) return Status::system("cannot open {}.1", path);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  const UniqueFd reads(ends[0]);
  UniqueFd writes(ends[1]);
  if (Status status = spawn_writer(program, reads.get(), log.get(), old.get()); !status.ok()) return status;
  return writes;
}

}  // namespace bandsaw
