#include "backend/vgpud/sessions/log_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string_view>
#include <vector>

namespace bandsaw {
namespace {

constexpr int kPipe = 0, kLog = 3, kOldLog = 4, kFirstFree = 5, kAside = 64;
constexpr size_t kFileMax = 8 << 20;                       // of each of the two files
constexpr size_t kBurst = 1 << 20, kPerSecond = 32 << 10;  // bytes
constexpr timespec kPause{0, 2'000'000};                   // where much is left out, so that leaving it out is cheap
constexpr uid_t kNobody = 65534;

// Between fork and exec nothing may be allocated.
[[noreturn]] void become_writer(const char* program, int pipe, int log, int old) {
  if (::fork() != 0) ::_exit(0);
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Aside first: one may have the number that another shall get.
  pipe = ::fcntl(pipe, F_DUPFD, kAside), log = ::fcntl(log, F_DUPFD, kAside), old = ::fcntl(old, F_DUPFD, kAside);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  if (::dup2(pipe, kPipe) < 0 || ::dup2(log, kLog) < 0 || ::dup2(old, kOldLog) < 0) ::_exit(126);
  ::close_range(kFirstFree, ~0u, 0);
  ::execl(program, "vgpud-log", kWriteLog, nullptr);
  ::_exit(126);
}

class BoundedLog {
 public:
  BoundedLog() {
    struct stat found{};
    if (::fstat(kLog, &found) == 0) size_ = static_cast<size_t>(found.st_size);
  }

  // False: more came than may be written.
  bool take(std::string_view text) {
    const auto now = Clock::now();
    left_ = std::min<double>(kBurst, left_ + kPerSecond * std::chrono::duration<double>(now - last_).count());
    last_ = now;
    const std::string note = dropped_ == 0 ? ""
                                           : fmt::format("[{} bytes of the log were left out: more than {} a second]\n",
                                                         dropped_, kPerSecond);
    size_t fits = text.size();
    if (static_cast<double>(note.size() + fits) > left_) {  // whole lines only
      const auto most = static_cast<size_t>(std::max(0.0, left_ - static_cast<double>(note.size())));
      fits = most < kLeast ? 0 : text.substr(0, most).rfind('\n') + 1;
    }
    if (fits > 0) {
      left_ -= static_cast<double>(note.size() + fits);
      if (dropped_ > 0) write(note);
      dropped_ = 0;
      write(text.substr(0, fits));
    }
    dropped_ += text.size() - fits;
    return fits == text.size();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kLeast = 4096;  // what was left out is not said for less

  void write(std::string_view text) {
    if (size_ + text.size() > kFileMax) turn_over();
    size_ += text.size();
    if (::write(kLog, text.data(), text.size()) < 0) return;  // the disk is full: nothing is to be done
  }
  // What there is becomes the old log. By descriptors alone: this process may open no files.
  void turn_over() {
    if (::ftruncate(kOldLog, 0) != 0 || ::lseek(kOldLog, 0, SEEK_SET) != 0) return;
    off_t from = 0;
    while (::sendfile(kOldLog, kLog, &from, kFileMax) > 0) continue;
    if (::ftruncate(kLog, 0) == 0) size_ = 0;
  }

  double left_ = kBurst;
  Clock::time_point last_ = Clock::now();
  size_t size_ = 0, dropped_ = 0;
};

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
  const pid_t pid = ::fork();
  if (pid < 0) return Status::system("cannot fork a writer of logs");
  if (pid == 0) become_writer(program.c_str(), reads.get(), log.get(), old.get());
  ::waitpid(pid, nullptr, 0);
  return writes;
}

int run_log_writer() {
  ::prctl(PR_SET_NAME, "vgpud-log");
  ::signal(SIGPIPE, SIG_IGN);
  if (::geteuid() == 0 && (::setgroups(0, nullptr) < 0 || ::setresgid(kNobody, kNobody, kNobody) < 0 ||
                           ::setresuid(kNobody, kNobody, kNobody) < 0)) {
    return 1;
  }
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  BoundedLog log;
  std::vector<char> buffer(64 << 10);
  while (true) {
    const ssize_t length = ::read(kPipe, buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return 0;
    if (!log.take({buffer.data(), static_cast<size_t>(length)})) ::nanosleep(&kPause, nullptr);
  }
}

}  // namespace bandsaw
